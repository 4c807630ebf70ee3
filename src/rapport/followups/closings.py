"""Decide whether somebody has closed a conversation, is in distress, or told bad news: then there is no follow-up (AUTO-1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rapport.domain.conversation import Message
from rapport.domain.phrases import begins_with, find_any, load_phrases, load_words
from rapport.followups.word_stems import DATA, KNOWN, content_words, plain, stem, words

_LONGEST = 4_000
"""Characters of a message that are looked at, from its end."""
_SUBSTANCE = 3
"""Content words from which on a message has a subject of its own."""
_FAREWELL = find_any(load_phrases(DATA, "farewells"))
_GREETS_TOO = find_any(load_phrases(DATA, "greets_too"))
"""The same words greet at the beginning of a conversation."""
_THANKS = find_any(load_phrases(DATA, "thanks"))
_PADDING = load_words(DATA, "padding")
_LEAVE_ME = begins_with(load_phrases(DATA, "leave_me"))
_DECLINED = begins_with(load_phrases(DATA, "declined"))
_DISTRESS = find_any(load_phrases(DATA, "distress"))
_CALL_FOR_HELP = find_any(load_phrases(DATA, "calls_for_help"))
_BAD_NEWS = find_any(load_phrases(DATA, "bad_news"))
_CONDOLES = find_any(load_phrases(DATA, "condoles"))
_STILL_SAD = load_words(DATA, "still_sad")
_AGAIN = frozenset({"wait", "actually", "hold", "oh", "hmm", "but", "one", "sorry", "also", "hey", "hi", "hello"})
_CLAUSE_END = re.compile(r"[.!,;:\n…()]+|\s[-–—]+\s|(?<=[?？])")
_WORD = re.compile(r"[\w']+")
_WAVING = re.compile(r"[\U0001F44B\U0001F634\U0001F4A4\u270C\U0001F6CC\U0001F319]")
_EMOJI = re.compile(r"[^\w\s.,;:!?'()/+-]")


def is_closing(text: str, *, answers_an_offer: bool = False, is_first: bool = False) -> bool:
    """Return whether this message ends the conversation, or asks to be left alone.

    `answers_an_offer`: it was said to "Anything else?", where a mere no is enough. `is_first`: nothing was said before it,
    so a word that also greets is a greeting.
    """
    said = plain(text[-_LONGEST:]).strip()
    bare = " ".join(_EMOJI.sub(" ", said).split())
    if not bare.strip(" .!?,"):
        return bool(_WAVING.search(said)) and not is_first
    clauses = [clause for each in _CLAUSE_END.split(bare) if (clause := each.strip())]
    if any(_LEAVE_ME.match(clause) for clause in clauses):
        return True
    if answers_an_offer and _DECLINED.match(bare):
        return True
    return _says_farewell(clauses, is_first=is_first)


def _says_farewell(clauses: Sequence[str], *, is_first: bool) -> bool:
    """Return whether the last clause that says anything is a farewell and nothing but."""
    for position, clause in enumerate(reversed(clauses)):
        if "?" in clause:
            return False
        rest, farewells = _FAREWELL.subn(" ", clause)
        if not is_first:
            rest, more = _GREETS_TOO.subn(" ", rest)
            farewells += more
        left = [word for word in _WORD.findall(_THANKS.sub(" ", rest)) if word not in _PADDING]
        if farewells and not left:
            return True
        # A name, or something like it, after a farewell: "See you, Anna".
        is_address = position == 0 and len(_WORD.findall(clause)) == 1 and clause not in _AGAIN
        if left and not is_address:
            return False
    return False


def is_only_thanks(text: str) -> bool:
    """Return whether a message thanks and says nothing else."""
    rest, thanks = _THANKS.subn(" ", plain(text[-_LONGEST:]))
    return bool(thanks) and not [word for word in _WORD.findall(rest) if word not in _PADDING]


@lru_cache(KNOWN)
def is_in_distress(text: str) -> bool:
    """Return whether a person tells of an emergency or of despair: somebody to whom a cheerful line would be an insult."""
    return bool(_DISTRESS.search(_both_ends(text)))


@lru_cache(KNOWN)
def sends_for_help(text: str) -> bool:
    """Return whether a reply points to an emergency service: whoever wrote it saw what was going on."""
    return bool(_CALL_FOR_HELP.search(_both_ends(text)))


@lru_cache(KNOWN)
def tells_bad_news(text: str) -> bool:
    """Return whether a person tells of something sad that happened to them."""
    return bool(_BAD_NEWS.search(_both_ends(text)))


@lru_cache(KNOWN)
def _condoles(text: str) -> bool:
    return bool(_CONDOLES.search(_both_ends(text)))


def take_since_bad_news(said: Sequence[Message]) -> Sequence[Message] | None:
    """Return what was said since the user turned from bad news to something else; all of it without any, None if they have not."""
    sad = [index for index, message in enumerate(said) if _is_sad(message)]
    if not sad:
        return said
    sorrow = {stem(word) for index in sad for word in content_words(said[index].text)}
    sorrow |= {stem(word) for message in said[: sad[-1]][-1:] for word in content_words(message.text)}
    for index in range(sad[-1] + 1, len(said)):
        about = {stem(word) for word in content_words(said[index].text)} if said[index].role == "user" else set[str]()
        if len(about) >= _SUBSTANCE and not sorrow & about and not _STILL_SAD & set(words(said[index].text)):
            return said[index:]
    return None


def _is_sad(message: Message) -> bool:
    return (
        tells_bad_news(message.text)
        if message.role == "user"
        else message.role == "assistant" and _condoles(message.text)
    )


def _both_ends(text: str) -> str:
    """Return a message on one line, plain; of a very long one its beginning and its end."""
    if len(text) > 2 * _LONGEST:
        text = f"{text[:_LONGEST]} {text[-_LONGEST:]}"
    return " ".join(plain(text).split())
