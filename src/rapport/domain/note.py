"""Notes, the passages they are cut into, and what a question finds among them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

Vector: TypeAlias = Sequence[float]

NOTE_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""What a note's id may be: short enough to read, and nothing that would need quoting in a citation."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text that answers may cite; the text itself is read when it is wanted."""

    owner_id: str
    id: str
    title: str
    file_name: str | None
    characters: int
    chunks: int
    embedder: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a note, short enough to be embedded whole."""

    heading: str
    """The headings it stands under, outermost first, joined by " > "; empty at the top of a note."""
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that a question has found."""

    note_id: str
    position: int
    title: str
    heading: str
    text: str
    similarity: float
    """The cosine between its vector and the question's, whatever search found it."""
    coverage: float = 0.0
    """How much of the question's telling words, weighed by how rare they are, the passage has: 0 to 1."""


@dataclass(frozen=True, slots=True)
class NoteCounts:
    """What one owner has in the index of one embedder."""

    chunks: int
    min_similarity: float | None
    """The threshold measured on this owner's notes, if `rapport calibrate` has been run."""


@dataclass(frozen=True, slots=True)
class PassageSearchResult:
    """What a search came up with."""

    best: float
    """The highest similarity of any passage: what decides whether there is an answer at all."""
    passages: Sequence[Passage] = ()
    """The best by meaning and by words together, best first."""
    rival: float | None = None
    """The highest similarity in another note than the nearest one's; None where there is no other near."""
    words: int = 0
    """How many telling words of the question were looked for."""


def describe_listing(shown: int, count: int) -> str:
    """Return what the model is told of a list of notes, `shown` of `count`."""
    if shown < count:
        return f"The person has {count} notes; these are the beginnings of the {shown} changed last."
    return f"The person has {count} {'note' if count == 1 else 'notes'}; these are the beginnings of all."


def describe_opening(shown: int, count: int) -> str:
    """Return what the model is told of the beginning of a note that was asked for as a whole, `shown` of `count` passages."""
    if shown < count:
        return f"The note was asked for as a whole; these are the first {shown} of its {count} passages."
    return "The note was asked for as a whole; this is all of it."
