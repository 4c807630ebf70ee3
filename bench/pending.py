"""Measure the cost of timer statements with few and with a million pending timers, in alternating databases of one Postgres.

`few` and `many` hold the same number of conversations and differ only in the number of pending timers. `small` holds a thousand
of both, like a new installation: the difference between `many` and `small` is not caused by the timers alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from rapport.domain.conversation import Incoming
from rapport.domain.ids import new_id
from rapport.ingest.accept import accept
from rapport.runtime.timer_loop import BATCH
from rapport.storage.database import Database
from rapport.storage.followups.timers import Timers
from rapport.storage.migrate import migrate, schema_lock
from rapport.storage.postgres.embedded import EmbeddedPostgres

FEW = 1_000
FIRED_AT_ONCE = 100
WARMING = 20
"""Rounds that are not counted: Postgres prepares and plans its statements in them."""
OWNER = "local"

# Ids count up: they sort like real ones, and any of them can be computed. Due in an hour to a month.
_FILL = """
INSERT INTO conversations (id, owner_id, agent_id, kind, channel, user_message_count)
SELECT '01' || lpad(n::text, 24, '0'), 'local', 'companion', 'direct', 'http', 1 FROM generate_series(1, {conversations}) AS n;
INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)
SELECT '01' || lpad(n::text, 24, '0'), '02' || lpad(n::text, 24, '0'), 'follow-up', 'local', 'check_in', 'planner', 1,
       clock_timestamp() + interval '1 hour' + random() * interval '30 days'
FROM generate_series(1, {pending}) AS n;
"""
_MAKE_DUE = """
INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)
SELECT c.id, n.id, n.id, c.owner_id, 'check_in', 'user', c.user_message_count, clock_timestamp()
FROM unnest(%s::text[], %s::text[]) AS n (conversation, id) JOIN conversations c ON c.id = n.conversation
"""


@dataclass
class Site:
    """A database with the given number of conversations."""

    database: Database
    conversations: int
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Milliseconds of each kind of work."""

    def somewhere(self, chance: random.Random) -> str:
        return f"01{chance.randint(1, self.conversations):024d}"

    async def timed(self, name: str, work: Callable[[Timers], Awaitable[object]]) -> None:
        """Time one statement including its commit, on an open connection."""
        async with self.database.statement() as connection:
            timers = Timers(connection)
            begun = time.perf_counter()
            await work(timers)
            self.times.setdefault(name, []).append((time.perf_counter() - begun) * 1e3)

    async def round(self, chance: random.Random, *, fires: bool) -> None:
        """Run every timer statement once, each in another conversation. The number of pending timers stays the same."""
        where, name, later = self.somewhere(chance), new_id(), 86_400 * chance.uniform(1, 30)
        await self.timed(
            "set", lambda timers: timers.set(OWNER, where, timer_id=name, trigger_type="check_in", delay=later)
        )
        await self.timed("change", lambda timers: timers.change(OWNER, where, name, delay=later / 2))
        await self.timed("cancel", lambda timers: timers.cancel(OWNER, where, name))
        await self.timed("next_due", lambda timers: timers.get_seconds_to_next())
        if fires:
            await self._fire(chance)
        await self._speak(self.somewhere(chance))

    async def _fire(self, chance: random.Random) -> None:
        async with self.database.statement() as connection:
            places = [self.somewhere(chance) for _ in range(FIRED_AT_ONCE)]
            await connection.execute(_MAKE_DUE, (places, [new_id() for _ in places]))
        await self.timed("fire 100", self._fire_all)

    async def _fire_all(self, timers: Timers) -> None:
        fired = await timers.fire(limit=BATCH)
        assert len(fired) == FIRED_AT_ONCE

    async def _speak(self, where: str) -> None:
        async with self.database.statement() as connection:
            await Timers(connection).set(OWNER, where, timer_id="follow-up", trigger_type="check_in", delay=1e6)
        begun = time.perf_counter()
        await accept(self.database, Incoming(OWNER, where, "Here I am again."), worker_id="bench", claim=True)
        self.times.setdefault("accept", []).append((time.perf_counter() - begun) * 1e3)
        async with self.database.statement() as connection:  # set the timer again that the message has cancelled
            await Timers(connection).set(OWNER, where, timer_id="follow-up", trigger_type="check_in", delay=1e6)


@contextlib.asynccontextmanager
async def filled(server: EmbeddedPostgres, name: str, *, conversations: int, pending: int) -> AsyncGenerator[Site]:
    """Create a database with this number of pending timers, each in a separate conversation."""
    with psycopg.connect(server.url_for("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    database = Database(server.url_for(name), max_size=4)
    try:
        await database.open()
        async with schema_lock(database):
            await migrate(database)
        await asyncio.to_thread(_fill, server.url_for(name), conversations, pending)
        yield Site(database, conversations)
    finally:
        await database.close()


def _fill(url: str, conversations: int, pending: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # skips the foreign key check of each row
        filling = _FILL.format(conversations=conversations, pending=pending)
        for statement in filling.strip().removesuffix(";").split(";"):
            connection.execute(statement.encode())
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


@dataclass(frozen=True)
class Medians:
    """Milliseconds of one kind of work."""

    small: float
    few: float
    many: float

    @property
    def ratio(self) -> float:
        """Return the cost with many pending timers relative to few."""
        return self.many / self.few


async def measure(folder: Path, *, pending: int, rounds: int, chance: random.Random) -> dict[str, Medians]:
    """Return the medians of each kind of work in the three databases, measured in random alternation."""
    server = await asyncio.to_thread(EmbeddedPostgres.start, folder)
    try:
        async with (
            filled(server, "small", conversations=FEW, pending=FEW) as small,
            filled(server, "few", conversations=pending, pending=FEW) as few,
            filled(server, "many", conversations=pending, pending=pending) as many,
        ):
            sites = [small, few, many]
            for number in range(WARMING + rounds):
                if number == WARMING:
                    for site in sites:
                        site.times.clear()
                chance.shuffle(sites)
                for site in sites:
                    await site.round(chance, fires=number % 5 == 0)
            return {
                name: Medians(*(statistics.median(site.times[name]) for site in (small, few, many)))
                for name in small.times
            }
    finally:
        await asyncio.to_thread(server.stop)
