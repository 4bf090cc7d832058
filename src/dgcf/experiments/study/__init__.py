"""Studies: folders of trials that several processes share."""

from dgcf.experiments.study.folder import Claim, Study
from dgcf.experiments.study.trials import TrialSummary, best_of, format_settings

__all__ = ["Claim", "Study", "TrialSummary", "best_of", "format_settings"]
