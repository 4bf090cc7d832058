"""The paper, reproduced: recipes become cells, cells become lines of ``results``, and these become tables and figures.

Everything up to the results runs with NumPy, SciPy, torch and safetensors alone (``python3 -m
dgcf.experiments.reproduce``), so that a bare GPU machine can train; drawing needs matplotlib.
"""
