"""``dgcf forget`` as a process: no byte of an id is left in any place, a service follows, and what is refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from dgcf.cli import application
from dgcf.data import Dataset
from dgcf.recommend import load
from dgcf.serve import forgetting
from dgcf.serve.engine.served import take_copy
from dgcf.serve.events import writer
from dgcf.serve.events.database import connect
from dgcf.serve.events.records import Event
from dgcf.serve.events.store import EventStore
from tests.cli.in_process import invoke, refusal
from tests.forgetting import NUMBER, ODD, SETTINGS, holders, write_rows
from tests.serve.service import ADMIN, Service, wait_for


@dataclass(frozen=True)
class Shop:
    """A folder with raw rows, a prepared dataset, a run, a saved recommender and the data folder of a service."""

    folder: Path
    user: str | int

    def __getattr__(self, name: str) -> Path:
        return self.folder / {"model": "shop.dgcf", "rows": "shop.csv"}.get(name, name)

    @property
    def words(self) -> tuple[str, ...]:
        return ("forget", str(self.run), str(self.user), "--dataset", str(self.data), "--service", str(self.service))

    @property
    def places(self) -> list[Path]:
        return [self.data, self.run, self.service]

    def holders(self) -> list[str]:
        return [name for place in self.places for name in holders(place, self.user)]


def ran(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dgcf", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


def make(folder: Path, user: str | int) -> Path:
    """Prepare, train and export with the verbs."""
    rows, data, run = write_rows(folder / "shop.csv", user), folder / "data", folder / "run"
    invoke("data", "prepare", rows, "--keep-times", "--out", data)
    invoke("train", data, *SETTINGS, "--set", "blend=filter+popularity", "--no-baselines", "--out", run)
    invoke("export", run, "--out", folder / "shop.dgcf")
    return folder


def store_events(shop: Shop) -> None:
    """Make the data folder of a service: copies of two models, and events, with ids in their keys."""
    models = shop.service / "models"
    with EventStore.open(shop.service / "events.sqlite3") as store:
        for number, model in enumerate((shop.model, shop.run)):
            copy = take_copy(model, models)
            store.publish_model(copy.stem, str(model), origin="start", learned=number).result()
            (models / "other.dgcf").write_bytes(copy.read_bytes())
        for batch in range(30):
            events = [Event(str(user), f"i{batch}", key=f"{batch}-{user}"[:120]) for user in (shop.user, "u1", "new")]
            store.submit(events).result()


@pytest.fixture(scope="session")
def odd_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("odd"), ODD)


@pytest.fixture(scope="session")
def number_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("number"), NUMBER)


@pytest.mark.parametrize("kind", ["odd", pytest.param("number", marks=pytest.mark.slow)])
def test_no_byte_of_a_user_is_left_in_run_dataset_and_data_folder(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, ODD if kind == "odd" else NUMBER)
    shutil.copytree(request.getfixturevalue(f"{kind}_shop"), tmp_path, dirs_exist_ok=True)
    store_events(shop)
    (shop.service / "refresh-abc").mkdir()
    write_rows(shop.service / "refresh-abc" / "events.csv", shop.user)
    folders = {Path(name.partition(":")[0]).parent.name for name in shop.holders()}
    assert folders >= {"run", "data", "service", "models", "refresh-abc"}
    old = load(shop.run)
    lists = list(old.recommend(others := [user for user in old.users if str(user) != str(shop.user)], 10))
    answer = invoke(*shop.words)
    assert shop.holders() == []
    assert list(load(shop.run).recommend(others, 10)) == lists
    run, data, service = answer["places"]
    assert [place["users"] for place in answer["places"]] == [[str(shop.user)]] * 3
    assert run["pairs"] + run["held_out"] == data["pairs"] + data["held_out"] == 20
    assert service["events"] == 30
    with EventStore.open(shop.service / "events.sqlite3") as store:
        row = store.current_model()
        assert row is not None
        assert (row.version, row.origin, row.learned, row.path) == (3, "forget", 1, str(shop.run))
        assert json.loads(row.card or "")["data"]["users"] == 59
        assert [path.stem for path in (shop.service / "models").iterdir()] == [row.sha256]
        assert store.count() == 60
        assert store.lease("refresh") is None
    assert list(load(shop.service / "models" / f"{row.sha256}.dgcf").recommend(others, 10)) == lists


def test_large_event_store_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service itself leaves remains in a large file for a day."""
    monkeypatch.setattr(writer, "CHECKED_BYTES", 0)
    names = [f"person {number:03d} {'x' * (number % 70)}|" for number in range(100)]
    with EventStore.open(path := tmp_path / "events.sqlite3") as store:
        for start in range(0, 400, 40):  # pages are split and filled again, which leaves copies of rows
            chosen = [names[(start * 7 + step * 13) % len(names)] for step in range(40)]
            store.submit([Event(name, "item", key=f"{start}-{step}") for step, name in enumerate(chosen)]).result()
    gone = names[::9]
    invoke("forget", tmp_path, *gone)
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [name for name in gone if name.encode() in content] == []
    assert names[1].encode() in path.read_bytes()
    with closing(connect(path, read=True)) as con:  # nothing deleted is left to be written over
        assert con.execute("SELECT value FROM counters WHERE name = 'erased'").fetchone() == (0,)


def test_running_refresh_is_waited_for(odd_shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(odd_shop, tmp_path, dirs_exist_ok=True)
    shop = Shop(tmp_path, ODD)
    store_events(shop)
    monkeypatch.setattr(forgetting, "LEASE_SECONDS", 0.2)
    with EventStore.open(shop.service / "events.sqlite3") as store:
        store.begin_refresh("another", "schedule", 60).result()
        assert "a refresh of the service is running" in refusal("forget", shop.service, ODD)
        assert len(store.events_of(ODD)) == 30


def use(service: Service, user: str | int) -> None:
    """Send events of several users, and ask for lists of the user."""
    for batch in range(4):
        events = [
            {"user": str(name), "item": f"i{batch * 9 + place}", "key": f"{place}-{batch}-{name}"[:120]}
            for place, name in enumerate([user, "u1", user, "new", user, "u2"])
        ]
        sent = service.request("POST", "/v1/events", json={"events": events}, token=ADMIN)
        assert sent.status_code == 201
    for path in ("users", "recommend"):
        assert service.get(f"/v1/{path}/{quote(str(user), safe='')}").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["odd", "number"])
def test_running_service_takes_the_model_without_the_user(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, ODD if kind == "odd" else NUMBER)
    shutil.copytree(request.getfixturevalue(f"{kind}_shop"), tmp_path, dirs_exist_ok=True)
    path, other = quote(str(shop.user), safe=""), "u3" if kind == "odd" else "3"
    tokens = {"DGCF_ADMIN_TOKEN": ADMIN}
    with Service(shop.run, shop.service, "--workers", "2", environment=tokens) as service:
        use(service, shop.user)
        before = service.get(f"/v1/recommend/{other}").json()
        assert shop.holders()
        ran(*shop.words)
        assert shop.holders() == []  # while it runs: also in the log of the store
        wait_for(lambda: all(service.get("/v1/model").json()["version"] == 2 for _ in range(8)))
        assert all(service.get(f"/v1/users/{path}").status_code == 404 for _ in range(8))
        after = service.get(f"/v1/recommend/{other}").json()
        assert after["recommendations"] == before["recommendations"]
        assert service.request("POST", "/v1/admin/reload", token=ADMIN).status_code == 200
        assert service.get(f"/v1/recommend/{other}").json()["recommendations"] == before["recommendations"]
        assert shop.holders() == []
    assert shop.holders() == []
    with Service(shop.run, shop.service) as again:  # starts with what is left, and takes the user as a new one
        assert again.get(f"/v1/users/{path}").status_code == 404
        event = {"user": str(shop.user), "item": "i1"}
        assert again.request("POST", "/v1/events", json=event).status_code == 201
        assert again.get(f"/v1/users/{path}").status_code == 200


def test_artefact_and_data_folder_alone(odd_shop: Path, tmp_path: Path) -> None:
    shutil.copytree(odd_shop, tmp_path, dirs_exist_ok=True)
    shop = Shop(tmp_path, ODD)
    store_events(shop)
    assert holders(shop.service, ODD)
    (place,) = invoke("forget", shop.service, ODD)["places"]
    assert holders(shop.service, ODD) == []
    assert any(str(shop.run) in sentence and "reload" in sentence for sentence in place["elsewhere"])
    old = load(shop.model)
    lists = list(old.recommend(others := [user for user in old.users if user != ODD], 10))
    invoke("forget", shop.model, ODD)
    invoke("forget", shop.run, ODD)
    assert holders(shop.model, ODD) == []
    assert list(load(shop.model).recommend(others, 10)) == lists
    (place,) = invoke("forget", shop.service, ODD)["places"]  # again: nothing is left, which is no error
    assert (place["users"], place["events"]) == ([], 0)
    assert place["elsewhere"] == []


@pytest.mark.slow
def test_training_in_two_stages_on_a_raw_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "shop.csv", ODD)
    ran("train", tmp_path / "shop.csv", *_without_epochs(), "--out", tmp_path / "run")
    lists = list(load(tmp_path / "run").recommend("u3", 5))
    (place,) = invoke("forget", tmp_path / "run", ODD)["places"]
    assert holders(tmp_path / "run", ODD) == []
    assert any("shop.csv" in sentence and "still holds" in sentence for sentence in place["elsewhere"])
    assert list(load(tmp_path / "run").recommend("u3", 5)) == lists
    assert invoke("evaluate", tmp_path / "run" / "validated", "--device", "cpu")["users_evaluated"] <= 59
    again = ran("train", "--resume", tmp_path / "run", "--device", "cpu")
    assert "nothing is left to train" in again.stderr
    done = ran("update", tmp_path / "run", tmp_path / "shop.csv", "--out", tmp_path / "updated", "--device", "cpu")
    assert "nothing to update" in done.stdout
    assert "rows of forgotten users" in done.stderr


def _without_epochs() -> tuple[str, ...]:
    more = ("--set", "patience=1", "--set", "min_epochs=0", "--set", "evaluate_every=1", "--set", "learning_rate=0.1")
    words = (*SETTINGS[:2], *SETTINGS[4:], *more, "--on", "everything", "--no-baselines")
    assert not any("epochs=3" in word for word in words)
    return words


@pytest.mark.slow
def test_measured_influence(odd_shop: Path, tmp_path: Path) -> None:
    invoke(
        "train", odd_shop / "data", "--model", "ease", "--no-baselines", "--out", tmp_path / "ease", "--device", "cpu"
    )
    solved = invoke("forget", tmp_path / "ease", ODD, "--measure", "--device", "cpu")["measured"]
    assert solved["by_chance"] is None
    assert 0.5 < solved["without"]["same_items"] < 1
    assert 0 < solved["without"]["scores"] < 0.5
    again = invoke("forget", tmp_path / "ease", "u1", "--measure", "--device", "cpu")["measured"]
    assert again["users"] == 58
    words = ("forget", odd_shop / "shop.dgcf", ODD, "--measure", "--out", tmp_path / "new.dgcf", "--device", "cpu")
    with_seed = invoke(*words)["measured"]
    assert with_seed["users"] == 59
    assert 0 <= with_seed["by_chance"]["same_items"] <= with_seed["without"]["same_items"] <= 1


def test_dataset_prepared_again_in_its_place_leaves_the_user_out(odd_shop: Path, tmp_path: Path) -> None:
    words = ("data", "prepare", odd_shop / "shop.csv", "--out", tmp_path / "data")
    whole = invoke(*words)
    invoke("forget", tmp_path / "data", ODD)
    fewer = invoke(*words, "--overwrite")
    assert holders(tmp_path / "data", ODD) == []
    assert (whole["users"], fewer["users"]) == (60, 59)
    again = invoke(*words, "--overwrite")  # the list is passed on
    assert again["fingerprint"] == fewer["fingerprint"]
    assert again["record"]["filters"][-1]["pairs"] == 20


def test_answer_is_a_table_and_sentences(odd_shop: Path, tmp_path: Path) -> None:
    target = tmp_path / "shop.dgcf"
    shutil.copy(odd_shop / "shop.dgcf", target)
    first, again = (CliRunner().invoke(application(), ["forget", str(target), ODD, "u1"]) for _ in range(2))
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "recommender" in first.stdout
    assert f"stays in {target}: The rows of items and other users, and the weights between items," in first.stdout
    assert "nothing was left to remove" in again.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("{model}", "nobody"), "no user 'nobody' is in "),
        (("{model}", "u111"), "did you mean 'u1"),
        (("{model}", "u1", "nobody"), "no user 'nobody'"),
        (("{rows}", "u1"), "is not a recommender"),
        (
            ("{folder}", "u1"),
            "expected a run folder, a saved recommender, a prepared dataset or the data folder of a service",
        ),
        (("{folder}/nothing", "u1"), "does not exist"),
        (("{model}", "u1", "--service", "{data}"), "is not the data folder of a service"),
        (("{model}", "u1", "--data", "{rows}"), "--data is for a run folder"),
        (("{model}", "u1", "--out", "{data}"), "exists already"),
        (("{data}", "u1", "--measure"), "--measure is for a run or a saved recommender"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    words: tuple[str, ...], sentence: str, odd_shop: Path
) -> None:
    shop = Shop(odd_shop, ODD)
    names = {"model": shop.model, "rows": shop.rows, "data": shop.data, "folder": odd_shop}
    before = shop.model.read_bytes()
    assert sentence in refusal("forget", *(word.format(**names) for word in words))
    assert shop.model.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_forgetting_is_finished_by_the_same_command(seed: int, odd_shop: Path, tmp_path: Path) -> None:
    """SIGKILL at random moments: every place can be read, and the same command leaves no byte and no other file."""
    chance = random.Random(seed)
    shutil.copytree(odd_shop, tmp_path / "whole")
    store_events(Shop(tmp_path / "whole", ODD))
    killed = 0
    for number in range(4):
        folder = tmp_path / f"work{number}"
        shutil.copytree(tmp_path / "whole", folder)
        shop = Shop(folder, ODD)
        names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        process = subprocess.Popen(
            [sys.executable, "-m", "dgcf", *shop.words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _kill_while_it_writes(process, folder, names, chance)
        killed += process.returncode == -signal.SIGKILL
        old, new = (list(load(path).recommend("u3", 5)) for path in (tmp_path / "whole" / "run", shop.run))
        assert old == new
        Dataset.load(shop.data)
        ran(*shop.words)
        assert shop.holders() == []
        left = [path for path in folder.rglob("*") if path.suffix in (".part", ".old") or path.name == "incoming.dgcf"]
        assert left == []
        assert list(load(shop.run).recommend("u3", 5)) == old
        with EventStore.open(shop.service / "events.sqlite3") as store:
            row = store.current_model()
            assert row is not None
            assert (shop.service / "models" / f"{row.sha256}.dgcf").is_file()
            assert store.events_of(ODD) == []
        shutil.rmtree(folder)
    assert killed >= 2


def _kill_while_it_writes(
    process: subprocess.Popen[bytes], folder: Path, names: set[str], chance: random.Random
) -> None:
    """Wait until the first new file appears, or a random time more, and kill the process."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if {str(path.relative_to(folder)) for path in folder.rglob("*")} != names:
            time.sleep(chance.random() * 0.4)
            break
        time.sleep(0.002)
    process.kill()
    process.wait(60)
