"""Test kill -9 under load, repeatedly: acknowledged messages are stored once and answered once, in order."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from dataclasses import dataclass, field

import aiohttp
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, clients_agree, history_agrees, until_idle
from .harness import Client, Home, Sent, Server
from .scripted import ScriptedModel

pytestmark = pytest.mark.e2e

log = logging.getLogger("rapport.e2e")

CYCLES = int(os.environ.get("RAPPORT_CRASH_CYCLES", "6"))
CONVERSATIONS = 4
SENDERS = 6


@dataclass(slots=True)
class Load:
    """Senders that send one message after the other until they are stopped."""

    client: Client
    chance: random.Random
    conversations: list[str]
    sent: list[Sent] = field(default_factory=list[Sent])
    stopping: bool = False

    async def sender(self, name: str) -> None:
        """Send messages; usually wait for the answer, sometimes disconnect as soon as the message is acknowledged."""
        numbers = 0
        while not self.stopping:
            place = self.chance.randrange(len(self.conversations))
            numbers += 1
            message = Sent(self.conversations[place], name, numbers, f"c{place} {name} says #{numbers}")
            self.sent.append(message)
            if self.chance.random() < 0.3:
                await self.client.drop(message)
            else:
                await self.client.say(message)
            await asyncio.sleep(self.chance.uniform(0, 0.05))


@pytest.mark.timeout(90 + 30 * CYCLES)
async def test_kill_9_under_load_loses_nothing_and_doubles_nothing(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    seed = int(os.environ.get("RAPPORT_CRASH_SEED", "0")) or time.time_ns() % 1_000_000
    log.info("seed %d", seed)
    chance = random.Random(seed)
    model.delay = lambda _text: chance.uniform(0.0, 0.1)
    server = await home.serve()
    client = Client(http, lambda: server.url)
    load = Load(client, chance, [await client.create() for _ in range(CONVERSATIONS)])
    senders = [asyncio.create_task(load.sender(f"s{number}")) for number in range(SENDERS)]
    power_cuts = 0

    for cycle in range(CYCLES):
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        assert not any(task.done() for task in senders), _first_failure(senders)
        server.signal(signal.SIGKILL)
        if cycle % 3 == 2:  # as if the whole machine had crashed
            await asyncio.to_thread(home.kill_postgres)
            power_cuts += 1
        assert await server.exit_code() == -signal.SIGKILL
        _expect_quiet(server, seed)
        server = await home.serve()

    await asyncio.sleep(0.5)
    load.stopping = True
    await asyncio.wait_for(asyncio.gather(*senders), LIMIT_SECONDS)
    idle = await until_idle(home.database_url)

    figures = await audit(home.database_url, load.sent, model)
    retried = sum(one.tries > 1 for one in load.sent)
    broken = sum(call.broken for call in model.calls)
    log.info(
        "%d cycles, %d power cuts, %d retried, %d calls broken, idle after %.1f s: %s",
        CYCLES,
        power_cuts,
        retried,
        broken,
        idle,
        figures,
    )
    assert figures.troubles == {}, f"seed {seed}: {figures}"
    assert all(one.acknowledged for one in load.sent)
    assert figures.messages == figures.replies == len(load.sent)
    assert len(load.sent) >= CYCLES  # there was a load
    await clients_agree(home.database_url, load.sent)
    await history_agrees(client, home.database_url)
    _expect_quiet(server, seed)


def _expect_quiet(server: Server, seed: int) -> None:
    """Check that neither a kill nor the start after it logs an ERROR."""
    assert server.errors() == [], f"seed {seed}"


def _first_failure(tasks: list[asyncio.Task[None]]) -> object:
    return next((task.exception() for task in tasks if task.done() and not task.cancelled()), None)
