"""What a model may say and Postgres can't store."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text without NUL characters, and with a mark in place of half a surrogate pair."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
