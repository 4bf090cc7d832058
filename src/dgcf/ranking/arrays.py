"""Names of the types that rankings are made of."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Side = Literal["user", "item"]
