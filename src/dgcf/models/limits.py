"""How large a model may be asked to be: beyond these a setting is a slip of the finger."""

MAX_DIM = 8192
MAX_LAYERS = 64
