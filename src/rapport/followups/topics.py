"""Tell what a follow-up is about, and whether it has been brought up before (AUTO-1, ADR 35)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rapport.domain.conversation import Message
from rapport.domain.follow_up import PastFollowUp
from rapport.followups.own_words import find_own_subject
from rapport.followups.word_stems import KNOWN, SMALL_WORDS, content_words, plain, shorten, stem, words

_MOST_WORDS = 7
_LONGEST = 80
_WRITTEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MOSTLY = 2 / 3
_LONGEST_LOOKED_AT = 4_000
"""Characters of a message that are compared with a follow-up."""
_ENOUGH = 2
"""Content words that two texts share when one speaks of the other."""


def make_topic(text: str) -> str:
    """Return a few content words of the text, as they are written there; never empty unless the text is."""
    kept = [word for word in _WRITTEN.findall(text) if plain(word) not in SMALL_WORDS and len(word) > 1]
    return shorten(" ".join(kept[:_MOST_WORDS]) or text, _LONGEST)


def is_same_topic(a: str, b: str) -> bool:
    """Return whether two topics share most of their content words: inflection, order and small words don't count."""
    if words(a) == words(b):
        return True
    these, those = _stems(a), _stems(b)
    if not these or not those:
        return False
    return len(these & those) >= _MOSTLY * min(len(these), len(those))


def is_closed(topic: str, sources: Sequence[str], *, earlier: Sequence[PastFollowUp], own: Sequence[Message]) -> bool:
    """Return whether this has been brought up and the person has not spoken of it since.

    It is the same when it comes from the same message of the person, whatever its words, or has most of its words. `own` is
    what the person wrote.
    """
    return any(
        (set(sources) & set(one.sources) or is_same_topic(topic, one.topic)) and not _is_mentioned_again(one, own)
        for one in earlier
    )


def repeats(text: str, sources: Sequence[str], *, earlier: Sequence[PastFollowUp], own: Sequence[Message]) -> bool:
    """Return whether a follow-up with these words speaks of something that is closed, and not of its own sources alone."""
    theirs = {stem for message in own if message.id in sources for stem in _is_written(message)}
    closed = {source for one in earlier if not _is_mentioned_again(one, own) for source in one.sources} - set(sources)
    return any(message.id in closed and _touches(_stems(text) - theirs, message) for message in own)


def find_mentioned(text: str, own: Sequence[Message]) -> list[str]:
    """Return the ids of the person's messages that a text speaks of."""
    return [message.id for message in own if _touches(_stems(text), message)]


def _is_mentioned_again(one: PastFollowUp, own: Sequence[Message]) -> bool:
    """Return whether the person has written about it after it was brought up: with two of its words, or little else."""
    about = _stems(one.topic).union(*(_is_written(each) for each in own if each.id in one.sources))
    for message in own:
        if message.created_at <= one.at:
            continue
        said = _is_written(message)
        shared = len(said & about)
        if shared >= _ENOUGH or 2 * shared > len(said):
            return True
    return False


def _touches(stems: set[str], message: Message) -> bool:
    written = _is_written(message)
    shared = len(stems & written)
    return shared >= _ENOUGH or (shared > 0 and 2 * shared >= len(written))


def _is_written(message: Message) -> frozenset[str]:
    return _find_own_stems(message.text[:_LONGEST_LOOKED_AT])


@lru_cache(KNOWN)
def _find_own_stems(text: str) -> frozenset[str]:
    return frozenset(_stems(find_own_subject(text)))


def _stems(text: str) -> set[str]:
    return {stem(word) for word in content_words(text)}
