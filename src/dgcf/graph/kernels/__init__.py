"""Sparse products on each kind of device."""
