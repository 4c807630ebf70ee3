"""Test timers of the real command: no follow-up after a message, and kill -9 neither loses nor repeats one.

The same at length, with figures: `make bench-timers`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time

import aiohttp
import pytest

from .audit import query
from .harness import Home
from .kills import Kills
from .races import Races
from .scripted import ScriptedModel
from .silences import became, fell_silent, lateness, set_timers, troubles

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

log = logging.getLogger("rapport.e2e")

RACES, KILLS, TIMERS = 300, 3, 400


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("RAPPORT_TIMERS_SEED", "0")) or time.time_ns() % 1_000_000
    log.info("seed %d", seed)
    return random.Random(seed)


_SAID = """
INSERT INTO messages (conversation_id, id, owner_id, role, content, event_id, metadata, created_at)
SELECT conversation_id, 'a' || id, owner_id, 'assistant', 'Hello?', id, '{"autonomous": true}', clock_timestamp() FROM timers
RETURNING conversation_id
"""
_HEARD = """
INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)
SELECT id, 'u' || id, owner_id, 'user', 'Here I am.', clock_timestamp() FROM conversations RETURNING id
"""


async def test_the_audit_detects_a_follow_up_after_a_message(database_url: str) -> None:
    """The other tests rely on this audit: correct rows have no violation, wrong rows have the expected ones."""
    await set_timers(database_url, dict.fromkeys(await fell_silent(database_url, 2), 60.0))
    assert await troubles(database_url) == {}
    await query(database_url, _HEARD)
    await query(database_url, _SAID)
    found = await troubles(database_url)
    assert found["follow-ups after somebody spoke"] == 2
    assert found["autonomous messages without a timer"] == found["said, and not delivered"] == 2
    assert found["messages without an answer"] == found["conversations that count their messages wrongly"] == 2


async def test_no_follow_up_is_delivered_after_a_message(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession, chance: random.Random
) -> None:
    servers = await asyncio.gather(home.serve(), home.serve())
    races = Races(http, [server.url for server in servers], home.database_url, chance)
    races.think(model)
    await races.run(messages=RACES, batch=RACES // 3)
    ended = await became(home.database_url)
    log.info("%s; %s", races.summary(), races.fates(ended))
    assert await troubles(home.database_url) == {}
    assert ended.get("superseded", 0) > 0  # otherwise there was no race
    assert [error for server in servers for error in server.errors()] == []


async def test_kill_9_loses_no_timer_and_repeats_none(home: Home, model: ScriptedModel, chance: random.Random) -> None:
    kills = Kills(home, model, chance)
    await kills.run(rounds=KILLS, timers=TIMERS)
    ended = await became(home.database_url)
    log.info("down for %s s; %s", [round(each, 1) for each in kills.downtimes], ended)
    assert await troubles(home.database_url) == {}
    assert sum(ended.values()) == kills.timers
    assert ended.get("expired", 0) == kills.overdue > 0
    assert len(await lateness(home.database_url)) == kills.timers - kills.overdue
    assert ended["delivered"] == KILLS * (TIMERS // 5)
    assert kills.errors == []
