"""Bound the text that language rules look at.

Many of their patterns take time that grows with the square of a run of text that they repeat over. After `limit_text` such runs
are short: whitespace is collapsed, a repeated character is kept a few times, and no line and no word is long. So the time
grows with the length of the text, and the length has a limit. `tests/patterns` shows that it holds for every pattern.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LINE_CHARACTERS: Final = 400
SENTENCE_BREAK_CHARACTERS: Final = 100
"""After this many characters a line is broken where a sentence ends."""
MAX_WORD_CHARACTERS: Final = 80
MAX_RUN_CHARACTERS: Final = 12
"""The number of times that one character is kept in a row."""

_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r" ?\n[ \n]*")
_RUN = re.compile(rf"(.)\1{{{MAX_RUN_CHARACTERS - 1}}}\1+", re.DOTALL)
_ENDS_SENTENCE: Final = frozenset(".!?…。！？")


def limit_text(text: str, max_characters: int) -> str:
    """Return the beginning and the end of the text, about `most` characters, with nothing in it that goes on for long.

    A short and ordinary text comes back with its whitespace collapsed and is otherwise the same.
    """
    return "\n".join(_break_line(line) for line in collapse_runs(shorten(text, max_characters)).split("\n"))


def collapse_runs(text: str) -> str:
    """Return the text with single spaces, at most one blank line in a row, and no character repeated for long."""
    text = _SPACES.sub(" ", text)
    text = _BREAKS.sub(lambda found: "\n\n" if found.group().count("\n") > 1 else "\n", text)
    return _RUN.sub(lambda found: found[1] * MAX_RUN_CHARACTERS, text)


def shorten(text: str, max_characters: int) -> str:
    """Return the text, or three quarters of `most` from its beginning and one from its end if it is longer."""
    if len(text) <= max_characters:
        return text
    tail = max_characters // 4
    return f"{text[: max_characters - tail]} {text[-tail:]}"


def _break_line(line: str) -> str:
    """Return the line in several, where it is long, and with spaces in words that are too long to be any."""
    if len(line) <= MAX_WORD_CHARACTERS:
        return line
    kept: list[str] = []
    length = 0
    for word in _split_words(line):
        if length > MAX_LINE_CHARACTERS or (length > SENTENCE_BREAK_CHARACTERS and kept[-1][-1:] in _ENDS_SENTENCE):
            kept.append("\n")
            length = 0
        elif kept:
            kept.append(" ")
        kept.append(word)
        length += len(word) + 1
    return "".join(kept)


def _split_words(line: str) -> list[str]:
    return [
        word[start : start + MAX_WORD_CHARACTERS]
        for word in line.split(" ")
        for start in range(0, max(len(word), 1), MAX_WORD_CHARACTERS)
    ]
