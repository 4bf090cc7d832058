"""Watching runs with other programs: an observer each for TensorBoard and MLflow; the run folder is whole without them.

Both are told the settings, each epoch's loss, validation metrics and throughput, and in the end what was measured on
test. A run that goes on goes on there too: an epoch that was trained twice, because a kill lost it, is told once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from dgcf.errors import ConfigError, DataError, did_you_mean
from dgcf.files import atomic_file
from dgcf.stored import decode_json, read_member
from dgcf.train.run.folder import Run
from dgcf.train.run.observer import EpochReport, Observer

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from torch.utils.tensorboard import SummaryWriter

EVENTS = "tensorboard"
MLFLOW = "mlflow.json"
EXPERIMENT = "dgcf"
# Training calls nobody else, and a server that is away is not asked for minutes.
UNLESS_SET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


class Tracker(Observer, ABC):
    """Tells another program how a run goes. Nothing is opened before it begins; ``note`` hears what goes wrong."""

    def __init__(self, run: Run, note: Callable[[str], None] = lambda text: None) -> None:
        self.run, self._note = run, note
        self._open = False

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        self._begin(epoch)

    def epoch_ended(self, report: EpochReport) -> None:
        speed = {"seconds": report.seconds, "pairs_per_second": report.pairs_per_second}
        loss = {} if report.loss is None else {"loss": report.loss}
        self._tell(report.epoch, {**loss, **_under("validation", report.validation), **speed})

    def measured(self, split: str, metrics: Mapping[str, float], epoch: int) -> None:
        """Tell what the best epoch reached on a split, unless that was told before."""
        self._begin(len(self.run.metrics()) + 1)
        found = _under(split, metrics)
        if not self._knows(next(iter(found), "")):
            self._tell(epoch, found)

    def close(self) -> None:
        """Everything told is kept; the run may go on another time."""

    def _begin(self, epoch: int) -> None:
        """Open the record; what it lacks of the epochs before this one is told from the run folder."""
        if self._open:
            return
        self._open = True
        if self._start(epoch):  # whether it may lack any
            for line in self.run.metrics()[: epoch - 1]:
                values = {name: value for name, value in line.items() if name not in ("epoch", "loss")}
                loss = {"loss": line["loss"]} if "loss" in line else {}
                self._tell(line["epoch"], {**loss, **_under("validation", values)})

    # What each program has its own way for:

    @abstractmethod
    def _start(self, epoch: int) -> bool:
        """Open the record to go on at ``epoch``; whether it may lack earlier ones."""

    @abstractmethod
    def _tell(self, epoch: int, values: Mapping[str, float]) -> None:
        """Add the values of an epoch to the record."""

    @abstractmethod
    def _knows(self, name: str) -> bool:
        """Whether a value of that name was told in an earlier sitting."""


def _under(part: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{part}/{name}": value for name, value in metrics.items()}


class TensorBoard(Tracker):
    """Event files in the run folder: ``tensorboard --logdir runs`` shows all runs side by side."""

    def __init__(self, run: Run, note: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(run, note)
        with _quiet(), _needed("tensorboard", "TensorBoard"):
            import torch.utils.tensorboard  # noqa: F401
        self.writer: SummaryWriter | None = None

    @property
    def folder(self) -> Path:
        return self.run.path / EVENTS

    def _start(self, epoch: int) -> bool:
        from torch.utils.tensorboard import SummaryWriter

        new = not any(self.folder.glob("events.*"))
        # Readers leave out what earlier files say of this epoch and later ones.
        with _quiet():
            self.writer = SummaryWriter(str(self.folder), purge_step=None if new else epoch)
        if new:
            self._tell_settings(self.writer)
        return new

    def _tell_settings(self, writer: Any) -> None:
        from torch.utils.tensorboard.summary import hparams

        settings = {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in _identity(self.run).items()
        }
        metric = self.run.recipe.train.metric
        shown = {f"validation/{metric}": 0.0, f"test/{metric}": 0.0}
        for summary in hparams(settings, shown)[:2]:  # type: ignore[no-untyped-call]
            writer.file_writer.add_summary(summary)

    def _tell(self, epoch: int, values: Mapping[str, float]) -> None:
        assert self.writer is not None
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()  # before the checkpoint that counts this epoch as done: a kill must not lose it

    def _knows(self, name: str) -> bool:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        assert self.writer is not None
        found = EventAccumulator(str(self.folder))
        found.Reload()
        return name in found.Tags()["scalars"]

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class MLflow(Tracker):
    """A run of the experiment ``dgcf`` where MLFLOW_TRACKING_URI says, or else in ``mlflow.db`` beside the run folders.

    ``mlflow.json`` in the run folder says which one it is, so that it can be gone on with.
    """

    def __init__(self, run: Run, note: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(run, note)
        for name, value in UNLESS_SET.items():
            os.environ.setdefault(name, value)
        with _quiet(), _needed("mlflow", "MLflow"):
            import mlflow.tracking  # noqa: F401
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.path.resolve().parent / 'mlflow.db'}"
        self.client: MlflowClient | None = None
        self.id = ""
        self._told: dict[str, int] = {}

    def _start(self, epoch: int) -> bool:
        from mlflow import MlflowClient

        with _quiet(), _explained(self.uri):
            client = MlflowClient(tracking_uri=self.uri)
            found = self._found(client)
            self.id = found or self._created(client)
            if found:
                client.update_run(found, status="RUNNING")
        self.client = client
        with atomic_file(self.run.path / MLFLOW) as beside:
            beside.write_text(json.dumps({"uri": self.uri, "run_id": self.id}) + "\n")
        return True  # a server may have been away for a while

    def _found(self, client: MlflowClient) -> str | None:
        """The run that was begun there before, if it still exists."""
        from mlflow.exceptions import MlflowException

        with contextlib.suppress(OSError, ValueError, KeyError, MlflowException):
            about = decode_json(read_member(self.run.path / MLFLOW), dict[str, str])
            if about["uri"] == self.uri:
                return str(client.get_run(about["run_id"]).info.run_id)
        return None

    def _created(self, client: MlflowClient) -> str:
        from mlflow.entities import Param

        experiment = client.get_experiment_by_name(EXPERIMENT)
        where = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
        made = client.create_run(where, run_name=self.run.path.name, tags={"dgcf.run": str(self.run.path.resolve())})
        params = [Param(name, str(value)) for name, value in _identity(self.run).items()]
        client.log_batch(made.info.run_id, params=params)
        return str(made.info.run_id)

    def _tell(self, epoch: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        if self.client is None:
            return
        now = int(time.time() * 1000)
        try:
            new = {_spelled(name): value for name, value in values.items() if epoch > self._last(name)}
            if new:
                metrics = [Metric(name, value, now, epoch) for name, value in new.items()]
                with _quiet(), _explained(self.uri):
                    self.client.log_batch(self.id, metrics=metrics)
        except DataError as problem:  # no reason to lose a night's training
            self.client = None
            self._note(f"{problem} The rest of this sitting is not tracked; --resume with --track tells it later.")

    def _last(self, name: str) -> int:
        """The last epoch of which this was told before this sitting."""
        if name not in self._told:
            assert self.client is not None
            with _quiet(), _explained(self.uri):
                history = self.client.get_metric_history(self.id, _spelled(name))
            self._told[name] = max((metric.step for metric in history), default=0)
        return self._told[name]

    def _knows(self, name: str) -> bool:
        return self.client is None or self._last(name) > 0

    def finished(self, reason: str) -> None:
        self._over = not reason.startswith("interrupted")

    _over = False

    def close(self) -> None:
        if self.client is None:
            return
        try:
            with _quiet(), _explained(self.uri):
                self.client.set_terminated(self.id, status="FINISHED" if self._over else "KILLED")
        except DataError as problem:
            self._note(str(problem))


def _spelled(name: str) -> str:
    """A metric's name as MLflow allows it: it has no @."""
    return name.replace("@", "_at_")


def _identity(run: Run) -> dict[str, Any]:
    """What the run is of: model, dataset, seed and every setting."""
    about = run.about
    names = {"model": about["model"], "preset": about["preset"], "dataset": about["dataset"]["name"], "seed": run.seed}
    return {**names, **about["settings"]}


TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


@contextlib.contextmanager
def tracked(names: Sequence[str], run: Run, note: Callable[[str], None] = lambda text: None) -> Iterator[list[Tracker]]:
    """The trackers of those names, each once, for a run that is about to be trained; ``note`` hears of lost ones."""
    refuse_unknown_trackers(names)
    found = [TRACKERS[name](run, note) for name in dict.fromkeys(names)]
    try:
        yield found
    finally:
        for tracker in found:
            tracker.close()


def refuse_unknown_trackers(names: Sequence[str]) -> None:
    """Stop at the first name that is no tracker's."""
    for name in names:
        if name not in TRACKERS:
            hint = did_you_mean(name, TRACKERS) or f"; there are {' and '.join(TRACKERS)}."
            raise ConfigError(f"runs cannot be tracked with {name!r}{hint}")


@contextlib.contextmanager
def _needed(extra: str, what: str) -> Iterator[None]:
    try:
        yield
    except ImportError as problem:
        raise ConfigError(f"{what} is not installed; pip install 'dgcf[{extra}]'.") from problem


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Those programs speak of themselves; the person at the keyboard asked about the training."""
    before = {name: logging.getLogger(name).level for name in ("mlflow", "alembic", "tensorboard")}
    for name in before:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextlib.contextmanager
def _explained(uri: str) -> Iterator[None]:
    """One sentence for a server that does not answer or a store that cannot be written."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError  # older versions of MLflow let it through

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:
        reason = shorten(str(problem), 160, placeholder=" …").rstrip(".")
        raise DataError(
            f"cannot track in {uri}: {reason}; mend it or set MLFLOW_TRACKING_URI, or go on without --track."
        ) from problem
