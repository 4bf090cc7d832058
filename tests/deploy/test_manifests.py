"""Compose file, Kubernetes manifests and systemd unit: schemas, the options that they give, and what they refer to."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from dgcf.serve.events.address import parse
from dgcf.serve.server.routes import OPEN, ROUTES
from dgcf.serve.server.sharing import FILE_VARIABLE as EVENTS_FILE
from dgcf.serve.server.tokens import FILE_VARIABLE as TOKENS_FILE
from tests.deploy.files import DEPLOY, MANIFESTS, instruction, manifest, output_of, program, read_yaml

KUBERNETES = ("1.30", "1.34")
COMPOSE = read_yaml("compose.yaml")


def check_options(words: list[str], tmp_path: Path) -> None:
    """Run ``dgcf`` with these words but a model that is absent: every option is known and its value can be read."""
    assert words[0] == "serve"
    words = ["serve", str(tmp_path / "absent"), *words[2:]]
    done = subprocess.run(
        [sys.executable, "-m", "dgcf", *words], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert "there is no model" in done.stderr, done.stderr


# -- compose ----------------------------------------------------------------------------------------------------------


def test_compose_file_follows_the_schema_of_compose() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    output_of(checker, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_service_of_compose_is_confined(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", service["image"]), "a tag with a version"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert "healthcheck" in service or instruction("HEALTHCHECK")


def test_compose_refers_to_what_there_is() -> None:
    used: set[str] = set()
    for service in COMPOSE["services"].values():
        secrets = set(service["secrets"])
        used |= secrets
        text = str(service.get("environment", {}))
        assert set(re.findall(r"/run/secrets/(\w+)", text)) <= secrets
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for volume in service["volumes"]:
            source = volume.split(":")[0] if "${" not in volume else "./"
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_dir(), volume
    assert used == set(COMPOSE["secrets"])
    build = COMPOSE["services"]["dgcf"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_options_in_compose_and_dockerfile_are_known(tmp_path: Path) -> None:
    check_options(COMPOSE["services"]["dgcf"]["command"], tmp_path)
    check_options(instruction("CMD"), tmp_path)


def test_compose_can_be_read_by_docker() -> None:
    docker = program("docker")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the plugin compose of docker")
    output_of(docker, "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet")


def test_secrets_are_made_once_and_fit_each_other(tmp_path: Path) -> None:
    script = tmp_path / "secrets.sh"
    script.write_bytes((DEPLOY / "secrets.sh").read_bytes())
    output_of("sh", script)
    files = {path.name: path for path in (tmp_path / "secrets").iterdir()}
    assert set(files) == set(COMPOSE["secrets"])
    made = {name: path.read_text() for name, path in files.items()}
    assert all(path.stat().st_mode & 0o777 == 0o400 for path in files.values())
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    tokens = dict(line.split() for line in made["tokens"].splitlines())
    assert list(tokens) == ["read", "write", "admin"]
    assert tokens["read"] == made["read_token"].strip()
    assert len(set(tokens.values())) == 3
    assert made["events_url"] == f"postgresql://dgcf:{made['postgres_password'].strip()}@postgres:5432/dgcf\n"
    assert parse(made["events_url"].strip()).parameters["host"] in COMPOSE["services"]
    output_of("sh", script)
    assert {name: path.read_text() for name, path in files.items()} == made


def test_variables_are_those_that_the_service_reads() -> None:
    known = {EVENTS_FILE, TOKENS_FILE}
    assert set(COMPOSE["services"]["dgcf"]["environment"]) == known
    assert {entry["name"] for entry in container()["env"]} == known
    assert parse(manifest("secret.example")["stringData"]["events_url"]).is_private


# -- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_follows_the_schema_of_kubernetes(path: Path, version: str) -> None:
    kubernetes_validate.validate(read_yaml("kubernetes", path.name), version, strict=True)


def test_schema_refuses_a_wrong_field() -> None:
    deployment = manifest("deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)


def test_kustomization_has_every_manifest_but_the_example() -> None:
    listed = set(manifest("kustomization")["resources"])
    assert listed == {path.name for path in MANIFESTS} - {"secret.example.yaml"}
    made = output_of(program("kubectl"), "kustomize", DEPLOY / "kubernetes")
    kinds = sorted(re.findall(r"^kind: (\w+)", made, re.MULTILINE))
    assert kinds == sorted(manifest(Path(name).stem)["kind"] for name in listed)
    assert re.search(r"image: dgcf:\d", made)


def container() -> Any:
    return manifest("deployment")["spec"]["template"]["spec"]["containers"][0]


def test_deployment_refers_to_what_there_is(tmp_path: Path) -> None:
    pod = manifest("deployment")["spec"]["template"]
    spec, one = pod["spec"], container()
    labels = pod["metadata"]["labels"]
    for selector in (
        manifest("deployment")["spec"]["selector"]["matchLabels"],
        manifest("service")["spec"]["selector"],
        manifest("poddisruptionbudget")["spec"]["selector"]["matchLabels"],
        manifest("networkpolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    target = manifest("horizontalpodautoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", manifest("deployment")["metadata"]["name"])
    assert {mount["name"] for mount in one["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume
    ]
    assert claims == [manifest(name)["metadata"]["name"] for name in ("models", "shared")]
    secret = manifest("secret.example")
    (mounted,) = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
    keys = {item["key"] for item in mounted["items"]}
    (place,) = [mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] == "secrets"]
    assert {entry["value"] for entry in one["env"]} == {f"{place}/{item['path']}" for item in mounted["items"]}
    assert keys == set(secret["stringData"])
    assert spec["serviceAccountName"] == manifest("serviceaccount")["metadata"]["name"]
    check_options(one["args"], tmp_path)


def test_pod_is_confined_as_the_namespace_demands() -> None:
    """The profile ``restricted`` of the pod security standards, and a root file system that is read-only."""
    spec, one = manifest("deployment")["spec"]["template"]["spec"], container()
    assert manifest("namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = int(re.search(r"^USER (\d+):\d+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[1])  # type: ignore[index]
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == user
    assert one["resources"].keys() == {"requests", "limits"}


def test_probes_are_open_routes() -> None:
    paths = {container()[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    health = " ".join(instruction("HEALTHCHECK"))
    paths |= set(re.findall(r"127\.0\.0\.1:8000(/\w+)", health))
    assert paths == {"/readyz", "/healthz"}
    assert all(ROUTES[path] == OPEN for path in paths)


def test_secrets_are_examples_only() -> None:
    """No file of deploy/ has a token or a password: random hexadecimal text of 32 or more digits."""
    paths = [path for path in DEPLOY.rglob("*") if path.is_file() and "secrets" not in path.parts]
    for path in paths:
        if not path.name.endswith(".lock"):
            assert re.findall(r"\b[0-9a-f]{32,}\b", path.read_text()) == [], path
    values = manifest("secret.example")["stringData"]
    assert all("REPLACE" in value for value in values.values())


# -- systemd ----------------------------------------------------------------------------------------------------------

UNIT = DEPLOY / "dgcf.service"


def test_unit_is_valid(tmp_path: Path) -> None:
    copy = tmp_path / "dgcf.service"
    text = UNIT.read_text()
    command = str(Path(sys.executable).with_name("dgcf"))
    assert text.count("/opt/dgcf/bin/dgcf") == 1
    copy.write_text(text.replace("/opt/dgcf/bin/dgcf", command))
    analyze = program("systemd-analyze")
    assert output_of(analyze, "verify", "--man=no", copy) == ""
    copy.write_text(copy.read_text() + "\n[Service]\nProtectEverything=yes\n")
    assert "ProtectEverything" in output_of(analyze, "verify", "--man=no", copy)


def test_unit_exposes_little() -> None:
    """The measure of systemd itself: from 0 for nothing to 10 for everything."""
    done = output_of(program("systemd-analyze"), "security", "--offline=true", "--threshold=20", UNIT)
    level = re.search(r"Overall exposure level for dgcf.service: (\d\.\d)", done)
    assert level is not None, done
    assert float(level[1]) <= 2.0


def test_options_of_the_unit_are_known(tmp_path: Path) -> None:
    text = UNIT.read_text()
    environment = dict(
        word.split("=", 1) for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE) for word in line.split()
    )
    tokens = tmp_path / "tokens"
    tokens.write_text("admin admin-0123456789abcdef\n")
    tokens.chmod(0o400)
    environment["CREDENTIALS_DIRECTORY"] = str(tmp_path)
    (line,) = re.findall(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)
    words = [re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word) for word in shlex.split(line)]
    data = words.index("--data")
    words[data + 1] = str(tmp_path / os.path.basename(words[data + 1]))  # noqa: PTH119
    check_options(words, tmp_path)
