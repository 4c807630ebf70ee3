"""Decide which messages belong to a given one, with the reasons."""

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
"""A question asks about a message with this share of its words, or with this similarity."""
MAX_NAMED_LINES = 2
SMALL_CHAT_LINES = 30
"""With fewer lines, recall counts more than precision: four times as much with half as many."""
MIN_TALK_LINES = 3
"""The minimal number of lines of a discussion in a small chat."""
CLEAR_DROP, CLEAR_DROP_IF_ASKED = 2.25, 2.0
"""If a score is this many times the next one, a small chat has two discussions. A call with a question of its own names
one of them, so a smaller drop is enough."""
SURE_SCORE = 0.4
"""A line with this score belongs to a question also if nobody used a word of the question in that session."""
QUESTION_MARKS = ("?", "？", "؟")
MIN_SCORE = 0.1
"""A line of a larger chat with a lower score does not belong, even if no line has more."""


@dataclass(frozen=True, slots=True)
class Belonging:
    """The scores of lines for a given one."""

    scores: Matrix
    """The probability that each line belongs."""
    chosen: frozenset[int]
    """The numbers of the chosen lines."""
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
    """Score which messages, oldest first, belong to those numbered `about`.

    If the last message is meant and seems to begin a new discussion, it may ask about an earlier line that its words name,
    or else about `otherwise`. If it lacks a subject, it is about `otherwise`.
    """
    lines = build_lines(messages, handles)
    threads = disentangle(lines, words)
    scores = threads.together[list(about)].mean(0)
    is_asked = list(about) == [len(lines) - 1] and list(otherwise) != list(about)  # a call with a question of its own
    if is_asked:
        is_new = float(threads.links[-1, -1])
        if named := _find_asked_about(lines, words):
            scores += is_new * threads.together[named].mean(0)
        elif otherwise:
            share = 1.0 if lacks_subject else 0.5
            scores += share * is_new * threads.together[list(otherwise)].mean(0)
        np.minimum(scores, 1, out=scores)
    chosen = frozenset(choose_lines(scores, about, clear=CLEAR_DROP_IF_ASKED if is_asked else CLEAR_DROP))
    if is_asked:
        shares = _measure_shares(lines)
        if len(lines) < SMALL_CHAT_LINES:  # in a small chat every line that a call names belongs
            chosen = chosen.union(number for number, share in enumerate(shares) if share >= MIN_NAMED_SHARE)
        if max(shares, default=0) >= MIN_NAMED_SHARE and any(mark in lines[-1].text for mark in QUESTION_MARKS):
            chosen = _drop_other_sessions(lines, chosen, shares, scores)
    return Belonging(scores, chosen.union(about), lines, threads)


def _drop_other_sessions(
    lines: Sequence[Line], chosen: frozenset[int], shares: Sequence[float], scores: Matrix
) -> frozenset[int]:
    """Return the chosen lines without sessions of small talk: no line there has a word of the question, or a sure score.

    The scorer joins small talk ("lol", "coffee?") with whatever was said before it, days ago or not. Lines that are linked by a
    reply to a line of another session stay.
    """
    sessions = [0] * len(shares)
    for number in range(1, len(sessions)):
        is_new = lines[number].at - lines[number - 1].at > SESSION_SECONDS
        sessions[number] = sessions[number - 1] + is_new
    about = {sessions[number] for number, share in enumerate(shares) if share > 0 or scores[number] >= SURE_SCORE}
    kept = {number for number in chosen if number >= len(sessions) or sessions[number] in about}
    replied = {lines[number].reply_to for number in kept}
    return frozenset(
        number for number in chosen if number in kept or number in replied or lines[number].reply_to in kept
    )


def _find_asked_about(lines: Sequence[Line], words: WordVectors | None) -> list[int]:
    """Return the lines with most of the last line's words, weighted by rarity, or else those most similar to it."""
    if named := _take_highest(_measure_shares(lines), MAX_NAMED_LINES, least=MIN_NAMED_SHARE):
        return named
    if words is None:
        return []
    vectors = words([strip_handles(line.text) for line in lines])
    return _take_highest([float(value) for value in vectors[:-1] @ vectors[-1]], MAX_NAMED_LINES, least=MIN_NEARNESS)


def _measure_shares(lines: Sequence[Line]) -> list[float]:
    """Return the share of the last line's words that each earlier line has, weighted by rarity in this chat."""
    line_words = [read_line(line.text).words for line in lines]
    counts = Counter(word for words in line_words for word in dict.fromkeys(words))
    rare = {word: math.log((len(lines) + 1) / counts[word]) for word in dict.fromkeys(line_words[-1])}
    total = sum(rare.values()) or 1.0
    return [sum(rare[word] for word in dict.fromkeys(words) if word in rare) / total for words in line_words[:-1]]


def _take_highest(values: Sequence[float], limit: int, *, least: float) -> list[int]:
    """Return the indexes of the highest values, from `least` on and none far below the highest."""
    order = sorted(range(len(values)), key=lambda number: (-values[number], -number))[:limit]
    return [number for number in order if values[number] >= max(least, values[order[0]] - 0.1)]


def choose_lines(scores: Matrix, about: Sequence[int], *, clear: float) -> list[int]:
    """Return the most probable lines, as many as maximise the expected F-measure.

    In a large chat precision and recall count equally. The smaller the chat, the more recall counts: extra lines do little
    harm, and the scorer, which was trained on busy chats, gives too low scores in a small one. There the lines end early
    if the scores drop clearly.
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
