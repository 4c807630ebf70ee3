"""The forms in which models write citations: a tag, ids alone in brackets, and a `Sources:` line.

A tag is `[source: id]`, a list is `[source: a, b]`. The brackets may be `[]`, `【】` or `［］`, `source` may be plural and in
any case, ids may be separated by `,` or `;` and have quotes or angle brackets around them. Whitespace may include line breaks
where the specified expression allows it, and after a separator. Zero-width characters are ignored everywhere.

Every function here reads one character or one line and takes time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from string import ascii_letters, digits
from typing import Final, NamedTuple

OPENING: Final = frozenset("[【［")
CLOSING: Final = frozenset("]】］")
ID = re.compile(r"[A-Za-z0-9_-]+")

_INVISIBLE: Final = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_HYPHENS: Final = "\u2010\u2011\u2012\u2013\u2212"
_COLONS: Final = ":："
_SEPARATORS: Final = ",;，；、"
_QUOTES: Final = "<>\"'“”‘’`*"
_PLAIN_ID = {**dict.fromkeys(map(ord, _INVISIBLE)), **dict.fromkeys(map(ord, _HYPHENS), "-")}
_ID_CHARACTERS: Final = frozenset(f"{ascii_letters}{digits}_-{_HYPHENS}")

_SEPARATOR = re.compile(f"[{_SEPARATORS}]")
_COLON = re.compile(f"[{_COLONS}]")
MAY_CITE: Final = re.compile(f"[{_COLONS}" + r"\[【［]")
"""Every citation has an opening bracket, and every citation line a colon."""
_KEPT_TAG = r"\[source: [A-Za-z0-9_, -]++\]"
_LIST_CHARACTERS = f"A-Za-z0-9_&{_SEPARATORS}{_QUOTES}{_HYPHENS}{_INVISIBLE}" + r"\]】］\s-"
_ITEMS = re.compile(rf"(?:{_KEPT_TAG}|[\[【［]|[{_LIST_CHARACTERS}]++)*+(?:\.[{_SEPARATORS}&{_QUOTES}_\s-]*+)?")
_TOKEN = re.compile(
    rf"{_KEPT_TAG}|(?P<bracket>[\[【［][^\[\]【】［］]*+[\]】］])|(?P<word>[A-Za-z0-9_{_HYPHENS}{_INVISIBLE}-]++)|[{_SEPARATORS}&]"
)
_BULLET = re.compile(r"[\s>]*+(?:[-*+•]|\d++[.)])(?:\s(?P<items>.*+))?", re.DOTALL)
_TAGS = re.compile(rf"(?:{_KEPT_TAG}|[\s>&{_SEPARATORS}]++)*+")

_DECORATION: Final = frozenset(">#*_+•`-")
LINE_CHARACTERS: Final = _ID_CHARACTERS | frozenset(f"&{_SEPARATORS}{_QUOTES}")
ITEM_CHARACTERS: Final = LINE_CHARACTERS | frozenset(".)+•>")
_NO_IDS: Final = frozenset({"and", "none"})
MAX_WORDS_ON_A_LINE: Final = 2
MOST_WORDS_AFTER_A_SENTENCE: Final = 1
"""More consecutive words without a separator between them are prose."""

# States of the text after a bracket or from the start of a line. Below NAMED: the number of letters of "source" so far.
NOT, START, NAMED, PLURAL, NAME_END, LIST, CONTENT, TAIL = -1, 0, 6, 7, 8, 9, 10, 11
LINE_END: Final = 10  # in a citation line: after its full stop


class KnownIds:
    """The ids that a reply may cite, without those that the specified expression can't match."""

    def __init__(self, retrieved: Collection[str]) -> None:
        self._exact = frozenset(note_id for note_id in retrieved if ID.fullmatch(note_id))
        self._beginnings = frozenset(
            note_id[:length] for note_id in self._exact for length in range(1, len(note_id) + 1)
        )
        self._by_lower: dict[str, str | None] = {}
        for note_id in self._exact:
            self._by_lower[note_id.lower()] = None if note_id.lower() in self._by_lower else note_id

    def __contains__(self, note_id: str) -> bool:
        return note_id in self._exact

    def may_become(self, beginning: str) -> bool:
        """Return True if a known id begins with this text."""
        return beginning in self._beginnings

    def find(self, cited: str) -> str | None:
        """Return the known id for a cited one: exactly this one, else the only one that differs in case or emphasis."""
        if cited in self._exact:
            return cited
        return self._by_lower.get(cited.lower()) or self._by_lower.get(cited.strip("_").lower())


class Inside(NamedTuple):
    """The state of the text after an opening bracket."""

    tag: int = START
    word: str = ""
    """The id that is being written, as long as `is_known`."""
    is_spaced: bool = False
    """True if whitespace follows the word, so that only a separator may follow."""
    is_known: bool = True
    """True if there are only known ids so far, the last one perhaps unfinished."""
    is_list: bool = True
    """True if there are only ids, known or not."""

    def read(self, char: str, known: KnownIds) -> Inside:
        """Return the state after one more character."""
        if char in _INVISIBLE:
            return self
        tag = tag_state(self.tag, char)
        if not self.is_list or char == "\n":
            return Inside(tag, "", is_known=False, is_list=False)
        if char.isspace():
            return self._replace(tag=tag, is_spaced=bool(self.word))
        if char in _SEPARATORS:
            return Inside(tag, is_known=self.is_known and self.word in known)
        if char not in _ID_CHARACTERS or self.is_spaced:
            return Inside(tag, "", is_known=False, is_list=False)
        word = self.word + char.translate(_PLAIN_ID)
        is_known = self.is_known and known.may_become(word)
        return Inside(tag, word if is_known else "?", is_known=is_known)

    def cites(self, known: KnownIds) -> bool:
        """Return True if it is a citation when the bracket ends here. `[x]` is a checked box."""
        return self.is_known and self.word in known and self.word not in ("x", "X")


def tag_state(state: int, char: str) -> int:
    """Return the state of a tag after one more character; NOT if it is no tag."""
    if state == NOT or char in CLOSING:
        return NOT
    if char in _INVISIBLE:
        return state
    if char.isspace():
        return _read_space_in_tag(state, char)
    if state < LIST:
        return _read_name_in_tag(state, char)
    if char in _SEPARATORS:
        return LIST
    return NOT if state == TAIL else CONTENT


def _read_space_in_tag(state: int, char: str) -> int:
    if state == CONTENT and char == "\n":
        return TAIL
    if NAMED <= state < LIST:
        return NAME_END
    return NOT if START < state < NAMED else state


def _read_name_in_tag(state: int, char: str) -> int:
    """Return the state after one more character of the name, or the colon after it."""
    if char in _COLONS:
        return LIST if state >= NAMED else NOT
    return state + 1 if state < PLURAL and char.casefold() == "sources"[state] else NOT


def line_state(state: int, char: str) -> int:
    """Return the state of a citation line after one more character; NOT if it is none."""
    if state == NOT or char in _INVISIBLE:
        return state
    if state == START and (char in _DECORATION or char.isspace()):
        return START
    if state < LIST:
        return NAME_END if state >= NAMED and (char in "*_" or char.isspace()) else _read_name_in_tag(state, char)
    if char == ".":
        return LINE_END if state == LIST else NOT
    if state == LINE_END and char.isalnum():
        return NOT
    return state if char in LINE_CHARACTERS or char.isspace() else NOT


def ids_in_tag(content: str) -> list[str]:
    """Return the ids of a tag, given the text between its brackets."""
    ids_text = _COLON.split(content, maxsplit=1)[-1]
    return [note_id for item in _SEPARATOR.split(ids_text) for note_id in _ids_in_item(item)]


def ids_in_brackets(content: str) -> list[str]:
    """Return the ids of a bracket that holds only ids."""
    return [item.translate(_PLAIN_ID).strip() for item in _SEPARATOR.split(content)]


def _ids_in_item(item: str) -> Iterator[str]:
    """Yield `a` and `b` of "a and b", and what follows the name in "source: a"."""
    name, colon, rest = item.translate(_PLAIN_ID).partition(":")
    if not colon or name.strip().casefold() not in ("source", "sources"):
        rest = name + colon + rest
    words: list[str] = []
    for word in [*rest.split(), "&"]:
        if word not in ("and", "&") or (word == "and" and not words):
            words.append(word)
            continue
        if note_id := " ".join(words).strip(_QUOTES).strip():
            yield note_id
        words = []


def names_ids(items: str) -> bool:
    """Return True if the text may contain an id."""
    return any(char.isalnum() for char in items)


def ids_in_line(items: str, known: KnownIds, max_words: int = MAX_WORDS_ON_A_LINE) -> list[str] | None:
    """Return the ids of a citation line, without those of tags; None if it is prose."""
    if not _ITEMS.fullmatch(items):
        return None
    ids: list[str] = []
    words = 0
    has_word = has_unknown_brackets = False
    for token in _TOKEN.finditer(items):
        if bracketed := token["bracket"]:
            inside = [note_id for note_id in ids_in_tag(bracketed[1:-1]) if names_ids(note_id)]
            has_unknown_brackets |= any(known.find(note_id) is None for note_id in inside)
            ids += inside
        word = (token["word"] or "").translate(_PLAIN_ID)
        is_unknown = bool(word) and known.find(word) is None
        is_word = is_unknown and word.isalpha() and word.casefold() != "and"
        words = words + 1 if is_word else 0
        has_word |= is_word
        if words > max_words:
            return None
        if names_ids(word) and not (is_unknown and word.casefold() in _NO_IDS):
            ids.append(word)
    return None if has_word and has_unknown_brackets else ids


def ids_in_list_item(text: str, known: KnownIds) -> list[str] | None:
    """Return the ids of an item of the list below a `Sources:` line; None if it is no such item."""
    if bullet := _BULLET.fullmatch(text):
        return ids_in_line(bullet["items"] or "", known)
    return [] if _TAGS.fullmatch(text) else None


def after_colon(line: str) -> str:
    """Return the part of a citation line that names ids."""
    return _COLON.split(line, maxsplit=1)[-1]
