"""Rank items for users: scores, the exact masked top-k, and how a model treats new users."""
