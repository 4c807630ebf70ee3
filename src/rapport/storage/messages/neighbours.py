"""Load the messages that belong to a group message: those linked to it by replies, and their neighbours in time.

The cost does not grow with the chat. Only the owner's messages are loaded: no summaries, no synthetic messages.
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
"""The number of direct and indirect replies to an anchor that are loaded, the nearest first."""
MAX_REPLIES_PER_MESSAGE = 20
"""The number of replies to one message that are loaded: the latest."""
_SAID = "conversation_id = %(conversation)s AND owner_id = %(owner)s AND role <> 'system-summary' AND NOT synthetic"

# UNION keeps each message once, so a cycle of replies (an imported file may have one) ends; the LIMIT of `linked` stops the
# recursion. Ancestors by the primary key, replies by messages_replies, neighbours by messages_order or messages_topic. LIMIT 1
# keeps the planner from hashing a whole topic to find a few rows.
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
SELECT 'anchor' AS part, anchor.* FROM anchor
UNION ALL
SELECT 'chain', found.* FROM linked CROSS JOIN LATERAL (
    SELECT {TEXT_COLUMNS} FROM messages
    WHERE {_SAID} AND id = linked.id AND id <> %(anchor)s AND id <> %(call)s LIMIT 1
) AS found WHERE found.created_at < %(at)s{{topic}}
UNION ALL
(SELECT 'around', {TEXT_COLUMNS} FROM messages
 WHERE {_SAID} AND (created_at, id) < (SELECT created_at, id FROM anchor){{topic}}
 ORDER BY created_at DESC, id DESC LIMIT %(neighbours)s)
UNION ALL
(SELECT 'around', {TEXT_COLUMNS} FROM messages
 WHERE {_SAID} AND (created_at, id) > (SELECT created_at, id FROM anchor) AND created_at < %(at)s AND id <> %(call)s{{topic}}
 ORDER BY created_at, id LIMIT %(neighbours)s)
"""
_LINKED_ANYWHERE = _LINKED.replace("{topic}", "").encode()
_LINKED_IN_TOPIC = _LINKED.replace("{topic}", " AND thread_id = %(topic)s").encode()

# A backward scan of messages_order or, in a topic, of messages_topic.
_RECENT = f"""
SELECT {TEXT_COLUMNS} FROM messages WHERE {_SAID} AND (created_at, id) < (%(at)s, %(id)s){{topic}}
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""
_RECENT_ANYWHERE = _RECENT.replace("{topic}", "").encode()
_RECENT_IN_TOPIC = _RECENT.replace("{topic}", " AND thread_id = %(topic)s").encode()


class LinkedMessages(NamedTuple):
    """Messages that a message to the agent (the call) is linked to."""

    anchor: Message | None
    """The message it replies to, however old."""
    chain: Sequence[Message]
    """The anchor's ancestors by reply, and the replies to it; oldest first."""
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
    """Return the anchor of a message, at most `depth` ancestors, and `neighbours` messages on either side.

    The anchor has its pictures. If it is not stored, it is the call's snapshot of it, if there is one.
    """
    rows: Sequence[Any] = ()
    if call.reply_to_id is not None:
        cursor = await connection.execute(
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
        rows = await cursor.fetchall()
    anchor = next((to_message(row) for row in rows if row.part == "anchor"), None)
    if anchor is None:
        anchor = read_snapshot(call)
        return LinkedMessages(anchor, (), () if anchor is None else (anchor,))
    chain = [to_message(row) for row in rows if row.part == "chain"]
    neighbourhood = [to_message(row) for row in rows if row.part == "around"]
    return LinkedMessages(anchor, sort_by_time(chain), sort_by_time([*neighbourhood, anchor]))


def read_snapshot(call: Message) -> Message | None:
    """Build a message from the snapshot of the replied-to message in the call; None if there is none."""
    snapshot = call.context_snapshot
    if not snapshot or not isinstance(snapshot.get("text"), str):
        return None
    latest = call.created_at - timedelta(microseconds=1)
    return Message(
        f"snapshot:{snapshot.get('id') or call.id}",
        call.conversation_id,
        "user",
        snapshot["text"],
        min(_parse_time(snapshot.get("created_at")) or latest, latest),
        _parse_author(snapshot.get("author")),
        thread_id=call.thread_id,
    )


def _parse_time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time if time and time.tzinfo else None


def _parse_author(value: object) -> Author | None:
    if not isinstance(value, Mapping):
        return None
    author: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return Author(str(author.get("id")), str(author.get("name")))


async def load_recent(
    connection: Connection,
    owner_id: str,
    conversation_id: str,
    *,
    before: tuple[datetime, str],
    limit: int,
    thread_id: str | None = None,
) -> list[Message]:
    """Return the latest `limit` messages before a (time, id), in a topic or in the whole chat; oldest first."""
    cursor = await connection.execute(
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
    return [to_message(row) for row in reversed(await cursor.fetchall())]


async def load_vector(
    connection: Connection, owner_id: str, conversation_id: str, message_id: str, *, embedder: str
) -> Vector | None:
    """Return the vector of a message, if it has one."""
    cursor = await connection.execute(
        "SELECT embedding::real[] AS vector FROM message_vectors"
        " WHERE conversation_id = %s AND message_id = %s AND embedder = %s AND owner_id = %s",
        (conversation_id, message_id, embedder, owner_id),
    )
    row = await cursor.fetchone()
    return row.vector if row else None


def sort_by_time(messages: Sequence[Message]) -> list[Message]:
    """Return the messages ordered by time."""
    return sorted(messages, key=lambda message: (message.created_at, message.id))
