"""Create and check ids. They are ULIDs: unique, sortable by creation time and safe in a URL."""

from __future__ import annotations

import hashlib
import re

from ulid import ULID

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_CHARACTERS = 10
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_id() -> str:
    """Return a new ULID."""
    return str(ULID())


def derive_id(base: str, name: str) -> str:
    """Return an id that is always the same for an id and a name, and sorts beside the id."""
    digest = int.from_bytes(hashlib.sha256(f"{base} {name}".encode()).digest(), "big")
    return base[:_TIME_CHARACTERS] + "".join(_ALPHABET[digest >> 5 * place & 31] for place in range(16))


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
