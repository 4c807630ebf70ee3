"""Test that reading a turn's input and summarizing cost the same in long and short conversations (by EXPLAIN)."""

from __future__ import annotations

from typing import Any

import pytest

from rapport.domain.conversation import Incoming
from rapport.domain.event import ClaimedEvent
from rapport.ingest.accept import accept
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.summaries import Summaries
from rapport.storage.work.turn_input import load_turn_input
from tests.storage.explained import MODES, Explained, PlanMode, plans

LONG = 10_000
WINDOW = 12

# A conversation of so many messages, in pairs, of which all but the newest ten are covered: 4 by each summary.
_TALK = """
INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at, summary_id)
SELECT %(conversation)s, 'm' || lpad(n::text, 12, '0'), 'local', CASE n %% 2 WHEN 1 THEN 'user' ELSE 'assistant' END,
       'message ' || n || repeat(' and so on', 10), clock_timestamp() - (%(count)s - n) * interval '1 second',
       CASE WHEN n <= %(covered)s THEN 's' || lpad(((n + 3) / 4)::text, 12, '0') END
FROM generate_series(1, %(count)s) n
"""
_SUMMARIES = """
INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at, summary_id)
SELECT %(conversation)s, 's' || lpad(n::text, 12, '0'), 'local', 'system-summary', 'what was said up to ' || n,
       (SELECT created_at FROM messages WHERE conversation_id = %(conversation)s
        AND id = 'm' || lpad(least(n * 4 + 10, %(count)s)::text, 12, '0')) + interval '1 millisecond',
       CASE WHEN n < %(covered)s / 4 THEN 's' || lpad((n + 1)::text, 12, '0') END
FROM generate_series(1, %(covered)s / 4) n
"""
_POINTERS = """
UPDATE conversations SET last_at = clock_timestamp(), summary_id = 's' || lpad((%(covered)s / 4)::text, 12, '0'),
    summarized_until = (SELECT created_at FROM messages WHERE conversation_id = %(conversation)s
                     AND id = 'm' || lpad(%(covered)s::text, 12, '0'))
WHERE id = %(conversation)s AND %(covered)s > 0
"""


_EVENTS = """
INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, fence, attempts)
SELECT conversation_id, id, owner_id, 'done', 'somebody', 1, 1 FROM messages
WHERE conversation_id = %(conversation)s AND role = 'user'
"""


async def a_talk(database: Database, *, count: int, uncovered: int = 10) -> str:
    """A conversation with so many messages, all but the newest of them covered."""
    covered = count - uncovered if uncovered < count else 0
    async with database.transaction() as connection:
        conversation = await Conversations(connection).create("local", agent_id="companion")
        values = {"conversation": conversation.id, "count": count, "covered": covered}
        for statement in (_TALK, _SUMMARIES, _POINTERS, _EVENTS):
            await connection.execute(statement.encode(), values)
    return conversation.id


async def a_question(database: Database, conversation: str, **more: Any) -> ClaimedEvent:
    asked = Incoming("local", conversation, "and now?", **more)
    accepted = await accept(database, asked, worker_id="somebody", claim=True)
    assert accepted.claimed is not None
    return accepted.claimed


async def with_statistics(database: Database) -> None:
    async with database.statement() as connection:
        await connection.execute("ANALYZE")


analysed = pytest.mark.parametrize("is_analysed", [True, False], ids=["analysed", "without statistics"])


@analysed
async def test_a_turn_reads_its_window_and_no_more(database: Database, is_analysed: bool) -> None:
    """Of 10,000 messages that summaries cover none is looked at."""
    conversation = await a_talk(database, count=LONG)
    if is_analysed:
        await with_statistics(database)
    event = await a_question(database, conversation)
    for mode in MODES:
        async with database.statement() as connection:
            explained = Explained(connection, mode)
            material = await load_turn_input(explained.as_connection, event, limit=WINDOW, embedder="none")
        assert material is not None
        assert material.summary is not None
        assert [message.id for message in material.earlier] == [f"m{n:012}" for n in range(LONG - 9, LONG + 1)]
        assert "messages" not in explained.whole_scans()
        assert explained.walked("messages") <= 20
        assert explained.sorted() <= WINDOW
        assert explained.pages() <= 50


async def test_in_a_direct_chat_a_topic_hides_nothing_and_repeats_nothing(database: Database) -> None:
    """Neither what was said outside of it nor what the summary stands for."""
    conversation = await a_talk(database, count=100)
    async with database.statement() as connection:
        await connection.execute("UPDATE messages SET thread_id = '7' WHERE substr(id, 13)::int % 3 = 0")
    event = await a_question(database, conversation, thread_id="7")
    async with database.statement() as connection:
        for mode in MODES:
            explained = Explained(connection, mode)
            material = await load_turn_input(explained.as_connection, event, limit=WINDOW, embedder="none")
            assert material is not None
            assert material.summary is not None
            assert [message.id for message in material.earlier] == [f"m{n:012}" for n in range(91, 101)]


async def test_a_turn_reads_its_window_even_if_nothing_was_ever_summed_up(database: Database) -> None:
    """As behind a guard, or while the model fails: no sort of what nobody will be told."""
    conversation = await a_talk(database, count=LONG, uncovered=LONG)
    await with_statistics(database)
    event = await a_question(database, conversation)
    for mode in MODES:
        async with database.statement() as connection:
            explained = Explained(connection, mode)
            material = await load_turn_input(explained.as_connection, event, limit=WINDOW, embedder="none")
        assert material is not None
        assert len(material.earlier) == WINDOW
        assert explained.walked("messages") <= 20
        assert explained.sorted() == 0
        assert explained.pages() <= 50


@plans
@analysed
async def test_summing_up_walks_what_is_not_covered_yet(database: Database, mode: PlanMode, is_analysed: bool) -> None:
    conversation = await a_talk(database, count=LONG, uncovered=14)
    if is_analysed:
        await with_statistics(database)
    async with database.statement() as connection:
        explained = Explained(connection, mode)
        summaries = Summaries(explained.as_connection)
        backlog = await summaries.load_backlog("local", conversation, limit=2_000)
        assert len(backlog.messages) == 14
        assert explained.walked("messages") <= 25
        assert explained.walked("events") <= 2
        assert explained.pages() <= 60

        stored = await summaries.store(
            "local",
            conversation,
            text="what was said",
            upto=backlog.messages[3],
            previous=backlog.summary,
            source_ids=[],
        )
        assert stored is not None
        assert stored.metadata["replaced"] == 4
        assert "messages" not in explained.whole_scans()
        assert explained.walked("messages") <= 10
        assert explained.pages() <= 250  # the indexes of five changed rows included, that of their words too


async def test_a_backlog_is_read_in_order_and_only_as_far_as_it_is_asked_for(database: Database) -> None:
    conversation = await a_talk(database, count=LONG, uncovered=LONG)
    await with_statistics(database)
    for mode in MODES:
        async with database.statement() as connection:
            explained = Explained(connection, mode)
            backlog = await Summaries(explained.as_connection).load_backlog("local", conversation, limit=500)
        assert [message.id for message in backlog.messages] == [f"m{n:012}" for n in range(1, 501)]
        assert explained.walked("messages") <= 510
        assert explained.sorted() <= 1


async def test_of_a_backlog_only_the_words_are_read(database: Database) -> None:
    """Pictures can be megabytes each, and a backlog has many messages."""
    async with database.statement() as connection:
        conversation = (await Conversations(connection).create("local", agent_id="companion", kind="group")).id
    picture = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}
    content = [{"type": "text", "text": "look"}, picture, {"type": "text", "text": "a cat"}]
    await accept(database, Incoming("local", conversation, content), worker_id="somebody", claim=True)
    async with database.statement() as connection:
        backlog = await Summaries(connection).load_backlog("local", conversation, limit=10)
    assert [message.content for message in backlog.messages] == ["look\na cat"]
