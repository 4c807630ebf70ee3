"""Extract by rules what is worth remembering of what users say about themselves: rather nothing than something wrong (MEM)."""

from __future__ import annotations

import re
from dataclasses import replace

from rapport.domain.conversation import Message
from rapport.domain.memory import MemoryCandidate
from rapport.domain.synthetic import is_synthetic
from rapport.memory import personal_facts as facts
from rapport.memory import preference_rules as leanings
from rapport.memory.grammar import USER, Fact, sentence, theirs, third
from rapport.memory.statements import Statement, statements_in
from rapport.memory.word_lists import HABIT_VERBS, INSTRUCTING

MOST = 5
MAX_CHARACTERS = 300
_RULES = (*facts.RULES, *leanings.RULES)

# A memory is read by a model, so nothing that addresses one or could be taken for an order becomes one.
_ADDRESSES = re.compile(
    rf"\b(?:you|your|yours|yourself|you're|u|ur|from now on|in (?:every|all) (?:answer|repl|message)\w*|{'|'.join(map(re.escape, sorted(INSTRUCTING)))})\b"
    r"|[<>{}\[\]`|\\]|https?:",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"^(?:to|not to|don't|do not|always|never|only|just|please|let|be|use|call|say|tell|give|send|buy|get|make|do|stop|start|ask|add|"
    r"remind|write|show|take|keep|put|check|turn|speak|talk|act|think|when|how|what|where|who|why|the time|us|me|him|her|them|it|this|"
    r"that|these|those|there|here|everything|nothing|all|no|yes|ok|okay|if|as)\b",
    re.IGNORECASE,
)
_OWN = re.compile(r"^(my|our)\s+(.+)$", re.IGNORECASE)
_I_AM = re.compile(
    r"^(?:i'm|i am|im)\s+(?!(?:going|tired|hungry|busy|late|here|back|off|out|sorry|sure|happy|sad|at|in a)\b)(.+)$",
    re.IGNORECASE,
)
_I_HAVE = re.compile(r"^(?:i have|i've got)\s+(.+)$", re.IGNORECASE)
_I_DO = re.compile(
    rf"^i\s+({'|'.join(sorted(HABIT_VERBS | {'need', 'want', 'own', 'live', 'love', 'like', 'hate', 'prefer', 'speak', 'wear', 'use'}))})\s+(.+)$",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r",?\s+(?:and|but|so)\s+(?=(?:he|she|it|they|he's|she's|it's|they're|that's|there|no|can|could|would)\b)|,\s+(?!not\b|nor\b)",
    re.IGNORECASE,
)
_FEWEST_WORDS = 3


def remarks_in(message: Message) -> list[MemoryCandidate]:
    """At most five lasting facts that the writer of a real user message states about themselves, each a sentence.

    Nothing is taken from what the system or the agent wrote, from quotations, questions, conditions, hearsay, passing
    states, secrets, or anything that a model might read as an instruction.
    """
    if message.role != "user" or is_synthetic(message):
        return []
    found: dict[str, Fact] = {}
    for statement in statements_in(message.text):
        fact = _fact_in(statement)
        if fact is not None and _is_harmless(fact.content):
            # Said twice in one message, the later one counts, as between messages.
            found[fact.key or fact.content.lower()] = fact
    origin = MemoryCandidate("", conversation_id=message.conversation_id, message_id=message.id)
    return [replace(origin, content=fact.content, key=fact.key) for fact in list(found.values())[:MOST]]


def _fact_in(statement: Statement) -> Fact | None:
    if fact := _by_rule(statement.text):
        return fact
    # "I'm coeliac, so no wheat for me": what comes after the fact is about something else.
    if (cut := _GOES_ON.search(statement.text)) and (fact := _by_rule(statement.text[: cut.start()])):
        return fact
    return _find_requested(statement.text) if statement.is_asked_for else None


def _by_rule(text: str) -> Fact | None:
    for pattern, make in _RULES:
        if (match := pattern.match(text)) and (fact := make(match)):
            return fact
    return None


def _find_requested(text: str) -> Fact | None:
    """Return what no rule knows but the user wants remembered: in the third person where that is safe, else in their words."""
    if len(text.split()) < _FEWEST_WORDS or _IMPERATIVE.match(text):
        return None
    if own := _OWN.match(text):
        return Fact(sentence(theirs(own[2]), subject="The user's"))
    if am := _I_AM.match(text):
        return Fact(sentence(f"is {theirs(am[1])}"))
    if have := _I_HAVE.match(text):
        return Fact(sentence(f"has {theirs(have[1])}"))
    if does := _I_DO.match(text):
        return Fact(sentence(f"{third(does[1])} {theirs(does[2])}"))
    said = text[:1].upper() + text[1:]
    return Fact(f"{USER} said: “{said}.”")


def _is_harmless(content: str) -> bool:
    return len(content) <= MAX_CHARACTERS and "\n" not in content and not _ADDRESSES.search(content)
