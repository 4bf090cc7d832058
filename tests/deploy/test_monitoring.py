"""Prometheus and Grafana: their files are valid, and ask for metrics that a running service has."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.files import DEPLOY, output_of, program, read_yaml
from tests.serve.service import ADMIN, READ, WRITE, Service, tokens_file, wait_for

PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "dgcf.json").read_text())
ALERTS = [rule for group in read_yaml("prometheus", "alerts.yml")["groups"] for rule in group["rules"]]
METRIC = re.compile(r"\bdgcf_\w+")


def targets() -> dict[str, str]:
    """Return the queries of the dashboard by the title of the panel, with values for Grafana's variables."""
    queries = {
        f"{panel['title']}: {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    queries["annotation"] = DASHBOARD["annotations"]["list"][0]["expr"]
    return {
        title: query.replace("$instance", ".*").replace("$__rate_interval", "10s") for title, query in queries.items()
    }


def use(service: Service) -> None:
    """Send requests of each kind that the dashboard shows."""
    for number in range(5):
        service.get(f"/v1/recommend/u{number:05d}", token=READ)
        service.get(f"/v1/similar/items/i{number:05d}", token=READ)
    event = {"user": "anna", "item": "i00001", "key": "once"}
    for _ in range(2):
        service.request("POST", "/v1/events", json=event, token=WRITE)


@pytest.fixture(scope="module")
def running(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    words = ["--tokens", str(tokens_file(folder, "read", "write", "admin")), "--arm", f"b={model_file}"]
    words += ["--experiment", "colours", "--shadow", f"s={model_file}", "--shadow-share", "1"]
    with Service(model_file, folder / "data", *words) as service:
        refresh(service)
        yield service


def refresh(service: Service) -> None:
    """Carry out a refresh without events, which publishes nothing."""
    assert service.request("POST", "/v1/admin/refresh", token=ADMIN).status_code == 202
    wait_for(lambda: service.get("/v1/admin/refresh", token=ADMIN).json()["state"] == "idle")


# -- files ------------------------------------------------------------------------------------------------------------


def config_of(folder: Path, target: str, interval: str) -> Path:
    """Write the configuration of ``deploy/`` with another target and a token of the tests."""
    config = read_yaml("prometheus", "prometheus.yml")
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [target]}]
    job["authorization"]["credentials_file"] = str(folder / "read_token")
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    (folder / "read_token").write_text(READ)
    (folder / "alerts.yml").write_bytes((PROMETHEUS / "alerts.yml").read_bytes())
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    promtool = program("promtool")
    text = (PROMETHEUS / "prometheus.yml").read_text()
    (tmp_path / "read_token").write_text(READ)
    for name in ("prometheus.yml", "alerts.yml"):
        (tmp_path / name).write_bytes((PROMETHEUS / name).read_bytes())
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/read_token", str(tmp_path / "read_token")))
    assert "SUCCESS" in output_of(promtool, "check", "config", tmp_path / "prometheus.yml")


def test_each_alert_fires_when_it_should_and_not_otherwise() -> None:
    """alerts.test.yml has the series; every alert is in its list of what fires."""
    text = (PROMETHEUS / "alerts.test.yml").read_text()
    assert all(f'alertname="{rule["alert"]}"' in text for rule in ALERTS)
    assert "SUCCESS" in output_of(program("promtool"), "test", "rules", PROMETHEUS / "alerts.test.yml")


def test_promtool_can_read_every_query(tmp_path: Path) -> None:
    queries = targets()
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries.values())]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in output_of(program("promtool"), "check", "rules", path)


def test_dashboard_is_well_formed() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    (source,) = read_yaml("grafana", "provisioning", "datasources", "prometheus.yml")["datasources"]
    for panel in panels:
        assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {source["uid"]}
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        rows, columns = range(place["y"], place["y"] + place["h"]), range(place["x"], place["x"] + place["w"])
        own = {(y, x) for y in rows for x in columns}
        assert max(columns) < 24
        assert not own & cells, f"{panel['title']} covers another panel"
        cells |= own


def test_grafana_is_given_the_folders_of_compose() -> None:
    volumes = read_yaml("compose.yaml")["services"]["grafana"]["volumes"]
    (provider,) = read_yaml("grafana", "provisioning", "dashboards", "dgcf.yml")["providers"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in volumes
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in volumes
    (source,) = read_yaml("grafana", "provisioning", "datasources", "prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"


# -- with a running service -------------------------------------------------------------------------------------------


def test_dashboard_and_alerts_use_metrics_that_a_service_has(running: Service) -> None:
    use(running)
    families = text_string_to_metric_families(running.get("/metrics", token=READ).text)
    exposed = {sample.name for family in families for sample in family.samples}
    used = {name for query in targets().values() for name in METRIC.findall(query)}
    alerted = {name for rule in ALERTS for name in METRIC.findall(rule["expr"])}
    assert used <= exposed
    assert alerted <= exposed
    shown_nowhere = exposed - used - {"dgcf_request_seconds_created"}
    assert shown_nowhere == set(), "a metric that the dashboard does not show"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.mark.slow
def test_prometheus_answers_every_query_of_the_dashboard(running: Service, tmp_path: Path) -> None:
    """A Prometheus with the configuration of deploy/ scrapes the service, and answers what Grafana asks it."""
    port = free_port()
    config = config_of(tmp_path, running.url.removeprefix("http://"), "1s")
    command = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as http:
            check_prometheus(http, running)
    finally:
        process.terminate()
        process.wait(30)


def check_prometheus(http: httpx.Client, service: Service) -> None:
    def result(query: str) -> list[Any]:
        answer = http.get("/api/v1/query", params={"query": query}).json()
        assert answer["status"] == "success", (query, answer)
        return list(answer["data"]["result"])

    def scraped() -> bool:
        use(service)
        try:
            return any(float(row["value"][1]) >= 5 for row in result('sum_over_time(up{job="dgcf"}[1m])'))
        except httpx.TransportError:
            return False

    wait_for(scraped, 60)
    empty = [title for title, query in targets().items() if not result(query)]
    assert empty == ["annotation"], "there is no new model, and everything else has a value"
    values = {title: result(query) for title, query in targets().items()}
    assert float(values["Workers ready: A"][0]["value"][1]) == 1.0
    latency = float(values["Latency of lists and explanations: C"][0]["value"][1])
    assert 0 < latency < 10
    assert not math.isnan(latency)
    groups = http.get("/api/v1/rules").json()["data"]["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(rules) == {rule["alert"] for rule in ALERTS}
    wait_for(lambda: all(rule["health"] != "unknown" for rule in _rules(http)), 30)
    assert {rule["name"]: rule.get("lastError") for rule in _rules(http) if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in _rules(http) if rule["state"] == "firing"] == []


def _rules(http: httpx.Client) -> list[Any]:
    groups = http.get("/api/v1/rules").json()["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]
