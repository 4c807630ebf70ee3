"""Define which notes may be read where, and the settings by which a note's owner decides it (ADR 84)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rapport.domain.errors import InvalidInput
from rapport.domain.ids import is_id

OWNER_ALONE: Final = "owner"
EVERYONE: Final = "everyone"
MAX_COLLECTIONS = 20
"""The number of collections of one note."""
MAX_COLLECTION_CHARACTERS = 80

_COLLECTION = re.compile(rf"[a-z0-9_-]{{1,{MAX_COLLECTION_CHARACTERS}}}")


@dataclass(frozen=True, slots=True)
class NoteScope:
    """The notes that a person or a turn may read: the owner's, those shared with everyone, and those shared with a group.

    An id stands for one note: the owner's own before a shared one, one shared with everyone before one shared with a group,
    and the older before the newer.
    """

    owner_id: str
    conversation_id: str | None = None
    """Notes shared with this conversation belong to the scope. None: those shared with any group conversation of the owner.

    Whoever sets it has checked that the conversation is the owner's."""
    collections: tuple[str, ...] = ()
    """Only notes in one of these belong to it, whatever their case; empty: all."""


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """The settings of a note beside its text; None leaves one as it is."""

    collections: tuple[str, ...] | None = None
    shared_with: str | None = None
    """`owner`, `everyone` or the id of a group conversation."""
    by_operator: bool = False
    """True if an operator changes them, who may share with any group conversation; others only with their own."""

    @property
    def is_empty(self) -> bool:
        return self.collections is None and self.shared_with is None

    @property
    def group(self) -> str | None:
        """Return the group conversation that the note is shared with; None if it is another choice."""
        return None if self.shared_with in (None, OWNER_ALONE, EVERYONE) else self.shared_with


NO_SETTINGS: Final = NoteSettings()
"""Change nothing; a new note has no collections and is its owner's alone."""


def check_settings(
    collections: Sequence[str] | None, shared_with: str | None, *, by_operator: bool = False
) -> NoteSettings:
    """Return the settings with clean values; raise InvalidInput with a sentence that names the field."""
    return NoteSettings(
        None if collections is None else check_collections(collections),
        None if shared_with is None else _check_audience(shared_with),
        by_operator,
    )


def check_collections(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in lower case, each once and in order; raise InvalidInput for a malformed one or too many."""
    checked = sorted({check_collection(name, field="collections") for name in names})
    if len(checked) > MAX_COLLECTIONS:
        raise InvalidInput(
            f"`collections` has {len(checked)} names; a note belongs to at most {MAX_COLLECTIONS} collections."
        )
    return tuple(checked)


def check_collection(name: str, *, field: str) -> str:
    """Return the name of a collection in lower case; raise InvalidInput that names the field if it is malformed."""
    lowered = name.lower()
    if not _COLLECTION.fullmatch(lowered):
        raise InvalidInput(
            f"`{field}` has the name {name[:MAX_COLLECTION_CHARACTERS]!a}; a collection's name has 1 to"
            f" {MAX_COLLECTION_CHARACTERS} of the characters a-z, 0-9, _ and -."
        )
    return lowered


def _check_audience(shared_with: str) -> str:
    if shared_with in (OWNER_ALONE, EVERYONE) or is_id(shared_with):
        return shared_with
    raise InvalidInput(
        f"`shared_with` is `{OWNER_ALONE}`, `{EVERYONE}` or the id of a group conversation, and not {shared_with[:64]!a}."
    )
