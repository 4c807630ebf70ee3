"""Read a question with the messages around it from a request, as a turn would load them; nothing is stored."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

from rapport.context.question import drop_empty_replies
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, CandidateMessages
from rapport.domain.conversation import Author, Message
from rapport.domain.errors import InvalidInput
from rapport.ingest.archive_rows import as_mapping, read_id, read_name

DEPTH, REPLIES = 20, 40
"""Levels of replies above the anchor, and messages below it: as many as a turn loads."""
NEIGHBOURS = 20
"""Messages on either side of the anchor: as many as a turn loads."""

GivenId: TypeAlias = "str | int"
"""An id as written in the request."""

_MOMENT = timedelta(microseconds=1)
_LAST_YEAR = 9998


@dataclass(frozen=True, slots=True)
class SentContext:
    """A call and its candidate messages."""

    call: Message
    found: CandidateMessages
    given: Mapping[str, GivenId]
    """The ids as written in the request, by the id of the message."""


def read_sent_context(messages: Sequence[Any], trigger: object) -> SentContext:
    """Return the messages and the call of a request; raise InvalidInput with the place of a mistake."""
    given_ids: dict[str, GivenId] = {}
    authors: dict[str, Author] = {}
    told: list[Message] = []
    for row in messages:
        try:
            told.append(_message(row, given_ids, authors))
        except InvalidInput as error:
            raise InvalidInput(f"`messages[{len(told)}]`: {error}") from error
    try:
        call = _message(trigger, given_ids, authors)
    except InvalidInput as error:
        raise InvalidInput(f"`trigger`: {error}") from error
    if call.reply_to_id == call.id:
        raise InvalidInput("`trigger`: It can't be a reply to itself.")
    if call.role != "user":
        raise InvalidInput("`trigger`: `is_agent` can't be true: the agent doesn't call itself.")
    told = _in_order([message for message in drop_empty_replies(told) if message.created_at <= call.created_at])
    if told and call.created_at <= told[-1].created_at:
        call = replace(call, created_at=told[-1].created_at + _MOMENT)
    return SentContext(call, _surroundings(call, told), given_ids)


def _message(value: object, given_ids: dict[str, GivenId], authors: dict[str, Author]) -> Message:
    row = as_mapping(value)
    if row is None:
        raise InvalidInput(
            "It is missing or isn't a JSON object, `{id, author, time, text, mentions?, reply_to?, is_agent?}`."
        )
    id_ = read_id(row.get("id"))
    if id_ in given_ids:
        raise InvalidInput(f"Another message has the id {id_[:60]!r} already.")
    given_ids[id_] = row["id"]
    text, reply_to = row.get("text"), row.get("reply_to")
    if not isinstance(text, str):
        raise InvalidInput("`text` is missing or isn't a text.")
    is_agent = row.get("is_agent", False)
    if not isinstance(is_agent, bool):
        raise InvalidInput("`is_agent` is true or false: whether the agent said it.")
    return Message(
        id_,
        "",
        "assistant" if is_agent else "user",
        text,
        read_time(row.get("time")),
        _author(row, authors),
        None if reply_to is None else read_id(reply_to, what="reply_to"),
        mentions=_mentions(row.get("mentions")),
    )


def _author(row: Mapping[str, Any], authors: dict[str, Author]) -> Author | None:
    """Return the author of a row; each author is read once."""
    if "author" not in row:
        raise InvalidInput("`author` is missing: a name, or null if nobody is named.")
    name = row["author"]
    if name is None:
        return None
    if not isinstance(name, str) or name not in authors:
        name = read_name(name, what="author")
        authors[name] = Author(name, name)
    return authors[name]


def _mentions(value: object) -> Sequence[str]:
    if not value and (value is None or isinstance(value, list)):
        return ()
    if isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value)):
        return cast("list[str]", value)
    raise InvalidInput("`mentions` is a list of names.")


def read_time(value: object) -> datetime:
    """Return the time of a message; raise InvalidInput if it is none."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
            time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value, UTC)
        else:
            raise InvalidInput("`time` is missing or isn't a time: seconds since 1970, or ISO 8601.")
        if time.year > _LAST_YEAR:
            raise OverflowError
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            f"`time` isn't a time: {str(value)[:40]!r}; it is seconds since 1970, or ISO 8601."
        ) from error
    return time


def _in_order(messages: list[Message]) -> list[Message]:
    """Return the messages oldest first, each with its own time, as they would be stored; equal times keep their order."""
    messages.sort(key=lambda message: message.created_at)
    for number in range(1, len(messages)):
        before, message = messages[number - 1], messages[number]
        if message.created_at <= before.created_at:
            messages[number] = replace(message, created_at=before.created_at + _MOMENT)
    return messages


def _surroundings(call: Message, messages: Sequence[Message]) -> CandidateMessages:
    recent = messages[-MAX_RECENT_MESSAGES:]
    index = next((n for n, message in enumerate(messages) if message.id == call.reply_to_id), None)
    if call.reply_to_id is None or index is None:
        return CandidateMessages(recent)
    around = messages[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]
    return CandidateMessages(recent, messages[index], _chain(messages[index], messages), around)


def _chain(anchor: Message, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that replies link to the anchor, above and below it, each once."""
    by_id = {message.id: message for message in messages}
    replies: defaultdict[str, list[Message]] = defaultdict(list)
    for message in messages:
        if message.reply_to_id is not None:
            replies[message.reply_to_id].append(message)
    linked = {anchor.id: anchor}
    parent = by_id.get(anchor.reply_to_id or "")
    while parent is not None and parent.id not in linked and len(linked) <= DEPTH:
        linked[parent.id] = parent
        parent = by_id.get(parent.reply_to_id or "")
    limit, queue = len(linked) + REPLIES, deque([anchor])
    while queue:
        for message in replies[queue.popleft().id]:
            if message.id not in linked and len(linked) < limit:
                linked[message.id] = message
                queue.append(message)
    del linked[anchor.id]
    return sorted(linked.values(), key=lambda message: message.created_at)
