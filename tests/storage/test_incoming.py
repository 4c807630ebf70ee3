"""Test storing incoming messages: their position by their platform's dates and order, and the index of their words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rapport.domain.conversation import Incoming
from rapport.ingest.accept import accept
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database

_REPLIED = "UPDATE conversations SET last_at = clock_timestamp(), replied_at = clock_timestamp()"
# Everything is so much longer ago.
_PASSES = """
WITH aged AS (UPDATE messages SET created_at = created_at - %(passed)s)
UPDATE conversations SET last_at = last_at - %(passed)s, replied_at = replied_at - %(passed)s,
    last_platform_time = last_platform_time - %(passed)s, last_platform_created_at = last_platform_created_at - %(passed)s
"""


async def a_group(database: Database) -> str:
    async with database.statement() as connection:
        return (await Conversations(connection).create("local", agent_id="companion", kind="group")).id


async def hears(database: Database, chat: str, text: str, *, age: float) -> datetime:
    """Store what was said so many seconds ago; where it stands."""
    said_at = datetime.now(UTC) - timedelta(seconds=age)
    incoming = Incoming("local", chat, text, said_at=said_at, platform_id=text)
    return (await accept(database, incoming, worker_id="w", claim=False)).created_at


async def order(database: Database) -> list[str]:
    async with database.statement() as connection:
        found = await connection.execute("SELECT content FROM messages ORDER BY created_at, id")
        return [row[0] for row in await found.fetchall()]


async def test_messages_that_arrive_late_keep_the_platforms_order(database: Database) -> None:
    chat = await a_group(database)
    began = datetime.now(UTC)
    async with database.statement() as connection:
        await connection.execute(_REPLIED)
    placed = await hears(database, chat, "first", age=50)
    assert placed > began - timedelta(seconds=10)  # after what the agent has just said
    async with database.statement() as connection:
        await connection.execute(_PASSES, {"passed": timedelta(seconds=20)})
    await hears(database, chat, "second", age=69)
    await hears(database, chat, "third", age=68)
    assert await order(database) == ["first", "second", "third"]


async def test_a_message_that_arrives_after_a_later_one_is_placed_by_its_date(database: Database) -> None:
    chat = await a_group(database)
    await hears(database, chat, "second", age=5)
    async with database.statement() as connection:
        await connection.execute(_REPLIED)
    await hears(database, chat, "first", age=6)
    assert await order(database) == ["first", "second"]
