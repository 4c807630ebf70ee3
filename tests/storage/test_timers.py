"""Test timers: on time by the database's clock, once, in batches, and never after a new message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from rapport.domain.conversation import Incoming
from rapport.domain.errors import NotFound
from rapport.domain.event import Accepted
from rapport.domain.follow_up import PLANNED_TIMER_ID, Timer
from rapport.ingest.accept import accept
from rapport.storage.agents import Agents
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.followups.timers import _FIRE, EXPIRY, FiredTimer, Timers  # pyright: ignore[reportPrivateUsage]
from tests.support.cases import every_case

HOUR = 3_600.0


async def conversation(database: Database, owner: str = "local") -> str:
    async with database.statement() as connection:
        return (await Conversations(connection).create(owner, agent_id="companion")).id


async def set_timer(
    database: Database, where: str, *, delay: float = 60.0, name: str = "t", owner: str = "local"
) -> Timer:
    async with database.statement() as connection:
        timer = await Timers(connection).set(owner, where, timer_id=name, trigger_type="check_in", delay=delay)
    assert timer is not None
    return timer


async def make_due(database: Database, *, seconds_ago: float = 0.0) -> None:
    async with database.statement() as connection:
        await connection.execute(
            "UPDATE timers SET due_at = clock_timestamp() - %s * interval '1 second' WHERE state = 'pending'",
            (seconds_ago,),
        )


async def fire(database: Database, *, limit: int = 1_000) -> list[FiredTimer]:
    async with database.statement() as connection:
        return await Timers(connection).fire(limit=limit)


async def pending(database: Database, where: str | None = None, owner: str = "local") -> list[Timer]:
    async with database.statement() as connection:
        return await Timers(connection).list_pending(owner, where)


async def says(database: Database, where: str, text: str = "hello") -> Accepted:
    return await accept(database, Incoming("local", where, text), worker_id="w", claim=True)


async def events(database: Database) -> list[tuple[str, str, str | None]]:
    async with database.statement() as connection:
        found = await connection.execute("SELECT conversation_id, state, trigger_type FROM events ORDER BY seq")
        return [(row[0], row[1], row[2]) for row in await found.fetchall()]


async def test_a_timer_is_not_fired_before_its_time(database: Database) -> None:
    where = await conversation(database)
    await set_timer(database, where, delay=5.0)
    assert await fire(database) == []
    assert len(await pending(database)) == 1


async def test_a_due_timer_becomes_one_event_and_fires_no_more(database: Database) -> None:
    where = await conversation(database)
    timer = await set_timer(database, where)
    await make_due(database)
    [fired] = await fire(database)
    assert (fired.id, fired.state) == (timer.id, "fired")
    assert await fire(database) == []
    assert await events(database) == [(where, "queued", "check_in")]
    assert await pending(database) == []


async def test_setting_the_same_name_again_moves_the_timer(database: Database) -> None:
    where = await conversation(database)
    first = await set_timer(database, where, delay=60)
    second = await set_timer(database, where, delay=600)
    assert second.id == first.id
    assert second.due_at > first.due_at
    assert len(await pending(database, where)) == 1


async def test_a_name_can_be_used_again_after_it_has_fired(database: Database) -> None:
    where = await conversation(database)
    await set_timer(database, where)
    await make_due(database)
    await fire(database)
    await set_timer(database, where)
    assert len(await pending(database)) == 1


async def test_what_is_due_for_too_long_expires_and_makes_no_event(database: Database) -> None:
    where = await conversation(database)
    await set_timer(database, where)
    await make_due(database, seconds_ago=HOUR + 1)
    [gone] = await fire(database)
    assert gone.state == "expired"
    assert gone.lateness_seconds > HOUR
    assert await events(database) == []


async def test_somebody_who_speaks_cancels_what_waits_in_that_conversation_only(database: Database) -> None:
    here, there = await conversation(database), await conversation(database)
    await set_timer(database, here)
    await set_timer(database, there)
    await says(database, here)
    assert [timer.conversation_id for timer in await pending(database)] == [there]


async def test_somebody_who_speaks_overtakes_a_follow_up_that_has_fired(database: Database) -> None:
    where = await conversation(database)
    timer = await set_timer(database, where)
    await make_due(database)
    await fire(database)
    accepted = await says(database, where)
    assert list(accepted.overtaken) == [(timer.id, "check_in")]
    assert accepted.claimed is not None, "nobody else waits, so the answer begins at once"
    assert await events(database) == [(where, "done", "check_in"), (where, "running", None)]
    async with database.statement() as connection:
        [past] = await Timers(connection).list_past("local", where, limit=5)
    assert past.state == "superseded"


async def test_a_timer_from_before_somebody_spoke_never_fires_even_if_its_row_was_missed(database: Database) -> None:
    """A timer that is stored while a message waits for the conversation's lock is not seen by that message's statement."""
    where = await conversation(database)
    await says(database, where)
    await set_timer(database, where)
    async with database.statement() as connection:
        await connection.execute("UPDATE timers SET user_message_count = 0")
    await make_due(database)
    [gone] = await fire(database)
    assert gone.state == "superseded"
    assert [trigger for _, _, trigger in await events(database)] == [None]


async def test_many_workers_fire_each_timer_once(database: Database) -> None:
    for _ in range(40):
        await set_timer(database, await conversation(database))
    await make_due(database)
    batches = await asyncio.gather(*(fire(database, limit=7) for _ in range(24)))
    fired = [timer.id for batch in batches for timer in batch]
    assert len(fired) == len(set(fired)) == 40
    assert len(await events(database)) == 40


async def test_erasing_a_conversation_while_its_timers_fire_does_neither_harm(database: Database) -> None:
    conversations = [await conversation(database) for _ in range(30)]
    for where in conversations:
        await set_timer(database, where)
    await make_due(database)

    async def erase(where: str) -> None:
        async with database.transaction() as connection:
            await Conversations(connection).delete("local", where)

    await asyncio.gather(*(erase(where) for where in conversations[:15]), *(fire(database, limit=5) for _ in range(10)))
    await fire(database)
    kept = {where for where, _, _ in await events(database)}
    assert kept == set(conversations[15:])


async def test_nobody_sets_moves_or_cancels_somebody_elses(database: Database) -> None:
    where = await conversation(database, "ana")
    await set_timer(database, where, owner="ana")
    async with database.statement() as connection:
        timers = Timers(connection)
        with pytest.raises(NotFound):
            await timers.set("bob", where, timer_id="t", trigger_type="check_in", delay=1)
        assert await timers.change("bob", where, "t", delay=1) is None
        assert not await timers.cancel("bob", where, "t")
        assert await timers.list_pending("bob") == []
        assert await timers.list_past("bob", where, limit=5) == []
    assert len(await pending(database, owner="ana")) == 1


async def test_the_next_one_is_known_to_the_moment(database: Database) -> None:
    async with database.statement() as connection:
        assert await Timers(connection).get_seconds_to_next() is None
    where = await conversation(database)
    await set_timer(database, where, delay=30, name="later")
    await set_timer(database, where, delay=5, name="sooner")
    async with database.statement() as connection:
        following = await Timers(connection).get_seconds_to_next()
    assert following is not None
    assert 4 < following <= 5


async def test_a_plan_holds_only_while_nobody_speaks(database: Database) -> None:
    where = await conversation(database)
    await says(database, where)
    async with database.statement() as connection:
        timers = Timers(connection)
        plan = {"timer_id": "p", "trigger_type": "check_in", "delay": 60.0}
        assert await timers.set("local", where, **plan, user_message_count=1) is not None  # pyright: ignore[reportArgumentType]
    await says(database, where)
    async with database.statement() as connection:
        assert await Timers(connection).set("local", where, **plan, user_message_count=1) is None  # pyright: ignore[reportArgumentType]
    assert await pending(database) == []


async def test_looking_for_what_is_due_does_not_walk_through_what_waits(database: Database) -> None:
    where = await conversation(database)
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)"
            " SELECT %s, 't' || n, 't' || n, 'local', 'check_in', 'user', 0, clock_timestamp() + n * interval '1 hour'"
            " FROM generate_series(1, 5000) n",
            (where,),
        )
        await connection.execute("ANALYZE timers")
        found = await connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_FIRE}".encode(), {"limit": 1_000, **EXPIRY})
        row = await found.fetchone()
    assert row is not None
    assert '"Rows Removed by Filter": 5000' not in json.dumps(row[0])


async def test_what_somebody_has_set_is_not_moved_or_cancelled_by_the_planner(database: Database) -> None:
    where = await conversation(database)
    mine = await set_timer(database, where, delay=HOUR, name=PLANNED_TIMER_ID)
    async with database.statement() as connection:
        timers = Timers(connection)
        planned = await timers.set(
            "local",
            where,
            timer_id=PLANNED_TIMER_ID,
            trigger_type="check_in",
            delay=60,
            origin="planner",
            user_message_count=0,
        )
        assert planned is None
        assert not await timers.cancel("local", where, PLANNED_TIMER_ID, origin="planner")
    assert await pending(database, where) == [mine]
    moved = await set_timer(database, where, delay=60, name=PLANNED_TIMER_ID)
    assert moved.id == mine.id


async def let_expire(database: Database, seconds: float | None, *, owner: str = "*") -> None:
    """Store the agent `companion` with this expiry; None: with a document that names none."""
    document = {"autonomy": {} if seconds is None else {"expiry_seconds": seconds}}
    async with database.transaction() as connection:
        await connection.execute("DELETE FROM agents WHERE owner_id = %s", (owner,))
        await Agents(connection).insert(owner, "companion", document, author_id="test")


@every_case(
    ("expiry", "overdue", "state"),
    [
        (600.0, 500.0, "fired"),
        (600.0, 700.0, "expired"),
        (2 * HOUR, HOUR + 60, "fired"),
        (2 * HOUR, 2 * HOUR + 60, "expired"),
        (60.0, 30.0, "fired"),
        (60.0, 90.0, "expired"),
        (None, HOUR - 60, "fired"),
        (None, HOUR + 60, "expired"),
    ],
)
async def test_a_timer_expires_by_its_agents_limit(
    database: Database, expiry: float | None, overdue: float, state: str
) -> None:
    await let_expire(database, expiry)
    await set_timer(database, await conversation(database))
    await make_due(database, seconds_ago=overdue)
    assert [timer.state for timer in await fire(database)] == [state]


async def test_the_owners_agent_decides_over_the_one_of_everyone(database: Database) -> None:
    await let_expire(database, 600.0)
    await let_expire(database, 2 * HOUR, owner="local")
    for owner in ("local", "ana"):
        await set_timer(database, await conversation(database, owner), owner=owner)
    await make_due(database, seconds_ago=HOUR)
    states = {timer.conversation_id: timer.state for timer in await fire(database)}
    assert sorted(states.values()) == ["expired", "fired"]
    assert len(await events(database)) == 1


async def test_the_agent_of_a_timer_that_is_on_time_is_not_read(database: Database) -> None:
    """The plan scans the index of due timers, and runs the look-up of the expiry only for overdue rows."""
    await let_expire(database, 600.0)
    where = await conversation(database)
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)"
            " SELECT %s, 't' || n, 't' || n, 'local', 'check_in', 'user', 0,"
            " clock_timestamp() + CASE WHEN n <= 3 THEN - interval '10 minutes' WHEN n <= 50 THEN interval '0' ELSE n * interval '1 hour' END"
            " FROM generate_series(1, 5000) n",
            (where,),
        )
        await connection.execute("ANALYZE timers")
        found = await connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_FIRE}".encode(), {"limit": 1_000, **EXPIRY})
        row = await found.fetchone()
    assert row is not None
    nodes = list(walk(row[0][0]["Plan"]))
    [scan] = [
        node
        for node in nodes
        if node.get("Alias") == "t" and node["Node Type"] == "Index Scan" and "due" in node["Index Name"]
    ]
    assert scan["Actual Rows"] == 50
    [lookup] = [node for node in nodes if node.get("Relation Name") == "agents" and "Scan" in node["Node Type"]]
    assert lookup["Actual Loops"] == 3


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan, and those below it."""
    yield node
    for below in node.get("Plans", ()):
        yield from walk(below)
