"""Extract the words and the kind of remark from a line of a chat, once per text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

MAX_READ_CHARACTERS = 2_000
"""The number of characters of a message that are read; the scorer was not trained on longer ones."""
CACHED_TEXTS = 10_000
"""The number of texts that are cached: the latest messages of a hundred busy chats."""

_WORD = re.compile(r"[^\W_](?:[\w'’./+#-]*\w)?")
_HANDLE = re.compile(r"(?<![\w@.])@[\w|\[\]{}^`\\-]+")
_LINK = re.compile(r"https?://\S+")
_COMMON = frozenset(
    [
        "a",
        "about",
        "after",
        "all",
        "also",
        "am",
        "an",
        "and",
        "any",
        "are",
        "aren't",
        "as",
        "at",
        "be",
        "because",
        "been",
        "before",
        "being",
        "but",
        "by",
        "can",
        "can't",
        "could",
        "did",
        "didn't",
        "do",
        "does",
        "doesn't",
        "doing",
        "don't",
        "down",
        "for",
        "from",
        "get",
        "go",
        "got",
        "had",
        "has",
        "have",
        "having",
        "he",
        "her",
        "here",
        "him",
        "his",
        "how",
        "i",
        "i'd",
        "i'll",
        "i'm",
        "i've",
        "if",
        "in",
        "into",
        "is",
        "isn't",
        "it",
        "it's",
        "its",
        "just",
        "know",
        "like",
        "me",
        "more",
        "my",
        "no",
        "not",
        "now",
        "of",
        "off",
        "on",
        "one",
        "only",
        "or",
        "other",
        "our",
        "out",
        "over",
        "really",
        "she",
        "should",
        "so",
        "some",
        "something",
        "than",
        "that",
        "that's",
        "the",
        "their",
        "them",
        "then",
        "there",
        "there's",
        "these",
        "they",
        "thing",
        "think",
        "this",
        "those",
        "to",
        "too",
        "up",
        "us",
        "use",
        "very",
        "want",
        "was",
        "way",
        "we",
        "well",
        "were",
        "what",
        "what's",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "won't",
        "would",
        "yes",
        "you",
        "you're",
        "your",
    ]
)
FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("asks", re.compile(r"\?\s*$|\?\s")),
    (
        "begins_question",
        re.compile(
            r"^(?:so |and |but |hi[,! ]+|hello[,! ]+|hey[,! ]+)?"
            r"(?:how|what|where|why|when|who|which|is|are|does|do|did|can|could|would|should|will|any|anyone|has|have)\b",
            re.I,
        ),
    ),
    ("asks_the_room", re.compile(r"\b(?:any ?one|any ?body|some ?one|some ?body|folks|guys|all)\b", re.I)),
    ("greets", re.compile(r"^(?:hi|hello|hey|hiya|yo|good (?:morning|evening|afternoon)|morning|evening)\b", re.I)),
    ("thanks", re.compile(r"\b(?:thanks?|thx|ty|cheers|thank you)\b", re.I)),
    (
        "answers",
        re.compile(
            r"^(?:yes|yeah|yep|yup|no|nope|nah|ok|okay|k|right|sure|true|indeed|exactly|correct|agreed|same|maybe|probably|"
            r"nothing|none|i did|i have|i am|it is|it's|that's|lol|haha|heh|hmm+|ah+|oh+|cool|nice|great|\+1|done)\b",
            re.I,
        ),
    ),
    (
        "goes_on",
        re.compile(r"^(?:and|but|or|so|because|also|then|which|although|though|plus|i mean|\.\.\.|…|\^)", re.I),
    ),
    ("refers", re.compile(r"\b(?:it|that|this|they|them|those|these|he|she|there)\b", re.I)),
    (
        "advises",
        re.compile(r"\b(?:try|use|run|you (?:can|could|should|need|have)|type|install|check|look|see|go to)\b", re.I),
    ),
    ("tells_of_self", re.compile(r"\b(?:i|i'm|i've|my|me|we|our)\b", re.I)),
    ("has_link", _LINK),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A message as the scorer sees it."""

    author: str
    """The author's key; the same text for the same person."""
    at: float
    """The time in seconds."""
    text: str
    mentions: tuple[str, ...] = ()
    """The people it addresses: authors of other lines, or names that no author has."""
    reply_to: int | None = None
    """The number of the earlier line that it replies to by the platform's own link."""
    name: str = ""
    """The author's name, if it differs from `author`."""


@dataclass(frozen=True, slots=True)
class Reading:
    words: tuple[str, ...]
    forms: tuple[bool, ...]
    length: float


def strip_handles(text: str) -> str:
    """Return the beginning of a message without the handles that it addresses."""
    return _HANDLE.sub(" ", text[:MAX_READ_CHARACTERS]).strip()


def read_line(text: str) -> Reading:
    """Return the words and forms of a message; of a very long one, of its beginning."""
    return _read_short(text[:MAX_READ_CHARACTERS])


@lru_cache(maxsize=CACHED_TEXTS)
def _read_short(text: str) -> Reading:
    message = strip_handles(text)
    words = tuple(w for w in _WORD.findall(_LINK.sub(" ", message.lower())) if w not in _COMMON)
    return Reading(
        words, tuple(form.search(message) is not None for _, form in FORMS), float(np.log1p(len(message)) / 5)
    )
