"""Decide whether a message is for the agent (CTX-9). No other module decides it (ADR 43).

Channels report facts in `Incoming`; the text and the stored message that it replies to give the facts that a channel does
not know. `is_for_agent` is the rule. `find_audience` applies it to every conversation that the message can be in, because
the conversation's kind and agent are only read by the statement that stores the message.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from unicodedata import normalize

from rapport.domain.agent_profile import AgentHandle
from rapport.domain.conversation import Audience, Incoming, Message, extract_text

MAX_EDITED_AGE = timedelta(hours=1)
"""An edit of an older message is stored and not answered."""

_TICKS = re.compile(r"`+")
_BLANK_LINE = re.compile(r"\n[ \t\r]*(?=\n)")
_FENCE_LENGTH = 3
"""Code between this many backticks may contain several paragraphs."""
_QUOTED_LINE = re.compile(r"^[ \t]{0,3}>.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a message in one conversation, from which `is_for_agent` decides."""

    is_direct: bool
    """True in a direct chat."""
    mentions_agent: bool
    replies_to_agent: bool
    awaits_reply: bool = False
    is_bot: bool = False
    """True if another bot wrote it."""
    is_album_rest: bool = False
    """True if another message of its album is answered in its place."""
    is_late_edit: bool = False


def is_for_agent(facts: Facts) -> bool:
    """Return True if the agent answers the message. This is the only rule for it."""
    # Two bots that answer each other would never stop.
    if facts.is_bot or facts.is_album_rest or facts.is_late_edit:
        return False
    return facts.awaits_reply or facts.is_direct or facts.mentions_agent or facts.replies_to_agent


def may_mention_agent(incoming: Incoming) -> bool:
    """Return True if the handles of agents are needed to decide whom the message is for."""
    return incoming.mentions_agent is None and (bool(incoming.mentions) or "@" in extract_text(incoming.content))


def find_audience(incoming: Incoming, parent: Message | None, agents: Sequence[AgentHandle] = ()) -> Audience:
    """Return the conversations in which the message is for the agent; `parent` is the stored message it replies to.

    `agents` are those that the conversation may have, if `may_mention_agent`.
    """
    is_reply = incoming.replies_to_agent
    if is_reply is None:
        is_reply = parent is not None and parent.role == "assistant"
    facts = Facts(
        is_direct=False,
        mentions_agent=incoming.mentions_agent is True,
        replies_to_agent=is_reply,
        awaits_reply=incoming.awaits_reply,
        is_bot=incoming.is_bot,
        is_album_rest=incoming.is_album_rest,
        is_late_edit=_is_late_edit(incoming),
    )
    mentioned: list[str] = []
    if incoming.mentions_agent is None and is_for_agent(replace(facts, mentions_agent=True)):
        mentioned = find_mentioned_agents(extract_text(incoming.content), incoming.mentions, agents)
    return Audience(
        is_for_agent(replace(facts, is_direct=True)),
        is_for_agent(facts),
        mentioned,
        any(agent.answers_for_deleted and agent.id in mentioned for agent in agents),
    )


def _is_late_edit(incoming: Incoming) -> bool:
    if incoming.edited_at is None or incoming.said_at is None:
        return False
    return datetime.now(UTC) - incoming.said_at > MAX_EDITED_AGE


def find_mentioned_agents(text: str, mentioned: Sequence[str], agents: Iterable[AgentHandle]) -> list[str]:
    """Return the ids of the agents that a message mentions, in its words or in the channel's list.

    `mentioned` are ids or names as the channel has them, with or without an @ before them.
    """
    names = {_fold(name.removeprefix("@")) for name in mentioned}
    own_text = strip_quotes_and_code(text) if "@" in text else ""
    return [
        agent.id
        for agent in agents
        if names & {_fold(name) for name in (agent.id, *agent.handles)}
        or ("@" in own_text and has_mention(own_text, agent))
    ]


def has_mention(text: str, agent: AgentHandle) -> bool:
    """Return True if the text mentions one of the agent's handles, or has a command for it, as a word of its own."""
    text = normalize("NFC", text)
    handles = "|".join(re.escape(normalize("NFC", handle)) for handle in agent.handles)
    # Not inside a word or an address ("me@bot.example"), nor the beginning of a longer handle ("@bottle", "@bot_2").
    # A command such as `/ask@bot` counts too, if nothing precedes it.
    return (
        re.search(rf"(?:(?<![\w@./])|(?<!\S)/\w{{1,64}})@(?:{handles})(?![\w-]|\.\w)", text, re.IGNORECASE) is not None
    )


def _fold(name: str) -> str:
    """Return a name so that two are the same if only their case, or the way in which an accent is written, differs."""
    return normalize("NFC", name).casefold()


def strip_quotes_and_code(text: str) -> str:
    """Return the text without quoted lines and code: `@bot` in a quote or in code does not address the agent."""
    return _QUOTED_LINE.sub("", _strip_code(text))


def _strip_code(text: str) -> str:
    """Remove code: the text between two runs of backticks of the same length.

    It does not begin within a word (it`s) and ends in the same paragraph, except for a fence.
    """
    runs = list(_TICKS.finditer(text))
    closing = _find_closing(text, runs)
    parts: list[str] = []
    number = end = 0
    while number < len(runs):
        start = runs[number].start()
        if (close := closing[number]) is None or _is_word(text[start - 1 : start]):
            number += 1
            continue
        parts += [text[end:start], " "]
        end = runs[close].end()
        number = close + 1
    return "".join([*parts, text[end:]])


def _find_closing(text: str, runs: Sequence[re.Match[str]]) -> list[int | None]:
    """Return for each run of backticks the next run of its length, which closes it."""
    paragraph_ends = [match.start() for match in _BLANK_LINE.finditer(text)]
    closing: list[int | None] = [None] * len(runs)
    latest: dict[tuple[int, int], int] = {}
    for number in reversed(range(len(runs))):  # so that the next one is known already
        length = len(runs[number].group())
        paragraph = 0 if length >= _FENCE_LENGTH else bisect(paragraph_ends, runs[number].start())
        closing[number] = latest.get((length, paragraph))
        latest[length, paragraph] = number
    return closing


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
