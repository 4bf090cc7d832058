"""``dgcf forget``: remove users from a run, a saved recommender, a dataset and the data folder of a service."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dgcf.cli.inputs import Device, RunData, out_option
from dgcf.cli.terminal import AsJson, emit, notify, progress
from dgcf.cli.views import forget as view
from dgcf.errors import ConfigError

if TYPE_CHECKING:
    from dgcf.recommend.forget import Target

EVENTS = "events.sqlite3"


def command(
    place: Annotated[
        Path,
        Argument(
            metavar="PLACE",
            help="A run folder, a saved recommender, a prepared dataset, or the data folder of a service.",
            show_default=False,
        ),
    ],
    users: Annotated[list[str], Argument(metavar="USER…", help="Ids of users, as in the data.", show_default=False)],
    service: Annotated[
        Path | None, Option(help="Also forget them in the data folder of a service.", show_default=False)
    ] = None,
    dataset: Annotated[Path | None, Option(help="Also forget them in a prepared dataset.", show_default=False)] = None,
    out: Annotated[Path | None, out_option("Write the result there, and leave PLACE as it is.")] = None,
    measure: Annotated[
        bool,
        Option("--measure", help="Train again without the users, and compare the lists of all others. For small data."),
    ] = False,
    sign: Annotated[
        Path | None, Option(help="Ed25519 private key (PEM) to sign recommenders with.", show_default=False)
    ] = None,
    data: RunData = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Remove users: their ids, histories and rows in every file, and their events.

    The lists of all other users stay the same. What was learned from the users' pairs stays in other rows until the
    next training; the answer says how much. Their old rows do not come back with `dgcf update`. Files are replaced as
    a whole; after an interruption, run the same command again.

    Example: `dgcf forget runs/shop anna bert --dataset shop --service runs/shop-service`
    """
    from dgcf.recommend.forget import Forgetting, require_known

    names, key = tuple(dict.fromkeys(users)), None if sign is None else sign.expanduser()
    with progress(f"reading {place}"):
        targets = [_open(place.expanduser(), out, data)]
        targets += [] if dataset is None else [_open(dataset.expanduser())]
        targets += [] if service is None else [_open_service(service.expanduser())]
        require_known(targets, names)
    measured = _measure(targets[0], names, device) if measure else None
    forgetting = Forgetting(names, time.time(), key, tuple(target.path for target in targets))
    places = []
    for target in targets:
        with progress(f"forgetting in {target.path}"):
            places.append(target.remove(forgetting).to_dict())
    at = datetime.fromtimestamp(forgetting.at, UTC).isoformat(timespec="seconds")
    answer = {"users": list(names), "at": at, "places": places, "measured": measured}
    emit(answer, as_json, lambda: view.draw(answer))


def _open(path: Path, out: Path | None = None, data: str | None = None) -> Target:
    from dgcf.recommend.forget import open_target

    if out is not None and (out.exists() or (path / EVENTS).is_file()):
        why = "exists already" if out.exists() else "is for a run, a recommender or a dataset"
        raise ConfigError(f"--out {out} {why}; choose another name, or leave it out.")
    return _open_service(path) if (path / EVENTS).is_file() else open_target(path, out=out, data=data, notify=notify)


def _open_service(path: Path) -> Target:
    from dgcf.serve.forgetting import ServiceFolder

    return ServiceFolder(path)


def _measure(target: Target, users: tuple[str, ...], device: str) -> dict[str, Any] | None:
    """Return the measurement of the model at a place, as JSON data."""
    model = target.model()
    if model is None:
        raise ConfigError(f"--measure is for a run or a saved recommender, which {target.path} is not; leave it out.")
    if not any(user in model[0].users for user in users):
        return None
    from dgcf.recommend.forget_measure import measure  # here, because torch takes seconds to import

    snapshot, dataset = model
    with progress("training without the users") as update:
        return measure(snapshot, users, dataset, device=device, update=update).to_dict()
