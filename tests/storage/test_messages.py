"""Test finding single messages of long conversations by an index."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from rapport.domain.errors import NotFound
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.messages import RECENT_MESSAGES, Messages
from rapport.storage.vector_index import ensure_vector_index, has_vector_index
from tests.storage.explained import MODES, Explained

# Everybody's, of ids that look like ours; every 20th is the agent's.
_TALK = """
INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)
SELECT %(chat)s, '01J8ZQ4T9V0E7M3K' || lpad(n::text, 10, '0'), 'local', CASE WHEN n %% 20 = 0 THEN 'assistant' ELSE 'user' END,
       'message ' || n, now() - (%(count)s - n) * interval '1 second' FROM generate_series(1, %(count)s) n
"""
# Each of the agent's in two parts, with numbers as every chat has them.
_PARTS = """
INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id, state, platform_ids)
SELECT conversation_id, id, owner_id, 'telegram', id, 'sent',
       jsonb_build_array(right(id, 10)::int::text, (right(id, 10)::int + 1)::text)
FROM messages WHERE role = 'assistant'
"""


def numbered(n: int) -> str:
    return f"01J8ZQ4T9V0E7M3K{n:010}"


async def run(database: Database, statement: str, **values: Any) -> None:
    async with database.transaction() as connection:
        await connection.execute(statement.encode(), values)


async def a_talk(database: Database, count: int) -> str:
    async with database.statement() as connection:
        chat = (await Conversations(connection).create("local", agent_id="companion", kind="group")).id
    await run(database, _TALK, chat=chat, count=count)
    return chat


async def test_a_part_leads_to_its_message_without_a_walk_of_what_was_sent(database: Database) -> None:
    chats = [await a_talk(database, 4_000) for _ in range(5)]
    await run(database, _PARTS)
    async with database.statement() as connection:
        await connection.execute("ANALYZE messages, outbox")
        for mode in MODES:
            explained = Explained(connection, mode)
            found = await Messages(explained.as_connection).find_by_platform_id("local", chats[2], "2001")
            assert found is not None
            assert (found.conversation_id, found.id) == (chats[2], numbered(2_000))
            assert explained.whole_scans() == []
            assert explained.walked("messages") == 1
            assert explained.walked("outbox") == 1
            assert explained.pages() <= 40
            messages = Messages(connection)
            assert await messages.find_by_platform_id("eve", chats[2], "2001") is None
            assert await messages.find_by_platform_id("local", chats[2], "2002") is None
            assert await messages.find_by_platform_id("local", chats[2], '"2001"') is None


async def test_the_latest_reply_is_the_first_that_a_short_walk_meets(database: Database) -> None:
    chat = await a_talk(database, 10_010)
    async with database.statement() as connection:
        await connection.execute("ANALYZE messages")
        for mode in MODES:
            explained = Explained(connection, mode)
            found = await Messages(explained.as_connection).find_latest_reply("local", chat)
            assert found is not None
            assert found.id == numbered(10_000)
            assert explained.walked("messages") <= 20
            assert explained.pages() <= 30
            assert await Messages(connection).find_latest_reply("eve", chat) is None


async def test_where_nothing_was_answered_for_long_the_walk_ends(database: Database) -> None:
    chat = await a_talk(database, RECENT_MESSAGES + 5_000)
    await run(database, "UPDATE messages SET role = 'user' WHERE id > %(early)s", early=numbered(100))
    async with database.statement() as connection:
        await connection.execute("VACUUM ANALYZE messages")
        for mode in MODES:
            explained = Explained(connection, mode)
            assert await Messages(explained.as_connection).find_latest_reply("local", chat) is None
            assert explained.walked("messages") <= RECENT_MESSAGES
            assert explained.sorted() == 0


async def test_ids_are_found_by_their_beginnings(database: Database) -> None:
    one, other = await a_talk(database, 5_000), await a_talk(database, 20)
    await run(database, "UPDATE messages SET role = 'system-summary' WHERE id = %(id)s", id=numbered(4_000))
    async with database.statement() as connection:
        await connection.execute("ANALYZE messages, conversations")
        for mode in MODES:
            explained = Explained(connection, mode)
            found = await Messages(explained.as_connection).find_by_prefix("local", numbered(3_000))
            assert found == [(one, numbered(3_000))]
            assert explained.walked("messages") <= 2
            messages = Messages(connection)
            assert sorted(await messages.find_by_prefix("local", numbered(7))) == sorted(
                [(one, numbered(7)), (other, numbered(7))]
            )
            assert await messages.find_by_prefix("local", numbered(7), other) == [(other, numbered(7))]
            assert await messages.find_by_prefix("local", numbered(42)[:-1], other) == []
            assert len(await messages.find_by_prefix("local", numbered(42)[:-1], one)) == 5
            assert await messages.find_by_prefix("local", numbered(4_000)) == []
            assert await messages.find_by_prefix("eve", numbered(7)) == []
            assert await messages.find_by_prefix("local", "%") == []


# ---- what takes long may take long

HASTE = "SET LOCAL statement_timeout = '20ms'"
_VECTORS = """
INSERT INTO message_vectors (conversation_id, message_id, embedder, owner_id, created_at, embedding)
SELECT conversation_id, id, 'e', owner_id, created_at, ARRAY[
    random(), random(), random(), random(), random(), random(), random(), random()]::real[]::halfvec FROM messages
"""


async def test_a_long_conversation_is_erased_however_long_that_takes(database: Database) -> None:
    chat = await a_talk(database, 20_000)
    await run(database, _VECTORS)
    with psycopg.connect(database.url) as impatient:
        impatient.execute(HASTE)
        with pytest.raises(psycopg.errors.QueryCanceled):
            impatient.execute("DELETE FROM conversations WHERE id = %s", (chat,))
    async with database.transaction() as connection:
        await connection.execute(HASTE)
        await Conversations(connection).delete("local", chat)
    async with database.statement() as connection:
        with pytest.raises(NotFound):
            await Conversations(connection).get("local", chat)
        found = await connection.execute(
            "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM message_vectors)"
        )
        assert await found.fetchall() == [(0, 0)]
        # Only for that one: no other statement may take so long.
        assert await (await connection.execute("SHOW statement_timeout")).fetchall() == [("15s",)]


async def test_an_index_for_vectors_of_another_length_is_made_however_long_that_takes(database: Database) -> None:
    await a_talk(database, 5_000)
    await run(database, _VECTORS)
    async with database.transaction() as connection:
        await connection.execute(HASTE)
        await ensure_vector_index(connection, "message_vectors", 8)
        assert await has_vector_index(connection, "message_vectors", 8)
        await ensure_vector_index(connection, "sentence_vectors", 8)
        assert await has_vector_index(connection, "sentence_vectors", 8)
    async with database.statement() as connection:
        await ensure_vector_index(connection, "message_vectors", 9)
        assert await has_vector_index(connection, "message_vectors", 9)
        assert await (await connection.execute("SHOW statement_timeout")).fetchall() == [("15s",)]
