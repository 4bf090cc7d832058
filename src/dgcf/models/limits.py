"""How large a model may be asked to be: beyond these a setting is a slip of the finger."""

from dgcf.config import Between, OneOf

MAX_DIM = 8192
MAX_LAYERS = 64
WIDTHS = OneOf((32, 64, 128))
"""The widths that the paper searched."""
DEPTHS = Between(1, 4)
"""The depths that the paper searched."""
