"""Small pieces of grammar: what somebody says of themselves, as one says it of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

USER = "The user"

_IRREGULAR = {
    "have": "has",
    "do": "does",
    "go": "goes",
    "am": "is",
    "don't": "doesn't",
    "do not": "does not",
    "can't": "can't",
}
_THEIRS = {
    "my": "their", "our": "their", "i": "they", "me": "them", "us": "them", "we": "they", "mine": "theirs", "ours": "theirs",
    "myself": "themselves", "ourselves": "themselves", "am": "are", "i'm": "they're", "i've": "they've", "we're": "they're",
    "we've": "they've", "i'll": "they'll", "we'll": "they'll",
}  # fmt: skip
_SELVES = re.compile(
    rf"(?<![\w'])(?:{'|'.join(sorted(map(re.escape, _THEIRS), key=len, reverse=True))})(?![\w'])", re.IGNORECASE
)
_DEICTIC = re.compile(
    r"\b(?:it|this|that|these|those|them|they|him|her|his|he|she|you|your|yours|you're|one|ones|here|there|such|both|either|"
    r"everything|everyone|everybody|nothing|nobody|anything|something|someone|stuff|things?)\b",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"\s*(?:[,(;:/]|\s(?:because|since|so|but|although|though|which|who|when|whenever|while|whereas|unless|except|more than anything|"
    r"a lot|very much|so much|too much|at all|the most|too|as well|either|in general)\b).*$",
    re.IGNORECASE | re.DOTALL,
)
_LISTED = re.compile(r"^[\w'-]+(?: [\w'-]+){0,2}(?:, [\w'-]+(?: [\w'-]+){0,2})+,? (?:and|or) [\w'-]+(?: [\w'-]+){0,2}$")
LONGEST_OBJECT = 60
MOST_WORDS = 9


@dataclass(frozen=True, slots=True)
class Fact:
    """One lasting thing about a person, as a sentence that stands alone."""

    content: str
    key: str | None = None


def third(verb: str) -> str:
    """`play` → `plays`, `watch` → `watches`, `study` → `studies`."""
    lower = verb.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower]
    if lower.endswith(("s", "x", "z", "ch", "sh")):
        return lower + "es"
    if lower.endswith("y") and lower[-2:-1] not in "aeiou":
        return lower[:-1] + "ies"
    return lower + "s"


def theirs(text: str) -> str:
    """`with my wife` → `with their wife`."""
    return _SELVES.sub(lambda match: _THEIRS[match[0].lower()], text)


def sentence(predicate: str, *, subject: str = USER) -> str:
    return f"{subject} {' '.join(predicate.split()).strip(' .,!')}."


def object_of(text: str) -> str | None:
    """Return what a verb is about, without what comes after it; None if only the conversation around it says what that is."""
    stripped = text.strip(" .,!?-*_~'")
    thing = stripped if _LISTED.match(stripped) else _CUT.sub("", stripped).strip(" .,!?-*_~'")
    if not thing or len(thing) > LONGEST_OBJECT or len(thing.split()) > MOST_WORDS or _DEICTIC.search(thing):
        return None
    return thing


def join_list(things: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(things[:-1]), things[-1])))


def is_place(text: str) -> bool:
    return text[:1].isupper()


def key_of(kind: str, thing: str) -> str | None:
    """`taste:olives`, whatever is said about it; none for several things at once, of which one may change alone."""
    plain = re.sub(r"^(?:the|a|an|to)\s+", "", " ".join(thing.lower().split()))
    if re.search(r"\s(?:and|or|than|over|to)\s|[,&+]", plain):
        return None
    return f"{kind}:{plain}"
