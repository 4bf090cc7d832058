"""A service with several arms, as processes: results against counts by hand, restarts, forgetting, metrics."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from scipy.stats import binomtest

from dgcf.client import Client
from dgcf.recommend import Recommender, load
from dgcf.serve.experiments.shadow import overlap
from dgcf.serve.experiments.statistics import difference
from tests import postgres
from tests.serve.models import small_model
from tests.serve.service import ADMIN, READ, Service, bearer, tokens_file, wait_for
from tests.serve.stores import new_schema

WEIGHTS = {"main": 0.6, "b": 0.4}
KINDS = ("view", "like", "purchase", "hide", "dislike")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("other") / "b.dgcf", seed=1)


@pytest.fixture(scope="module")
def shade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("shade") / "c.dgcf", seed=2, epochs=3)


def options(folder: Path, other: Path, *more: str) -> list[str]:
    tokens = tokens_file(folder, "read", "write", "admin")
    split = ["--arm", f"b={other}", "--split", "main=0.6,b=0.4", "--experiment", "spring"]
    return [*split, "--workers", "2", "--tokens", str(tokens), *more]


class Oracle:
    """What was done with a service, counted by hand."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.arms: dict[str, str] = {}
        self.events: dict[str, list[str]] = defaultdict(list)  # kinds of the events after the first list

    def expose(self, user: str) -> dict[str, Any]:
        """Get the list of a user on a connection of its own, so that workers take turns."""
        answer: dict[str, Any] = self.service.get(f"/v1/recommend/{user}?k=5", token=READ).json()
        assert self.arms.setdefault(user, answer["arm"]) == answer["arm"]
        return answer

    def act(self, client: Client, user: str, item: str, kind: Any) -> None:
        client.send_event(user, item, kind)
        if user in self.arms:
            self.events[user].append(kind)

    def counts(self, arm: str, kinds: tuple[str, ...]) -> tuple[int, int, int]:
        users = [user for user, own in self.arms.items() if own == arm]
        events = [sum(kind in kinds for kind in self.events[user]) for user in users]
        return len(users), sum(count > 0 for count in events), sum(events)


def check(client: Client, oracle: Oracle, kinds: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Hold the results of the service against the counts, and return them."""
    positive = kinds or ("view", "like", "purchase")
    expected = {arm: oracle.counts(arm, positive) for arm in WEIGHTS}

    def counted() -> bool:
        arms = client.experiments(kinds=kinds)["arms"]  # type: ignore[arg-type]
        return {row["arm"]: (row["users"], row["conversions"], row["events"]) for row in arms} == expected

    wait_for(counted, 5)
    results: dict[str, Any] = client.experiments(kinds=kinds)  # type: ignore[arg-type,assignment]
    assert results["experiment"] == "spring"
    for row in results["arms"]:
        users, conversions, events = expected[row["arm"]]
        wilson = binomtest(conversions, users).proportion_ci(method="wilson")
        numbers = (conversions / users, wilson.low, wilson.high, events / users, WEIGHTS[row["arm"]])
        fields = ("rate", "low", "high", "events_per_user", "weight")
        np.testing.assert_allclose([row[field] for field in fields], numbers, atol=1e-6)
    (comparison,) = results["comparison"]
    gap = difference(expected["b"][1], expected["b"][0], expected["main"][1], expected["main"][0])
    assert (comparison["arm"], comparison["against"]) == ("b", "main")
    np.testing.assert_allclose([comparison[field] for field in ("difference", "low", "high")], gap, atol=1e-6)
    assert comparison["significant"] == (gap.low > 0 or gap.high < 0)
    return results


def test_results_are_the_counts_of_what_users_did_also_after_restarts(
    model_file: Path, other: Path, tmp_path: Path
) -> None:
    words = options(tmp_path, other)
    with Service(model_file, tmp_path / "data", *words) as service, service.client(ADMIN) as client:
        oracle = Oracle(service)
        oracle.expose("u00000")
        wait_for(lambda: client.experiments()["since"] is not None, 5)
        for user in [f"u{number:05d}" for number in range(1, 100)] + [f"new {number}" for number in range(60)]:
            oracle.expose(user)
        _act(oracle, client)
        results = check(client, oracle)
        assert check(client, oracle, ("purchase",))["arms"] != results["arms"]
        assert {line["worker"] for line in service.log() if line["event"] == "request"} == {0, 1}
        versions = {row["arm"]: row["version"] for row in results["arms"]}
        assert len(set(versions.values())) == 2
        _check_metrics(service, oracle)
        os.kill(service.workers()[0], signal.SIGKILL)
        for user in list(oracle.arms)[:40]:
            answer = oracle.expose(user)
            assert answer["model"] == versions[answer["arm"]]
        check(client, oracle)
    with Service(model_file, tmp_path / "data", *words) as service, service.client(ADMIN) as client:
        oracle.service = service
        check(client, oracle)
        for user in oracle.arms:
            oracle.expose(user)  # asserts that the arm is the same
        assert check(client, oracle)["since"] == results["since"]
        for user in list(oracle.arms)[::7]:
            client.forget_user(user)
            del oracle.arms[user]
        check(client, oracle)
        for user in list(oracle.arms)[:5]:
            lists = client.recommend_users(["u00001", "u00002", user], k=3)["users"]
            assert [row["arm"] for row in lists] == [oracle.arms[row["user"]] for row in lists]  # type: ignore[index]


def _act(oracle: Oracle, client: Client) -> None:
    rng = np.random.default_rng(7)
    users = [*oracle.arms, "not exposed", "nor this one"]
    for _ in range(250):
        user = users[rng.integers(len(users))]
        oracle.act(client, user, f"i{rng.integers(160):05d}", KINDS[rng.integers(len(KINDS))])


def _check_metrics(service: Service, oracle: Oracle) -> None:
    text = service.get("/metrics", token=READ).text
    values = {
        (sample.name, sample.labels["arm"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "arm" in sample.labels
    }
    for arm in WEIGHTS:
        assert values["dgcf_arm_exposures_total", arm] == oracle.counts(arm, ())[0]
        assert values["dgcf_arm_requests_total", arm] == oracle.counts(arm, ())[0]


def test_a_shadow_is_compared_and_never_shown(model_file: Path, shade: Path, tmp_path: Path) -> None:
    tokens = tokens_file(tmp_path, "admin", "write", "read")
    words = ["--shadow", f"c={shade}", "--shadow-share", "1", "--tokens", str(tokens), "--workers", "2"]
    served, other = load(model_file), load(shade)
    users = [f"u{number:05d}" for number in range(60)]
    with Service(model_file, tmp_path / "data", *words) as service, service.client(ADMIN) as client:
        for user in users:
            answer = service.get(f"/v1/recommend/{user}?k=8", token=READ).json()
            assert answer["arm"] == "main"
            assert [row["item"] for row in answer["recommendations"]] == _items(served, user)
        wait_for(lambda: client.experiments()["shadow"][0]["answers"] == len(users), 10)
        results = client.experiments()
    expected = np.mean([overlap(_items(served, user), _items(other, user)) for user in users])
    (shadow,) = results["shadow"]
    assert (results["experiment"], results["comparison"], shadow["dropped"]) == (None, [], 0)
    assert shadow["overlap"] == pytest.approx(expected, abs=1e-5)
    assert 0 < expected < 1


def _items(rec: Recommender, user: str) -> list[Any]:
    return [row["item"] for row in rec.recommend(user, 8)]


def test_two_servers_assign_the_same_arms(model_file: Path, other: Path, tmp_path: Path) -> None:
    users = [f"u{number:05d}" for number in range(30)]
    words = options(tmp_path, other)
    with Service(model_file, tmp_path / "one", *words) as one, Service(model_file, tmp_path / "two", *words) as two:
        arms = [[_arm(service, user) for user in users] for service in (one, two)]
    assert arms[0] == arms[1]
    assert set(arms[0]) == set(WEIGHTS)


def test_servers_that_share_a_database_count_each_user_once(
    model_file: Path, other: Path, tmp_path: Path, database: postgres.Server
) -> None:
    words, shared = options(tmp_path, other), {"DGCF_EVENTS_URL": new_schema(database.dsn)}
    with (
        Service(model_file, tmp_path / "one", *words, environment=shared) as one,
        Service(model_file, tmp_path / "two", *words, environment=shared) as two,
        one.client(ADMIN) as client,
        two.client(ADMIN) as another,
    ):
        oracle = Oracle(one)
        for oracle.service in (one, two, one):
            for number in range(50):
                oracle.expose(f"u{number:05d}")
        _act(oracle, client)
        results = check(client, oracle)
        assert check(another, oracle) == results
        for user in list(oracle.arms)[:5]:
            another.forget_user(user)
            del oracle.arms[user]
        check(client, oracle)


def _arm(service: Service, user: str) -> str:
    return str(service.get(f"/v1/recommend/{user}", token=READ).json()["arm"])


def test_results_need_the_scope_of_an_administrator(model_file: Path, other: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", *options(tmp_path, other)) as service:
        assert service.get("/v1/experiments", token=READ).status_code == 403
        assert httpx.get(service.url + "/v1/experiments", headers=bearer(ADMIN)).json()["since"] is None
        assert service.get("/v1/model?arm=x", token=READ).status_code == 422
        assert service.get("/v1/model?arm=b", token=READ).json()["seed"] == 1
