"""Sparse products on a CPU."""
