"""Decide whether two texts can state the same fact, and which of them says more; embed long ones in pieces."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from rapport.domain.note import Vector

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_NEGATIONS = frozenset({"no", "not", "never", "none", "nobody", "nothing", "neither", "nor", "without"})
_LATIN_ENDS = 0x250
PIECE = 1_000
"""Characters that every embedder reads completely; some read only the beginning of a longer text."""
SAME_LETTERS = 0.8
"""The share of letter pairs that two texts must have in common if the vectors are not reliable."""


def can_be_same(one: str, other: str) -> bool:
    """Return False if a high similarity is no evidence: an embedder for Latin scripts gives similar vectors to all text in others.

    Such texts state the same fact only if their letters are nearly the same; so no fact is lost.
    """
    if _is_latin(one) and _is_latin(other):
        return True
    pairs, other_pairs = _letter_pairs(one), _letter_pairs(other)
    shared = sum((pairs & other_pairs).values())
    return 2 * shared >= SAME_LETTERS * (pairs.total() + other_pairs.total())


def adds_nothing(newer: str, older: str) -> bool:
    """Return True if the newer text is the older one, possibly without some words, none of which is a negation."""
    older_words = iter(_words(older))
    left_out: list[str] = []
    for word in _words(newer):
        for candidate in older_words:
            if candidate == word:
                break
            left_out.append(candidate)
        else:
            return False
    return _NEGATIONS.isdisjoint([*left_out, *older_words])


def split_for_embedding(text: str) -> list[str]:
    """Return the text in pieces that an embedder reads completely, cut between words if possible."""
    pieces: list[str] = []
    while len(text) > PIECE:
        space = max(text.rfind(" ", 1, PIECE), text.rfind("\n", 1, PIECE))
        end = space if space > PIECE // 2 else PIECE
        pieces.append(text[:end])
        text = text[end:].strip()
    return [*pieces, text] if text else pieces


def average_vectors(vectors: Sequence[Vector]) -> Vector:
    """Return the mean of the vectors, scaled to length 1."""
    if len(vectors) == 1:
        return vectors[0]
    summed = [math.fsum(numbers) for numbers in zip(*vectors, strict=True)]
    length = math.hypot(*summed)
    return [number / length for number in summed] if length else vectors[0]


def _words(text: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(text.casefold())]


def _is_latin(text: str) -> bool:
    letters = [character for character in text if character.isalnum()]
    return 2 * sum(ord(character) < _LATIN_ENDS for character in letters) > len(letters)


def _letter_pairs(text: str) -> Counter[str]:
    letters = f" {' '.join(text.casefold().split())} "
    return Counter(letters[position : position + 2] for position in range(len(letters) - 1))
