"""Choosing and shaping words: stable choices, short quotes, clean joins."""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

_TAG = re.compile(r"\[\s*sources?\s*:[^\]\n]*\]", re.IGNORECASE)
_HALF_TAG = re.compile(r"\[(?=\s*source)", re.IGNORECASE)
_FENCE = re.compile(r"<<<+|>>>+")
_SPACE = re.compile(r"\s+")


class Phrasebook:
    """Picks among phrasings by what the conversation says; repeats none while another is left unused."""

    def __init__(self, content: Iterable[str], said: Sequence[str], *, in_group: bool = False) -> None:
        self.in_group = in_group
        """True if several people read it: mostly not those who run the server, and nobody may come back to it."""
        digest = blake2b(digest_size=8)
        for part in content:
            digest.update(part.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        self._seed = int.from_bytes(digest.digest(), "big")
        self._said = tuple(said)

    def pick(self, phrasings: Sequence[str]) -> str:
        """Return one of the templates: one never said in this window, else the one said longest ago."""
        start = self._seed % len(phrasings)
        rotated = [*phrasings[start:], *phrasings[:start]]
        return min(rotated, key=self._find_last_use)

    def has_said(self, fragment: str) -> bool:
        return any(fragment in text for text in self._said)

    def _find_last_use(self, template: str) -> int:
        """Return how recently the template was used: 0 for never, rising to the latest reply."""
        fixed = max(re.split(r"\{\w+\}", template), key=len).strip()
        return max((n for n, text in enumerate(self._said, 1) if fixed and fixed in text), default=0)


def quotable(text: str, limit: int = 120) -> str:
    """Return somebody's words on one line, cut at a word, and free of anything that reads as a citation."""
    flat = _SPACE.sub(" ", _FENCE.sub(" ", text)).strip()
    flat = _HALF_TAG.sub("(", _SPACE.sub(" ", _TAG.sub("", flat))).strip()
    flat = flat.replace(" .", ".").replace(" ,", ",")
    if len(flat) <= limit:
        return flat
    cut = flat[:limit]
    spaced = cut.rsplit(" ", 1)[0]
    return (spaced if len(spaced) > limit // 2 else cut).rstrip(" ,;:-") + "…"


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def finish_sentence(text: str) -> str:
    """Return the text as a sentence with an end."""
    text = text.rstrip(" ,;:-")
    return text if text.endswith((".", "!", "?", "…", "。", "！", "？")) else f"{text}."


def join_list(items: Sequence[str], joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {joint} {items[-1]}"
