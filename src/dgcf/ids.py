"""Ids of users and items.

A *raw id* is the id in the data (``"Ünal, Ş."``, ``196``); an *index* is the row of a matrix, a plain integer.
"""

from __future__ import annotations

RawId = str | int
"""An id as in the data: text, or an integer if the source column had an integer type."""
