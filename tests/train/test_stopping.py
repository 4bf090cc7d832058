"""Early stopping: patience counts evaluations after ``min_epochs``."""

from __future__ import annotations

import json

from dgcf.train.stopping import EarlyStopping


def run(stopping: EarlyStopping, values: dict[int, float]) -> int | None:
    """The epoch at which it stops."""
    for epoch, value in values.items():
        stopping.update(epoch, value)
        if stopping.exhausted:
            return epoch
    return None


def test_it_stops_after_patience_evaluations_without_growth() -> None:
    stopping = EarlyStopping(patience=3, min_epochs=0)
    assert run(stopping, {1: 0.1, 2: 0.2, 3: 0.2, 4: 0.1, 5: 0.2, 6: 0.9}) == 5
    assert (stopping.best, stopping.best_epoch) == (0.2, 2)


def test_growth_starts_the_count_again() -> None:
    assert run(EarlyStopping(2, 0), {1: 0.1, 2: 0.0, 3: 0.2, 4: 0.0, 5: 0.1, 6: 0.3}) == 5


def test_a_plateau_up_to_min_epochs_uses_no_patience_but_may_be_the_best() -> None:
    plateau = dict.fromkeys(range(1, 20), 0.25)
    assert run(EarlyStopping(5, 0), plateau) == 6
    assert run(EarlyStopping(5, 12), plateau) == 17
    early_best = EarlyStopping(2, 3)
    run(early_best, {1: 0.3, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1})
    assert early_best.best_epoch == 1
    assert early_best.exhausted


def test_patience_zero_never_stops() -> None:
    assert run(EarlyStopping(0, 0), dict.fromkeys(range(1, 500), 0.1)) is None


def test_nan_is_no_progress() -> None:
    stopping = EarlyStopping(2, 0)
    assert run(stopping, {1: float("nan"), 2: float("nan")}) == 2
    assert stopping.best_epoch == 0


def test_the_state_survives_json() -> None:
    for values in ({}, {1: 0.3, 2: 0.1}):
        before, after = EarlyStopping(2, 0), EarlyStopping(2, 0)
        run(before, values)
        after.restore(json.loads(json.dumps(before.state(), allow_nan=False)))
        assert before == after


def test_state_that_any_value_improves_survives_json() -> None:
    state = {"best": None, "best_epoch": 1, "stale": 0}
    stopping = EarlyStopping(2, 0)
    stopping.restore(state)
    assert json.loads(json.dumps(stopping.state(), allow_nan=False)) == state
    assert stopping.update(2, 0.0)
