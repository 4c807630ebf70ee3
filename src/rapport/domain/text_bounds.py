"""Limit the text that language rules read.

Many of their patterns take time that grows with the square of a repeated run of text. `limit_text` makes such runs short:
whitespace is collapsed, a repeated character is kept a few times, and no line or word is long. The time then grows only with
the length of the text, which has a limit. `tests/patterns` checks this for every pattern.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LINE_CHARACTERS: Final = 400
SENTENCE_BREAK_CHARACTERS: Final = 100
"""After this many characters a line is broken where a sentence ends."""
MAX_WORD_CHARACTERS: Final = 80
MAX_RUN_CHARACTERS: Final = 12
"""The number of equal characters in a row that are kept."""

_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r" ?\n[ \n]*")
_RUN = re.compile(rf"(.)\1{{{MAX_RUN_CHARACTERS - 1}}}\1+", re.DOTALL)
_ENDS_SENTENCE: Final = frozenset(".!?…。！？")


def limit_text(text: str, max_characters: int) -> str:
    """Return the beginning and the end of the text, about `most` characters, without long runs.

    A short and ordinary text stays the same, except that its whitespace is collapsed.
    """
    return "\n".join(_break_line(line) for line in collapse_runs(shorten(text, max_characters)).split("\n"))


def collapse_runs(text: str) -> str:
    """Return the text with single spaces, at most one consecutive blank line, and no character repeated many times."""
    text = _SPACES.sub(" ", text)
    text = _BREAKS.sub(lambda match: "\n\n" if match.group().count("\n") > 1 else "\n", text)
    return _RUN.sub(lambda match: match[1] * MAX_RUN_CHARACTERS, text)


def shorten(text: str, max_characters: int) -> str:
    """Return the text; of a longer one, `most` characters: three quarters from its beginning and one from its end."""
    if len(text) <= max_characters:
        return text
    tail = max_characters // 4
    return f"{text[: max_characters - tail]} {text[-tail:]}"


def _break_line(line: str) -> str:
    """Return a long line as several lines, with spaces in overlong words."""
    if len(line) <= MAX_WORD_CHARACTERS:
        return line
    parts: list[str] = []
    length = 0
    for word in _split_words(line):
        if length > MAX_LINE_CHARACTERS or (length > SENTENCE_BREAK_CHARACTERS and parts[-1][-1:] in _ENDS_SENTENCE):
            parts.append("\n")
            length = 0
        elif parts:
            parts.append(" ")
        parts.append(word)
        length += len(word) + 1
    return "".join(parts)


def _split_words(line: str) -> list[str]:
    return [
        word[start : start + MAX_WORD_CHARACTERS]
        for word in line.split(" ")
        for start in range(0, max(len(word), 1), MAX_WORD_CHARACTERS)
    ]
