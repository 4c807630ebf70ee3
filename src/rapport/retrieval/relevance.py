"""Decide whether the passages found answer the question: the similarity of the nearest passage, corrected by two more signals.

The similarity alone decides most questions. Near the threshold it is not exact enough: it is low for a question that names a
level, a number or a person, and not low enough for one about a related subject. ADR 32 explains the constants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from rapport.domain.note import PassageSearchResult


class Measured(NamedTuple):
    """How similar the notes are to a question."""

    similarity: float
    relevance: float
    """The value that the guard compares with its threshold."""


Measure: TypeAlias = Callable[[str, str | None], Awaitable[Measured]]
"""Compares a question with the notes, without the note of the given id."""

TOP = 3
"""The number of passages an answer is usually made from."""

COVERED_FROM, COVERED_FULLY = 0.45, 0.75
"""The shares of the question's telling words, weighted by rarity, from which they count, and from which they count fully."""
RAISED_BY = 1 / 5
LOWERED_BY = 1 / 10
MIN_LEAD = 1 / 24
"""These three are fractions of the range between the embedder's threshold and 1, because the ranges of embedders differ.
With the bundled embedder they are 0.12, 0.06 and 0.025."""
_SAME = 1e-6
_FEWEST_WORDS = 2
"""A single word is no evidence: "how much does it cost?" names nothing, and Chinese is written without spaces."""


def compute_relevance(found: PassageSearchResult, *, min_similarity: float) -> float:
    """Return the similarity of the nearest passage, raised or lowered by at most a fifth of the range above the threshold.

    It is raised when that passage also comes first by meaning and words together and has most of the question's telling
    words. It is lowered when no passage has any of them and another note is as near: then only the subject is related.
    """
    if not found.passages or found.words < _FEWEST_WORDS:
        return found.best
    range_above = 1.0 - min_similarity
    first = found.passages[0]
    if first.similarity >= found.best - _SAME:
        covered = (first.coverage - COVERED_FROM) / (COVERED_FULLY - COVERED_FROM)
        raised = RAISED_BY * range_above * min(max(covered, 0.0), 1.0)
        if raised:
            return found.best + raised
    has_words = any(passage.coverage for passage in found.passages[:TOP])
    has_rival = found.rival is not None and found.best - found.rival < MIN_LEAD * range_above
    if has_rival and not has_words:
        return found.best - LOWERED_BY * range_above
    return found.best
