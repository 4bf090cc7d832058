"""Evaluate rankings: metrics with their uncertainty, and paired tests."""
