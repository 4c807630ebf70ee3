"""Decide whether a text asks something, and what kind of answer it expects."""

import re
from enum import Enum

from rapport.builtin.language.word_lists import NUMBER_WORDS, TIME_WORDS
from rapport.builtin.language.words import words


class Kind(Enum):
    """The kinds of content that an answer must have."""

    TIME = "time"
    NUMBER = "number"
    PERSON = "person"
    PLACE = "place"
    REASON = "reason"
    OPEN = "open"


_KINDS = (
    (Kind.TIME, re.compile(r"\b(?:when|what (?:time|day|date|year|month)|which (?:day|date|year|month)|how long|how late|how early)\b")),
    (Kind.NUMBER, re.compile(r"\bhow (?:many|much|old|far|big|tall|often)\b|\bwhat (?:number|percentage)\b|\bcosts?\b|\bprices?\b")),
    (Kind.PERSON, re.compile(r"\b(?:who|whom|whose)\b")),
    (Kind.PLACE, re.compile(r"\bwhere\b|\b(?:what|which) (?:place|city|town|street|address|room|country)\b")),
    (Kind.REASON, re.compile(r"\bwhy\b|\bhow come\b|\bwhat for\b")),
)  # fmt: skip
_DIGIT = re.compile(r"\d")
_INNER_NAME = re.compile(r"(?<=[\w,;:] )[A-Z][\w'’-]+|\b(?:Mr|Mrs|Ms|Dr|Prof)\b|^[A-Z][a-z]+ [A-Z][a-z]+")
_PLACE = re.compile(
    r"\b(?:in|at|on|near|behind|beside|opposite|next to|under|inside|outside|from|to|between)\s+\w",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|due to|since|so that|in order to|as a result|therefore|reason)\b", re.IGNORECASE)
_OPENS_QUESTION = re.compile(
    r"^(?:(?:so|and|but|ok|okay|well|hey|hi|hello|please|then|now|also)\b[,!.]?\s*)*"
    r"(?:i (?:was wondering|wonder|would like to know)|i'd like to know|who|whom|whose|what|what's|whats|when|where|where's|which|why|how|how's|is|are|does|isn't|aren't|doesn't|"
    # "Had a fight with my sister" has lost its "I"; only with a subject behind it does such a word ask.
    r"(?:had|have|did|do|was|were|has|don't|didn't) (?:i|you|u|we|he|she|it|they|there)|(?:did|do|was|were|has) (?-i:[A-Z])\w+|"
    r"(?:am|can|could|will|would|should|shall|may|might|can't|won't)"
    r" (?:not )?(?:i|you|u|we|he|she|it|they|there|this|that|these|those|the|an?|my|your|our|his|her|their|any\w*|some\w*|every\w*|people|(?-i:[A-Z])\w+))\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"^(?:please\s+|can you\s+|could you\s+)?(?:tell|explain|describe|show|list|find|summari[sz]e|give|define|compare|look up|search|remind|write|translate|draw|book|send|play|open|generate)\b",
    re.IGNORECASE,
)
_PERSONAL = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|me|my|we|we're|our|us)\b", re.IGNORECASE)


def is_question(sentence: str) -> bool:
    """Return whether the sentence asks, with or without a question mark."""
    text = sentence.strip()
    return text.rstrip(" \"')”").endswith(("?", "？", "؟")) or bool(_OPENS_QUESTION.match(text))


def asks(sentence: str) -> bool:
    """Return whether the sentence wants to be told something, as a question or as an order."""
    return is_question(sentence) or bool(_REQUEST.match(sentence.strip()))


def is_request(text: str) -> bool:
    """Return whether an answer about some subject is expected: a question, an order to tell, or bare keywords."""
    text = text.strip()
    if is_question(text) or _REQUEST.match(text) or "?" in text:
        return True
    return 0 < len(words(text)) <= 4 and not _PERSONAL.search(text) and not text.endswith("!")


def kind_of(question: str) -> Kind:
    lowered = question.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(lowered)), Kind.OPEN)


def gives(kind: Kind, text: str) -> bool:
    """Return whether a text holds something of the kind."""
    match kind:
        case Kind.TIME:
            return bool(_DIGIT.search(text)) or not (TIME_WORDS | NUMBER_WORDS).isdisjoint(words(text))
        case Kind.NUMBER:
            return bool(_DIGIT.search(text)) or not NUMBER_WORDS.isdisjoint(words(text))
        case Kind.PERSON:
            return bool(_INNER_NAME.search(text))
        case Kind.PLACE:
            return bool(_PLACE.search(text))
        case Kind.REASON:
            return bool(_REASON.search(text))
        case Kind.OPEN:
            return True
