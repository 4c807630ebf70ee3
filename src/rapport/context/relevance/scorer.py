"""The scorer: for each message of a chat, which earlier one it answers or continues, and so which belong together.

Two rounds. The first looks at every pair of messages; from what it finds follows how likely any two are in one thread. The
second looks again with that known: an author's thread, a thread's last words. Its weights were trained on chats that people
have untangled (bench/context/); they stand in weights.json, as numbers with names, and this module is all that reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Protocol

import numpy as np

from rapport.context.relevance.line_features import Line, strip_handles
from rapport.context.relevance.pair_features import (
    FEATURES,
    PAIR_FEATURES,
    LineFeatures,
    Matrix,
    compute_features,
    list_pairs,
)

LOOKBACKS = (5, 15, 10_000)
"""The distances at which the second round looks for the latest line of a thread."""
MIN_LINK_PROBABILITY = 6e-6
"""Links that the first round finds unlikely stay possible in the second."""


class WordVectors(Protocol):
    """Maps texts to vectors of length 1 (0 for an empty text), within microseconds each."""

    def __call__(self, texts: Sequence[str], /) -> Matrix: ...


@dataclass(frozen=True, slots=True)
class Threads:
    """The result of the scorer."""

    links: Matrix
    """[i, j]: how likely line i answers or continues the earlier line j; on the diagonal, that it begins something new."""
    together: Matrix
    """[i, j]: how likely lines i and j are in one thread."""


def disentangle(lines: Sequence[Line], words: WordVectors | None) -> Threads:
    """Compute which line answers which, and which lines belong together; oldest first."""
    weights = _load_weights()
    vectors = None if words is None else words([strip_handles(line.text) for line in lines])
    known = compute_features(lines, vectors)
    meaning = None if vectors is None else _Meaning(weights, vectors)
    every = list_pairs(len(lines))
    first = _normalize_links(_score_pairs(weights.first, known, meaning, None), len(lines))
    scores = _score_pairs(weights.second, known, meaning, _carry_over(weights, known, _join_threads(first)))
    scores += np.log(np.maximum(first.take(every.flat), MIN_LINK_PROBABILITY))
    links = _normalize_links(scores, len(lines))
    return Threads(links, _join_threads(links))


@dataclass(frozen=True, slots=True)
class _Layers:
    """The layers of one round: from the features of a pair to the strength of its link."""

    pair: Matrix
    later: Matrix
    earlier: Matrix
    chat: Matrix
    none: Matrix
    later_meaning: Matrix
    earlier_meaning: Matrix
    heads: Matrix
    seen: Matrix
    bias: Matrix
    hidden: Matrix
    hidden_bias: Matrix
    out: Matrix
    out_bias: float


@dataclass(frozen=True, slots=True)
class _Weights:
    meaning: Matrix
    asks: Matrix
    tells: Matrix
    first: _Layers
    second: _Layers
    spread: tuple[int, ...]
    """The features that the second round carries over from a message to its whole thread."""
    heads: int


class _Meaning:
    """Features from word vectors: a few learned directions, and how well two messages fit each other by them."""

    def __init__(self, weights: _Weights, vectors: Matrix) -> None:
        self.lines = weights.meaning @ vectors.T  # (directions, lines)
        count = len(vectors)
        asks = (weights.asks @ self.lines).reshape(weights.heads, -1, count)
        tells = (weights.tells @ self.lines).reshape(weights.heads, -1, count)
        fitting = np.matmul(asks.transpose(0, 2, 1), tells) / np.sqrt(asks.shape[1], dtype=np.float32)
        every = list_pairs(count)
        self.fitting = fitting.reshape(weights.heads, -1).take(every.flat, axis=1)
        self.fitting[:, every.alone] = 0


def _score_pairs(layers: _Layers, known: LineFeatures, meaning: _Meaning | None, seen: Matrix | None) -> Matrix:
    """Return how strongly each pair is linked."""
    every = list_pairs(known.lines.shape[1])
    later = layers.later @ known.lines + (layers.bias + layers.chat @ known.chat)[:, None]
    earlier = layers.earlier @ known.lines
    if meaning is not None:
        later += layers.later_meaning @ meaning.lines
        earlier += layers.earlier_meaning @ meaning.lines
    hidden = earlier.take(every.earlier, axis=1)
    hidden[:, every.alone] = layers.none[:, None]
    hidden += later.take(every.later, axis=1)
    hidden += layers.pair @ known.pairs
    if meaning is not None:
        hidden += layers.heads @ meaning.fitting
    if seen is not None:
        hidden += layers.seen @ seen
    np.maximum(hidden, 0, out=hidden)
    deeper = layers.hidden @ hidden
    deeper += layers.hidden_bias[:, None]
    np.maximum(deeper, 0, out=deeper)
    return layers.out @ deeper + layers.out_bias


def _normalize_links(scores: Matrix, count: int) -> Matrix:
    """Return the scores of pairs as probabilities of each line over the lines it may answer."""
    links = np.full((count, count), -np.inf, np.float32)
    links.ravel()[list_pairs(count).flat] = scores
    links -= links.max(1, keepdims=True)
    np.exp(links, out=links)
    links /= links.sum(1, keepdims=True)
    return links


def _join_threads(links: Matrix) -> Matrix:
    """Return how likely two lines are in one thread: line by line, from the lines that each may answer."""
    count = len(links)
    together = np.eye(count, dtype=np.float32)
    for line in range(1, count):
        row = links[line, :line] @ together[:line, :line]
        together[line, :line] = row
        together[:line, line] = row
    return together


def _carry_over(weights: _Weights, known: LineFeatures, together: Matrix) -> Matrix:
    """Return, for each pair, the features of the later line with the thread of the earlier one."""
    count = len(together)
    every = list_pairs(count)
    spread, steps = len(weights.spread), np.arange(count)[:, None] - np.arange(count)[None, :]
    dense = np.zeros((spread + len(LOOKBACKS), count * count), np.float32)
    for number, feature in enumerate(weights.spread):
        dense[number, every.flat] = known.pairs[feature]
    for number, reach in enumerate(LOOKBACKS, spread):
        dense[number] = ((steps >= 1) & (steps <= reach)).ravel()
    carried = (dense.reshape(-1, count) @ together).reshape(len(dense), -1)
    below = np.tril(together, -1)
    since = np.cumsum(below, 0) - below
    seen = np.empty((len(dense) + 2, len(every.flat)), np.float32)
    carried.take(every.flat, axis=1, out=seen[:-2], mode="clip")
    since.take(every.flat, out=seen[-2], mode="clip")
    np.maximum(seen[:-1], 0, out=seen[:-1])
    np.log1p(seen[:-1], out=seen[:-1])
    below.take(every.flat, out=seen[-1], mode="clip")
    seen[:, every.alone] = 0
    return seen


@cache
def _load_weights() -> _Weights:
    read = json.loads(resources.files("rapport.context.relevance").joinpath("weights.json").read_bytes())
    if tuple(read["features"]) != FEATURES:
        raise RuntimeError("weights.json was trained on other features than features.py makes.")

    def matrix(value: object) -> Matrix:
        return np.array(value, np.float32)

    def layers(told: dict[str, Any]) -> _Layers:
        named = {name: matrix(told[name]) for name in _Layers.__slots__ if name != "out_bias"}
        return _Layers(**named, out_bias=float(told["out_bias"]))

    return _Weights(
        matrix(read["meaning"]),
        matrix(read["asks"]),
        matrix(read["tells"]),
        layers(read["first"]),
        layers(read["second"]),
        tuple(PAIR_FEATURES.index(name) for name in read["spread"]),
        int(read["heads"]),
    )
