"""An embedder whose similarities are known to the last digit, because a test has made them."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapport.domain.note import Vector

DIMENSIONS = 64


@dataclass
class HandMade:
    """Gives each text the vector it was told, and any other one a direction of its own."""

    name: str = "hand-made"
    min_similarity: float = 0.3
    known: dict[str, Vector] = field(default_factory=dict[str, Vector])
    fails: Exception | None = None
    asked: list[str] = field(default_factory=list[str])

    def alike(self, text: str, other: str, similarity: float) -> None:
        """Let `other` have exactly this similarity to `text`."""
        base = direction(text) if text not in self.known else self.known[text]
        aside = direction(f"beside {other}")
        along = sum(a * b for a, b in zip(base, aside, strict=True))
        across = unit([a - along * b for a, b in zip(aside, base, strict=True)])
        share = math.sqrt(1 - similarity**2)
        self.known[text] = base
        self.known[other] = [similarity * a + share * b for a, b in zip(base, across, strict=True)]

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if self.fails is not None:
            raise self.fails
        self.asked += texts
        return [self.known.get(text) or direction(text) for text in texts]

    async def embed_question(self, question: str) -> Vector:
        return (await self.embed([question]))[0]


def direction(text: str) -> Vector:
    """Return a direction for a text: the same every time, and far from any other's."""
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    return unit([chance.gauss(0, 1) for _ in range(DIMENSIONS)])


def unit(vector: Sequence[float]) -> list[float]:
    length = math.hypot(*vector)
    return [number / length for number in vector]
