"""The scorer: for each message of a chat, the earlier one that it answers or continues, and so which ones belong together.

It has two rounds. The first scores every pair of messages, which gives the probability that two messages are in one thread.
The second scores the pairs again with features of these threads. The weights were trained on annotated chats
(bench/context/) and are in weights.json, which only this module reads.
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
"""The distances at which the second round searches the latest line of a thread."""
MIN_LINK_PROBABILITY = 6e-6
"""The minimal probability of a link after the first round, so that the second can still choose it."""


class WordVectors(Protocol):
    """Maps texts to vectors of length 1 (0 for an empty text), within microseconds each."""

    def __call__(self, texts: Sequence[str], /) -> Matrix: ...


@dataclass(frozen=True, slots=True)
class Threads:
    """The result of the scorer."""

    links: Matrix
    """[i, j]: the probability that line i answers or continues the earlier line j; on the diagonal, that it begins a thread."""
    together: Matrix
    """[i, j]: the probability that lines i and j are in one thread."""


def disentangle(lines: Sequence[Line], words: WordVectors | None) -> Threads:
    """Compute which line answers which, and which lines belong together; oldest first."""
    weights = _load_weights()
    vectors = None if words is None else words([strip_handles(line.text) for line in lines])
    features = compute_features(lines, vectors)
    meaning = None if vectors is None else _Meaning(weights, vectors)
    pairs = list_pairs(len(lines))
    first = _normalize_links(_score_pairs(weights.first, features, meaning, None), len(lines))
    scores = _score_pairs(weights.second, features, meaning, _carry_over(weights, features, _join_threads(first)))
    scores += np.log(np.maximum(first.take(pairs.flat), MIN_LINK_PROBABILITY))
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
    """Features from word vectors: a few learned directions, and how well two messages match in them."""

    def __init__(self, weights: _Weights, vectors: Matrix) -> None:
        self.lines = weights.meaning @ vectors.T  # (directions, lines)
        count = len(vectors)
        asks = (weights.asks @ self.lines).reshape(weights.heads, -1, count)
        tells = (weights.tells @ self.lines).reshape(weights.heads, -1, count)
        fitting = np.matmul(asks.transpose(0, 2, 1), tells) / np.sqrt(asks.shape[1], dtype=np.float32)
        every = list_pairs(count)
        self.fitting = fitting.reshape(weights.heads, -1).take(every.flat, axis=1)
        self.fitting[:, every.alone] = 0


def _score_pairs(layers: _Layers, features: LineFeatures, meaning: _Meaning | None, seen: Matrix | None) -> Matrix:
    """Return how strongly each pair is linked."""
    pairs = list_pairs(features.lines.shape[1])
    later = layers.later @ features.lines + (layers.bias + layers.chat @ features.chat)[:, None]
    earlier = layers.earlier @ features.lines
    if meaning is not None:
        later += layers.later_meaning @ meaning.lines
        earlier += layers.earlier_meaning @ meaning.lines
    hidden = earlier.take(pairs.earlier, axis=1)
    hidden[:, pairs.alone] = layers.none[:, None]
    hidden += later.take(pairs.later, axis=1)
    hidden += layers.pair @ features.pairs
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
    """Return the probability that two lines are in one thread, computed line by line from the links."""
    count = len(links)
    together = np.eye(count, dtype=np.float32)
    for line in range(1, count):
        row = links[line, :line] @ together[:line, :line]
        together[line, :line] = row
        together[:line, line] = row
    return together


def _carry_over(weights: _Weights, features: LineFeatures, together: Matrix) -> Matrix:
    """Return, for each pair, the features of the later line with the thread of the earlier one."""
    count = len(together)
    pairs = list_pairs(count)
    spread, steps = len(weights.spread), np.arange(count)[:, None] - np.arange(count)[None, :]
    dense = np.zeros((spread + len(LOOKBACKS), count * count), np.float32)
    for number, feature in enumerate(weights.spread):
        dense[number, pairs.flat] = features.pairs[feature]
    for number, reach in enumerate(LOOKBACKS, spread):
        dense[number] = ((steps >= 1) & (steps <= reach)).ravel()
    carried = (dense.reshape(-1, count) @ together).reshape(len(dense), -1)
    below = np.tril(together, -1)
    since = np.cumsum(below, 0) - below
    seen = np.empty((len(dense) + 2, len(pairs.flat)), np.float32)
    carried.take(pairs.flat, axis=1, out=seen[:-2], mode="clip")
    since.take(pairs.flat, out=seen[-2], mode="clip")
    np.maximum(seen[:-1], 0, out=seen[:-1])
    np.log1p(seen[:-1], out=seen[:-1])
    below.take(pairs.flat, out=seen[-1], mode="clip")
    seen[:, pairs.alone] = 0
    return seen


@cache
def _load_weights() -> _Weights:
    document = json.loads(resources.files("rapport.context.relevance").joinpath("weights.json").read_bytes())
    if tuple(document["features"]) != FEATURES:
        raise RuntimeError("weights.json was trained on other features than features.py makes.")

    def matrix(value: object) -> Matrix:
        return np.array(value, np.float32)

    def layers(values: dict[str, Any]) -> _Layers:
        matrices = {name: matrix(values[name]) for name in _Layers.__slots__ if name != "out_bias"}
        return _Layers(**matrices, out_bias=float(values["out_bias"]))

    return _Weights(
        matrix(document["meaning"]),
        matrix(document["asks"]),
        matrix(document["tells"]),
        layers(document["first"]),
        layers(document["second"]),
        tuple(PAIR_FEATURES.index(name) for name in document["spread"]),
        int(document["heads"]),
    )
