"""A question as it is looked up: without politeness, and complete without the conversation around it (RAG-2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOOK_BACK = 3
"""How many earlier questions at most are needed to understand one."""
_MAX_CHARACTERS = 1_000
"""An embedder reads the beginning; a question stands there, or at the end of a long message."""

_MENTION = re.compile(r"(?<!\S)@[\w-]+[,:]?")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_POINTS_BACK = frozenset(
    "it its it's that that's this these those they them their theirs he him his she her hers there same former latter".split()
)
_COUNTS_ON = frozenset(
    "one ones first second third fourth last next previous other others another both neither else too instead again".split()
)
_EMPTY = frozenset(
    "a an the and or but so of in on at to for from with without by about as is are was were be been being am do does did "
    "can could should would will shall may might must have has had i me my mine we us our you your yours what what's which who "
    "whom whose when where why how much many long often far ok okay yes no not please thanks thank hi hello hey well really "
    "just more any some if up out over tell say explain know mean means meant".split()
)
_CONTINUES = re.compile(
    r"^\W*(?:and|but|or|so|also|then|what about|how about|what if|why(?: not)?|how so|which one|like what|for example|"
    r"und|aber|oder|und was ist mit|was ist mit|warum|et|mais|y|pero|por qué|pourquoi)\b",
    re.IGNORECASE,
)


def plain(question: str) -> str:
    """The question without who it is addressed to."""
    text = " ".join(_MENTION.sub(" ", question).split())
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]} {text[-half:]}"


def standalone(question: str, earlier: Sequence[str]) -> str:
    """The question with as much of the earlier ones (oldest first) before it as it needs to be understood alone."""
    asked = [plain(question)]
    for before in reversed(earlier[-LOOK_BACK:]):
        if not _leans_back(asked[0]):
            break
        if text := plain(before):
            asked.insert(0, text)
    return " ".join(asked)


def _leans_back(question: str) -> bool:
    """Whether a question says too little by itself: it continues, points at something, or has hardly a word of its own."""
    words = [word.lower() for word in _WORD.findall(question)]
    own = [word for word in words if word not in _EMPTY | _POINTS_BACK | _COUNTS_ON]
    if not own:
        return True
    if len(own) == 1 and any(word in _COUNTS_ON for word in words):
        return True
    # With more words of its own it has named what it is about.
    return len(own) <= 3 and (bool(_CONTINUES.match(question)) or any(word in _POINTS_BACK for word in words))
