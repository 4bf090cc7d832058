"""Experiment tracking: observers that log a run to TensorBoard or MLflow, in addition to the run folder.

They log the settings, each epoch's loss, validation metrics and throughput, and the test metrics at the end. A resumed
run continues its record there; an epoch that was trained twice, because a kill lost it, is logged once.
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
# No telemetry, and no minutes of retries if a server does not answer.
UNLESS_SET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


class Tracker(Observer, ABC):
    """Logs a run to another program, from its first epoch on; ``note`` receives problems."""

    def __init__(self, run: Run, note: Callable[[str], None] = lambda text: None) -> None:
        self.run, self._note = run, note
        self._open = False

    def epoch_began(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        self._begin(epoch)

    def epoch_ended(self, report: EpochReport) -> None:
        speed = {"seconds": report.seconds, "pairs_per_second": report.pairs_per_second}
        loss = {} if report.loss is None else {"loss": report.loss}
        self._log(report.epoch, {**loss, **_prefixed("validation", report.validation), **speed})

    def measured(self, split: str, metrics: Mapping[str, float], epoch: int) -> None:
        """Log the metrics of the best epoch on a split, unless they are logged already."""
        self._begin(len(self.run.metrics()) + 1)
        values = _prefixed(split, metrics)
        if not self._has(next(iter(values), "")):
            self._log(epoch, values)

    def close(self) -> None:
        """Close the record; the run may be resumed later."""

    def _begin(self, epoch: int) -> None:
        """Open the record, and log earlier epochs that it lacks from the run folder."""
        if self._open:
            return
        self._open = True
        if self._start(epoch):
            for line in self.run.metrics()[: epoch - 1]:
                values = {name: value for name, value in line.items() if name not in ("epoch", "loss")}
                loss = {"loss": line["loss"]} if "loss" in line else {}
                self._log(line["epoch"], {**loss, **_prefixed("validation", values)})

    @abstractmethod
    def _start(self, epoch: int) -> bool:
        """Open the record at ``epoch``; return whether it may lack earlier ones."""

    @abstractmethod
    def _log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Log the values of an epoch."""

    @abstractmethod
    def _has(self, name: str) -> bool:
        """Return whether a value of that name was logged in an earlier session."""


def _prefixed(part: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{part}/{name}": value for name, value in metrics.items()}


class TensorBoard(Tracker):
    """Event files in the run folder: ``tensorboard --logdir runs`` shows all runs."""

    def __init__(self, run: Run, note: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(run, note)
        with quiet(), needed("tensorboard", "TensorBoard"):
            import torch.utils.tensorboard  # noqa: F401
        self.folder = run.path / EVENTS
        self.writer: SummaryWriter | None = None

    def _start(self, epoch: int) -> bool:
        from torch.utils.tensorboard import SummaryWriter

        new = not any(self.folder.glob("events.*"))
        # Readers ignore entries of earlier files for this epoch and later ones.
        with quiet():
            self.writer = SummaryWriter(str(self.folder), purge_step=None if new else epoch)
        if new:
            self._log_settings(self.writer)
        return new

    def _log_settings(self, writer: Any) -> None:
        from torch.utils.tensorboard.summary import hparams

        settings = {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in _identity(self.run).items()
        }
        metric = self.run.recipe.train.metric
        shown = {f"validation/{metric}": 0.0, f"test/{metric}": 0.0}
        for summary in hparams(settings, shown)[:2]:  # type: ignore[no-untyped-call]
            writer.file_writer.add_summary(summary)

    def _log(self, epoch: int, values: Mapping[str, float]) -> None:
        assert self.writer is not None
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()  # before the checkpoint that counts this epoch as done: a kill must not lose it

    def _has(self, name: str) -> bool:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(self.folder))
        events.Reload()
        return name in events.Tags()["scalars"]

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class MLflow(Tracker):
    """A run of the experiment ``dgcf`` at MLFLOW_TRACKING_URI, by default in ``mlflow.db`` beside the run folders.

    ``mlflow.json`` in the run folder has its id, so that it can be resumed.
    """

    def __init__(self, run: Run, note: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(run, note)
        for name, value in UNLESS_SET.items():
            os.environ.setdefault(name, value)
        with quiet(), needed("mlflow", "MLflow"):
            import mlflow.tracking  # noqa: F401
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.path.resolve().parent / 'mlflow.db'}"
        self.client: MlflowClient | None = None
        self.id = ""
        self._last_epochs: dict[str, int] = {}
        self._over = False

    def _start(self, epoch: int) -> bool:
        from mlflow import MlflowClient

        with quiet(), explained(self.uri):
            client = MlflowClient(tracking_uri=self.uri)
            existing = self._existing(client)
            self.id = existing or self._create(client)
            if existing:
                client.update_run(existing, status="RUNNING")
        self.client = client
        with atomic_file(self.run.path / MLFLOW) as beside:
            beside.write_text(json.dumps({"uri": self.uri, "run_id": self.id}) + "\n")
        return True  # the server may have been unreachable for a while

    def _existing(self, client: MlflowClient) -> str | None:
        """Return the id of the run that was created earlier, if it still exists."""
        from mlflow.exceptions import MlflowException

        with contextlib.suppress(OSError, ValueError, KeyError, MlflowException):
            about = decode_json(read_member(self.run.path / MLFLOW), dict[str, str])
            if about["uri"] == self.uri:
                return str(client.get_run(about["run_id"]).info.run_id)
        return None

    def _create(self, client: MlflowClient) -> str:
        from mlflow.entities import Param

        experiment = client.get_experiment_by_name(EXPERIMENT)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
        tags = {"dgcf.run": str(self.run.path.resolve())}
        run_id = client.create_run(experiment_id, run_name=self.run.path.name, tags=tags).info.run_id
        client.log_batch(run_id, params=[Param(name, str(value)) for name, value in _identity(self.run).items()])
        return str(run_id)

    def _log(self, epoch: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        if self.client is None:
            return
        now = int(time.time() * 1000)
        try:
            new = {mlflow_name(name): value for name, value in values.items() if epoch > self._last(name)}
            if new:
                metrics = [Metric(name, value, now, epoch) for name, value in new.items()]
                with quiet(), explained(self.uri):
                    self.client.log_batch(self.id, metrics=metrics)
        except DataError as problem:  # must not stop training
            self.client = None
            self._note(f"{problem} The rest of this session is not tracked; --resume with --track logs it later.")

    def _last(self, name: str) -> int:
        """Return the last epoch for which this was logged before this session."""
        if name not in self._last_epochs:
            assert self.client is not None
            with quiet(), explained(self.uri):
                history = self.client.get_metric_history(self.id, mlflow_name(name))
            self._last_epochs[name] = max((metric.step for metric in history), default=0)
        return self._last_epochs[name]

    def _has(self, name: str) -> bool:
        return self.client is None or self._last(name) > 0

    def finished(self, reason: str) -> None:
        self._over = not reason.startswith("interrupted")

    def close(self) -> None:
        if self.client is None:
            return
        try:
            with quiet(), explained(self.uri):
                self.client.set_terminated(self.id, status="FINISHED" if self._over else "KILLED")
        except DataError as problem:
            self._note(str(problem))


def mlflow_name(name: str) -> str:
    """Return a metric's name as MLflow allows it, without @."""
    return name.replace("@", "_at_")


def _identity(run: Run) -> dict[str, Any]:
    """Return the model, dataset, seed and settings of a run."""
    about = run.about
    names = {"model": about["model"], "preset": about["preset"], "dataset": about["dataset"]["name"], "seed": run.seed}
    return {**names, **about["settings"]}


TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


@contextlib.contextmanager
def tracked(names: Sequence[str], run: Run, note: Callable[[str], None] = lambda text: None) -> Iterator[list[Tracker]]:
    """Yield a tracker for each distinct name, for a run that is about to be trained; ``note`` receives problems."""
    refuse_unknown_trackers(names)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(TRACKERS[name](run, note))) for name in dict.fromkeys(names)]


def refuse_unknown_trackers(names: Sequence[str]) -> None:
    """Raise ``ConfigError`` for the first name that is not a tracker."""
    for name in names:
        if name not in TRACKERS:
            hint = did_you_mean(name, TRACKERS) or f"; there are {' and '.join(TRACKERS)}."
            raise ConfigError(f"runs cannot be tracked with {name!r}{hint}")


@contextlib.contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    try:
        yield
    except ImportError as problem:
        raise ConfigError(f"{what} is not installed; pip install 'dgcf[{extra}]'.") from problem


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the log messages and warnings of those programs."""
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
def explained(uri: str) -> Iterator[None]:
    """Raise ``DataError`` for a server that does not answer or a store that cannot be written."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError  # older versions of MLflow let it through

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:
        reason = shorten(str(problem), 160, placeholder=" …").rstrip(".")
        raise DataError(
            f"cannot track in {uri}: {reason}; repair it or set MLFLOW_TRACKING_URI, or continue without --track."
        ) from problem
