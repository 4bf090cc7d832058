"""Forgetting users in memory and in saved recommenders: what stays equal for all others, and what an update reads."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgcf.data import Dataset, Pairs, Vocabulary
from dgcf.data.forget import LIST, in_place_of, names, without_old_rows, without_users
from dgcf.errors import ArtifactError, DataError
from dgcf.ids import user_digest
from dgcf.models.catalog import CATALOG
from dgcf.recommend import Recommender, Snapshot, artifact, load
from dgcf.recommend.explain import FORGOTTEN
from dgcf.recommend.forget import Forgetting, RecommenderFile, influence
from dgcf.recommend.forget import without_users as snapshot_without
from tests.recommend.conftest import MODELS, random_dataset, untrained

GONE = ("2", "5")


def rest(snapshot: Snapshot) -> list[int]:
    return [int(user) for user in snapshot.users if str(user) not in GONE]


def by_hand(dataset: Dataset, snapshot: Snapshot) -> Snapshot:
    """The snapshot without ``GONE``, from loops over lists: what is left of ids, pairs, rows and layers."""
    kept = [index for index, user in enumerate(snapshot.users.texts) if user not in GONE]
    users = Vocabulary.from_sorted("user", [snapshot.users.texts[index] for index in kept], snapshot.users.kind)

    def fewer(pairs: Pairs) -> Pairs:
        chosen = [(row, int(item)) for row, index in enumerate(kept) for item in pairs[index]]
        index = np.array(chosen, dtype=np.int64).reshape(-1, 2)
        return Pairs.from_indices(index[:, 0], index[:, 1], len(kept), pairs.n_items)

    layers, rows = snapshot.layers, snapshot.embeddings
    nodes = [*kept, *range(snapshot.n_users, snapshot.n_users + snapshot.n_items)]
    assert layers is not None
    logits = None if layers.gate_logits is None else np.stack([row[nodes] for row in layers.gate_logits])
    stacked = replace(layers, embeddings=np.stack([layer[nodes] for layer in layers.embeddings]), gate_logits=logits)
    ranking = replace(rows, users=np.stack([rows.users[index] for index in kept]))
    train, seen = fewer(snapshot.train), fewer(snapshot.seen)
    return replace(snapshot, users=users, train=train, seen=seen, ranking=ranking, load_layers=lambda: stacked)


@pytest.mark.parametrize(("model", "settings"), MODELS)
def test_others_keep_their_lists_rows_and_neighbours_to_the_bit(
    model: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    dataset = random_dataset(14, 12, seed=3)
    before = untrained(dataset, model, **settings)
    path = artifact.save(snapshot_without(before, GONE, 0.0), tmp_path / "fewer.dgcf")
    old, new = Recommender.of(before), load(path)
    users = rest(before)
    assert list(new.users) == users
    expected = by_hand(dataset, before)
    assert (new.snapshot.train, new.snapshot.seen) == (expected.train, expected.seen)
    assert new.snapshot.layers is not None
    assert expected.layers is not None
    np.testing.assert_array_equal(new.snapshot.layers.embeddings, expected.layers.embeddings)
    if expected.layers.gate_logits is not None:
        np.testing.assert_array_equal(new.snapshot.layers.gate_logits, expected.layers.gate_logits)
    assert list(new.recommend(users, 8)) == list(old.recommend(users, 8))
    assert list(new.recommend(users, 12, exclude_seen=False)) == list(old.recommend(users, 12, exclude_seen=False))
    for user in users:
        everybody = [row for row in old.similar_users(user, 14) if str(row["user"]) not in GONE]
        assert [(row["user"], row["score"]) for row in new.similar_users(user, 14)] == [
            (row["user"], row["score"]) for row in everybody
        ]


@pytest.mark.parametrize(("model", "settings"), [one for one in MODELS if one[0] != "bpr-mf"])
def test_fold_in_is_that_of_the_graph_without_the_users(model: str, settings: dict[str, Any]) -> None:
    dataset = random_dataset(14, 12, seed=4)
    before = untrained(dataset, model, **settings)
    after, expected = Recommender.of(snapshot_without(before, GONE, 0.0)), Recommender.of(by_hand(dataset, before))
    items = np.flatnonzero(after.snapshot.train.item_degrees)[:4]
    for user in (None, *rest(before)[:4]):
        index = None if user is None else after.snapshot.users.index_of(user)
        found, wanted = (rec.folding.fold("user", items, index) for rec in (after, expected))
        np.testing.assert_array_equal(found.layers, wanted.layers)
        np.testing.assert_array_equal(found.ranked, wanted.ranked)
    assert list(after.recommend_for([0, 3, 7], 5)) == list(expected.recommend_for([0, 3, 7], 5))


@pytest.mark.parametrize(("model", "settings"), MODELS)
def test_explanations_still_sum_to_the_score(model: str, settings: dict[str, Any]) -> None:
    before = untrained(random_dataset(14, 12, seed=5), model, **settings)
    old, new = Recommender.of(before), Recommender.of(snapshot_without(before, GONE, 0.0))
    for user in rest(before):
        for item in (0, 4, 9):
            was, now = old.explain(user, item), new.explain(user, item)
            assert now.score == was.score
            size = sum(abs(part.value) for part in now.parts)
            assert abs(now.residual) < 1e-6 * max(size, 1.0)
            assert not {part.id for part in now.parts if part.kind == "user"} & set(map(int, GONE))
            assert not any(part.title == FORGOTTEN for part in was.parts)
            np.testing.assert_allclose(now.by_layer, was.by_layer, atol=1e-6 * max(size, 1.0))


def test_what_forgotten_users_left_is_a_part_of_an_explanation() -> None:
    before = untrained(random_dataset(14, 12, seed=5), "dgcf", epsilon=0.0)
    new = Recommender.of(snapshot_without(before, GONE, 0.0))
    parts = [part for user in rest(before) for part in new.explain(user, 4).parts if part.title == FORGOTTEN]
    assert parts
    assert all(part.count == 2 and part.id is None for part in parts)


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.slow
def test_every_model_forgets_and_ranks_the_others_as_before(name: str, tmp_path: Path) -> None:
    settings = {} if CATALOG[name].solved else {"epochs": 2, "dim": 4}
    if CATALOG[name].has_embeddings and name not in ("popularity", "random"):
        settings["blend"] = "ease+popularity"
    rec = Recommender(name, preset="plain", device="cpu", **settings).fit(random_dataset(30, 20, seed=6))
    fewer = load(rec.forget(["2", 5]).save(tmp_path / "fewer.dgcf"))
    users = rest(rec.snapshot)
    assert list(fewer.recommend(users, 10)) == list(rec.recommend(users, 10))
    assert len(rec.users) == 30


def test_recommender_stays_as_it_is_and_measures_without_the_user(films: Dataset, fitted: Recommender) -> None:
    fewer = fitted.forget("u00003")
    assert len(fitted.users) == len(films.users)
    assert "u00003" not in fewer.users
    assert fewer.evaluate().users_evaluated == fitted.evaluate().users_evaluated - 1
    assert fewer.snapshot.about[LIST][0]["digest"] == user_digest("u00003")
    with pytest.raises(DataError, match="unknown user 'u00003'"):
        fewer.forget("u00003")


def test_report_says_which_share_of_pairs_stays(fitted: Recommender) -> None:
    snapshot = fitted.snapshot
    pairs = len(snapshot.train[snapshot.users.index_of("u00003")])
    said = influence(snapshot, ["u00003", "nobody"])
    assert said is not None
    assert f" {pairs:,} of {len(snapshot.train):,} training pairs ({pairs / len(snapshot.train):.2%}) " in said
    assert influence(snapshot, ["nobody"]) is None


# Updates


def events(rows: list[tuple[str, str, float]], *, timed: bool = True) -> Dataset:
    """A dataset of (user, item, time) with all pairs in train."""
    users, items = (Vocabulary.from_ids(what, {row[n] for row in rows}) for n, what in enumerate(("user", "item")))
    key = np.array([users.index_of(user) * len(items) + items.index_of(item) for user, item, _ in rows])
    pairs = Pairs.from_keys(np.sort(key), len(users), len(items))
    if timed:
        pairs = pairs.with_values(key, time=np.array([row[2] for row in rows]))
    empty = Pairs.empty(len(users), len(items))
    return Dataset("rows", users, items, pairs, empty, empty)


NOW = 1.8e9
ROWS = [("anna", "a", NOW - 10), ("anna", "old", NOW - 5), ("anna", "b", NOW + 10), ("bert", "a", NOW - 20)]


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e9])
def test_only_later_rows_bring_a_forgotten_user_back(unit: float) -> None:
    forgotten = [{"digest": user_digest("anna"), "at": NOW}]
    rows = events([(user, item, when * unit) for user, item, when in ROWS])
    kept = without_old_rows(rows, forgotten)  # type: ignore[arg-type]
    assert [[kept.items.texts[item] for item in kept.train[user]] for user in (0, 1)] == [["b"], ["a"]]
    assert kept.users.texts == ["anna", "bert"]
    assert kept.items.texts == ["a", "b"]
    assert kept.record["filters"][-1] == {
        "filter": "rows of forgotten users, not known to be later",
        "pairs": 2,
        "users": 0,
        "items": 1,
    }
    assert kept.train.time is not None
    assert sorted(kept.train.time) == sorted([(NOW + 10) * unit, (NOW - 20) * unit])


def test_rows_without_times_do_not_bring_a_forgotten_user_back() -> None:
    kept = without_old_rows(events(ROWS, timed=False), [{"digest": user_digest("anna"), "at": NOW}])
    assert kept.users.texts == ["bert"]
    assert kept.items.texts == ["a"]
    assert without_old_rows(rows := events(ROWS), [{"digest": user_digest("nobody"), "at": NOW}]) is rows


def test_update_leaves_out_old_rows_of_forgotten_users(fitted: Recommender, tmp_path: Path) -> None:
    gone = "u00003"
    fewer = load(fitted.forget(gone).save(tmp_path / "fewer.dgcf"))
    old = [(gone, "i00001", time.time() - 60), (gone, "i00002", time.time() - 30), ("u00004", "new", time.time())]
    old.append(("u00004", "i00003", time.time()))
    updated = fewer.update(events(old), held_out=0, epochs=0, progress=False)
    assert gone not in updated.users
    assert "new" in updated.items
    later = [(gone, "i00007", time.time() + 60), ("u00004", "i00009", time.time())]
    again = updated.update(events(later), held_out=0, epochs=0, progress=False)
    assert gone in again.users
    user = again.snapshot.users.index_of(gone)
    assert [again.snapshot.items.texts[item] for item in again.snapshot.train[user]] == ["i00007"]


# Datasets


def test_dataset_without_users_keeps_values_and_loses_notes(tmp_path: Path) -> None:
    rows = events(ROWS)
    notes = ["user 'anna' has 3 of 4 pairs.", "3 rows were repeated, as in joanna."]
    dataset = replace(rows, record={"notes": notes, "source": "shop.csv"})
    without_users(dataset, ["anna"], NOW).save(tmp_path / "data")
    fewer = Dataset.load(tmp_path / "data")
    assert fewer.users.texts == ["bert"]
    assert fewer.train.time is not None
    assert fewer.train.time.tolist() == [NOW - 20]
    assert fewer.record["notes"] == notes[1:]
    assert fewer.record[LIST] == [{"digest": user_digest("anna"), "at": NOW}]
    assert fewer.fingerprint != dataset.fingerprint
    with pytest.raises(DataError, match="no training pair"):
        without_users(fewer, ["bert"], NOW)


@pytest.mark.parametrize("entry", [{"digest": 5, "at": 1.0}, {"at": 1.0}, "anna"])
def test_damaged_list_is_one_sentence(entry: object, tmp_path: Path) -> None:
    replace(events(ROWS), record={LIST: [entry]}).save(tmp_path / "data")
    with pytest.raises(DataError, match="list of forgotten users is damaged"):
        in_place_of(tmp_path / "data", events(ROWS))
    with pytest.raises(DataError, match="list of forgotten users is damaged"):
        without_users(Dataset.load(tmp_path / "data"), ["anna"], NOW)


@pytest.mark.parametrize(
    ("text", "user", "named"),
    [
        ("user 'anna' has", "anna", True),
        ("joanna has", "anna", False),
        ("who <> 'O''Hara'", "O'Hara", True),
        ("12 rows", "12", True),
        ("112 rows", "12", False),
        (r"user 'a\x1b' has", "a\x1b", True),
    ],
)
def test_text_names_a_user_by_whole_words(text: str, user: str, named: bool) -> None:
    assert names(text, user) == named


# Signatures and files


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    for words in (f"genpkey -algorithm ed25519 -out {private}", f"pkey -in {private} -pubout -out {public}"):
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    return private, public


def test_signed_recommender_needs_a_key_and_is_signed_again(
    fitted: Recommender, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fitted.save(tmp_path / "signed.dgcf", sign=keys[0])
    before = path.read_bytes()
    with pytest.raises(ArtifactError, match=r"is signed, .* --sign KEY"):
        RecommenderFile(path).remove(Forgetting(("u00003",), NOW))
    assert path.read_bytes() == before
    RecommenderFile(path).remove(Forgetting(("u00003",), NOW, sign=keys[0]))
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(keys[1]))
    assert "u00003" not in load(path).users


@pytest.mark.parametrize("name", ["one.dgcf", "folder", "renamed.model"])
def test_file_and_folder_are_replaced_in_place(name: str, fitted: Recommender, tmp_path: Path) -> None:
    path = tmp_path / "real" / name
    saved = fitted.save(tmp_path / "saved.dgcf" if name == "renamed.model" else path)
    path.parent.mkdir(exist_ok=True)
    saved.rename(path)
    path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(path)
    place = RecommenderFile(link).remove(Forgetting(("u00003", "nobody"), NOW))
    assert (place.users, place.kind) == (("u00003",), "recommender")
    assert link.is_symlink()
    assert "u00003" not in load(path).users
    assert path.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [name]
