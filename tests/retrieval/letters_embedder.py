"""Embed texts by their pairs of letters: no weights and no network, but no meaning either."""

import math
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rapport.domain.embedder import Embedder
from rapport.domain.note import Vector

DIMENSIONS = 512


class LettersEmbedder:
    """Counts the pairs of letters of a text."""

    name = "letters-512"
    min_similarity = 0.5

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of length 1 for each text."""
        return [self._count_pairs(text) for text in texts]

    async def embed_question(self, question: str) -> Vector:
        """Return the vector to search with."""
        return self._count_pairs(question)

    def _count_pairs(self, text: str) -> list[float]:
        counts = [0.0] * DIMENSIONS
        lowered = f" {text.lower()} "
        for first, second in pairwise(lowered):
            counts[zlib.crc32(f"{first}{second}".encode()) % DIMENSIONS] += 1
        length = math.hypot(*counts)
        return [count / length for count in counts]


def make_letters(_model: str, _environment: Mapping[str, str]) -> Embedder:
    """Return the embedder that `RAPPORT_EMBEDDINGS=letters` names."""
    return LettersEmbedder()
