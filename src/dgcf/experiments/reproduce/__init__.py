"""Reproduce the paper: recipes define cells, results record them, and the report shows tables and figures.

Everything up to the results runs with NumPy, SciPy, torch and safetensors alone (``python3 -m
dgcf.experiments.reproduce``), so that a bare GPU machine can train. The figures need matplotlib.
"""

from __future__ import annotations

# The order of work: tuning decides settings, then as in the paper. `all` also runs any other recipe.
IDS = (
    "tuning",
    *("table1", "table2", "table3", "table4"),
    *("loss-curve", "layers", "oscillation-diff", "correlation", "pattern", "depth", "density", "drop-edge"),
    *("epsilon", "time", "theory", "best", "composed", "lightgcn-gowalla", "parts"),
)
