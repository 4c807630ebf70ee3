"""Test a message that arrives while a follow-up is committed: the follow-up is cancelled, and the state stays consistent."""

from __future__ import annotations

import asyncio

import pytest

from rapport.runtime import work_loop
from rapport.storage.database import open_dedicated_connection
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until


async def test_a_follow_up_that_is_cancelled_twice_loses_no_connection(world: World) -> None:
    """The process that stores the message cancels the follow-up at once, and then gets its own notification about it."""
    where = await world.conversation()
    await world.says(where, "What do you think about pizza?")
    async with open_dedicated_connection(world.database.url) as other, other.transaction():
        await other.execute("SELECT FROM conversations WHERE id = %s FOR NO KEY UPDATE", (where,))
        silence = asyncio.create_task(world.silence(where))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        await until(lambda: world.sql(waiting, "%AS is_breaker_open%"))
        event = (await world.sql("SELECT id FROM events WHERE state = 'running'"))[0][0]
        for _ in range(2):
            world.worker._handle_hint(f"done {event}")  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(
                0
            )  # so that it notices: the statement is being cancelled, which takes the server a moment
        await until(
            lambda: world.sql("SELECT 1 FROM events WHERE id = %s AND (state = 'queued' OR attempts > 1)", event)
        )
    assert (await silence).state == "delivered"  # there was no new message after all
    assert world.database._pool.get_stats().get("returns_bad", 0) == 0  # pyright: ignore[reportPrivateUsage]


async def test_a_message_sent_when_a_follow_up_starts_is_answered_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer fired and its turn started while the message waited for the conversation's lock, invisible to its statement."""
    monkeypatch.setattr(work_loop, "POLL_SECONDS", 3600.0)  # no poll finds the message
    async with open_world(database_url) as world:
        where = await world.conversation()
        await world.says(where, "What do you think about pizza?")
        async with open_dedicated_connection(database_url) as other, other.transaction():
            await other.execute("SELECT FROM conversations WHERE id = %s FOR NO KEY UPDATE", (where,))
            world.model.will_wait("Too late.")
            speaking = asyncio.create_task(world.says(where, "And about pasta?"))
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            await until(lambda: world.sql(waiting, "%user_message_count = user_message_count + %"))
            silence = asyncio.create_task(world.silence(where))
            await until(lambda: len(world.model.calls) == 2)
        reply = await asyncio.wait_for(speaking, LIMIT_SECONDS)
        assert reply["content"] == "re: And about pasta?"
        assert (await silence).state == "superseded"
