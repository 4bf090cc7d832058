"""The paper, reproduced: recipes become cells, cells become lines of ``results``, and these become tables and figures.

Everything up to the results runs with NumPy, SciPy, torch and safetensors alone (``python3 -m
dgcf.experiments.reproduce``), so that a bare GPU machine can train; drawing needs matplotlib.
"""

from __future__ import annotations

# First what decides settings, then the order of the paper, which is also the order of work; `all` is every one of them,
# and whatever else lies among the recipes.
IDS = (
    "tuning",
    *("table1", "table2", "table3", "table4"),
    *("loss-curve", "layers", "oscillation-diff", "correlation", "pattern", "depth", "density", "drop-edge"),
    *("epsilon", "time", "theory", "best", "lightgcn-gowalla", "parts"),
)
