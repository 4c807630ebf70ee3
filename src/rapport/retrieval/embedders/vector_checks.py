"""Check the vectors that a model has returned."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rapport.domain.errors import Transient


def check_vectors(
    vectors: Sequence[Sequence[float]], *, count: int, embedder: str, dimensions: int | None = None
) -> list[list[float]]:
    """Return the vectors scaled to length 1; raise Transient if some are missing, of another size, zero or not numbers."""
    if len(vectors) != count:
        raise Transient(f"{embedder} answered with {len(vectors)} vectors for {count} texts.")
    expected = dimensions or (len(vectors[0]) if vectors else 0)
    return [_normalize(vector, expected, embedder) for vector in vectors]


def _normalize(vector: Sequence[float], dimensions: int, embedder: str) -> list[float]:
    if len(vector) != dimensions or not vector:
        raise Transient(f"{embedder} answered with a vector of {len(vector)} numbers where {dimensions} were expected.")
    length = math.hypot(*vector)
    if not math.isfinite(length):
        raise Transient(f"{embedder} answered with a vector that holds something else than finite numbers.")
    if length == 0:
        raise Transient(f"{embedder} answered with a vector of zeros, which has no direction.")
    return [number / length for number in vector]
