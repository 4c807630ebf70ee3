"""Convert messages of a chat to the scorer's lines: speaker, addressees, time, and the line it replies to."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import islice

from rapport.context.question import get_author_id
from rapport.context.relevance.line_features import CACHED_TEXTS, MAX_READ_CHARACTERS, Line
from rapport.domain.conversation import Message

_MENTION = re.compile(r"(?<![\w@.])@([\w.|\[\]{}^`\\-]*\w)")
MAX_MENTIONS = 20
"""The maximal number of people that a message addresses; a message that names more addresses nobody in particular."""


def build_lines(messages: Sequence[Message], handles: Collection[str]) -> list[Line]:
    """Return the messages, oldest first, as lines; one person is one author under any of their names.

    `handles` are the agent's, in lower case. They link no lines: a message to the agent may be about any discussion. In a
    call, an unknown name counts as a handle, such as the name of the agent's account on a platform.
    """
    people = _map_names(messages)
    people.update(dict.fromkeys(handles))
    numbers = {message.id: number for number, message in enumerate(messages)}
    lines: list[Line] = []
    for number, message in enumerate(messages):
        text = message.text[:MAX_READ_CHARACTERS]
        names = _find_named(message)
        is_call = any(name in handles for name in names)
        mentions = dict.fromkeys(people.get(name, None if is_call else name) for name in names)
        author = get_author_id(message)
        for excluded in (author, None):
            mentions.pop(excluded, None)
        replied = numbers.get(message.reply_to_id) if message.reply_to_id else None
        lines.append(
            Line(
                author,
                message.created_at.timestamp(),
                text,
                tuple(name for name in mentions if name),
                replied if replied is not None and replied < number else None,
                message.author.name if message.author else "",
            )
        )
    return lines


def is_addressed(message: Message, handles: Collection[str]) -> bool:
    """Return True if the message names the agent by one of these handles, in lower case."""
    return any(name in handles for name in _find_named(message))


def _find_named(message: Message) -> list[str]:
    """Return the names in the channel's list of mentions and after an @ in the text, in lower case."""
    text = message.text[:MAX_READ_CHARACTERS]
    names = [*(name.casefold() for name in message.mentions), *(_find_mentions(text) if "@" in text else ())]
    return names[:MAX_MENTIONS]


@lru_cache(maxsize=CACHED_TEXTS)
def _find_mentions(text: str) -> tuple[str, ...]:
    """Return the names after an @ in a text, in lower case."""
    return tuple(match.group(1).casefold() for match in islice(_MENTION.finditer(text), MAX_MENTIONS))


def _map_names(messages: Sequence[Message]) -> dict[str, str | None]:
    """Map each name to its author; a name that two authors have is left out."""
    called: dict[str, str | None] = {}
    for message in messages:
        if message.author is None:
            continue
        name = message.author.name.casefold()
        for spelling in {message.author.id.casefold(), name, name.replace(" ", ""), name.split(" ")[0]}:
            if spelling and called.setdefault(spelling, message.author.id) != message.author.id:
                called[spelling] = spelling
    return called
