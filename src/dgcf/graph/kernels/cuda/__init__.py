"""Sparse products on a CUDA device, in Triton."""
