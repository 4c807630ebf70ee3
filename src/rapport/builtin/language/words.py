"""Words, stems and sentences of a text; linear in its length, whatever the script."""

import re
from collections.abc import Iterable
from functools import lru_cache

from rapport.builtin.language.word_lists import IRREGULAR, STOP_WORDS, SYNONYMS

# Chinese, Japanese, Korean and Thai are written without spaces between words (or nearly so).
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"\d+(?:[.,:]\d+)*|[{_UNSPACED}]+|[^\W\d_{_UNSPACED}]+(?:['’][^\W\d_]+)?|[^\W_]+")
_ASCII_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[a-z]+(?:'[a-z]+)?|[a-z0-9]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_LONGEST_WORD = 40  # anything longer is noise to a word index

_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|vs|etc|approx|e\.g|i\.e|a\.m|p\.m|Nr|Inc|Ltd))\.$")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]”’]?\s+|(?<=[。！？])\s*")
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s+")
_MARKUP = re.compile(r"\*\*|__|`")


def words(text: str) -> list[str]:
    """Return every word of the text, lower-cased; unspaced scripts come as bigrams of characters."""
    if text.isascii():
        return [word[:_LONGEST_WORD] for word in _ASCII_WORD.findall(text.lower())]
    found: list[str] = []
    for word in _WORD.findall(text.replace("’", "'").lower()):
        if _IS_UNSPACED.match(word):
            found.extend(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        else:
            found.append(word[:_LONGEST_WORD])
    return found


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return one form for a word's inflections and near synonyms."""
    word = word.removesuffix("'s")
    if word in SYNONYMS:
        return SYNONYMS[word]
    word = IRREGULAR.get(word, word)
    bare = SYNONYMS.get(word) or _strip_suffix(word)
    return SYNONYMS.get(bare, bare)


def _strip_suffix(word: str) -> str:
    if len(word) <= 3 or not word.isascii():
        return word
    for suffix, replacement, shortest in (
        ("ies", "y", 5), ("sses", "ss", 5), ("ations", "", 8), ("ation", "", 7), ("ings", "", 6), ("ing", "", 6),
        ("ied", "y", 5), ("ed", "", 5), ("ches", "ch", 6), ("shes", "sh", 6), ("xes", "x", 5), ("ly", "", 6),
        ("s", "", 4), ("e", "", 4),
    ):  # fmt: skip
        if word.endswith(suffix) and len(word) >= shortest and not (suffix == "s" and word[-2] in "su"):
            cut = word[: len(word) - len(suffix)] + replacement
            return _undouble(cut)
    return word


def _undouble(word: str) -> str:
    """`stopp` → `stop`, and no silent e, so that `close`, `closes` and `closed` meet."""
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsaeiou":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def terms(text: str) -> list[str]:
    """Return the stems of the words that carry content."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


def content_words(text: str) -> list[str]:
    """Return the words that carry content, as written but lower-cased."""
    return [word for word in words(text) if word not in STOP_WORDS and not word.isdigit() and len(word) > 1]


def sentences(text: str) -> list[str]:
    """Return the sentences of running text, in order, none empty."""
    found: list[str] = []
    carried = ""
    for piece in _SENTENCE_END.split(text):
        part = f"{carried} {piece}".strip() if carried else piece.strip()
        if _ABBREVIATION.search(part[-12:]) and len(part) < 2000:
            carried = part
            continue
        carried = ""
        if part:
            found.append(part)
    return [*found, carried] if carried else found


def passages(text: str) -> list[tuple[str, str]]:
    """Return the sentences of a document, each with the heading it stands under (empty if none)."""
    found: list[tuple[str, str]] = []
    heading = ""
    for block in _blocks(text.splitlines()):
        if _HEADING.match(block):
            heading = _plain(_HEADING.sub("", block))
            continue
        found.extend((heading, sentence) for sentence in sentences(_plain(_BULLET.sub("", block))))
    # A document of headings only still says something.
    return found or ([("", heading)] if heading else [])


def _blocks(lines: Iterable[str]) -> list[str]:
    """Join hard-wrapped lines; keep list items, headings, table rows and short lines apart."""
    blocks: list[str] = []
    previous = ""
    for line in lines:
        if line.strip():
            if blocks and previous.strip() and not _starts_anew(line, previous):
                blocks[-1] = f"{blocks[-1]} {line.strip()}"
            else:
                blocks.append(line.strip())
        previous = line
    return blocks


def _starts_anew(line: str, previous: str) -> bool:
    if _BULLET.match(line) or _HEADING.match(line) or _HEADING.match(previous) or line.lstrip().startswith("|"):
        return True
    # A wrapped line breaks near the margin and goes on in lower case; a short line is an entry of its own.
    return len(previous.rstrip()) < 60 and not line.lstrip()[:1].islower()


def _plain(text: str) -> str:
    if text.startswith("|"):
        text = ", ".join(cell.strip() for cell in text.strip("|").split("|") if cell.strip(" -:"))
    return _MARKUP.sub("", text).strip()
