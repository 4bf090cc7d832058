"""The OpenAPI document as a page for readers: HTML without scripts."""

from __future__ import annotations

from typing import Any


def reference(document: dict[str, Any]) -> bytes:
    """Return the page."""
    return f"<!doctype html><title>{document['info']['title']}</title>".encode()
