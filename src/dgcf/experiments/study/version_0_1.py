"""Read studies of version 0.1, which kept their trials in Optuna's SQLite database."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dgcf.experiments.study.journal import Ending
from dgcf.stored import InvalidFileError, open_member

if TYPE_CHECKING:
    import optuna

DATABASE = "study.db"


def read_database(database: Path, settings: Iterable[str]) -> list[dict[str, Any]]:
    """Return the events of a study in Optuna's SQLite database; ``settings`` are the names that it searches."""
    import sqlite3

    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with open_member(database) as file:
            if not file.read(1):
                return []
        storage = optuna.storages.RDBStorage(
            "sqlite://", engine_kwargs={"creator": lambda: sqlite3.connect(database, check_same_thread=False)}
        )
        studies = storage.get_all_studies()
        trials = [trial for study in studies for trial in storage.get_all_trials(study._study_id, deepcopy=False)]
    except (optuna.exceptions.OptunaError, SQLAlchemyError, sqlite3.Error, ValueError, RuntimeError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise InvalidFileError(f"{database.name} is damaged ({reason})") from problem
    names = set(settings)
    # A trial without all of its settings was never trained: its process was killed while they were drawn.
    return [event for trial in trials if trial.params.keys() == names for event in _events(trial)]


def _events(trial: optuna.trial.FrozenTrial) -> Iterable[dict[str, Any]]:
    state = trial.state.name
    if state not in ("RUNNING", "COMPLETE", "PRUNED"):
        return
    yield {"event": "begun", "trial": trial.number, "settings": dict(trial.params)}
    reported = trial.intermediate_values
    for epoch, value in sorted(reported.items()):
        yield {"event": "reported", "trial": trial.number, "epoch": epoch, "value": value}
    if state != "RUNNING":
        about = trial.user_attrs
        ending = "failed" if "failed" in about else cast(Ending, state.lower())
        yield {
            "event": "ended",
            "trial": trial.number,
            "state": ending,
            "value": None if ending == "failed" else trial.value,
            "epoch": about.get("epoch", max(reported, default=None)),
            "epochs": about.get("epochs", max(reported, default=0)),
            "seconds": about.get("seconds", 0.0),
            "reason": about.get("failed"),
        }
