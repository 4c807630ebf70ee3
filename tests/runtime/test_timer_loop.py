"""Test the timer loop: it wakes when a timer is due, and fires all due timers before their turns start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import pytest
import structlog

from rapport.domain.ids import new_id
from rapport.metrics import Metrics
from rapport.runtime import timer_loop as timekeeper
from rapport.runtime.timer_loop import BATCH, TimerLoop
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.followups.timers import Timers
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import until

_SET = """
INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)
SELECT %s, id, id, 'local', 'check_in', 'user', 0, clock_timestamp() + %s * interval '1 second' FROM unnest(%s::text[]) AS id
"""


async def set_timers(database: Database, count: int, *, due_in: float) -> None:
    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion")).id
        await connection.execute(_SET, (where, due_in, [new_id() for _ in range(count)]))


async def left(database: Database) -> int:
    async with database.statement() as connection:
        return await Timers(connection).count_pending()


@contextlib.asynccontextmanager
async def keeping_time(database: Database, on_fired: Callable[[], None]) -> AsyncGenerator[TimerLoop]:
    keeper = TimerLoop(database, metrics=Metrics(), on_fired=on_fired)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_crowd_has_fired_before_the_first_turn_begins(database: Database) -> None:
    crowd = 2 * BATCH + 500
    await set_timers(database, crowd, due_in=0)
    begun: list[asyncio.Task[int]] = []
    with structlog.testing.capture_logs() as lines:
        async with keeping_time(database, lambda: begun.append(asyncio.create_task(left(database)))):
            await until(lambda: len(lines) == crowd)
        assert [await task for task in begun] == [0]
    assert {line["event"] for line in lines} == {"timer.fired"}
    assert len({line["timerId"] for line in lines}) == crowd


async def test_it_wakes_when_the_next_one_is_due(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeper, "POLL_SECONDS", 3600.0)  # no poll finds it
    await set_timers(database, 1, due_in=0.4)
    with structlog.testing.capture_logs() as lines:
        async with keeping_time(database, lambda: None):
            await until(lambda: len(lines) == 1)
    assert (lines[0]["event"], lines[0]["late_ms"] >= 0) == ("timer.fired", True)


async def test_it_wakes_for_one_that_is_set_while_it_sleeps(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timekeeper, "POLL_SECONDS", 3600.0)
    fired = asyncio.Event()
    await set_timers(database, 1, due_in=0)
    async with keeping_time(database, fired.set) as keeper:
        await asyncio.wait_for(fired.wait(), LIMIT_SECONDS)
        fired.clear()
        await set_timers(database, 1, due_in=0.1)
        keeper.wake()
        await asyncio.wait_for(fired.wait(), LIMIT_SECONDS)
    assert await left(database) == 0
