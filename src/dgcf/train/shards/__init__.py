"""Training over several processes: the group of processes, and how the state of a training is divided among them."""

from dgcf.graph import Propagation
from dgcf.models.base import GraphModel
from dgcf.train.shards.base import MODES, Mode, Sharding, Undivided
from dgcf.train.shards.columns import Columns
from dgcf.train.shards.rows import Rows
from dgcf.train.shards.world import ALONE, Group, World


def sharding_of(world: World, mode: Mode, model: GraphModel, propagation: Propagation | None) -> Sharding:
    """Return how a model is divided among the processes of ``world``."""
    if not isinstance(world, Group):
        return Undivided()
    return Columns(world, model.dim) if mode == "columns" else Rows(world, propagation)


__all__ = ["ALONE", "MODES", "Group", "Mode", "Sharding", "Undivided", "World", "sharding_of"]
