"""What a follow-up is about, in a few words, and whether two are about the same (AUTO-1)."""

from __future__ import annotations

import re

from rapport.autonomy.words import SMALL_WORDS, content_words, plain, shortened, stem, words

_MOST_WORDS = 7
_LONGEST = 80
_WRITTEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MOSTLY = 2 / 3


def matter_of(text: str) -> str:
    """A few content words of the text, as they are written there; never empty unless the text is."""
    kept = [word for word in _WRITTEN.findall(text) if plain(word) not in SMALL_WORDS and len(word) > 1]
    return shortened(" ".join(kept[:_MOST_WORDS]) or text, _LONGEST)


def same_matter(a: str, b: str) -> bool:
    """Whether two matters share most of their content words: inflection, order and small words don't count."""
    if words(a) == words(b):
        return True
    these, those = ({stem(word) for word in content_words(text)} for text in (a, b))
    if not these or not those:
        return False
    return len(these & those) >= _MOSTLY * min(len(these), len(those))
