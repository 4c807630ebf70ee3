"""Make and read the addresses of resources: `rapport://notes/{id}` and `rapport://conversations/{id}`."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from rapport.domain.note import NOTE_ID

Kind: TypeAlias = Literal["notes", "conversations"]

TEMPLATES: dict[Kind, str] = {
    "notes": "rapport://notes/{note_id}",
    "conversations": "rapport://conversations/{conversation_id}",
}
# Ids of notes and of conversations need no escapes in an address.
_ADDRESS = re.compile(rf"rapport://(?P<kind>notes|conversations)/(?P<id>{NOTE_ID.pattern})")


def make_note_uri(note_id: str) -> str:
    return f"rapport://notes/{note_id}"


def make_conversation_uri(conversation_id: str) -> str:
    return f"rapport://conversations/{conversation_id}"


def parse_uri(uri: str) -> tuple[Kind, str] | None:
    """Return the kind and the id that an address names; None for any other address."""
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        return None
    return "notes" if match["kind"] == "notes" else "conversations", match["id"]
