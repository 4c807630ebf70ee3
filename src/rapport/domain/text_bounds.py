"""Bound the text that language rules look at.

Many of their patterns take time that grows with the square of a run of text that they repeat over. After `bounded` such runs
are short: whitespace is collapsed, a repeated character is kept a few times, and no line and no word is long. So the time
grows with the length of the text, and the length has a limit. `tests/patterns` shows that it holds for every pattern.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_LINE: Final = 400
LONG_LINE: Final = 100
"""After this many characters a line is broken where a sentence ends."""
LONGEST_WORD: Final = 80
LONGEST_RUN: Final = 12
"""How often one character is kept in a row."""

_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r" ?\n[ \n]*")
_RUN = re.compile(rf"(.)\1{{{LONGEST_RUN - 1}}}\1+", re.DOTALL)
_ENDS_SENTENCE: Final = frozenset(".!?…。！？")


def bounded(text: str, most: int) -> str:
    """Return the beginning and the end of the text, about `most` characters, with nothing in it that goes on for long.

    A short and ordinary text comes back with its whitespace collapsed and is otherwise the same.
    """
    return "\n".join(_broken(line) for line in collapsed(shortened(text, most)).split("\n"))


def collapsed(text: str) -> str:
    """Return the text with single spaces, at most one blank line in a row, and no character repeated for long."""
    text = _SPACES.sub(" ", text)
    text = _BREAKS.sub(lambda found: "\n\n" if found.group().count("\n") > 1 else "\n", text)
    return _RUN.sub(lambda found: found[1] * LONGEST_RUN, text)


def shortened(text: str, most: int) -> str:
    """Return the text, or three quarters of `most` from its beginning and one from its end if it is longer."""
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail]} {text[-tail:]}"


def _broken(line: str) -> str:
    """Return the line in several, where it is long, and with spaces in words that are too long to be any."""
    if len(line) <= LONGEST_WORD:
        return line
    kept: list[str] = []
    length = 0
    for word in _words(line):
        if length > LONGEST_LINE or (length > LONG_LINE and kept[-1][-1:] in _ENDS_SENTENCE):
            kept.append("\n")
            length = 0
        elif kept:
            kept.append(" ")
        kept.append(word)
        length += len(word) + 1
    return "".join(kept)


def _words(line: str) -> list[str]:
    return [
        word[start : start + LONGEST_WORD]
        for word in line.split(" ")
        for start in range(0, max(len(word), 1), LONGEST_WORD)
    ]
