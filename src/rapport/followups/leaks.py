"""Decide whether a follow-up reveals its trigger or mechanism (AUTO-9)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, TypeAlias

from rapport.domain.follow_up import TRIGGER_TYPES
from rapport.domain.patterns import Pattern, compile_linear
from rapport.domain.phrases import begins_with, find_any, load_phrases
from rapport.followups.word_stems import DATA, SMALL_WORDS, plain, sentences, stem

Leak: TypeAlias = Literal["marker", "prompt", "system", "trigger", "incomplete_message", "instructions", "third_person"]
LEAK_QUESTION = (
    "An assistant wrote this message to a person, unasked, some time after their last words. Would the person notice that a "
    "program or an instruction made it write? It does if it speaks of a prompt, a request to follow up, a system, a timer or an "
    "incomplete message, speaks of the person as the user, or agrees to something that nobody asked for. Answer yes or no."
)
"""For a model that can judge: the message follows as data. `is_yes` reads the answer."""


def _phrases(kind: str) -> list[str]:
    return [plain(phrase) for phrase in load_phrases(DATA, f"leaks.{kind}")]


_MARKERS = find_any([*_phrases("marker"), *TRIGGER_TYPES])
_TYPE_LABELS = rf"(?:{'|'.join(name.replace('_', ' ') for name in TRIGGER_TYPES)})[ *\"]{{0,3}}:"
_LABELS = compile_linear(rf"(?:^|\n)[ \t>]*(?:{'|'.join([_TYPE_LABELS, *_phrases('label')])})", is_ascii=True)
_OPENINGS = begins_with(_phrases("opening"), after=r"[^a-z\[(]{0,6}")
"""Agreeing to something: in a message nobody asked for it shows that something had asked."""
_KINDS: tuple[Leak, ...] = ("system", "trigger", "incomplete_message", "instructions", "third_person")
_PHRASES: tuple[tuple[Leak, Pattern], ...] = (
    ("instructions", _OPENINGS),
    *((kind, find_any(_phrases(kind))) for kind in _KINDS),
)
_WORD = re.compile(r"\w+")
_EMPHASIS = re.compile(r'["*_]+')
_SHORTEST_PROMPT = 4
"""Words: fewer are anybody's words ("Say hi"), unless they are all that is said."""
_SHORTEST_SENTENCE = 6
"""Words of a sentence that gives a longer prompt away: "Follow up on it." does not."""
_RUN = 8
"""Number of consecutive common words that count as a quotation."""
_NEARLY = 0.8
_SLACK = 3
"""Words that may be slipped in between those of the prompt."""
_CONTRACTIONS = (
    (re.compile(r"\b(?:the user|the human|user)\b"), "you"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'(?:re|m|s|ve|ll|d)\b"), " "),
)


def find_leak(reply: str, *, prompts: Collection[str]) -> Leak | None:
    """Return what kind of machinery the reply talks about, or None: then a person can't tell that nobody had asked.

    `prompts` are the texts that no reply may repeat, word for word or nearly so.
    """
    text = plain(reply)
    if _MARKERS.search(text) or _LABELS.search(text):
        return "marker"
    if any(_repeats(text, prompt) for prompt in prompts):
        return "prompt"
    line = " ".join(_EMPHASIS.sub(" ", text).split())
    return next((kind for kind, sign in _PHRASES if sign.search(line)), None)


def is_yes(answer: str) -> bool:
    """Return whether a model's answer to `LEAK_QUESTION` says yes; anything unclear is no."""
    return _WORD.findall(plain(answer))[:1] == ["yes"]


def _repeats(text: str, prompt: str) -> bool:
    said = _canonical(text)
    asked = _canonical(plain(prompt))
    if not asked:
        return False
    if said == asked:
        return True
    pieces = [asked] if len(asked) >= _SHORTEST_PROMPT else []
    pieces += [piece for each in sentences(prompt) if len(piece := _canonical(plain(each))) >= _SHORTEST_SENTENCE]
    return any(_nearly(said, piece) for piece in pieces) or _quotes(said, asked)


def _canonical(text: str) -> list[str]:
    """Return the stems of a plain text, where speaking to the user and speaking of the user are the same."""
    for pattern, replacement in _CONTRACTIONS:
        text = pattern.sub(replacement, text)
    return [stem(word) for word in _WORD.findall(text)]


def _quotes(said: Sequence[str], asked: Sequence[str]) -> bool:
    runs = set(_runs(asked))
    return bool(runs) and any(run in runs for run in _runs(said))


def _runs(found: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(found[at : at + _RUN]) for at in range(len(found) - _RUN + 1))


def _nearly(said: Sequence[str], piece: Sequence[str]) -> bool:
    """Return whether some stretch of the reply holds nearly all words of the piece in their order, and all that matter."""
    wanted = Counter(piece)
    content = {word for word in piece if word not in SMALL_WORDS}
    enough = _NEARLY * len(piece)
    size = len(piece) + _SLACK
    for at in range(len(said)):
        stretch = said[at : at + size]
        if not stretch or stretch[0] not in wanted or not content <= set(stretch):
            continue
        if (Counter(stretch) & wanted).total() >= enough and _in_order(stretch, piece) >= enough:
            return True
    return False


def _in_order(stretch: Sequence[str], piece: Sequence[str]) -> int:
    """Return how many words of the piece stand in the stretch in the same order."""
    best = [0] * (len(piece) + 1)
    for word in stretch:
        diagonal = 0
        for index, wanted in enumerate(piece, start=1):
            above = best[index]
            best[index] = diagonal + 1 if word == wanted else max(above, best[index - 1])
            diagonal = above
    return best[-1]
