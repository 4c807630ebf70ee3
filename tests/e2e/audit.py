"""Check after any failure: nothing lost, nothing twice, everything in order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import psycopg

from tests.support.waiting import LIMIT_SECONDS

from .harness import Client, Sent
from .scripted import Call, ScriptedModel, reply_to

Rows = list[tuple[Any, ...]]


@dataclass(slots=True)
class Figures:
    """The counts of an audit; everything but `messages` and `replies` must be zero."""

    messages: int = 0
    replies: int = 0
    lost: int = 0
    """acknowledged and not stored"""
    double: int = 0
    """stored more than once, or answered more than once"""
    unanswered: int = 0
    wrong: int = 0
    """replies that answer another message, or nothing, or with the fallback"""
    inversions: int = 0
    """of times, of a sender's messages, and of replies against their messages"""
    unfinished: int = 0
    """events that are not done, and conversations that still count one"""
    overlaps: int = 0
    """pairs of model calls of one conversation at the same time"""
    repeated: int = 0
    """windows that hold the current message more than once"""

    @property
    def troubles(self) -> dict[str, int]:
        return {name: count for name, count in asdict(self).items() if count and name not in {"messages", "replies"}}


async def query(url: str, statement: str) -> Rows:
    async with await psycopg.AsyncConnection[tuple[Any, ...]].connect(url, autocommit=True) as connection:
        return await (await connection.execute(statement.encode())).fetchall()


async def until_idle(url: str, *, seconds: float = LIMIT_SECONDS) -> float:
    """Wait until every event is done; return the seconds that this took."""
    begun = time.monotonic()
    left: Rows = []
    while time.monotonic() - begun < seconds:
        left = await query(url, "SELECT id, state, attempts, error FROM events WHERE state <> 'done'")
        if not left:
            return time.monotonic() - begun
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(left)} events are not done after {seconds} s: {left[:5]}")


async def audit(url: str, sent: Sequence[Sent], model: ScriptedModel) -> Figures:
    """Count all violations, from the rows and from the model's calls."""
    figures = Figures()
    rows = await query(
        url,
        "SELECT conversation_id, id, role, content, client_message_id, event_id, metadata, created_at"
        " FROM messages ORDER BY conversation_id, created_at, id",
    )
    users = [row for row in rows if row[2] == "user"]
    replies = [row for row in rows if row[2] == "assistant"]
    figures.messages, figures.replies = len(users), len(replies)
    _storage(figures, users, sent)
    _answers(figures, users, replies)
    _order(figures, rows, sent)
    found = await query(
        url,
        "SELECT (SELECT count(*) FROM events WHERE state <> 'done')"
        " + (SELECT coalesce(sum(open_event_count), 0) FROM conversations)",
    )
    figures.unfinished = int(found[0][0])
    turns = [call for call in model.calls if not call.is_summary]
    figures.overlaps = overlaps(turns)
    figures.repeated = sum(call.window.count(("user", call.text)) != 1 for call in turns)
    return figures


def _storage(figures: Figures, users: Rows, sent: Sequence[Sent]) -> None:
    stored = Counter((row[0], row[4], row[3]) for row in users)
    for one in sent:
        copies = stored[one.conversation, one.client_id, one.text]
        figures.lost += one.acknowledged and copies == 0
    texts = Counter((row[0], row[3]) for row in users)
    figures.double += sum(count - 1 for count in texts.values())
    known = {(one.conversation, one.client_id, one.text) for one in sent}
    figures.wrong += sum(key not in known for key in stored)


def _answers(figures: Figures, users: Rows, replies: Rows) -> None:
    by_event: dict[tuple[str, str], Rows] = defaultdict(list)
    for row in replies:
        by_event[row[0], row[5]].append(row)
    for row in users:
        answers = by_event.pop((row[0], row[1]), [])
        figures.unanswered += not answers
        figures.double += max(0, len(answers) - 1)
        # Such a reply has no metadata but its receipt.
        figures.wrong += sum(
            answer[3] != reply_to(row[3]) or set(answer[6]) != {"agent", "context", "usage"} for answer in answers
        )
    figures.wrong += len(by_event)


def _order(figures: Figures, rows: Rows, sent: Sequence[Sent]) -> None:
    number_of = {(one.conversation, one.text): (one.sender, one.number) for one in sent}
    conversations: dict[str, Rows] = defaultdict(list)
    for row in rows:
        conversations[row[0]].append(row)
    for conversation, log in conversations.items():
        figures.inversions += sum(a[7] >= b[7] for a, b in pairwise(log))
        asked = [row[1] for row in log if row[2] == "user"]
        answered = [row[5] for row in log if row[2] == "assistant"]
        figures.inversions += sum(a != b for a, b in zip(asked, answered, strict=False))
        by_sender: dict[str, list[int]] = defaultdict(list)
        for row in log:
            if row[2] == "user" and (conversation, row[3]) in number_of:
                sender, number = number_of[conversation, row[3]]
                by_sender[sender].append(number)
        figures.inversions += sum(a >= b for numbers in by_sender.values() for a, b in pairwise(numbers))


def overlaps(calls: Sequence[Call]) -> int:
    """Count pairs of concurrent calls about the same conversation; a call whose caller was killed does not count.

    The first word of a text names its conversation.
    """
    by_conversation: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if not call.broken:
            by_conversation[call.text.split(" ", 1)[0]].append(call)
    found = 0
    for series in by_conversation.values():
        series.sort(key=lambda call: call.began)
        found += sum(a.ended is None or a.ended > b.began for a, b in pairwise(series))
    return found


async def history_agrees(client: Client, url: str) -> None:
    """Check that the history over HTTP is what is stored: the same messages in the same order, page by page.

    Summaries are left out, because one may be made at this moment.
    """
    rows = await query(
        url,
        "SELECT conversation_id, id FROM messages WHERE role <> 'system-summary' AND NOT synthetic"
        " ORDER BY conversation_id, created_at, id",
    )
    stored: dict[str, list[str]] = defaultdict(list)
    for conversation, id_ in rows:
        stored[conversation].append(id_)
    for conversation, ids in stored.items():
        told = [message["id"] for message in await client.history(conversation) if message["role"] != "system-summary"]
        assert told == ids
    shown = {id_ for ids in stored.values() for id_ in ids}
    assert len(shown) == len(rows)


async def clients_agree(url: str, sent: Sequence[Sent]) -> None:
    """Check that the reply that a client got is the stored one."""
    stored = {row[0]: row[1] for row in await query(url, "SELECT id, content FROM messages WHERE role = 'assistant'")}
    for one in sent:
        if one.reply is not None:
            assert one.reply["content"] == reply_to(one.text)
            assert stored.get(one.reply["id"]) == one.reply["content"], one
