"""Hold the tools to measure the cost of context selection: times by kind and place, targets, and a timed embedder."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.context.chats import Chat, Lines
from rapport.domain.embedder import Embedder
from rapport.domain.note import Vector


@dataclass
class Times:
    """Milliseconds of each kind of work, by place."""

    taken: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])

    def add(self, kind: str, where: str, began: float, *, less: float = 0.0) -> None:
        took = (time.perf_counter() - began - less) * 1e3
        self.taken.setdefault(kind, {}).setdefault(where, []).append(took)

    def table(self, title: str, places: Sequence[str]) -> None:
        print(f"\n| {title}: p50, p95 | " + " | ".join(places) + f" | {places[-1]} to {places[0]} |")
        print("|---" * (len(places) + 2) + "|")
        for kind in self.taken:
            cells = " | ".join(spread(self.taken[kind][place]) for place in places)
            print(f"| {kind} | {cells} | {self.ratio(kind, places):.2f} |", flush=True)

    def ratio(self, kind: str, places: Sequence[str]) -> float:
        """Return the ratio of the last place to the first."""
        first, *_, last = (statistics.median(self.taken[kind][place]) for place in places)
        return last / first


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}, {np.percentile(values, 95):.2f} ms"


@dataclass
class Site:
    """The measured environment, and which targets were met."""

    lines: Lines
    short: Chat
    middling: Sequence[Chat]
    larger: Chat
    long: Chat
    chance: random.Random
    goals: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def goal(self, label: str, met: bool, shown: str) -> None:
        self.goals.append((label, met, shown))

    def like(self, chat: Chat) -> Vector:
        """Return a vector that is similar to messages of a chat."""
        chance = np.random.default_rng(self.chance.getrandbits(32))
        lines = (chat.first, chat.first + chat.lines)
        return self.lines.near(np.array([self.chance.randrange(*lines)]), lines, chance)[0].tolist()


class Stopwatch:
    """An embedder that records how long each call takes."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.seconds = 0.0

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def min_similarity(self) -> float:
        return self._embedder.min_similarity

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embedder.embed(texts)

    async def embed_question(self, question: str) -> Vector:
        began = time.perf_counter()
        try:
            return await self._embedder.embed_question(question)
        finally:
            self.seconds += time.perf_counter() - began
