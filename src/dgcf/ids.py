"""Ids of users and items.

A *raw id* is the id in the data (``"Ünal, Ş."``, ``196``); an *index* is the row of a matrix, a plain integer.
"""

from __future__ import annotations

import hashlib

RawId = str | int
"""An id as in the data: text, or an integer if the source column had an integer type."""


def user_digest(user: str) -> str:
    """Return the digest that stands for a forgotten user."""
    return hashlib.blake2b(user.encode(), digest_size=16, person=b"user").hexdigest()
