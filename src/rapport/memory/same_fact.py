"""Two wordings of one fact: whether they can be that at all, and which of them says more."""

from __future__ import annotations

import re
from collections import Counter

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_NEGATIONS = frozenset({"no", "not", "never", "none", "nobody", "nothing", "neither", "nor", "without"})
_LATIN_ENDS = 0x250
PIECE = 1_000
"""Characters that any embedder reads whole; of a longer text some read only the beginning."""
SAME_LETTERS = 0.8
"""The share of letter pairs that two texts must have in common where the vectors alone can't be trusted."""


def can_be_same(one: str, other: str) -> bool:
    """False where a high similarity says nothing: to an embedder for Latin scripts all text in some others is the same.

    Such texts say the same only if they are nearly the same, letter by letter; that loses no fact.
    """
    if _is_latin(one) and _is_latin(other):
        return True
    pairs, others = _letter_pairs(one), _letter_pairs(other)
    shared = sum((pairs & others).values())
    return 2 * shared >= SAME_LETTERS * (pairs.total() + others.total())


def adds_nothing(newer: str, older: str) -> bool:
    """Return whether the newer text is the older one, or that with some words left out that deny nothing."""
    said = iter(_words(older))
    left_out: list[str] = []
    for word in _words(newer):
        for candidate in said:
            if candidate == word:
                break
            left_out.append(candidate)
        else:
            return False
    return _NEGATIONS.isdisjoint([*left_out, *said])


def pieces_of(text: str) -> list[str]:
    """Return the text in pieces that an embedder reads whole, cut between words where there are any."""
    pieces: list[str] = []
    while len(text) > PIECE:
        space = max(text.rfind(" ", 1, PIECE), text.rfind("\n", 1, PIECE))
        end = space if space > PIECE // 2 else PIECE
        pieces.append(text[:end])
        text = text[end:].strip()
    return [*pieces, text] if text else pieces


def _words(text: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(text.casefold())]


def _is_latin(text: str) -> bool:
    letters = [character for character in text if character.isalnum()]
    return 2 * sum(ord(character) < _LATIN_ENDS for character in letters) > len(letters)


def _letter_pairs(text: str) -> Counter[str]:
    letters = f" {' '.join(text.casefold().split())} "
    return Counter(letters[at : at + 2] for at in range(len(letters) - 1))
