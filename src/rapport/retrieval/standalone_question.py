"""Make a question for a search: without the addressee, and understandable without the conversation (RAG-2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOOK_BACK = 3
"""The maximal number of earlier questions that are needed to understand one."""
_MAX_CHARACTERS = 1_000
"""An embedder reads the beginning of a text. A long message has its question there or at its end."""
_FEW = 3
"""A question with more content words than this names its subject itself."""

_MENTION = re.compile(r"(?<!\S)@[\w-]+[,:]?")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_SUFFIX = re.compile(r"'(?:s|re|ll|d|ve|m)$")


def _all(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PERSONAL = _all("it its they them their theirs he him his she her hers")
_DEMONSTRATIVE = _all("that this these those there same former latter such mentioned")
_COUNTS_ON = _all(
    "one ones first second third fourth previous other others another both neither either else too instead again"
)
_ASKS = _all("what which who whom whose when where why how")
_AUXILIARY = _all(
    "is are was were be been being am do does did can could should would will shall may might must have has had not"
)
_PREPOSITIONS = _all("for in on at to from with without by about of during after before until till since under over")
_EMPTY = (
    _ASKS
    | _AUXILIARY
    | _PREPOSITIONS
    | _all(
        "a an the and or but so as than if up out because i me my mine we us our you your yours much many long often far "
        "old ok okay yes yeah yep yup no nope please thanks thank hi hello hey well oh wow hmm sure great nice cool perfect "
        "right really just also then only still exactly maybe more any some all next last get give want need let go come "
        "like tell say said explain continue elaborate know mean means meant see example examples detail details"
    )
)
_OF_SOMETHING = _all(
    "difference differences reason reasons answer result results advantage advantages disadvantage disadvantages downside "
    "downsides alternative alternatives exception exceptions consequence consequences price prices cost costs catch"
)
"""Words that need a complement, such as "the price (of what?)"."""

_NOW = re.compile(
    r"\b(?:this|these) (?:morning|afternoon|evening|week|weekend|month|quarter|semester|year|spring|summer|autumn|winter)s?\b",
    re.IGNORECASE,
)
_THERE_IS = re.compile(r"\b(?:is|are|was|were|be) there\b|\bthere(?:'s| is| are| was| were)\b", re.IGNORECASE)
_AFTER_A_WORD = r"^\W*(?:(?:ok|okay|well|oh|hm+|right|yes|no|sure|thanks|great|i see|got it)\b\W*)*"
_INSTEAD = re.compile(
    rf"{_AFTER_A_WORD}(?:what about|how about|what if|like what|which ones?|for example|"
    r"und|aber|oder|was ist mit|warum|et|mais|pourquoi|y|pero|por qué)\b",
    re.IGNORECASE,
)
_JOINS = re.compile(rf"{_AFTER_A_WORD}(?:and|but|or|so|also|then|plus)\b(?:\s+then\b)?", re.IGNORECASE)


def plain(question: str) -> str:
    """Return the question without its addressee."""
    return _cut(" ".join(_MENTION.sub(" ", question).split()))


def keep_content_words(question: str) -> str:
    """Return the question without the words that any question may have: names, numbers and subjects stay as written."""
    text = question.replace("’", "'")
    return " ".join(_WORD.sub(lambda match: match[0] if all(map(_is_own, _words(match[0]))) else " ", text).split())


def make_standalone(question: str, earlier: Sequence[str]) -> str:
    """Return the question, preceded by those earlier ones (oldest first) that are needed to understand it."""
    parts = [plain(question)]
    for before in reversed(earlier[-LOOK_BACK:]):
        if not _leans_back(parts[0]):
            break
        if text := plain(before):
            parts.insert(0, text)
    return _cut(" ".join(filter(None, parts)))


def _cut(text: str) -> str:
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: half - 1]} {text[-half:]}"


def _leans_back(question: str) -> bool:
    """Return True if a question needs an earlier one: it continues it, refers to it, or has too few content words."""
    text = question.replace("’", "'")
    words = _words(text)
    own_words = [word for word in words if _is_own(word)]
    if not own_words or _OF_SOMETHING.issuperset(own_words):
        return True
    if len(own_words) > _FEW:
        return False
    return _points_back(text, own_words) or _continues(text, own_words) or _is_fragment(words, own_words)


def _words(text: str) -> list[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return ["not" if word.endswith("n't") else _SUFFIX.sub("", word) for word in words]


def _is_own(word: str) -> bool:
    return word not in _EMPTY and word not in _PERSONAL and word not in _DEMONSTRATIVE and word not in _COUNTS_ON


def _points_back(text: str, own_words: Sequence[str]) -> bool:
    """Return True if it refers to something that it does not name."""
    words = _words(_THERE_IS.sub(" ", _NOW.sub(" ", text)))
    if any(word in _DEMONSTRATIVE for word in words):
        return True
    if len(own_words) == 1 and (any(word in _COUNTS_ON for word in words) or _THERE_IS.search(text)):
        return True
    own_count = 0
    for word in words:
        # After two content words a pronoun may refer to one of them.
        if word in _PERSONAL and (own_count < 2 or len(own_words) < _FEW):
            return True
        own_count += _is_own(word)
    return False


def _continues(text: str, own_words: Sequence[str]) -> bool:
    """Return True if it continues an earlier question. A whole sentence after an "and" may be about something else."""
    if _INSTEAD.match(text):
        return True
    joined = _JOINS.match(text)
    if joined is None:
        return False
    first_word = _words(text[joined.end() :])[:1]
    return len(own_words) == 1 or not any(word in _ASKS or word in _AUXILIARY for word in first_word)


def _is_fragment(words: Sequence[str], own_words: Sequence[str]) -> bool:
    """Return True if it is a part of a sentence whose rest was in an earlier question: "in Berlin?"."""
    if words[0] in _PREPOSITIONS:
        return not any(word in _AUXILIARY or word in _ASKS for word in words)
    is_sentence = any(word in _AUXILIARY for word in words)
    return len(own_words) == 1 and (words[0] == "which" or (words[0] in _ASKS and not is_sentence))
