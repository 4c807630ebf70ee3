"""Split text into words, stems and sentences, as the planner and the leak check see them."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from rapport.domain.phrases import load_languages, load_words

DATA = "rapport.followups"
"""The package whose folder `data` holds the words and phrases of these rules."""
KNOWN = 1_000
"""Texts of which it is remembered what was found in them: every turn looks at the same few messages again."""

# Chinese, Japanese, Korean and Thai are written (nearly) without spaces between words.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+(?:'[^\W_{_UNSPACED}]+)*")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe0e\ufe0f]")
_QUOTES = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'}
)
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]*]*\s+|(?<=[。！？؟])[\"')\]*]*\s*|\n+")
_LONGEST_WORD = 40

SMALL_WORDS = load_words(DATA, "small_words")
"""Words that say nothing about a subject, without accents."""
_IRREGULAR: dict[str, str] = load_languages(DATA)["en"]["irregular"]

_SUFFIXES = (
    ("ies", "y", 5), ("sses", "ss", 5), ("ations", "", 8), ("ation", "", 7), ("ings", "", 6), ("ing", "", 6), ("ied", "y", 5),
    ("ed", "", 5), ("ches", "ch", 6), ("shes", "sh", 6), ("xes", "x", 5), ("ly", "", 6), ("en", "", 6), ("s", "", 4), ("e", "", 4),
)  # fmt: skip


def plain(text: str) -> str:
    """Return the text in small letters, without accents, invisible characters and fancy quotes; line breaks stay."""
    if text.isascii():  # by far the most texts, and `translate` is slow
        return text.replace("`", "'").lower()
    bare = _INVISIBLE.sub("", text.translate(_QUOTES))
    apart = unicodedata.normalize("NFKD", bare.casefold())
    return unicodedata.normalize("NFC", "".join(each for each in apart if not unicodedata.combining(each)))


def words(text: str) -> list[str]:
    """Return every word of the text, plain; unspaced scripts come as pairs of characters."""
    return list(_words(text))


@lru_cache(KNOWN)
def _words(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in _WORD.findall(plain(text)):
        if _IS_UNSPACED.match(word):
            found.extend(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        else:
            found.append(word[:_LONGEST_WORD])
    return tuple(found)


def content_words(text: str) -> list[str]:
    """Return the words that carry content, plain."""
    return list(_content_words(text))


@lru_cache(KNOWN)
def _content_words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _words(text) if word not in SMALL_WORDS and len(word) > 1)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return one form for a word's inflections: `calls`, `calling` and `called` are the same."""
    word = word.removesuffix("'s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 3 or not word.isascii():
        return word
    for suffix, replacement, shortest in _SUFFIXES:
        if word.endswith(suffix) and len(word) >= shortest and not (suffix == "s" and word[-2] in "su"):
            return _undouble(word[: len(word) - len(suffix)] + replacement)
    return word


def _undouble(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsaeiou":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, in order, none empty."""
    return [part for piece in _SENTENCE_END.split(text) if (part := piece.strip(" \t\"'*_>-•"))]


def shorten(text: str, longest: int) -> str:
    """Return the text on one line, cut at a word if it is too long."""
    line = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(line.split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[longest // 2 :] else cut) + "…"
