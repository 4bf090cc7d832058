"""Evaluate rankings: metrics, their uncertainty, and paired tests."""
