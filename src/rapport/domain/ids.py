"""Create and check ids. They are ULIDs: unique, sortable by creation time and safe in a URL."""

from __future__ import annotations

import re

from ulid import ULID

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_id() -> str:
    """Return a new ULID."""
    return str(ULID())


EPHEMERAL_PREFIX = "7"
"""The first character of the ids of ephemeral conversations. Other ids begin with the time: a 0 for the next thousand years."""


def new_ephemeral_id() -> str:
    """Return a new id for a conversation that is deleted after one answer."""
    return EPHEMERAL_PREFIX + new_id()[1:]


def is_ephemeral_id(conversation_id: str) -> bool:
    return conversation_id.startswith(EPHEMERAL_PREFIX)


def is_id(text: str) -> bool:
    """Return True if `text` has the form of an id; no row has any other."""
    return _ULID.fullmatch(text) is not None
