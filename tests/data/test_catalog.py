"""Known datasets: published counts, local files, recognition by content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dgcf.data import catalog, load
from dgcf.data.known import Edition, KnownDataset, KnownFile, Remote, catalogue
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.splits import Split
from dgcf.data.statistics import statistics
from dgcf.errors import DataError
from tests.conftest import data_home

# users, items, train, validation, test: the paper's Table 3 and the data's own description.
COUNTS = {
    "deoscirec/ml-100k": (928, 1_172, 14_865, 2_104, 4_232),
    "deoscirec/ml-1m": (4_627, 1_840, 148_299, 21_362, 42_347),
    "deoscirec/amazon-movies-tv": (14_432, 28_242, 441_771, 63_654, 126_085),
    "deoscirec/gowalla": (29_858, 40_981, 718_418, 103_862, 205_090),
    "lightgcn/gowalla": (29_858, 40_981, 810_128, 0, 217_242),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.data(name)) for name in COUNTS])
def test_published_splits_have_published_counts(name: str) -> None:
    dataset = load(name)
    stats = statistics(dataset)
    assert (stats.users, stats.items, stats.train, stats.validation, stats.test) == COUNTS[name]
    assert dataset.users.texts == [str(index) for index in range(stats.users)], "the split's ids are the indices"
    assert catalog.recognise(dataset)[0] == name


@pytest.mark.data("deoscirec/amazon-movies-tv")
def test_amazon_flaws_are_reported() -> None:
    dataset = load("deoscirec/amazon-movies-tv")
    known_as, caveats = catalog.recognise(dataset)
    stats = statistics(dataset, known_as, caveats)
    assert stats.duplicates["train"] == 11_381
    assert stats.leaks == {"train_validation": 3_166, "train_test": 6_210, "validation_test": 935}
    text = " ".join(stats.warnings)
    for fact in ("swapped", "11,381", "3,166", "6,210", "935"):
        assert fact in text


@pytest.mark.data("movielens/ml-100k")
def test_movielens_100k_counts() -> None:
    raw = load("ml-100k")
    assert (raw.n_users, raw.n_items, len(raw.train.union(raw.validation, raw.test))) == (943, 1_682, 100_000)
    assert raw.items.title_of(raw.items.index_of("1")) == "Toy Story (1995)"
    paper = load("paper/ml-100k")
    assert (paper.n_users, len(paper.train) + len(paper.validation) + len(paper.test)) == (779, 20_805)


@pytest.mark.data("deoscirec/ml-1m")
def test_authors_splits_have_titles() -> None:
    items = load("deoscirec/ml-1m").items
    assert items.title_of(0) == "One Flew Over the Cuckoo's Nest (1975)"
    assert items.titles is not None
    assert all(items.titles)


@pytest.mark.data("lightgcn/gowalla")
def test_gowalla_splits_are_recognised_by_content(tmp_path: Path) -> None:
    for name, other in (("lightgcn/gowalla", "deoscirec/gowalla"), ("deoscirec/gowalla", "lightgcn/gowalla")):
        folder = tmp_path / name.split("/")[0]
        folder.mkdir()
        for file in ("train.txt", "validation.txt", "test.txt"):
            if (data_home() / name / file).exists():
                shutil.copy(data_home() / name / file, folder / file)
        known_as, notes = catalog.recognise(load(folder))
        assert known_as == name
        assert notes[0].startswith(f"this is {name}, not {other}")
    train = prepare(data_home() / "lightgcn/gowalla/train.txt", test=data_home() / "lightgcn/gowalla/test.txt")
    rows = [data_home() / f"lightgcn/gowalla/{part}.txt" for part in ("train", "test")]
    joined = tmp_path / "all.txt"
    joined.write_text("".join(path.read_text().rstrip("\n") + "\n" for path in rows))
    resplit = prepare(joined, Preparation(split=Split(seed=5)))
    assert len(resplit.train.union(resplit.validation, resplit.test)) == len(train.train) + len(train.test)
    known_as, notes = catalog.recognise(resplit)
    assert known_as is None
    assert "not comparable" in notes[0]


@pytest.mark.data("deoscirec/ml-100k")
def test_changed_file_in_data_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(data_home() / "deoscirec" / "ml-100k", tmp_path / "deoscirec" / "ml-100k")
    monkeypatch.setenv("DGCF_DATA_HOME", str(tmp_path))
    assert load("deoscirec/ml-100k").name == "deoscirec/ml-100k"
    train = tmp_path / "deoscirec" / "ml-100k" / "train.txt"
    train.chmod(0o644)
    train.write_text(train.read_text().replace("338", "339", 1))
    with pytest.raises(DataError, match=r"train.txt .* has the SHA-256"):
        load("deoscirec/ml-100k")


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'ml-100k'"):
        load("ml-100")


def known(tmp_path: Path, *remotes: Remote) -> KnownDataset:
    editions = tuple(
        Edition({"ratings": KnownFile(f"mine/{n}/u.csv", "0" * 64, remote)}) for n, remote in enumerate(remotes)
    )
    return KnownDataset("mine", "a test", "to be shown first", lambda files: prepare(files["ratings"]), editions)


def test_licence_is_shown_and_all_editions_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgcf.data.download.TRIES", 1)
    entry = known(tmp_path, Remote(url="http://127.0.0.1:1/a.csv"), Remote(url="http://127.0.0.1:1/b.csv"))
    monkeypatch.setitem(catalogue(), "mine", entry)
    messages: list[str] = []
    with pytest.raises(DataError, match=r"a\.csv.*b\.csv.*DGCF_DATA_HOME"):
        load("mine", say=messages.append)  # the former name of notify
    assert messages[0] == "Licence of mine: to be shown first"
    assert [line.split()[0] for line in messages[1:]] == ["Fetching", "Fetching"]


def test_unpublished_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = KnownDataset("mine", "a test", "none", lambda _: load("checkerboard"), (), ("another fingerprint",), ())
    monkeypatch.setitem(catalogue(), "mine", entry)
    with pytest.raises(DataError, match="do not hold the published dataset"):
        catalog.load_known("mine")


def test_all_entries_are_complete() -> None:
    for name, entry in catalogue().items():
        assert entry.name == name
        assert entry.fingerprints
        assert entry.licence
        for edition in entry.editions:
            for file in edition.files.values():
                assert len(file.sha256) == 64
                assert file.remote is not None
