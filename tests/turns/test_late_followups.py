"""Test follow-ups that are late, many or broken: nobody waits for them, and outdated ones are dropped."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rapport.metrics import Metrics
from rapport.runtime import running_turns, work_loop
from rapport.runtime.timer_loop import TimerLoop
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database, open_dedicated_connection
from rapport.storage.followups.timers import Timers
from rapport.storage.work.outbox import Outbox
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until

LATE_SENDING = (
    "CREATE FUNCTION late() RETURNS trigger AS 'BEGIN IF NEW.user_message_count IS NOT NULL THEN NEW.due_at ="
    " clock_timestamp() + interval ''1 hour''; END IF; RETURN NEW; END' LANGUAGE plpgsql"
)

UNSENT = (
    "UPDATE conversations SET user_message_count = 2 WHERE id = %s",
    (
        "INSERT INTO messages (conversation_id, id, owner_id, role, content, event_id, created_at)"
        " VALUES (%s, 'm', 'local', 'assistant', 'x', 'e', clock_timestamp())"
    ),
    "INSERT INTO events (conversation_id, id, owner_id, state, accepted_by) VALUES (%s, 'e', 'local', 'done', '')",
    (
        "INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id, user_message_count)"
        " VALUES (%s, 'm', 'local', 'recording', 'm', 1)"
    ),
)
"""Statements that insert a follow-up which a message superseded before it was sent."""


async def test_a_follow_up_that_waited_hours_for_a_worker_is_dropped(database: Database) -> None:
    async with open_world(database.url) as world:
        where = await world.conversation()
        await world.says(where, "What do you think about pizza?")
    async with database.statement() as connection:
        timers = Timers(connection)
        await timers.set("local", where, timer_id="t", trigger_type="check_in", delay=0)
        assert len(await timers.fire(limit=10)) == 1
        await connection.execute("UPDATE timers SET due_at = due_at - interval '5 hours'")
    async with open_world(database.url) as world:
        await world.drain()
        assert await world.sql("SELECT state FROM timers WHERE timer_id = 't'") == [("expired",)]
        assert world.model.calls == []


async def test_a_crowd_of_follow_ups_is_made_without_pauses(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_loop, "POLL_SECONDS", 3600.0)  # no poll finds the next one
    async with open_world(database_url, max_turns=8) as world:
        for _ in range(10):
            await world.says(await world.conversation(), "hello")
        await world.sql(
            "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)"
            " SELECT id, id, 't', owner_id, 'check_in', 'user', user_message_count, clock_timestamp() FROM conversations"
        )
        world.worker.timer_loop.wake()
        await until(lambda: world.sql("SELECT 1 FROM timers WHERE state = 'delivered' HAVING count(*) = 10"))


async def test_whoever_overtakes_many_follow_ups_does_not_wait_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = await world.conversation()
    await world.says(where, "hello")
    await world.sql(
        "INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, user_message_count, trigger_type, due_at)"
        " SELECT %s, 'f' || n, 'local', 'queued', '', 1, 'check_in', clock_timestamp() + interval '9 seconds'"
        " FROM generate_series(1, 5000) n",
        where,
    )
    told: list[str] = []

    async def hint(_database: Database, text: str) -> None:
        told.append(text)

    monkeypatch.setattr(running_turns, "send_hint", hint)
    await world.says(where, "I'm back")
    assert await world.sql("SELECT count(*) FROM events WHERE state <> 'done'") == [(0,)]
    assert not any(text.startswith("done f") for text in told)  # nobody was at any of them


async def test_what_was_not_sent_in_time_is_not_answered_from(world: World) -> None:
    where = await world.conversation(channel="recording")
    await world.says(where, "hello")
    await world.drain()
    await world.sql(LATE_SENDING)
    await world.sql("CREATE TRIGGER late BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION late()")
    world.model.will_say("Shall I cancel your flight?", "Yes to what?")
    await world.silence(where)
    await world.says(where, "yes")
    assert "Shall I cancel your flight?" not in [str(message.text) for message in world.model.calls[-1]]


async def test_withdrawing_a_follow_up_does_not_wait_for_an_erasure(database: Database) -> None:
    """It needs the same rows in another order: each would wait for the other."""
    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion")).id
        for statement in UNSENT:
            await connection.execute(statement, (where,))

    async def erase() -> None:
        async with database.transaction() as connection:
            await Conversations(connection).delete("local", where)

    async def waits() -> bool:
        async with database.statement() as connection:
            found = await connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return await found.fetchone() is not None

    async with open_dedicated_connection(database.url) as other, other.transaction():
        await other.execute("SELECT FROM events WHERE conversation_id = %s FOR UPDATE", (where,))
        erasing = asyncio.create_task(erase())
        await until(waits)
        async with asyncio.timeout(LIMIT_SECONDS), database.transaction() as connection:
            assert await Outbox(connection).take_back() == 0
    await erasing


async def test_the_timer_loop_survives_an_unexpected_error(database: Database) -> None:
    calls = 0

    def breaks_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("nobody has thought of this")

    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion")).id
    timekeeper = TimerLoop(database, metrics=Metrics(), on_fired=breaks_once)
    keeping = asyncio.create_task(timekeeper.run())
    try:
        for number in (1, 2):
            async with database.statement() as connection:
                await Timers(connection).set("local", where, timer_id=f"t{number}", trigger_type="check_in", delay=0)
            timekeeper.wake()
            await until(lambda number=number: calls == number)
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def test_an_answer_does_not_wait_for_the_memory(world: World) -> None:
    where = await world.conversation()
    async with open_dedicated_connection(world.database.url) as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(%s, hashtext('local/companion'))", (0x6D65_6D6F,))
        assert (await world.says(where, "I'm allergic to peanuts."))["content"] == "re: I'm allergic to peanuts."
    assert len(world.model.calls) == 1
    assert await world.sql("SELECT 1 FROM memories") == []


async def test_a_memory_that_can_not_be_stored_fails_no_turn(world: World) -> None:
    where = await world.conversation()
    await world.sql("CREATE FUNCTION no() RETURNS trigger AS 'BEGIN RAISE EXCEPTION ''no''; END' LANGUAGE plpgsql")
    await world.sql("CREATE TRIGGER no BEFORE INSERT ON memories FOR EACH ROW EXECUTE FUNCTION no()")
    await world.says(where, "I'm allergic to peanuts.")
    assert len(await world.history(where)) == 2
    assert await world.sql("SELECT open_event_count FROM conversations") == [(0,)]
    assert len(world.model.calls) == 1


async def test_vectors_that_never_come_hold_up_no_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_texts: object) -> list[list[float]]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr("rapport.turns.remember.EMBEDDING_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(world.app.memory.embedder, "embed", never)
    async with asyncio.timeout(LIMIT_SECONDS):
        await world.says(await world.conversation(), "I'm allergic to peanuts.")
