"""Refreshes in real services: what they learn, what they refuse, their bounds, their schedule."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event as Flag

import httpx
import numpy as np
import pytest

from tests.serve.refreshing import (
    DAY,
    FIRST,
    Likes,
    earlier_and_later,
    earlier_model,
    ended,
    following,
    lists,
    noise,
    post,
    refresh,
    refresh_processes,
    versions,
)
from tests.serve.service import ADMIN, Service, bearer, tokens_file, wait_for

USERS = ("u00000", "u00011", "u00042")
pytestmark = pytest.mark.slow
LEASE = 8.0


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Likes, Likes]:
    """A model of half of the likes; the other likes; random pairs that are none."""
    dataset, later = earlier_and_later()
    path = earlier_model(tmp_path_factory.mktemp("earlier") / "films.dgcf", dataset)
    liked = set(later)
    return path, later, [pair for pair in noise(dataset, 12_000) if pair not in liked]


def service_of(model: Path, folder: Path, *words: str) -> Service:
    folder.mkdir(exist_ok=True)
    return Service(model, folder / "data", "--tokens", str(tokens_file(folder, "admin")), *words)


def test_refresh_learns_what_is_new_and_nothing_twice(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, _ = earlier
    with service_of(model, tmp_path, "--workers", "2") as service:
        assert refresh(service)["result"] == "unchanged"
        post(service, later[:800])
        before = lists(service, USERS)
        last = refresh(service)
        assert (last["result"], last["version"]) == ("published", 2), last
        assert "on the newest 160 new pairs" in last["detail"]
        following(service, 2)
        newest, first = service.get("/v1/models", token=ADMIN).json()["models"]
        assert (newest["origin"], newest["serving"], first["serving"]) == ("refresh", True, False)
        assert newest["card"]["data"]["pairs"] == first["card"]["data"]["pairs"] + 800
        assert newest["card"]["refresh"]["new_pairs"] == 800
        assert newest["card"]["refresh"]["check"]["candidate"] > 0
        assert service.get("/v1/model", token=ADMIN).json()["card"] == newest["card"]
        assert refresh(service)["result"] == "unchanged"  # all events are learned
        post(service, later[:100], FIRST + DAY)  # the same pairs again
        assert refresh(service)["detail"] == "no new pair in 100 events."
        post(service, later[800:1200], FIRST + DAY)
        assert refresh(service)["version"] == 3  # from the model of the refresh before
        card = service.get("/v1/models", token=ADMIN).json()["models"][0]["card"]
        assert card["updated_from"]["weights"] == newest["sha256"]
        assert card["data"]["pairs"] == newest["card"]["data"]["pairs"] + 400
        with service.client(ADMIN) as client:
            assert client.rollback(1)["version"] == 4
            following(service, 4)
            assert service.get("/v1/admin/refresh", token=ADMIN).json()["last"]["version"] == 3
            assert [row["origin"] for row in client.models()["models"]] == ["rollback", "refresh", "refresh", "start"]
        # The events have stayed, so the lists are those of the first model with all events of later.
        after = lists(service, USERS)
        text = service.get("/metrics", token=ADMIN).text
        assert 'dgcf_refreshes_total{result="published"} 2.0' in text
        assert 'dgcf_refreshes_total{result="unchanged"} 3.0' in text
        assert "dgcf_refresh_seconds " in text
        assert "dgcf_model_age_seconds " in text
    with service_of(model, tmp_path / "anew") as other:
        post(other, later[:800])
        assert lists(other, USERS) == before
        post(other, later[800:1200], FIRST + DAY)
        assert lists(other, USERS) == after  # to the bit


def test_forgotten_users_leave_the_model_and_hidden_items_stay_hidden(
    earlier: tuple[Path, Likes, Likes], tmp_path: Path
) -> None:
    from dgcf.ids import user_digest
    from dgcf.recommend import artifact

    model, later, _ = earlier
    gone, back = USERS[0], USERS[1]
    with service_of(model, tmp_path) as service, service.client(ADMIN) as client:
        post(service, later[:400])
        hidden = client.recommend(USERS[2], k=1)["recommendations"][0]["item"]
        client.put_item(hidden, hidden=True)
        for user in (gone, back):
            client.forget_user(user)
        client.send_events(
            [{"user": back, "item": item, "time": FIRST + n} for n, item in enumerate(("i00001", "i00002"))]
        )
        assert refresh(service)["version"] == 2
        following(service, 2)
        (newest,) = [row for row in client.models()["models"] if row["serving"]]
        snapshot = artifact.load(tmp_path / "data" / "models" / f"{newest['sha256']}.dgcf")
        assert gone not in snapshot.users
        assert back not in snapshot.users
        assert {entry["digest"] for entry in snapshot.about["forgotten"]} == {
            user_digest(user) for user in (gone, back)
        }
        assert not client.recommend(gone)["known"]
        assert client.recommend(back)["source"] == "events"
        for user in USERS:
            assert hidden not in [row["item"] for row in client.recommend(user, k=159)["recommendations"]]
        assert not list((tmp_path / "data").glob("refresh-*"))


def test_refresh_that_ranks_worse_is_refused(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, random = earlier
    with service_of(model, tmp_path, "--refresh-margin", "0") as service:
        post(service, random[:8000] + later)  # most of the new pairs are noise; the newest ones are real likes
        before = lists(service, USERS)
        last = refresh(service)
        assert last["result"] == "refused", last
        assert last["version"] is None
        assert last["detail"].startswith("the update ranks worse: on the newest ")
        assert versions(service) == [1]
        assert lists(service, USERS) == before
        ended_line = service.logged("refresh ended")[0]
        assert (ended_line["result"], ended_line["detail"]) == ("refused", last["detail"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--refresh-memory", "100MB"), "the refresh needs more than the 0.1 GB of memory that it may use"),
        (("--refresh-memory", "200MB"), "the refresh needs more than the 0.2 GB of memory that it may use"),
        (("--refresh-timeout", "1s"), "the refresh took longer than 1 s, which is its limit; raise --refresh-timeout."),
    ],
)
def test_bounds_of_memory_and_time_are_kept(
    earlier: tuple[Path, Likes, Likes], tmp_path: Path, words: tuple[str, str], sentence: str
) -> None:
    model, later, _ = earlier
    with service_of(model, tmp_path, *words) as service:
        post(service, later[:400])
        before = lists(service, USERS)
        last = refresh(service)
        assert last["result"] == "refused", last
        assert last["detail"].startswith(sentence)
        assert last["detail"].endswith("The served model stays.")
        assert lists(service, USERS) == before
        assert versions(service) == [1]
        assert refresh_processes(service) == []


def test_no_request_fails_while_models_are_swapped(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, _ = earlier
    stop = Flag()

    def ask(number: int) -> list[tuple[int, int]]:
        answers = []
        with httpx.Client(timeout=30, trust_env=False, headers=bearer(ADMIN)) as http:
            while not stop.is_set():
                reply = http.get(f"{service.url}/v1/recommend/u{number:05d}?k=20")
                answers.append((reply.status_code, reply.json().get("model", 0)))
                time.sleep(0.002)
        return answers

    with service_of(model, tmp_path, "--workers", "2") as service, ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask, number) for number in range(4)]
        for day in range(3):
            post(service, later[day * 300 : day * 300 + 300], FIRST + day * DAY)
            assert refresh(service)["result"] == "published"
            following(service, day + 2)
        assert service.request("POST", "/v1/admin/rollback", token=ADMIN).json()["version"] == 5
        following(service, 5)
        stop.set()
        answers = [answer for thread in asking for answer in thread.result()]
    assert len(answers) > 500
    assert {status for status, _ in answers} == {200}
    assert {version for _, version in answers} == {1, 2, 3, 4, 5}


def test_schedule_over_services_and_restarts(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, _ = earlier
    words = ("--refresh-every", "20s", "--workers", "2")
    with ExitStack() as stack:
        services = [stack.enter_context(service_of(model, tmp_path, *words)) for _ in range(2)]
        first = services[0]
        state = first.get("/v1/admin/refresh", token=ADMIN).json()
        assert state["every"] == 20
        assert state["next"] is not None
        post(first, later[:300])
        wait_for(lambda: versions(first) == versions(services[1]) == [2, 2], 90)
        begun = first.logged("refresh begun")  # both services write to one log here
        assert len(begun) == len({line["refresh"] for line in begun})  # none is carried out twice
    with service_of(model, tmp_path, "--refresh-every", "1h") as again:
        assert versions(again) == [2]
        before = again.get("/v1/admin/refresh", token=ADMIN).json()
        due = np.datetime64(before["next"][:19]) - np.datetime64(before["last"]["started"][:19])
        assert due == np.timedelta64(3600, "s")
        again.request("POST", "/v1/admin/rollback", token=ADMIN)
        assert again.get("/v1/admin/refresh", token=ADMIN).json()["next"] is None  # paused
        post(again, later[300:600], FIRST + DAY)
        assert refresh(again)["result"] == "published"
        assert again.get("/v1/admin/refresh", token=ADMIN).json()["next"] is not None


def test_only_one_refresh_at_a_time(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, _ = earlier
    with service_of(model, tmp_path, "--workers", "2") as one, service_of(model, tmp_path) as two:
        post(one, later[:300])
        replies = [service.request("POST", "/v1/admin/refresh", token=ADMIN) for service in (one, two, one)]
        assert [reply.status_code for reply in replies] == [202, 409, 409]
        assert replies[0].json() == {"id": 1, "state": "running"}
        assert "a refresh is running" in replies[1].json()["detail"]
        assert two.get("/v1/admin/refresh", token=ADMIN).json()["state"] == "running"
        assert ended(two)["version"] == 2
        following(two, 2)


def test_rollback_during_a_refresh_is_not_undone_by_it(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, _ = earlier
    with service_of(model, tmp_path) as service:
        post(service, later[:300])
        assert refresh(service)["version"] == 2
        post(service, later[300:600], FIRST + DAY)
        service.request("POST", "/v1/admin/refresh", token=ADMIN)
        following(service, 2)
        assert service.request("POST", "/v1/admin/rollback", token=ADMIN).json()["version"] == 3
        last = ended(service)
        assert last["result"] == "refused"
        assert last["detail"] == "model 3 was published while model 2 was updated; the newer one stays."
        assert versions(service) == [3]


def test_kills_at_random_moments_leave_a_whole_version(earlier: tuple[Path, Likes, Likes], tmp_path: Path) -> None:
    model, later, _ = earlier
    rng, stop = np.random.default_rng(5), Flag()
    tokens = {"admin": [ADMIN]}
    settings = {"workers": 2, "tokens": tokens, "refresh": {"lease": LEASE}, "keep_models": 3}
    service = Service(model, tmp_path / "data", settings=settings, limits={})
    waits: list[float] = []

    def ask() -> None:
        """Ask all the time; an answer may take as long as a repetition after a broken connection."""
        while not stop.is_set():
            started, url = time.monotonic(), service.url
            while not stop.is_set():
                try:
                    with httpx.Client(timeout=30, trust_env=False, headers=bearer(ADMIN)) as http:
                        assert http.get(f"{url}/v1/recommend/u00001").status_code == 200
                    break
                except httpx.HTTPError:
                    time.sleep(0.01)
            waits.append(time.monotonic() - started)

    with service, ThreadPoolExecutor(1) as threads:
        post(service, later[:60])
        began = time.monotonic()
        assert refresh(service)["result"] == "published"
        whole = time.monotonic() - began
        results: dict[str, int] = {}
        for turn in range(21):
            post(service, later[60 + turn * 30 : 90 + turn * 30], FIRST + (turn + 1) * DAY)
            asking = threads.submit(ask) if turn % 3 != 2 else None
            service.request("POST", "/v1/admin/refresh", token=ADMIN)
            time.sleep(rng.uniform(0, 1.1 * whole))
            kill(service, turn, rng)
            last = ended(service)
            results[last["result"]] = results.get(last["result"], 0) + 1
            check_whole(service)
            stop.set()
            if asking is not None:
                asking.result()
            stop.clear()
        print(f"a refresh took {whole:.1f} s; results {results}; longest wait {max(waits):.2f} s of {len(waits)}")
        assert results.get("failed", 0) >= 5
        assert max(waits) < 10
        post(service, later[700:800], FIRST + 40 * DAY)
        assert refresh(service)["result"] == "published"
        check_whole(service)


def kill(service: Service, turn: int, rng: np.random.Generator) -> None:
    """Kill the process of the refresh, a worker, or the whole service, which is then started again."""
    if turn % 3 == 2:
        service.kill()
        service.start()
        return
    pids = refresh_processes(service) if turn % 3 == 0 else service.workers()
    for pid in pids[:1] if turn % 3 == 0 else rng.permutation(pids)[:1]:
        os.kill(pid, signal.SIGKILL)


def check_whole(service: Service) -> None:
    """Check that all workers serve the newest version, of which a whole copy is there, and that nothing is left."""
    from dgcf.recommend.container import hash_of

    wait_for(lambda: len(versions(service)) == 2 and 0 not in versions(service))
    (newest,) = [row for row in service.get("/v1/models", token=ADMIN).json()["models"] if row["serving"]]
    following(service, newest["version"])
    copies = service.data / "models"
    assert hash_of(copies / f"{newest['sha256']}.dgcf") == newest["sha256"]
    assert service.get("/v1/recommend/u00001", token=ADMIN).json()["model"] == newest["version"]
    wait_for(lambda: refresh_processes(service) == [])
