"""Experiments: training runs, comparisons of models, tuning, and the reproduction of the paper."""
