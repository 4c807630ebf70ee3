"""Find what a conversation leaves open, by explicit statements: a question, a decision to make, something to do (AUTO-1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapport.domain.patterns import compile_linear
from rapport.domain.phrases import begins_with, find_any, load_phrases, load_words
from rapport.followups.own_words import keep_own_text
from rapport.followups.word_stems import DATA, KNOWN, content_words, plain, sentences, stem, words

_LONGEST = 4_000
"""Characters of a message that are looked at, from its end."""
_MOST_SENTENCES = 40
_SHORT_TAIL = 7
"""Words of a remark that may stand after a question without answering it: "Take your time."."""
_QUESTION_MARKS = ("?", "？", "؟")
_COURTESY = begins_with(load_phrases(DATA, "courtesy"), before="[ ?!.]*$")
_DECISION = find_any(load_phrases(DATA, "decisions"))
_DECIDED = find_any(load_phrases(DATA, "decided"))
_OTHERS = ("de", "fr", "es", "it", "pt", "nl")
_INTENDS = compile_linear(
    rf"(?:^|[,;:] ?|\b(?:and|but|so|then|because|well|ok|okay|hi|anyway|und|et|y|e|en) )(?:({'|'.join(load_phrases(DATA, 'intends', only=['en']))})"
    rf"|(?:{'|'.join(load_phrases(DATA, 'intends', only=_OTHERS))}))"
    r" (([a-z']+)\b.*)",
    is_ascii=True,
)
"""Somebody says in their own name what they are going to do: where a clause begins, so that "he said I will …" is none."""
_NO_TASK = {
    True: load_words(DATA, "no_task", only=["en"]),
    False: load_words(DATA, "no_task", only=_OTHERS),
}
"""Words after an intention that make it none, in English and elsewhere: "die" is a verb in one language only."""
_TASK_WITH = begins_with(load_phrases(DATA, "task_with"))
_FAR_AHEAD = find_any(load_phrases(DATA, "far_ahead"))
"""A dream or a plan, and nothing to ask about within the hour."""
_DONE = find_any(load_phrases(DATA, "done"))
_QUOTED = re.compile(r'"[^"\n]{1,400}"|“[^”\n]{1,400}”|„[^“”\n]{1,400}[“”]|«[^»\n]{1,400}»')
_DID = re.compile(r"\b(?:i|we)(?:'ve| have)?(?: (?:just|already|finally|now))* (\w+)")


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """Something open: the sentence it stands in, and for a task what is to be done, as it was written."""

    sentence: str
    task: str = ""
    is_english: bool = True


def is_offer(reply: str) -> bool:
    """Return whether a reply ends with a question of mere courtesy, to which "no" says that nothing more is wanted."""
    last = _sentences(reply)[-1:]
    return bool(last) and _asks(last[0]) and _is_courtesy(last[0])


def find_open_question(reply: str) -> str | None:
    """Return the question that a reply ends with, if it expects an answer; a short remark or a courtesy may stand after it."""
    for part in reversed(_sentences(reply)):
        if _asks(part) and not _is_courtesy(part):
            return part.rstrip("*_ ")
        if not _asks(part) and len(words(part)) > _SHORT_TAIL:
            return None
    return None


def _asks(sentence: str) -> bool:
    return sentence.rstrip("*_ ").endswith(_QUESTION_MARKS)


def _is_courtesy(question: str) -> bool:
    asked = " ".join(plain(question).split())
    return bool(_COURTESY.match(asked)) or not words(asked)


@lru_cache(KNOWN)
def find_open_decision(text: str) -> OpenTopic | None:
    """Return the last decision that the speaker says they have to make and have not made by the end of the message."""
    for sentence in reversed(_sentences(text)):
        said = " ".join(plain(sentence).split())
        if is_decided(said):
            return None
        if _DECISION.search(said):
            return OpenTopic(sentence)
    return None


@lru_cache(KNOWN)
def is_decided(text: str) -> bool:
    """Return whether a decision was made."""
    return bool(_DECIDED.search(plain(text)))


@lru_cache(KNOWN)
def find_open_task(text: str) -> OpenTopic | None:
    """Return the last thing that the speaker says they are going to do themselves and have not done by the end of the message."""
    later: list[str] = []
    for sentence in reversed(_sentences(text)):
        found = None if _asks(sentence) else _task_in(sentence)
        if found and not any(settles(each, found.task) for each in later):
            return found
        later.append(sentence)
    return None


def _task_in(sentence: str) -> OpenTopic | None:
    said = " ".join(plain(sentence).split())
    found = _INTENDS.search(said)
    if found is None:
        return None
    is_english, task, verb = found[1] is not None, found[2], found[3]
    if (verb in _NO_TASK[is_english] and not _TASK_WITH.match(task)) or not content_words(task):
        return None
    if _FAR_AHEAD.search(task) or _DONE.search(task):
        return None
    return OpenTopic(sentence, _as_written(sentence, said, found.start(2)), is_english)


def _as_written(sentence: str, said: str, begin: int) -> str:
    """Return what stands from there on with its capitals and accents, which the plain text has lost; words are the same in both."""
    written = sentence.split()
    kept = written[len(said[:begin].split()) :] if len(written) == len(said.split()) else said[begin:].split()
    return " ".join(kept).rstrip(" .!,;")


def settles(text: str, task: str) -> bool:
    """Return whether a later remark says that it is done, or that it needn't be."""
    said = " ".join(plain(text).split())
    if _INTENDS.search(said):
        return False
    about = {stem(word) for word in content_words(task)}
    if any(stem(verb) in about for verb in _DID.findall(said)):
        return True
    if not _DONE.search(said):
        return False
    here = {stem(word) for word in content_words(_DONE.sub(" ", said))}
    return bool(here & about) or len(here) <= 1


@lru_cache(KNOWN)
def _sentences(text: str) -> Sequence[str]:
    """Return the last sentences of a message without what it quotes."""
    return tuple(sentences(_QUOTED.sub(" ", keep_own_text(text[-_LONGEST:])))[-_MOST_SENTENCES:])
