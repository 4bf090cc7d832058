"""Optuna, in memory: draws the settings of trials, decides which are pruned, and ranks settings by importance."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dgcf.config import OneOf, Space
from dgcf.experiments.space import Spaces
from dgcf.random import bits

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

STARTUP_TRIALS = 10
"""Trials drawn at random before the estimator draws them."""
COMPLETE_BEFORE_PRUNING = 5


class Sampler:
    """An Optuna study that is rebuilt from the journal by whoever opens the study folder.

    Trials draw from ``seed``, the first one is ``start``, and none is pruned before epoch ``warm_up``.
    """

    def __init__(self, spaces: Spaces, start: Mapping[str, Any], *, seed: int, warm_up: int) -> None:
        import optuna

        self.start, self.seed = start, seed
        self.distributions = {name: _distribution(space) for name, space in spaces.items()}
        self.storage = optuna.storages.InMemoryStorage()
        pruner = optuna.pruners.MedianPruner(n_startup_trials=COMPLETE_BEFORE_PRUNING, n_warmup_steps=warm_up)
        with quiet():
            self.study = optuna.create_study(storage=self.storage, direction="maximize", pruner=pruner)
        self.study_id = self.storage.get_study_id_from_name(self.study.study_name)

    def draw(self, number: int) -> tuple[int, dict[str, Any]]:
        """Draw the settings of the trial ``number``; return its key and settings."""
        import optuna

        # By seed and number, not by what this process drew before: a study that was killed resumes as it would have.
        seed = int(bits(self.seed, "tune", 1, number)[0] >> 32)
        self.study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=seed
        )
        if number == 0:
            self.study.enqueue_trial(dict(self.start))
        trial = self.study.ask(self.distributions)
        key = self.storage.get_trial_id_from_study_id_trial_number(self.study_id, trial.number)
        return int(key), dict(trial.params)

    def add(self, settings: Mapping[str, Any]) -> int:
        """Add a trial that was drawn before; return its key."""
        from optuna.trial import TrialState, create_trial

        template = create_trial(state=TrialState.RUNNING, params=dict(settings), distributions=dict(self.distributions))
        return int(self.storage.create_new_trial(self.study_id, template_trial=template))

    def report(self, key: int, epoch: int, value: float) -> None:
        self.storage.set_trial_intermediate_value(key, epoch, value)

    def end(self, key: int, value: float, *, pruned: bool) -> None:
        from optuna.trial import TrialState

        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        self.storage.set_trial_state_values(key, state, [value])

    def is_worse(self, key: int) -> bool:
        """Return whether a trial is below the median of the complete ones at its last report."""
        import optuna

        return bool(optuna.Trial(self.study, key).should_prune())

    def importance(self) -> dict[str, float]:
        """Return the share of each setting in what sets the best trials apart (PED-ANOVA); empty for few trials."""
        import optuna

        complete = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        if len(complete) < COMPLETE_BEFORE_PRUNING:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # fANOVA would need scikit-learn
        shares = optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        return {name: float(share) for name, share in shares.items()}


def _distribution(space: Space) -> BaseDistribution:
    """Return the space as Optuna's type."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(space, OneOf):
        return CategoricalDistribution(space.values)
    if isinstance(space.low, int) and isinstance(space.high, int):
        return IntDistribution(space.low, space.high, log=space.log)
    return FloatDistribution(space.low, space.high, log=space.log)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the messages of Optuna."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
