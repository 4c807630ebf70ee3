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
"""The number of people one message addresses; a message that names everybody addresses nobody in particular."""


def build_lines(messages: Sequence[Message], handles: Collection[str]) -> list[Line]:
    """Return the messages, oldest first, as lines; one person is one author under any of their names.

    `handles` are the agent's, in small letters. They link nobody: who speaks to the agent may mean any talk. In a call a name
    that nobody here has is taken for one of them, such as the name of the agent's account on a platform.
    """
    people = _map_names(messages)
    people.update(dict.fromkeys(handles))
    numbers = {message.id: number for number, message in enumerate(messages)}
    lines: list[Line] = []
    for number, message in enumerate(messages):
        text = message.text[:MAX_READ_CHARACTERS]
        named = _find_named(message)
        is_call = any(name in handles for name in named)
        mentions = dict.fromkeys(people.get(name, None if is_call else name) for name in named)
        author = get_author_id(message)
        for nobody in (author, None):
            mentions.pop(nobody, None)
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
    """Return whether the message names the agent, whose handles these are, in small letters."""
    return any(name in handles for name in _find_named(message))


def _find_named(message: Message) -> list[str]:
    """Return the names in the channel's list of mentions and after an @ in the text, in lower case."""
    text = message.text[:MAX_READ_CHARACTERS]
    names = [*(name.casefold() for name in message.mentions), *(_find_mentions(text) if "@" in text else ())]
    return names[:MAX_MENTIONS]


@lru_cache(maxsize=CACHED_TEXTS)
def _find_mentions(text: str) -> tuple[str, ...]:
    """Return the names after an @ in a text, in lower case."""
    return tuple(found.group(1).casefold() for found in islice(_MENTION.finditer(text), MAX_MENTIONS))


def _map_names(messages: Sequence[Message]) -> dict[str, str | None]:
    """Map each name to the author it means; a name that two authors have means neither."""
    called: dict[str, str | None] = {}
    for message in messages:
        if message.author is None:
            continue
        name = message.author.name.casefold()
        for one in {message.author.id.casefold(), name, name.replace(" ", ""), name.split(" ")[0]}:
            if one and called.setdefault(one, message.author.id) != message.author.id:
                called[one] = one
    return called
