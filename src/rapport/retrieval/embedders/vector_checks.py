"""What a model has answered, checked before it is believed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rapport.domain.errors import Transient


def sound_vectors(
    answered: Sequence[Sequence[float]], *, count: int, of: str, dimensions: int | None = None
) -> list[list[float]]:
    """The vectors at length 1; Transient if they are too few, of another size, or not numbers with a direction."""
    if len(answered) != count:
        raise Transient(f"{of} answered with {len(answered)} vectors for {count} texts.")
    expected = dimensions or (len(answered[0]) if answered else 0)
    return [_sound(vector, expected, of) for vector in answered]


def _sound(vector: Sequence[float], dimensions: int, of: str) -> list[float]:
    if len(vector) != dimensions or not vector:
        raise Transient(f"{of} answered with a vector of {len(vector)} numbers where {dimensions} were expected.")
    length = math.hypot(*vector)
    if not math.isfinite(length):
        raise Transient(f"{of} answered with a vector that holds something else than finite numbers.")
    if length == 0:
        raise Transient(f"{of} answered with a vector of zeros, which points nowhere.")
    return [number / length for number in vector]
