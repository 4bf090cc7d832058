"""Two kinds of numbers that must never be mixed up: what the user calls a thing, and where we keep it.

A *raw id* is what the data said (``"Ünal, Ş."``, ``196``); an *index* is a row of a matrix. The type checker keeps
them apart; at run time an index is a plain integer.
"""

from __future__ import annotations

from typing import NewType

RawId = str | int
"""An id as the data gave it: text, or a whole number where the data was typed."""

UserIndex = NewType("UserIndex", int)
"""A row of the user–item matrix."""

ItemIndex = NewType("ItemIndex", int)
"""A column of the user–item matrix."""
