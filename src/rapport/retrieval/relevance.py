"""Decide whether the passages found answer the question: the similarity of the nearest passage, corrected by two more signals.

The similarity alone decides most questions. Around the threshold it is too coarse: it is low for a question that names a
level, a number or a person, and not low enough for one about a neighbouring subject. ADR 32 says how the constants were chosen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from rapport.domain.note import PassageSearchResult


class Measured(NamedTuple):
    """Describe how near the notes come to a question."""

    similarity: float
    relevance: float
    """Return what the guard compares with its threshold."""


Measure: TypeAlias = Callable[[str, str | None], Awaitable[Measured]]
"""Measures a question against the notes, without the note of the id given."""

TOP = 3
"""The number of passages an answer is usually made from."""

COVERED_FROM, COVERED_FULLY = 0.45, 0.75
"""The share of the question's telling words, by rarity, from which they count, and at which they count in full."""
RAISED_BY = 1 / 5
LOWERED_BY = 1 / 10
CLOSE_RIVAL = 1 / 24
"""These three are parts of the room between the embedder's own threshold and 1: embedders differ in how far they spread
their similarities. With the bundled embedder they are 0.12, 0.06 and 0.025."""
_SAME = 1e-6
_FEWEST_WORDS = 2
"""From a single word nothing follows: "how much does it cost?" names nothing, and Chinese is written without spaces."""


def relevance(found: PassageSearchResult, *, min_similarity: float) -> float:
    """Return the similarity of the nearest passage, raised or lowered by at most a fifth of the room above the threshold.

    It is raised when that passage also comes first by meaning and words together and has most of the question's telling
    words. It is lowered when no passage has any of them and another note is as near: what is near is the subject then.
    """
    if not found.passages or found.words < _FEWEST_WORDS:
        return found.best
    room = 1.0 - min_similarity
    first = found.passages[0]
    if first.similarity >= found.best - _SAME:
        covered = (first.coverage - COVERED_FROM) / (COVERED_FULLY - COVERED_FROM)
        raised = RAISED_BY * room * min(max(covered, 0.0), 1.0)
        if raised:
            return found.best + raised
    has_words = any(passage.coverage for passage in found.passages[:TOP])
    has_rival = found.rival is not None and found.best - found.rival < CLOSE_RIVAL * room
    if has_rival and not has_words:
        return found.best - LOWERED_BY * room
    return found.best
