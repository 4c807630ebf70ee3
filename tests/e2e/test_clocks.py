"""Test a clock that is moved under the whole server: no timer is lost, none fires twice, and one that is too late is logged."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from rapport.domain.follow_up import PROMPTS
from tests.support.waiting import LIMIT_SECONDS

from .clocks import MovedClock
from .harness import Client, Home, Sent, Server
from .scripted import ScriptedModel, reply_to
from .silences import UNASKED, became, fell_silent, run, set_timers, troubles, until_nothing_is_due

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

log = logging.getLogger("rapport.e2e")

MINUTE, HOUR = 60.0, 3_600.0


async def waiting(home: Home, *waits: float) -> list[str]:
    """Insert conversations with a timer of these seconds each."""
    talks = await fell_silent(home.database_url, len(waits))
    await set_timers(home.database_url, dict(zip(talks, waits, strict=True)))
    return talks


async def states(home: Home, talks: Sequence[str]) -> list[str]:
    """Return the states of the timers of these conversations."""
    rows = await run(home.database_url, "SELECT conversation_id, state FROM timers WHERE timer_id = 'silence'")
    found = dict(rows)
    return [str(found[talk]) for talk in talks]


async def ended(home: Home, talks: Sequence[str]) -> list[str]:
    """Wait until each timer has ended and return the states."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not {"pending", "fired"}.isdisjoint(found := await states(home, talks)):
            await asyncio.sleep(0.05)
    return found


def expired(servers: Iterable[Server]) -> int:
    """Count the log lines about expired timers."""
    return sum(line.get("event") == "timer.expired" for server in servers for line in server.lines())


async def speaks_and_is_answered(http: aiohttp.ClientSession, server: Server, talk: str, number: int) -> None:
    sent = Sent(talk, "ada", number, f"c{number} what time is it?")
    reply = await Client(http, lambda: server.url).say(sent, seconds=30)
    assert reply["content"] == reply_to(sent.text)


async def nothing_wrong(home: Home) -> None:
    """Check that nothing is lost, repeated or left over, and that no error is logged."""
    await until_nothing_is_due(home.database_url)
    assert await troubles(home.database_url) == {}
    assert [error for server in home.servers for error in server.errors()] == []
    log.info("%s", await became(home.database_url))


@pytest.fixture(autouse=True)
def unasked(model: ScriptedModel) -> None:
    model.replies = dict.fromkeys(PROMPTS.values(), UNASKED)


async def test_an_hour_back_and_three_hours_ahead_under_two_servers(home: Home, http: aiohttp.ClientSession) -> None:
    clock = MovedClock(home)
    await clock.start_postgres()
    servers = await asyncio.gather(home.serve(), home.serve())
    assert await ended(home, await waiting(home, 1.0, 1.5)) == ["delivered", "delivered"]
    before = await clock.shown()
    soon = await waiting(home, 2.0, 3.0, 4.0)
    later = await waiting(home, 50 * MINUTE, 2.5 * HOUR, 2 * HOUR + 5 * MINUTE, 10 * HOUR)

    clock.move(timedelta(hours=-1))
    assert await clock.shown() < before
    # They are due at a time that the clock reaches again in an hour. New timers and messages do not wait for that.
    assert await ended(home, await waiting(home, 1.0)) == ["delivered"]
    await speaks_and_is_answered(http, servers[0], (await fell_silent(home.database_url, 1))[0], 1)
    assert await states(home, [*soon, *later]) == ["pending"] * 7

    clock.move(timedelta())
    assert await ended(home, soon) == ["delivered"] * 3

    clock.move(timedelta(hours=3))
    assert await ended(home, later[:3]) == ["expired", "delivered", "delivered"]
    assert await states(home, later[3:]) == ["pending"]
    assert await ended(home, await waiting(home, 1.0)) == ["delivered"]
    await speaks_and_is_answered(http, servers[1], later[3], 2)
    assert expired(servers) == 1
    await nothing_wrong(home)


async def test_two_hours_of_downtime(home: Home) -> None:
    clock = MovedClock(home)
    await clock.start_postgres()
    server = await home.serve()
    done = await waiting(home, 1.0)
    assert await ended(home, done) == ["delivered"]
    talks = await waiting(home, 30 * MINUTE, 59 * MINUTE, 70 * MINUTE, 119 * MINUTE, 3 * HOUR)
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0
    await clock.postgres_ended()

    clock.move(timedelta(hours=2))
    await clock.start_postgres()
    server = await home.serve()
    assert await ended(home, talks[:4]) == ["expired", "expired", "delivered", "delivered"]
    assert await states(home, [*done, talks[4]]) == ["delivered", "pending"]
    assert expired([server]) == 2
    await nothing_wrong(home)


BERLIN_QUIET = """
INSERT INTO preferences (owner_id, time_zone, quiet_from, quiet_to) VALUES ('local', 'Europe/Berlin', '23:00', '02:30')
"""


async def test_quiet_hours_over_both_changes_of_the_clocks(home: Home) -> None:
    """Berlin's clocks go back from 3 to 2 at 01:00 UTC in October, and from 2 to 3 at 01:00 UTC in March."""
    clock = MovedClock(home)
    clock.move_to(datetime(2026, 10, 25, 0, 20, tzinfo=UTC))
    await clock.start_postgres()
    await home.serve()
    await run(home.database_url, BERLIN_QUIET)
    found: dict[str, str] = {}
    for moment in (
        "2026-10-25T00:20:00Z",  # 02:20 for the first time
        "2026-10-25T00:45:00Z",  # 02:45 for the first time: half past two comes once more
        "2026-10-25T01:15:00Z",  # 02:15 for the second time
        "2026-10-25T01:31:00Z",  # 02:31 for the second time
        "2026-10-25T22:30:00Z",  # 23:30 by the new time
        "2027-03-28T00:50:00Z",  # 01:50, and half past two is left out
        "2027-03-28T01:00:30Z",  # 03:00
        "2027-03-28T20:30:00Z",  # 22:30 by the new time
        "2027-03-28T21:10:00Z",  # 23:10
    ):
        clock.move_to(datetime.fromisoformat(moment))
        [found[moment]] = await ended(home, await waiting(home, 1.0))
    quiet = [moment for moment, state in found.items() if state == "suppressed"]
    assert set(found.values()) == {"suppressed", "delivered"}
    assert [moment[5:16] for moment in quiet] == [
        "10-25T00:20", "10-25T00:45", "10-25T01:15", "10-25T22:30", "03-28T00:50", "03-28T21:10",
    ]  # fmt: skip
    held = await run(home.database_url, "SELECT DISTINCT gate FROM timers WHERE state = 'suppressed'")
    assert held == [("quiet_hours",)]
    await nothing_wrong(home)
