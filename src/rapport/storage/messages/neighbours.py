"""What surrounds a message of a group: what it is linked to by replies, and what stands beside that.

None of it grows with the chat. Only what was said is in it, and only its owner's: no summaries, nothing synthetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from rapport.domain.conversation import Author, Message
from rapport.domain.note import Vector
from rapport.storage.database import Connection
from rapport.storage.messages.messages import COMMON_COLUMNS, PROMPT_COLUMNS, TEXT_COLUMNS, to_message

MAX_REPLIES = 40
"""So many replies to an anchor, and replies to those, are found, the nearest first."""
MAX_REPLIES_PER_MESSAGE = 20
"""So many of them to one message: the latest."""
_SAID = "conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic"

# `up` and `down` hold each message once, so a circle of replies (a file may claim one) ends; and they are read no further
# than their LIMIT, so nothing beyond it is looked for. Ancestors by the primary key, replies by messages_replies, neighbours
# by a walk of messages_order in both directions; in a forum of messages_topic. (LIMIT 1: each by its key, and not all of a
# topic hashed to find a few.)
_LINKED = f"""
WITH RECURSIVE anchor AS MATERIALIZED (
    SELECT {COMMON_COLUMNS}, {PROMPT_COLUMNS} FROM messages WHERE {_SAID} AND id = %(anchor)s AND id <> %(call)s
), up (id, parent) AS (
    SELECT id, reply_to_id FROM anchor
    UNION
    SELECT m.id, m.reply_to_id FROM up JOIN messages m ON m.conversation_id = %(conversation)s AND m.id = up.parent
), down (id) AS (
    SELECT id FROM anchor
    UNION
    SELECT reply.id FROM down CROSS JOIN LATERAL (
        SELECT id FROM messages WHERE conversation_id = %(conversation)s AND reply_to_id = down.id AND created_at < %(at)s
        ORDER BY created_at DESC, id DESC LIMIT {MAX_REPLIES_PER_MESSAGE}
    ) AS reply
), linked AS MATERIALIZED (
    (SELECT id FROM up LIMIT %(depth)s + 1) UNION (SELECT id FROM down LIMIT {MAX_REPLIES + 1})
)
SELECT 0 AS part, anchor.* FROM anchor
UNION ALL
SELECT 1, found.* FROM linked CROSS JOIN LATERAL (
    SELECT {TEXT_COLUMNS} FROM messages
    WHERE {_SAID} AND id = linked.id AND id <> %(anchor)s AND id <> %(call)s LIMIT 1
) AS found WHERE found.created_at < %(at)s{{topic}}
UNION ALL
(SELECT 2, {TEXT_COLUMNS} FROM messages
 WHERE {_SAID} AND (created_at, id) < (SELECT created_at, id FROM anchor){{topic}}
 ORDER BY created_at DESC, id DESC LIMIT %(neighbours)s)
UNION ALL
(SELECT 2, {TEXT_COLUMNS} FROM messages
 WHERE {_SAID} AND (created_at, id) > (SELECT created_at, id FROM anchor) AND created_at < %(at)s AND id <> %(call)s{{topic}}
 ORDER BY created_at, id LIMIT %(neighbours)s)
"""
_LINKED_ANYWHERE = _LINKED.replace("{topic}", "").encode()
_LINKED_IN_TOPIC = _LINKED.replace("{topic}", " AND thread_id = %(topic)s").encode()

_RECENT = f"""
SELECT {TEXT_COLUMNS} FROM messages WHERE {_SAID} AND (created_at, id) < (%(at)s, %(id)s){{topic}}
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""
_RECENT_ANYWHERE = _RECENT.replace("{topic}", "").encode()
_RECENT_IN_TOPIC = _RECENT.replace("{topic}", " AND thread_id = %(topic)s").encode()


class LinkedMessages(NamedTuple):
    """What a call is linked to."""

    anchor: Message | None
    """What it replies to, however old that is."""
    chain: Sequence[Message]
    """What the anchor replies to, what that replies to …, and what was replied to the anchor; oldest first."""
    around: Sequence[Message]
    """The anchor and its neighbours in time, before the call; oldest first."""


async def load_linked(
    connection: Connection,
    owner_id: str,
    conversation_id: str,
    call: Message,
    *,
    depth: int = 20,
    neighbours: int = 20,
) -> LinkedMessages:
    """What a message replies to and what belongs to that, at most `depth` ancestors and `neighbours` on either side.

    The anchor comes with its pictures. If it isn't stored, it is what the call has brought along of it, if anything.
    """
    rows: Sequence[tuple[Any, ...]] = ()
    if call.reply_to_id is not None:
        found = await connection.execute(
            _LINKED_ANYWHERE if call.thread_id is None else _LINKED_IN_TOPIC,
            {
                "conversation": conversation_id,
                "owner": owner_id,
                "anchor": call.reply_to_id,
                "call": call.id,
                "at": call.created_at,
                "topic": call.thread_id,
                "depth": depth,
                "neighbours": neighbours,
            },
        )
        rows = await found.fetchall()
    anchor = next((to_message(row[1:]) for row in rows if row[0] == 0), None)
    if anchor is None:
        anchor = read_snapshot(call)
        return LinkedMessages(anchor, (), () if anchor is None else (anchor,))
    chain = [to_message(row[1:]) for row in rows if row[0] == 1]
    around = [to_message(row[1:]) for row in rows if row[0] == 2]
    return LinkedMessages(anchor, sort_by_time(chain), sort_by_time([*around, anchor]))


def read_snapshot(call: Message) -> Message | None:
    """The message that a call has brought along with it, as a message that is nowhere stored; None if there is none."""
    snapshot = call.context_snapshot
    if not snapshot or not isinstance(snapshot.get("text"), str):
        return None
    latest = call.created_at - timedelta(microseconds=1)
    return Message(
        f"snapshot:{snapshot.get('id') or call.id}",
        call.conversation_id,
        "user",
        snapshot["text"],
        min(_moment(snapshot.get("created_at")) or latest, latest),
        _author(snapshot.get("author")),
        thread_id=call.thread_id,
    )


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found and found.tzinfo else None


def _author(value: object) -> Author | None:
    if not isinstance(value, Mapping):
        return None
    told: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return Author(str(told.get("id")), str(told.get("name")))


async def load_recent(
    connection: Connection,
    owner_id: str,
    conversation_id: str,
    *,
    before: tuple[datetime, str],
    limit: int,
    thread_id: str | None = None,
) -> list[Message]:
    """The latest `limit` messages before a (time, id), in a topic or anywhere; oldest first."""
    found = await connection.execute(
        _RECENT_ANYWHERE if thread_id is None else _RECENT_IN_TOPIC,
        {
            "conversation": conversation_id,
            "owner": owner_id,
            "at": before[0],
            "id": before[1],
            "topic": thread_id,
            "limit": limit,
        },
    )
    return [to_message(row) for row in reversed(await found.fetchall())]


async def load_vector(
    connection: Connection, owner_id: str, conversation_id: str, message_id: str, *, embedder: str
) -> Vector | None:
    """The vector of a message, if it has one by then."""
    found = await connection.execute(
        "SELECT embedding::real[] FROM message_vectors"
        " WHERE conversation_id = %s AND message_id = %s AND embedder = %s AND owner_id = %s",
        (conversation_id, message_id, embedder, owner_id),
    )
    row = await found.fetchone()
    return row[0] if row else None


def sort_by_time(messages: Sequence[Message]) -> list[Message]:
    """As they were said."""
    return sorted(messages, key=lambda message: (message.created_at, message.id))
