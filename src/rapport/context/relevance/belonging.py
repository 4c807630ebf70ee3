"""Which messages belong to one of them, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapport.context.relevance.features import Matrix
from rapport.context.relevance.lines import as_lines
from rapport.context.relevance.reading import Line
from rapport.context.relevance.scorer import Threads, WordVectors, untangle
from rapport.domain.conversation import Message
from rapport.domain.selection import Reason

SESSION_SECONDS = 3_600.0
"""What follows within this time was said in one go."""


@dataclass(frozen=True, slots=True)
class Belonging:
    """What was found out about some lines and the one that they are asked about."""

    scores: Matrix
    """How likely each line belongs."""
    chosen: frozenset[int]
    """Those that are worth showing together."""
    lines: Sequence[Line]
    threads: Threads

    def reasons(self, number: int) -> tuple[Reason, ...]:
        """Why a chosen line is, told by its strongest link to another one that is."""
        others = sorted(self.chosen - {number})
        if not others:
            return ("topic",)
        links = self.threads.links
        other = max(others, key=lambda one: float(links[max(number, one), min(number, one)]))
        return _reasons(
            self.lines[max(number, other)], self.lines[min(number, other)], other == min(number, other), self
        )


def _reasons(later: Line, earlier: Line, is_later: bool, found: Belonging) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if later.reply_to is not None and found.lines[later.reply_to] is earlier:
        reasons.append("reply_chain")
    if earlier.author in later.mentions or later.author in earlier.mentions:
        reasons.append("addressed")
    if later.at - earlier.at <= SESSION_SECONDS:
        reasons.append("session")
    else:
        reasons.append("topic")
    return tuple(reasons)


def belonging(
    messages: Sequence[Message],
    about: Sequence[int],
    otherwise: Sequence[int],
    *,
    handles: Collection[str],
    words: WordVectors | None,
) -> Belonging:
    """Which of the messages, oldest first, belong to the one numbered `about`; of several, to any that may be meant.

    As far as that one seems to begin something new, it may still have been said about `otherwise`.
    """
    lines = as_lines(messages, handles)
    threads = untangle(lines, words)
    scores = threads.together[list(about)].mean(0)
    if otherwise and list(about) != list(otherwise):
        is_new = float(np.mean([threads.links[number, number] for number in about]))
        scores += 0.5 * is_new * threads.together[list(otherwise)].mean(0)
        np.minimum(scores, 1, out=scores)
    return Belonging(scores, frozenset(_worth_showing(scores, about)).union(about), lines, threads)


def _worth_showing(scores: Matrix, about: Sequence[int]) -> list[int]:
    """As many of the likeliest as make the expected F1 highest: more would bring in others' talk, fewer would miss some."""
    others: NDArray[np.intp] = np.delete(np.arange(len(scores)), list(about))
    if len(others) == 0:
        return []
    likeliest = others[np.argsort(-scores[others], kind="stable")]
    hits = np.cumsum(scores[likeliest])
    expected = 2 * hits / (np.arange(1, len(likeliest) + 1) + scores[others].sum())
    return [int(number) for number in likeliest[: int(np.argmax(expected)) + 1]]
