"""Which messages belong to one of them, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rapport.context.relevance.features import Matrix
from rapport.context.relevance.lines import as_lines
from rapport.context.relevance.reading import Line, plain, read
from rapport.context.relevance.scorer import Threads, WordVectors, untangle
from rapport.domain.conversation import Message
from rapport.domain.selection import Reason

SESSION_SECONDS = 3_600.0
"""What follows within this time was said in one go."""
NAMED, MEANT = 0.3, 0.55
"""From this share of its words on, or from this nearness, a message is what a question asks about."""
MOST_NAMED = 2
SMALL = 15
"""Up to so many lines a chat is small. The scorer learned from busy chats: it underrates what belongs together in these."""
SHORT_TALK = 3
"""A talk of a small chat is taken to have at least so many lines, or half of the chat."""
CLEAR = 2.0
"""So much higher the score of the last line that belongs is than that of the next where a small chat clearly holds two talks."""
RULED_OUT = 0.05
"""Below this score a line of a small chat does not belong."""


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
        later, earlier = self.lines[max(number, other)], self.lines[min(number, other)]
        reasons: list[Reason] = []
        if later.reply_to == min(number, other):
            reasons.append("reply_chain")
        if earlier.author in later.mentions or later.author in earlier.mentions:
            reasons.append("addressed")
        reasons.append("session" if later.at - earlier.at <= SESSION_SECONDS else "topic")
        return tuple(reasons)


def belonging(
    messages: Sequence[Message],
    about: Sequence[int],
    otherwise: Sequence[int],
    *,
    handles: Collection[str],
    words: WordVectors | None,
    lacks_subject: bool = False,
) -> Belonging:
    """Which of the messages, oldest first, belong to the one numbered `about`; of several, to any that may be meant.

    As far as that one, being the last, seems to begin something new, it asks about an earlier one that its words name, or
    else it may still have been said about `otherwise`. If it lacks a subject, it surely was.
    """
    lines = as_lines(messages, handles)
    threads = untangle(lines, words)
    scores = threads.together[list(about)].mean(0)
    is_small = len(lines) <= SMALL
    is_asked = list(about) == [len(lines) - 1] and list(otherwise) != list(about)  # a call that asks something itself
    if is_asked:
        is_new = float(threads.links[-1, -1])
        if named := _asked_about(lines, words):
            scores += is_new * threads.together[named].mean(0)
        elif otherwise and lacks_subject and is_small:
            np.maximum(scores, threads.together[list(otherwise)].mean(0), out=scores)
        elif otherwise:
            share = 1.0 if lacks_subject else 0.5
            scores += share * is_new * threads.together[list(otherwise)].mean(0)
        np.minimum(scores, 1, out=scores)
    if is_small:
        least = min(SHORT_TALK, math.ceil((len(lines) - is_asked) / 2))
        chosen = _of_small_chat(scores, about, least if is_asked else least - len(about))
    else:
        chosen = _worth_showing(scores, about)
    return Belonging(scores, frozenset(chosen).union(about), lines, threads)


def _asked_about(lines: Sequence[Line], words: WordVectors | None) -> list[int]:
    """The lines that have most of what the last one asks about: of its words, each worth as much as it is rare here, or else
    of its meaning."""
    said = [read(line.text).words for line in lines]
    counts = Counter(word for one in said for word in dict.fromkeys(one))
    rare = {word: math.log((len(lines) + 1) / counts[word]) for word in dict.fromkeys(said[-1])}
    whole = sum(rare.values()) or 1.0
    shares = [sum(rare[word] for word in dict.fromkeys(one) if word in rare) / whole for one in said[:-1]]
    if named := _highest(shares, MOST_NAMED, least=NAMED):
        return named
    if words is None:
        return []
    vectors = words([plain(line.text) for line in lines])
    return _highest([float(one) for one in vectors[:-1] @ vectors[-1]], MOST_NAMED, least=MEANT)


def _highest(values: Sequence[float], most: int, *, least: float) -> list[int]:
    """The highest of the values, from `least` on and none far below the highest."""
    order = sorted(range(len(values)), key=lambda number: (-values[number], -number))[:most]
    return [number for number in order if values[number] >= max(least, values[order[0]] - 0.1)]


def _of_small_chat(scores: Matrix, about: Sequence[int], least: int) -> list[int]:
    """Return the likeliest lines, at least so many, up to where the scores drop clearly; without a drop, all that are not
    ruled out. Of a small chat too much does little harm, and a line that is missing does much."""
    others = [number for number in range(len(scores)) if number not in about]
    others.sort(key=lambda number: -float(scores[number]))
    values = [float(scores[number]) for number in others]
    for count, value in enumerate(values):
        is_clear = count > 0 and count >= least and values[count - 1] >= CLEAR * value
        if is_clear or value < RULED_OUT:
            return others[:count]
    return others


def _worth_showing(scores: Matrix, about: Sequence[int]) -> list[int]:
    """As many of the likeliest as make the expected F1 highest: more would bring in others' talk, fewer would miss some."""
    others: NDArray[np.intp] = np.delete(np.arange(len(scores)), list(about))
    if len(others) == 0:
        return []
    likeliest = others[np.argsort(-scores[others], kind="stable")]
    hits = np.cumsum(scores[likeliest])
    expected = 2 * hits / (np.arange(1, len(likeliest) + 1) + scores[others].sum())
    return [int(number) for number in likeliest[: int(np.argmax(expected)) + 1]]
