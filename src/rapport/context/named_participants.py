"""Find the participants whom a question names, and the question without their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rapport.context.question import EMPTY_WORDS
from rapport.domain.conversation import Author

_NAME = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’][sS]\b")


@dataclass(frozen=True, slots=True)
class NamedParticipants:
    """A question without names, and the people it names."""

    text: str
    """The question without the names; the whole of it if nothing else is left."""
    author_ids: frozenset[str]


def find_named_participants(question: str, participants: Iterable[Author]) -> NamedParticipants:
    """Return which participants a question names, and the question without their names.

    With its name, a question would match messages that address the person instead of messages that the person wrote.
    """
    plain = _POSSESSIVE.sub("", question)
    by_name: dict[str, set[str]] = {}
    for participant in participants:
        for word in _NAME.findall(participant.name):
            if len(word) > 1:
                by_name.setdefault(word.casefold(), set()).add(participant.id)
    author_ids: set[str] = set()
    parts: list[str] = []
    last = 0
    for number, match in enumerate(_NAME.finditer(plain)):
        word = match[0]
        if word.casefold() not in by_name or _is_ordinary(word, is_first=number == 0):
            continue
        author_ids |= by_name[word.casefold()]
        parts.append(plain[last : match.start()].removesuffix("@"))
        last = match.end()
    parts.append(plain[last:])
    text = " ".join("".join(parts).split())
    return NamedParticipants(text if _NAME.search(text) else question, frozenset(author_ids))


def _is_ordinary(word: str, *, is_first: bool) -> bool:
    """Return True if a word that is also a name is probably not one: "will" in a sentence, or "Will" at its beginning."""
    return word.casefold() in EMPTY_WORDS and (is_first or not word[0].isupper())
