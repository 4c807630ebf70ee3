"""A question as it is looked up: without who it is addressed to, and complete without the conversation around it (RAG-2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOOK_BACK = 3
"""The number of earlier questions at most are needed to understand one."""
_MAX_CHARACTERS = 1_000
"""An embedder reads the beginning; a question stands there, or at the end of a long message."""
_FEW = 3
"""With more words of its own than this a question has named what it is about."""

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
"""Words that name nothing by themselves: of what?"""

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
    """Return the question without who it is addressed to."""
    return _cut(" ".join(_MENTION.sub(" ", question).split()))


def keep_content_words(question: str) -> str:
    """Return the question without the words that any question may have: names, numbers and subjects stay as written."""
    text = question.replace("’", "'")
    return " ".join(_WORD.sub(lambda found: found[0] if all(map(_is_own, _words(found[0]))) else " ", text).split())


def standalone(question: str, earlier: Sequence[str]) -> str:
    """Return the question with as much of the earlier ones (oldest first) before it as it needs to be understood alone."""
    asked = [plain(question)]
    for before in reversed(earlier[-LOOK_BACK:]):
        if not _leans_back(asked[0]):
            break
        if text := plain(before):
            asked.insert(0, text)
    return _cut(" ".join(filter(None, asked)))


def _cut(text: str) -> str:
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: half - 1]} {text[-half:]}"


def _leans_back(question: str) -> bool:
    """Return whether a question says too little by itself: it continues, points at something, or has hardly a word of its own."""
    text = question.replace("’", "'")
    words = _words(text)
    own = [word for word in words if _is_own(word)]
    if not own or _OF_SOMETHING.issuperset(own):
        return True
    if len(own) > _FEW:
        return False
    return _points_back(text, own) or _continues(text, own) or _is_fragment(words, own)


def _words(text: str) -> list[str]:
    found = (word.lower() for word in _WORD.findall(text))
    return ["not" if word.endswith("n't") else _SUFFIX.sub("", word) for word in found]


def _is_own(word: str) -> bool:
    return word not in _EMPTY and word not in _PERSONAL and word not in _DEMONSTRATIVE and word not in _COUNTS_ON


def _points_back(text: str, own: Sequence[str]) -> bool:
    """Return whether it speaks of something as known that it has not named."""
    said = _words(_THERE_IS.sub(" ", _NOW.sub(" ", text)))
    if any(word in _DEMONSTRATIVE for word in said):
        return True
    if len(own) == 1 and (any(word in _COUNTS_ON for word in said) or _THERE_IS.search(text)):
        return True
    named = 0
    for word in said:
        # After two words of its own it may well stand for one of them.
        if word in _PERSONAL and (named < 2 or len(own) < _FEW):
            return True
        named += _is_own(word)
    return False


def _continues(text: str, own: Sequence[str]) -> bool:
    """Return whether it goes on with what was asked before; a whole sentence after an "and" may be about something else."""
    if _INSTEAD.match(text):
        return True
    joined = _JOINS.match(text)
    if joined is None:
        return False
    begins = _words(text[joined.end() :])[:1]
    return len(own) == 1 or not any(word in _ASKS or word in _AUXILIARY for word in begins)


def _is_fragment(words: Sequence[str], own: Sequence[str]) -> bool:
    """Return whether it is a part of a sentence whose rest was said before: "in Berlin?", "how much for children?"."""
    if words[0] in _PREPOSITIONS:
        return not any(word in _AUXILIARY or word in _ASKS for word in words)
    is_sentence = any(word in _AUXILIARY for word in words)
    return len(own) == 1 and (words[0] == "which" or (words[0] in _ASKS and not is_sentence))
