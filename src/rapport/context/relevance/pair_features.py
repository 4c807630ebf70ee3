"""Compute the features of all pairs of messages of a chat for the scorer, by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from rapport.context.relevance.line_features import FORMS, Line, Reading, read_line

Matrix: TypeAlias = "NDArray[np.floating[Any]]"

PAIR_FEATURES: tuple[str, ...] = (
    "distance", "distance_1", "distance_2", "distance_3", "distance_4_6", "distance_7_12", "distance_13_25", "distance_far",
    "same_author", "addresses", "addressed_by", "each_other", "same_addressee", "addresses_another", "other_addresses_another",
    "other_addresses_nobody", "names", "named_by",
    "authors_last", "authors_since", "own_since", "own_last", "called_since", "called_last", "exchange_last", "exchanges_since",
    "partners", "strangers",
    "silence", "silence_relative", "silence_before", "silences_between",
    "shared_words", "shared_rare", "cosine", "cosine_rank", "vector_cosine", "vector_rank",
    "replies", "replies_elsewhere", "was_replied_to",
    "authors_between",
)  # fmt: skip
LINE_FEATURES: tuple[str, ...] = (
    *(name for name, _ in FORMS), "length", "says_little", "first_of_author", "activity", "addresses_somebody", "addresses_stranger",
    "position",
)  # fmt: skip
CHAT_FEATURES: tuple[str, ...] = ("mention_rate", "crowd", "size")
FEATURES: tuple[str, ...] = (
    *PAIR_FEATURES,
    *(f"later.{name}" for name in LINE_FEATURES),
    *(f"earlier.{name}" for name in LINE_FEATURES),
    *(f"chat.{name}" for name in CHAT_FEATURES),
    "none",
)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Every line with each line before it, and with itself, which means "answers no line"."""

    later: NDArray[np.intp]
    earlier: NDArray[np.intp]
    flat: NDArray[np.intp]
    """The index of each pair in a square matrix, row by row."""
    alone: NDArray[np.intp]
    """The pairs of a line with itself."""


@lru_cache(maxsize=256)
def list_pairs(count: int) -> Pairs:
    """Return the pairs of `count` lines."""
    later, earlier = np.tril_indices(count)
    return Pairs(later, earlier, later * count + earlier, np.flatnonzero(later == earlier))


@dataclass(frozen=True, slots=True)
class LineFeatures:
    """All features of some lines."""

    pairs: Matrix
    """One row for each of PAIR_FEATURES, one column for each pair."""
    lines: Matrix
    """One row for each of LINE_FEATURES, one column for each line."""
    chat: Matrix
    """One number for each of CHAT_FEATURES."""

    @property
    def table(self) -> Matrix:
        """Return one row for each of FEATURES, one column for each pair."""
        pairs = list_pairs(self.lines.shape[1])
        earlier = self.lines.take(pairs.earlier, axis=1)
        earlier[:, pairs.alone] = 0
        chat = np.broadcast_to(self.chat[:, None], (len(self.chat), len(pairs.later)))
        padding = np.zeros((1, len(pairs.later)), np.float32)
        padding[0, pairs.alone] = 1
        return np.concatenate([self.pairs, self.lines.take(pairs.later, axis=1), earlier, chat, padding])


def compute_features(lines: Sequence[Line], vectors: Matrix | None = None) -> LineFeatures:
    """Compute the features of the lines, oldest first. `vectors` has a row of length 1 (or 0) for each of them."""
    n = len(lines)
    pairs = list_pairs(n)
    chat = _Chat.of(lines)
    readings = [read_line(line.text) for line in lines]
    columns: dict[str, Matrix] = {}
    _add_distances(columns, n)
    _add_people(columns, chat, readings)
    _add_silences(columns, np.array([line.at for line in lines]))
    _add_words(columns, readings, vectors)
    _add_links(columns, lines)
    out = np.empty((len(PAIR_FEATURES), len(pairs.flat)), np.float32)
    for number, name in enumerate(PAIR_FEATURES):
        columns[name].take(pairs.flat, out=out[number], mode="clip")
    out[:, pairs.alone] = 0
    return LineFeatures(out, _describe_lines(chat, readings), _describe_chat(chat))


@dataclass(frozen=True, slots=True)
class _Chat:
    author: NDArray[np.intp]
    """The number of each line's author."""
    addresses: NDArray[np.bool_]
    """[line, person]: True if the line addresses the person. Authors come first, then names that no author has."""
    names: Mapping[str, int]
    """First names of authors in lower case, if only one author has it."""
    authors: int

    @classmethod
    def of(cls, lines: Sequence[Line]) -> _Chat:
        people: dict[str, int] = {}
        author = np.array([people.setdefault(line.author, len(people)) for line in lines], np.intp)
        authors = len(people)
        for line in lines:
            for name in line.mentions:
                people.setdefault(name, len(people))
        names: dict[str, int] = {}
        for line in lines:
            first = (line.name or line.author).casefold().split(" ")[0]
            if len(first) > 2 and names.setdefault(first, people[line.author]) != people[line.author]:
                names[first] = -1
        addresses = np.zeros((len(lines), len(people)), np.bool_)
        for number, line in enumerate(lines):
            for name in line.mentions:
                addresses[number, people[name]] = True
        return cls(author, addresses, names, authors)


def _add_distances(columns: dict[str, Matrix], n: int) -> None:
    steps = np.arange(n)[:, None] - np.arange(n)[None, :]
    columns["distance"] = _to_log(np.maximum(steps, 0)) / 3
    for name, low, high in (
        ("distance_1", 1, 1), ("distance_2", 2, 2), ("distance_3", 3, 3), ("distance_4_6", 4, 6),
        ("distance_7_12", 7, 12), ("distance_13_25", 13, 25), ("distance_far", 26, 10_000),
    ):  # fmt: skip
        columns[name] = _to_number((steps >= low) & (steps <= high))


def _add_people(columns: dict[str, Matrix], chat: _Chat, readings: Sequence[Reading]) -> None:
    author, addresses = chat.author, chat.addresses
    n = len(author)
    numbers = np.arange(n)
    same = author[:, None] == author[None, :]
    to = addresses[:, author]  # [i, j]: i addresses the author of j
    reversed_to = to.T
    addresses_any = cast("NDArray[np.bool_]", addresses.any(1))
    columns["same_author"] = _to_number(same)
    columns["addresses"] = _to_number(to)
    columns["addressed_by"] = _to_number(reversed_to)
    columns["each_other"] = _to_number(to & reversed_to)
    address_matrix = addresses.astype(np.float32)
    columns["same_addressee"] = _to_number(address_matrix @ address_matrix.T > 0)
    columns["addresses_another"] = _to_number(addresses_any[:, None] & ~to)
    columns["other_addresses_another"] = _to_number(addresses_any[None, :] & ~reversed_to)
    columns["other_addresses_nobody"] = _to_number(np.broadcast_to(~addresses_any[None, :], (n, n)))
    names = _find_names(chat, readings)
    columns["names"] = _to_number(names[:, author])
    columns["named_by"] = _to_number(names[:, author].T)

    spoke = np.zeros((n, chat.authors), np.int32)
    spoke[numbers, author] = 1
    spoken_count = np.cumsum(spoke, 0)  # [t, a]: how often a has spoken up to t
    before = spoken_count - spoke  # … before t
    authors_since = (
        before[:, author] - spoken_count[numbers, author][None, :]
    )  # by the author of j, after j and before i
    own_since = before[numbers, author][:, None] - spoken_count[:, author].T  # by the author of i
    columns["authors_since"] = _to_log(np.maximum(authors_since, 0))
    columns["authors_last"] = _to_number(authors_since <= 0)
    columns["own_since"] = _to_log(np.maximum(own_since, 0))
    columns["own_last"] = _to_number(same & (own_since <= 0))
    calls = np.cumsum(addresses[:, : chat.authors], 0, dtype=np.int32)
    called = (calls - addresses[:, : chat.authors])[numbers, author][:, None] - calls[:, author].T
    columns["called_since"] = _to_log(np.maximum(called, 0))
    columns["called_last"] = _to_number(reversed_to & (called <= 0))
    # How often two people have addressed each other: before j, and between j and i.
    exchange_counts = _count_exchanges(chat)
    until_later = exchange_counts[author[:, None], author[None, :], numbers[:, None]]
    until_earlier = exchange_counts[author[:, None], author[None, :], numbers[None, :]]
    since = until_later - until_earlier
    since = np.maximum(since - to, 0)
    columns["exchanges_since"] = _to_log(since)
    columns["exchange_last"] = _to_number((since <= 0) & reversed_to)
    columns["partners"] = _to_log(np.maximum(until_later - to, 0))
    columns["strangers"] = _to_number((until_later - to <= 0) & ~same)
    speakers_ahead = np.zeros(n, np.int32)
    seen: set[int] = set()
    for number in range(n - 1, -1, -1):  # the number of different people who speak from here to the end
        seen.add(int(author[number]))
        speakers_ahead[number] = len(seen)
    columns["authors_between"] = _to_log(np.abs(speakers_ahead[None, :] - speakers_ahead[:, None]))


def _find_names(chat: _Chat, readings: Sequence[Reading]) -> NDArray[np.bool_]:
    """Return [line, author]: True if the line has the author's name among its words, without an @."""
    names = np.zeros((len(readings), max(1, chat.authors)), np.bool_)
    for number, reading in enumerate(readings):
        for word in reading.words:
            if (named_author := chat.names.get(word, -1)) >= 0:
                names[number, named_author] = True
    return names


def _count_exchanges(chat: _Chat) -> NDArray[np.int32]:
    """Count for [a, b, t] how often up to line t one of a and b has addressed the other."""
    n = len(chat.author)
    counts = np.zeros((chat.authors, chat.authors, n), np.int32)
    senders, addressees = np.nonzero(chat.addresses[:, : chat.authors])
    counts[chat.author[senders], addressees, senders] += 1
    counts = counts + counts.transpose(1, 0, 2)
    return np.cumsum(counts, 2, dtype=np.int32)


def _add_silences(columns: dict[str, Matrix], times: NDArray[np.float64]) -> None:
    n = len(times)
    gaps = np.maximum(np.diff(times, prepend=times[:1]), 0)
    usual = max(1.0, float(np.median(gaps[1:]))) if n > 1 else 1.0
    elapsed = np.maximum(times[:, None] - times[None, :], 0)
    columns["silence"] = _to_log(elapsed / 60) / 5
    columns["silence_relative"] = _to_log(elapsed / usual) / 5
    columns["silence_before"] = np.broadcast_to(_to_log(gaps / usual)[:, None] / 3, (n, n))
    long = np.cumsum(gaps > 10 * usual)
    columns["silences_between"] = _to_log(np.maximum(long[:, None] - long[None, :], 0))


def _add_words(columns: dict[str, Matrix], readings: Sequence[Reading], vectors: Matrix | None) -> None:
    n = len(readings)
    word_numbers: dict[str, int] = {}
    rows: list[int] = []
    cells: list[int] = []
    for number, reading in enumerate(readings):
        for word in dict.fromkeys(reading.words):
            rows.append(number)
            cells.append(word_numbers.setdefault(word, len(word_numbers)))
    counts = np.zeros((n, max(1, len(word_numbers))), np.float32)
    counts[rows, cells] = 1
    rarity = (np.log((n + 1) / np.maximum(counts.sum(0), 1)) / np.log(n + 1)).astype(np.float32)
    weighted = counts * rarity
    together = weighted @ counts.T
    length = np.sqrt(np.maximum((weighted * weighted).sum(1), 1e-6))
    cosine = (weighted @ weighted.T) / (length[:, None] * length[None, :])
    columns["shared_words"] = _to_log(counts @ counts.T)
    columns["shared_rare"] = together
    columns["cosine"] = cosine
    columns["cosine_rank"] = _rank_nearness(cosine)
    similarities = np.zeros((n, n), np.float32) if vectors is None else vectors @ vectors.T
    columns["vector_cosine"] = similarities
    columns["vector_rank"] = _rank_nearness(similarities)


def _rank_nearness(similarities: Matrix) -> Matrix:
    """Return how much more similar each earlier line is than the average of the earlier lines."""
    lower = np.tril(similarities, -1)
    count = np.maximum(np.arange(len(similarities), dtype=np.float32), 1)[:, None]
    mean = lower.sum(1, keepdims=True) / count
    spread = np.sqrt(np.maximum((lower * lower).sum(1, keepdims=True) / count - mean * mean, 1e-3))
    return np.clip((similarities - mean) / spread, -3, 6) / 3


def _add_links(columns: dict[str, Matrix], lines: Sequence[Line]) -> None:
    n = len(lines)
    link = np.zeros((n, n), np.float32)
    for number, line in enumerate(lines):
        if line.reply_to is not None and line.reply_to < number:
            link[number, line.reply_to] = 1
    columns["replies"] = link
    columns["replies_elsewhere"] = link.max(1, keepdims=True, initial=0) * (1 - link)
    columns["was_replied_to"] = np.broadcast_to(link.max(0, keepdims=True, initial=0), (n, n))


def _describe_lines(chat: _Chat, readings: Sequence[Reading]) -> Matrix:
    n = len(readings)
    features = np.zeros((len(LINE_FEATURES), n), np.float32)
    forms = len(FORMS)
    features[:forms] = np.array([reading.forms for reading in readings], np.float32).T
    features[forms] = [reading.length for reading in readings]
    features[forms + 1] = [1 / (1 + len(reading.words)) for reading in readings]
    counts = np.bincount(chat.author, minlength=chat.authors)
    _, firsts = np.unique(chat.author, return_index=True)
    features[forms + 2, firsts] = 1
    features[forms + 3] = np.log1p(counts[chat.author]) / 3
    features[forms + 4] = chat.addresses.any(1)
    features[forms + 5] = chat.addresses[:, chat.authors :].any(1)
    features[forms + 6] = np.log1p(np.arange(n)) / 5
    return features


def _describe_chat(chat: _Chat) -> Matrix:
    n = len(chat.author)
    return np.array([chat.addresses.any(1).mean(), np.log1p(chat.authors) / 3, np.log1p(n) / 5], np.float32)


def _to_log(values: NDArray[np.generic]) -> Matrix:
    return np.log1p(values).astype(np.float32)


def _to_number(mask: NDArray[np.bool_]) -> Matrix:
    return mask.astype(np.float32)
