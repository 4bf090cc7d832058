"""The composed ranking: item weights and priors of training-free models, added to the scores of trained embeddings."""

from dgcf.train.blend.config import BlendConfig
from dgcf.train.blend.fit import Blender, BlendInterrupted
from dgcf.train.blend.result import Blending

__all__ = ["BlendConfig", "BlendInterrupted", "Blender", "Blending"]
