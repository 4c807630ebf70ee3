"""Words, stems and sentences of a text, in time linear in its length, whatever the script."""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

# Chinese, Japanese, Korean and Thai are written without spaces between words (or nearly so).
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"\d+(?:[.,:]\d+)*|[{_UNSPACED}]+|[^\W\d_{_UNSPACED}]+(?:'[^\W\d_]+)?|[^\W_]+|€")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_MAX_WORD_CHARACTERS = 40
_MAX_JOINED_CHARACTERS = 500
"""A sentence that is as long ends at the next mark, also after an abbreviation."""
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]”’]?\s+|(?<=[。！？])")
_ABBREVIATIONS = ("Mr.", "Mrs.", "Ms.", "Dr.", "Prof.", "St.", "No.", "vs.", "e.g.", "i.e.", "a.m.", "p.m.", "approx.")
_SUFFIXES = (
    ("ies", "y", 5), ("sses", "ss", 5), ("ation", "", 7), ("ing", "", 6), ("ied", "y", 5), ("ed", "", 5),
    ("ches", "ch", 6), ("shes", "sh", 6), ("xes", "x", 5), ("ly", "", 6), ("s", "", 4), ("e", "", 4),
)  # fmt: skip
_DATA: dict[str, Any] = tomllib.loads((resources.files(__package__ or "") / "words.toml").read_text(encoding="utf-8"))
STOP_WORDS = frozenset(_DATA["stop_words"].split())
_QUESTION_WORDS = frozenset(_DATA["question_words"].split())
_SAME = {word: group.split()[0] for group in _DATA["same"]["groups"] for word in group.split()}
_COMMON_WORDS = {language: frozenset(words.split()) for language, words in _DATA["common_words"].items()}


def words(text: str) -> list[str]:
    """Return every word, lower-cased; text in unspaced scripts comes as pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text.replace("’", "'").lower()):
        if word.isascii() or not _IS_UNSPACED.match(word):
            found.append(word[:_MAX_WORD_CHARACTERS])
        else:
            found.extend(word[start : start + 2] for start in range(max(1, len(word) - 1)))
    return found


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return one form for the inflections and near synonyms of a word."""
    word = word.removesuffix("'s")
    word = _DATA["irregular"].get(word, word)
    bare = _SAME.get(word) or _strip_suffix(word)
    return _SAME.get(bare, bare)


def _strip_suffix(word: str) -> str:
    if len(word) <= 3 or not word.isascii():
        return word
    for suffix, replacement, min_length in _SUFFIXES:
        if word.endswith(suffix) and len(word) >= min_length and not (suffix == "s" and word[-2] in "su"):
            bare = word[: len(word) - len(suffix)] + replacement
            bare = bare[:-1] if len(bare) > 3 and bare[-1] == bare[-2] and bare[-1] not in "lsaeiou" else bare
            return bare.removesuffix("e") if len(bare) > 3 else bare  # close, closes and closed are the same
    return word


def terms(text: str) -> list[str]:
    """Return the stems of the words that carry content."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


def content_words(text: str) -> list[str]:
    """Return the words that carry content, lower-cased."""
    return [word for word in words(text) if word not in STOP_WORDS and len(word) > 1]


def find_phrase(text: str, phrases: Sequence[str]) -> str | None:
    """Return the first of the phrases that stands in the text as whole words; apostrophes don't count."""
    line = f" {' '.join(words(text)).replace(chr(39), '')} "
    return next((phrase for phrase in phrases if f" {phrase} " in line), None)


ASKING_STEMS = frozenset(map(stem, _DATA["asking_words"].split()))
"""The stems of words of asking, which are not part of what is asked for."""


def is_question(sentence: str) -> bool:
    """Return True if the sentence asks something, with or without a question mark."""
    text = sentence.rstrip(" \"')”")
    if text.endswith(("?", "？", "؟")):
        return True
    first = next(iter(words(text[:60])), "")
    return " " in text and first in _QUESTION_WORDS and not text.endswith(("!", "."))


@lru_cache(maxsize=64)
def _find_kind(question: str) -> dict[str, Any] | None:
    return next((kind for kind in _DATA["answer_kinds"] if find_phrase(question, kind["asked"])), None)


def gives_answer(question: str, sentence: str) -> bool | None:
    """Return whether a sentence has what a question asks for (a time, a person …); None if the question doesn't tell."""
    if (kind := _find_kind(question)) is None:
        return None
    has_digits = "has_digits" in kind and any(map(str.isdigit, sentence))
    has_names = "has_names" in kind and any(word[:1].isupper() for word in sentence.split()[1:])
    return has_digits or has_names or not set(kind["words"].split()).isdisjoint(words(sentence))


def sentences(text: str) -> list[str]:
    """Return the sentences of running text in order; none is empty."""
    found: list[str] = []
    for line in text.splitlines():
        is_open = False
        for piece in filter(None, (part.strip() for part in _SENTENCE_END.split(line))):
            if is_open:
                found[-1] = f"{found[-1]} {piece}"
            else:
                found.append(piece)
            is_open = piece.endswith(_ABBREVIATIONS) and len(found[-1]) < _MAX_JOINED_CHARACTERS
    return found


def detect_language(text: str) -> str | None:
    """Return the code of the language whose common words stand in the text; None for English, and if it is hard to tell."""
    found = set(words(text[:400]))
    counts = {language: len(found & common) for language, common in _COMMON_WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if best != "en" and counts[best] >= 2 and counts[best] > counts["en"] else None
