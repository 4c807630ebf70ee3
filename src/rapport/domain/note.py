"""Define notes, their passages and the results of searches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rapport.domain.note_scope import OWNER_ALONE

Vector: TypeAlias = Sequence[float]

NOTE_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""The form of a note's id: short, and without characters that need quoting in a citation."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text that answers may cite. The text itself is loaded separately."""

    owner_id: str
    id: str
    title: str
    file_name: str | None
    characters: int
    chunks: int
    embedder: str
    created_at: datetime
    updated_at: datetime
    collections: tuple[str, ...] = ()
    shared_with: str = OWNER_ALONE
    """`owner`, `everyone` or the id of a group conversation."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a note, short enough for one embedding."""

    heading: str
    """The headings above it, outermost first, joined by " > "; empty at the top of a note."""
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that a search has found."""

    note_id: str
    position: int
    title: str
    heading: str
    text: str
    similarity: float
    """The cosine between its vector and the question's, also if it was found by words."""
    coverage: float = 0.0
    """The share of the question's content words in the passage, weighted by rarity: 0 to 1."""
    shared_by: str | None = None
    """The note's owner, if it is not the owner of the conversation."""


@dataclass(frozen=True, slots=True)
class NoteCounts:
    """The number of passages by one embedder that a scope has, and the threshold of its owner."""

    chunks: int
    """Passages of the owner's own notes."""
    min_similarity: float | None
    """The threshold measured on this owner's notes by `rapport calibrate`; None if it was never run."""
    shared: int = 0
    """Passages of notes that others share with the scope; not all are counted if they are many."""

    @property
    def total(self) -> int:
        return self.chunks + self.shared


@dataclass(frozen=True, slots=True)
class PassageSearchResult:
    """The result of a search in the notes of a scope."""

    best: float
    """The highest similarity of any passage. It decides whether the notes have an answer."""
    passages: Sequence[Passage] = ()
    """The best by meaning and by words together, best first."""
    rival: float | None = None
    """The highest similarity of a passage of any other note than the nearest one's; None if none is near."""
    words: int = 0
    """The number of content words of the question that were searched for."""


def describe_listing(shown: int, count: int) -> str:
    """Return the sentence for the model about a list of notes, `shown` of `count`."""
    if shown < count:
        return f"The person has {count} notes; these are the beginnings of the {shown} changed last."
    return f"The person has {count} {'note' if count == 1 else 'notes'}; these are the beginnings of all."


def describe_opening(shown: int, count: int) -> str:
    """Return the sentence for the model about a note requested as a whole, `shown` of `count` passages."""
    if shown < count:
        return f"The note was asked for as a whole; these are the first {shown} of its {count} passages."
    return "The note was asked for as a whole; this is all of it."
