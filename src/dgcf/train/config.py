"""The settings of the training loop, except device and seed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from torch import Tensor

from dgcf.config import Between, OneOf, require_one_of, require_range, tunable
from dgcf.errors import ConfigError
from dgcf.train.losses import LOSSES, OBJECTIVES, LossName, Objective
from dgcf.train.sampler import SAMPLERS, Sampling

WHOLE = 2**31
MAX_OWN_NEGATIVES = 1024
# DirectAU compares all pairs of a batch, which takes long with the large batches of large data: only on request.
LOSS_SPACE = OneOf(("bpr", "bpr-hardest", "softmax", "softmax-product"))


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the training loop; the defaults are for an unknown dataset."""

    learning_rate: float = tunable(1e-3, Between(1e-4, 1e-2, log=True))
    """Adam's step size."""
    l2: float = tunable(1e-3, Between(1e-5, 1e-1, log=True))
    """λ: adds λ · ½ Σ‖e‖² / batch over the layer-0 rows of the batch's users, positives and negatives."""
    batch_size: int = 2048
    """Training pairs in one step."""
    epochs: int = 1000
    """The most epochs; without a validation split, exactly as many."""
    min_epochs: int = 50
    """Evaluations up to this epoch never use up patience: they may be on the popularity plateau."""
    patience: int = 20
    """Stop after that many evaluations without a better value; 0 never stops early."""
    evaluate_every: int = 5
    """Epochs from one validation to the next."""
    metric: str = "recall@20"
    """The validation metric that picks the best epoch."""
    edge_dropout: float = tunable(0.0, Between(0.0, 0.5))
    """Share of the propagation's entries left out of each training step, the rest scaled up by 1/(1−p)."""
    dropout_draws: Literal["layer", "step"] = "layer"
    """Each ``layer`` draws its own (the paper), or all layers of a ``step`` share one draw (the authors' code)."""
    loss: LossName = tunable("bpr", LOSS_SPACE)  # noqa: RUF009 (a field, as of the others)
    """``bpr``; ``bpr-hardest``: against the highest-scored of a pair's negatives; ``softmax``: sampled, on cosines;
    ``softmax-product``: on inner products; ``directau``: alignment and uniformity."""
    sampler: Sampling = "interaction"
    """``interaction``: each training pair once an epoch; ``user``: uniform users, one positive each."""
    recency: float = 0.0
    """Above 0, favours recent pairs: a pair with k later pairs of the same user is drawn, with replacement, with weight
    ``(1 + k) ** -recency``. Requires data with a known order (``dgcf data prepare --keep-order``)."""
    weighted_sampling: bool = False
    """Draw pairs, with replacement, in proportion to their weights. Requires data with weights (``--weight-col``) and
    the sampler ``interaction``."""
    temperature: float = tunable(0.2, Between(0.05, 0.5, log=True))
    """τ of the softmax loss: the lower, the more the hardest negatives count."""
    uniformity: float = tunable(1.0, Between(0.1, 10.0, log=True))
    """γ of the directau loss: how strongly rows are spread, against pairs being drawn together."""
    storage: Literal["float32", "bfloat16"] = "float32"
    """Type in which a GPU stores layers and their gradients; sums and weights are always float32."""
    negatives: int | None = None
    """Number of negatives: per pair (default 1; 8 for ``bpr-hardest``), or shared by the batch (softmax: 1024)."""
    popularity: float = 0.0
    """Shared negatives are drawn with probability ∝ (training pairs of the item)^popularity; 0 is uniform."""

    def __post_init__(self) -> None:
        require_one_of("storage", self.storage, ("float32", "bfloat16"))
        require_one_of("loss", self.loss, LOSSES)
        require_one_of("sampler", self.sampler, SAMPLERS)
        require_one_of("dropout_draws", self.dropout_draws, ("layer", "step"))
        require_range("learning_rate", self.learning_rate, 0, 10)
        require_range("l2", self.l2, 0, 1e6)
        require_range("temperature", self.temperature, 0, 1e3, open_low=True)
        require_range("edge_dropout", self.edge_dropout, 0, 0.99)
        for name in ("batch_size", "epochs", "evaluate_every"):
            require_range(name, getattr(self, name), 1, WHOLE)
        for name in ("min_epochs", "patience"):
            require_range(name, getattr(self, name), 0, WHOLE)
        require_range("uniformity", self.uniformity, 0, 1e6)
        if self.objective.negatives == 0 and self.negatives:
            raise ConfigError(
                f"negatives is {self.negatives}, but the loss {self.loss} has none; leave it out, or change the loss."
            )
        require_range("recency", self.recency, 0, 10)
        if self.weighted_sampling and (self.sampler != "interaction" or self.recency):
            raise ConfigError(
                "weighted_sampling draws pairs by their weights alone; set the sampler to interaction, and leave "
                "recency out."
            )
        require_range("popularity", self.popularity, 0, 2)
        if self.popularity and not self.objective.shared:
            raise ConfigError(
                f"popularity is {self.popularity:g}, but the loss {self.loss} shares no negatives in a batch; leave it "
                "out, or set the loss to softmax."
            )
        if self.objective.negatives:
            # Shared negatives are limited by the number of items; those of each pair multiply the rows of a batch.
            require_range("negatives", self.n_negatives, 1, WHOLE if self.objective.shared else MAX_OWN_NEGATIVES)

    @property
    def objective(self) -> Objective:
        """The loss and the batches that it needs."""
        return OBJECTIVES[self.loss]

    def score(self, users: Tensor, positives: Tensor, negatives: Tensor, hits: Tensor | None = None) -> Tensor:
        """Return the loss of a batch's final rows without L2, a scalar; ``hits`` belongs to shared negatives."""
        shared = {} if hits is None else {"hits": hits}
        return self.objective.value(users, positives, negatives, **self.loss_settings, **shared)

    @property
    def loss_settings(self) -> dict[str, float]:
        """The settings that the loss reads, by name."""
        return {name: getattr(self, name) for name in self.objective.settings}

    @property
    def unread(self) -> list[str]:
        """The settings that only other losses read."""
        others = dict.fromkeys(name for objective in OBJECTIVES.values() for name in objective.settings)
        return [name for name in others if name not in self.objective.settings]

    @property
    def without_effect(self) -> list[str]:
        """Those of them that are not at their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return [name for name in self.unread if getattr(self, name) != defaults[name]]

    @property
    def n_negatives(self) -> int:
        """``negatives``, or the default of the loss."""
        return self.objective.negatives if self.negatives is None else self.negatives
