"""Ids are ULIDs: unique, sortable by the time they were made, and safe in a URL."""

from __future__ import annotations

import re

from ulid import ULID

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_id() -> str:
    """A fresh ULID."""
    return str(ULID())


def is_id(text: str) -> bool:
    """Whether `text` has the form of our ids; anything else can't name a row of ours."""
    return _ULID.fullmatch(text) is not None
