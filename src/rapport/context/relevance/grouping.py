"""Decide which messages belong to one of them, with the reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapport.context.relevance.chat_lines import build_lines
from rapport.context.relevance.line_features import Line, read_line, strip_handles
from rapport.context.relevance.pair_features import Matrix
from rapport.context.relevance.scorer import Threads, WordVectors, disentangle
from rapport.domain.context_selection import Reason
from rapport.domain.conversation import Message

SESSION_SECONDS = 3_600.0
"""Messages within this time of each other are one session."""
MIN_NAMED_SHARE, MIN_NEARNESS = 0.3, 0.55
"""From this share of its words on, or from this nearness, a message is what a question asks about."""
MAX_NAMED_LINES = 2
SMALL_CHAT_LINES = 30
"""Below this many lines recall counts for more than precision: four times as much in a chat of half as many."""
MIN_TALK_LINES = 3
"""A talk of a small chat is taken to have at least this many lines."""
CLEAR_DROP, CLEAR_DROP_IF_ASKED = 2.25, 2.0
"""Where a score is this many times the next one, a small chat clearly holds two talks. A call that asks something itself says
which of them it means, and less is enough."""
MIN_SCORE = 0.1
"""Below this score a line of a larger chat does not belong, even where none has more."""


@dataclass(frozen=True, slots=True)
class Belonging:
    """The result for some lines and the one that they are asked about."""

    scores: Matrix
    """The probability that each line belongs."""
    chosen: frozenset[int]
    """Those that are worth showing together."""
    lines: Sequence[Line]
    threads: Threads

    def explain(self, number: int) -> tuple[Reason, ...]:
        """Return the reasons for a chosen line, by its strongest link to another chosen line."""
        others = sorted(self.chosen - {number})
        if not others:
            return ("topic",)
        links = self.threads.links
        other = max(others, key=lambda one: float(links[max(number, one), min(number, one)]))
        later, earlier = self.lines[max(number, other)], self.lines[min(number, other)]
        reasons: list[Reason] = []
        if later.reply_to == min(number, other):
            reasons.append("reply_chain")
        if earlier.author in later.mentions or later.author in earlier.mentions:
            reasons.append("addressed")
        reasons.append("session" if later.at - earlier.at <= SESSION_SECONDS else "topic")
        return tuple(reasons)


def score_belonging(
    messages: Sequence[Message],
    about: Sequence[int],
    otherwise: Sequence[int],
    *,
    handles: Collection[str],
    words: WordVectors | None,
    lacks_subject: bool = False,
) -> Belonging:
    """Score which messages, oldest first, belong to the one numbered `about`; of several, to any of them.

    As far as that one, being the last, seems to begin something new, it asks about an earlier one that its words name, or
    else it may still have been said about `otherwise`. If it lacks a subject, it surely was.
    """
    lines = build_lines(messages, handles)
    threads = disentangle(lines, words)
    scores = threads.together[list(about)].mean(0)
    is_asked = list(about) == [len(lines) - 1] and list(otherwise) != list(about)  # a call that asks something itself
    if is_asked:
        is_new = float(threads.links[-1, -1])
        if named := _find_asked_about(lines, words):
            scores += is_new * threads.together[named].mean(0)
        elif otherwise:
            share = 1.0 if lacks_subject else 0.5
            scores += share * is_new * threads.together[list(otherwise)].mean(0)
        np.minimum(scores, 1, out=scores)
    chosen = frozenset(choose_lines(scores, about, clear=CLEAR_DROP_IF_ASKED if is_asked else CLEAR_DROP))
    if is_asked and len(lines) < SMALL_CHAT_LINES:  # whatever a call names in a small chat is meant
        chosen = chosen.union(number for number, share in enumerate(_measure_shares(lines)) if share >= MIN_NAMED_SHARE)
    return Belonging(scores, chosen.union(about), lines, threads)


def _find_asked_about(lines: Sequence[Line], words: WordVectors | None) -> list[int]:
    """Return the lines that have most of the last line's words, weighted by rarity, or else most of its meaning."""
    if named := _take_highest(_measure_shares(lines), MAX_NAMED_LINES, least=MIN_NAMED_SHARE):
        return named
    if words is None:
        return []
    vectors = words([strip_handles(line.text) for line in lines])
    return _take_highest([float(one) for one in vectors[:-1] @ vectors[-1]], MAX_NAMED_LINES, least=MIN_NEARNESS)


def _measure_shares(lines: Sequence[Line]) -> list[float]:
    """Return how much of the last line's words each line before it has; a word counts as much as it is rare here."""
    said = [read_line(line.text).words for line in lines]
    counts = Counter(word for message in said for word in dict.fromkeys(message))
    rare = {word: math.log((len(lines) + 1) / counts[word]) for word in dict.fromkeys(said[-1])}
    whole = sum(rare.values()) or 1.0
    return [sum(rare[word] for word in dict.fromkeys(message) if word in rare) / whole for message in said[:-1]]


def _take_highest(values: Sequence[float], most: int, *, least: float) -> list[int]:
    """Return the indexes of the highest values, from `least` on and none far below the highest."""
    order = sorted(range(len(values)), key=lambda number: (-values[number], -number))[:most]
    return [number for number in order if values[number] >= max(least, values[order[0]] - 0.1)]


def choose_lines(scores: Matrix, about: Sequence[int], *, clear: float) -> list[int]:
    """Return as many of the likeliest lines as make the expected F-measure highest.

    In a large chat precision and recall count alike. The smaller the chat, the more recall counts: too much of it does
    little harm, and the scorer, which learned from busy chats, underrates what belongs together in a small one. There the
    lines end early where the scores drop clearly.
    """
    others: NDArray[np.intp] = np.delete(np.arange(len(scores)), list(about))
    if len(others) == 0:
        return []
    likeliest = others[np.argsort(-scores[others], kind="stable")]
    likely = scores[likeliest]
    recall_weight = max(1.0, (SMALL_CHAT_LINES / len(scores)) ** 2)
    expected = np.cumsum(likely) / (np.arange(1, len(likely) + 1) + recall_weight * likely.sum())
    count = int(np.argmax(expected)) + 1
    if recall_weight > 1:
        least = max(1, MIN_TALK_LINES - len(about))
        count = next((end for end in range(least, count) if likely[end - 1] >= clear * likely[end]), count)
    else:
        count = min(count, int((likely >= MIN_SCORE).sum()))
    return [int(number) for number in likeliest[:count]]
