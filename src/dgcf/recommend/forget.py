"""Forget users in saved recommenders and prepared datasets; run folders are in ``forget_run``.

A file is replaced as a whole: whenever the process is killed, there is the old one or the new one, and doing it again
removes what the killed process left.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from dgcf.data.dataset import ABOUT as DATASET_ABOUT
from dgcf.data.dataset import Dataset
from dgcf.data.forget import LIST, entries_of, mentions, others, with_entries
from dgcf.data.forget import without_users as dataset_without
from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ArtifactError, ConfigError, DataError, did_you_mean
from dgcf.files import explain_os_errors, sweep
from dgcf.ids import user_digest
from dgcf.ranking.user_rules import ConstantRow, embeddings_rule
from dgcf.recommend import artifact, loading
from dgcf.recommend.container import MANIFEST, SUFFIX, is_signed
from dgcf.recommend.heldout import HeldOut
from dgcf.recommend.lookup import Ids, as_list
from dgcf.recommend.snapshot import Snapshot
from dgcf.text import Notify, counted

_COMPARED = 100_000  # ids among which the nearest one is searched


@dataclass(frozen=True)
class Forgetting:
    """Which users to forget, and the time, in seconds since 1970.

    ``sign``: the file of the private key with which signed recommenders are signed again. ``places``: all where the
    users are forgotten together.
    """

    users: tuple[str, ...]
    at: float
    sign: Path | None = None
    places: tuple[Path, ...] = ()

    def covers(self, place: str | Path) -> bool:
        """Return whether the users are forgotten at a place, too."""
        return Path(place).resolve() in [path.resolve() for path in self.places]


@dataclass(frozen=True)
class Place:
    """What was removed in one place. ``files``: the rewritten or deleted ones.

    ``stays``: what keeps an influence of the users there. ``elsewhere``: sentences on other places that hold them.
    """

    kind: Literal["run", "recommender", "dataset", "service"]
    path: str
    users: tuple[str, ...] = ()
    pairs: int = 0
    held_out: int = 0
    events: int = 0
    files: tuple[str, ...] = ()
    stays: str | None = None
    elsewhere: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Target(Protocol):
    """A place that may hold users."""

    path: Path

    def model(self) -> tuple[Snapshot, Dataset | None] | None:
        """Return the trained model and the dataset that it was trained on, if it is known; None without a model."""

    def vocabularies(self) -> Sequence[Vocabulary]:
        """Return the vocabularies of users there."""

    def knows(self, user: str) -> bool:
        """Return whether the user is there, or was forgotten there before."""

    def remove(self, forgetting: Forgetting) -> Place:
        """Remove the users that are there, and what a killed removal has left."""


def require_known(targets: Sequence[Target], users: Sequence[str]) -> None:
    """Raise ``DataError`` for the first user that no target knows."""
    for user in users:
        if not any(target.knows(user) for target in targets):
            texts = [
                text for target in targets for vocabulary in target.vocabularies()[:1] for text in vocabulary.texts
            ]
            near = did_you_mean(user, texts) if len(texts) <= _COMPARED else ""
            places = " and ".join(str(target.path) for target in targets)
            raise DataError(f"no user {user!r} is in {places}{near or '; give the id as in the data.'}")


def without_users(snapshot: Snapshot, users: Collection[str], at: float) -> Snapshot:
    """Return a snapshot without some users: ids, titles, rows and pairs; all other rows stay as they are."""
    kept = others(snapshot.users, users)
    fewer = snapshot.of_users(kept)
    if not len(fewer.train):
        raise DataError("no training pair would be left in the recommender; delete it instead.")
    about = {**snapshot.about, LIST: with_entries(entries_of(snapshot.about), users, at)}
    return replace(fewer, about=about)


def forget(snapshot: Snapshot, held_out: HeldOut, users: Ids) -> tuple[Snapshot, HeldOut]:
    """Return a snapshot, and what it is measured on, without some users; raise ``DataError`` for an unknown one."""
    ids, at = [snapshot.users.texts[snapshot.users.index_of(user)] for user in as_list(users)], time.time()

    def dataset() -> Dataset:
        whole = held_out.dataset() if callable(held_out.dataset) else held_out.dataset
        assert whole is not None
        return dataset_without(whole, ids, at)

    own = held_out if held_out.dataset is None else replace(held_out, dataset=dataset)
    return without_users(snapshot, ids, at), own


def influence(snapshot: Snapshot, users: Collection[str]) -> str | None:
    """Return a sentence on what a model keeps of users that are removed from it; None if it has none of them."""
    index = [snapshot.users.index_of(user) for user in users if user in snapshot.users]
    if not index:
        return None
    pairs, total = int(snapshot.train.user_degrees[index].sum()), len(snapshot.train)
    if snapshot.model == "random":
        return "Nothing: random rows do not depend on pairs."
    share = f"{pairs:,} of {counted(total, 'training pair')} ({pairs / total:.2%})"
    return f"{_learned(snapshot)} from {share} of these users, and stay so until the next training."


def _learned(snapshot: Snapshot) -> str:
    """Return what was learned from the pairs of all users, as the beginning of a sentence."""
    weights = snapshot.ranking.item_weights is not None
    if snapshot.ranking.embeddings is None:
        return "The weights between items were computed"
    if isinstance(embeddings_rule(snapshot.ranking.user_rule), ConstantRow):
        return "The popularity of the items was counted" if not weights else "The popularity and weights were computed"
    return f"The rows of items and other users{', and the weights between items,' if weights else ''} were learned"


@dataclass
class RecommenderFile:
    """A saved recommender, a file or a folder; ``out`` is another place for the result."""

    path: Path
    out: Path | None = None

    def __post_init__(self) -> None:
        self.snapshot = artifact.load(self.path)

    def model(self) -> tuple[Snapshot, Dataset | None]:
        return self.snapshot, None

    def vocabularies(self) -> Sequence[Vocabulary]:
        return (self.snapshot.users,)

    def knows(self, user: str) -> bool:
        return user in self.snapshot.users or is_listed(user, self.snapshot.about)

    def remove(self, forgetting: Forgetting) -> Place:
        target, users = self.path.resolve(), present(self.snapshot.users, forgetting.users)
        sweep(target)
        if not users:
            return Place("recommender", str(self.path))
        sign, fewer = key_for(self.path, forgetting), without_users(self.snapshot, users, forgetting.at)
        if self.out is None:
            rewrite(fewer, target, sign)
        else:
            artifact.save(fewer, self.out, sign=sign)
        pairs, held_out = counts(self.snapshot, users)
        return Place(
            "recommender",
            str(self.path),
            users,
            pairs,
            held_out,
            files=((self.out or self.path).name,),
            stays=influence(self.snapshot, users),
            elsewhere=original(self.path, self.out),
        )


def present(vocabulary: Vocabulary, users: Sequence[str]) -> tuple[str, ...]:
    """Return the users that a vocabulary has."""
    return tuple(user for user in users if user in vocabulary)


def counts(snapshot: Snapshot, users: Collection[str]) -> tuple[int, int]:
    """Return the numbers of training pairs and of other seen pairs of users."""
    index = [snapshot.users.index_of(user) for user in users]
    pairs, seen = (int(part.user_degrees[index].sum()) for part in (snapshot.train, snapshot.seen))
    return pairs, seen - pairs


def key_for(path: Path, forgetting: Forgetting) -> Path | None:
    """Return the key to sign a rewritten recommender with; raise ``ArtifactError`` if one is needed and not given."""
    if is_signed(path) and forgetting.sign is None:
        raise ArtifactError(
            f"{path} is signed, and its signature does not hold for the file without the users; give the private key "
            "with --sign KEY (in Python, sign=…)."
        )
    return forgetting.sign


def rewrite(snapshot: Snapshot, target: Path, sign: Path | None = None) -> None:
    """Replace a saved recommender by another one, with the permissions of the old one."""
    mode = target.stat().st_mode & 0o7777
    if target.is_dir() or target.suffix.lower() == SUFFIX:
        artifact.save(snapshot, target, overwrite=True, sign=sign)
    else:  # a file of another name is written as one of the usual name
        beside = target.with_name(f".{target.name}{SUFFIX}")
        artifact.save(snapshot, beside, overwrite=True, sign=sign)
        beside.replace(target)
    target.chmod(mode)


def is_listed(user: str, about: Mapping[str, Any]) -> bool:
    """Return whether a user is in the list of forgotten ones of a record."""
    return any(entry["digest"] == user_digest(user) for entry in entries_of(about))


@dataclass
class DatasetFolder:
    """The folder of a prepared dataset; ``out`` is another one for the result."""

    path: Path
    out: Path | None = None

    def __post_init__(self) -> None:
        self.dataset = Dataset.load(self.path)

    def model(self) -> None:
        return None

    def vocabularies(self) -> Sequence[Vocabulary]:
        return (self.dataset.users,)

    def knows(self, user: str) -> bool:
        return user in self.dataset.users or is_listed(user, self.dataset.record)

    def remove(self, forgetting: Forgetting) -> Place:
        target, users = self.path.resolve(), present(self.dataset.users, forgetting.users)
        sweep(target)
        if not users:
            return Place("dataset", str(self.path))
        index = [self.dataset.users.index_of(user) for user in users]
        held_out = (self.dataset.validation, self.dataset.test)
        mode, written = target.stat().st_mode & 0o7777, self.out or target
        dataset_without(self.dataset, users, forgetting.at).save(written, overwrite=self.out is None)
        written.chmod(mode)
        return Place(
            "dataset",
            str(self.path),
            users,
            pairs=int(self.dataset.train.user_degrees[index].sum()),
            held_out=sum(int(pairs.user_degrees[index].sum()) for pairs in held_out),
            files=((self.out or self.path).name,),
            elsewhere=(*sources(self.dataset.record, users), *original(self.path, self.out)),
        )


def sources(record: Mapping[str, Any], users: Collection[str]) -> tuple[str, ...]:
    """Return sentences on what the record of a dataset says that it was made from."""
    sentences = []
    if isinstance(source := record.get("source"), str):
        sentences.append(f"{source}, which the data was prepared from, still holds the users; delete their rows there.")
    if where := mentions(record, users):
        sentences.append(f"The recorded condition of reading ({where}) names a user; prepare the data without it.")
    return tuple(sentences)


def original(path: Path, out: Path | None) -> tuple[str, ...]:
    """Return a sentence on the original if the result is elsewhere."""
    return () if out is None else (f"{path} itself is as it was and still holds the users.",)


def open_target(path: Path, *, out: Path | None = None, data: Any = None, notify: Notify | None = None) -> Target:
    """Return the run folder, dataset or saved recommender at a path; ``data`` and ``notify`` are for a run."""
    if any((path / stage / loading.RUN).is_file() for stage in (".", loading.FIRST_STAGE)):
        from dgcf.recommend.forget_run import RunFolder  # here, because torch takes seconds to import

        return RunFolder(path, data, out, notify)
    if data is not None:
        raise ConfigError(f"--data is for a run folder, which {path} is not; leave it out.")
    sweep(path.resolve())
    if (path / DATASET_ABOUT).is_file():
        return DatasetFolder(path, out)
    if path.is_file() or (path / MANIFEST).is_file():
        return RecommenderFile(path, out)
    what = "holds none of these" if path.exists() else "does not exist"
    raise DataError(
        f"{path} {what}, expected a run folder, a saved recommender, a prepared dataset or the data folder of a "
        "service; check the path."
    )


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file that stays as it is a second name, or copy it where that is not possible."""
    with explain_os_errors(target):
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, target, follow_symlinks=False)
