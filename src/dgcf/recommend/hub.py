"""Push a recommender to a repository of the Hugging Face Hub, and load it from there.

The repository holds ``recommender.dgcf``, the model card as ``README.md``, and the same card as ``card.json``. The
token is that of ``hf auth login`` or of HF_TOKEN; HF_ENDPOINT names another hub.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from dgcf.errors import ArtifactError, ConfigError, DataError
from dgcf.recommend.card import card_markdown, model_card
from dgcf.recommend.recommender import Recommender

MODEL, README, CARD = "recommender.dgcf", "README.md", "card.json"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}")
# As a path, ``hf://`` has lost a slash.
_ADDRESS = re.compile(rf"hf:/{{1,2}}({_REPOSITORY.pattern})(?:@([A-Za-z0-9._/-]+))?")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{4,}")


class Address(NamedTuple):
    """A repository, and the branch, tag or commit of it (None for its main branch)."""

    repository: str
    revision: str | None

    def __str__(self) -> str:
        return f"hf://{self.repository}" + ("" if self.revision is None else f"@{self.revision}")


def address_of(path: str | Path) -> Address | None:
    """Return the address that ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION`` names; None for another path."""
    text = str(path)
    if not text.startswith("hf:/"):
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text} is no address of a model, expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION.")
    return Address(match[1], match[2])


def push(rec: Recommender, repository: str, *, private: bool = False, sign: str | Path | None = None) -> dict[str, Any]:
    """Push a recommender and its card in one commit, and return where they are; create the repository if needed."""
    if not _REPOSITORY.fullmatch(repository):
        raise ConfigError(f"--hub is {repository!r}, expected OWNER/NAME.")
    library, card, address = _library(), model_card(rec), Address(repository, None)
    with tempfile.TemporaryDirectory() as name, _explained(library, address):
        folder = Path(name)
        rec.save(folder / MODEL, sign=sign)
        text = card_markdown(card, name=repository.partition("/")[2], load=str(address))
        (folder / README).write_text(text, encoding="utf-8")
        (folder / CARD).write_text(json.dumps(card, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        api = library.HfApi(library_name="dgcf")
        api.create_repo(repository, private=private or None, exist_ok=True)
        message = f"{card['model']} on {card['data']['name'] or 'user-item pairs'}"
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
    return {
        "format": "hub",
        "url": f"{api.endpoint}/{repository}",
        "commit": commit.oid,
        "load": str(address),
        "users": card["data"]["users"],
        "items": card["data"]["items"],
    }


def download(address: Address) -> Path:
    """Return the recommender file of a repository, from the cache of the hub if it is there and current."""
    library = _library()
    with _explained(library, address):
        return Path(library.hf_hub_download(address.repository, MODEL, revision=address.revision))


@contextlib.contextmanager
def _explained(library: Any, address: Address) -> Iterator[None]:
    """Raise an error of dgcf, without a token, for what the hub or the connection to it reports."""
    errors = library.errors
    missing = (errors.EntryNotFoundError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
    unreachable = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)
    try:
        yield
    except errors.LocalTokenNotFoundError:
        raise ConfigError("the hub needs a token; log in with `hf auth login`, or set HF_TOKEN.") from None
    except unreachable:
        raise DataError(f"{address} is not in the cache and the hub does not answer; try again later.") from None
    except missing:
        raise ArtifactError(
            f"{address} is not on the hub, has no {MODEL}, or is private; check its name, or log in (`hf auth login`)."
        ) from None
    except (errors.HfHubHTTPError, OSError, ValueError) as problem:
        raise DataError(f"the hub refused {address}: {_line(str(problem))}; correct that and try again.") from None
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] not in ("httpx", "httpx2", "requests", "httpcore", "httpcore2"):
            raise
        raise DataError(f"the hub does not answer ({type(problem).__name__}); try again later.") from None


def _line(text: str) -> str:
    """Return a message in one line, shortened and without tokens."""
    return _TOKEN.sub("***", " ".join(text.split()))[:200].rstrip(".")


def _library() -> Any:
    try:
        library = import_module("huggingface_hub")
        import_module("huggingface_hub.errors")
    except ImportError:
        raise ConfigError("the hub needs huggingface_hub; install it with: pip install 'dgcf[hub]'.") from None
    import_module("huggingface_hub.utils").disable_progress_bars()
    return library
