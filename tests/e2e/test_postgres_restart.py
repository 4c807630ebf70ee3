"""Test that a server restarts a killed embedded Postgres, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from contextlib import suppress

import aiohttp
import psutil
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, clients_agree, history_agrees, until_idle
from .harness import Client, Home, Server
from .scripted import ScriptedModel
from .test_postgres_outage import Load

pytestmark = pytest.mark.e2e

log = logging.getLogger("rapport.e2e")

CLIENTS = 8
KILLS = 3
LIMIT = LIMIT_SECONDS


async def _until_ready(http: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            with suppress(aiohttp.ClientError):
                async with http.get(f"{server.url}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)


def _kill_postmaster(home: Home) -> None:
    """Kill the postmaster; its backends end as soon as they detect it."""
    main = home.postmaster()
    assert main is not None
    main.kill()
    with suppress(psutil.Error):
        main.wait(LIMIT_SECONDS)


def _restarts(*servers: Server) -> int:
    return sum(line["event"] == "postgres.restarted" for server in servers for line in server.lines())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("everything", [False, True], ids=["postmaster", "all processes"])
async def test_a_killed_postgres_is_started_again_by_the_servers(
    everything: bool, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    chance = random.Random(11)
    model.delay = lambda _text: chance.uniform(0.0, 0.1)
    servers = [await home.serve(), await home.serve()]
    client = Client(http, lambda: servers[0].url)
    conversations = [await client.create() for _ in range(4)]
    loads = [Load(http, server.url, conversations) for server in servers]
    clients = [
        asyncio.create_task(loads[number % 2].client(number)) for number in range(CLIENTS)
    ]  # each conversation is written to through both servers

    for kill in range(KILLS):
        await asyncio.sleep(chance.uniform(0.5, 1.5))
        before = home.postmaster()
        await asyncio.to_thread(home.kill_postgres if everything else lambda: _kill_postmaster(home))
        for server in servers:
            await _until_ready(http, server)
        now = home.postmaster()
        assert now is not None
        assert before is not None
        assert now.pid != before.pid
        async with asyncio.timeout(LIMIT):
            while _restarts(*servers) <= kill:
                await asyncio.sleep(0.05)
    for load in loads:
        load.stopping = True
    await asyncio.wait_for(asyncio.gather(*clients), LIMIT)
    await until_idle(home.database_url)

    sent = [message for load in loads for message in load.sent]
    figures = await audit(home.database_url, sent, model)
    log.info("%d messages, %d restarts: %s", len(sent), _restarts(*servers), figures)
    assert figures.troubles == {}, figures
    assert figures.messages == figures.replies == len(sent)
    await clients_agree(home.database_url, sent)
    await history_agrees(client, home.database_url)
    assert _restarts(*servers) == KILLS, "each was started by one of the servers, once"
    assert [line for server in servers for line in server.errors()] == []


@pytest.mark.timeout(180)
async def test_a_postgres_that_can_not_start_is_one_error_and_is_tried_again(
    home: Home, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    settings = home.data / "postgres" / "postgresql.auto.conf"
    settings.write_text("work_mem = 'nonsense'\n")
    await asyncio.to_thread(home.kill_postgres)
    async with asyncio.timeout(LIMIT):
        while not server.errors():
            await asyncio.sleep(0.05)
    await asyncio.sleep(5)  # it is tried again meanwhile
    (error,) = server.errors()
    assert error["event"] == "postgres.not_started"
    assert "postgres.log" in error["reason"]
    assert "DATABASE_URL" in error["reason"]

    settings.write_text("")
    await _until_ready(http, server)
    async with asyncio.timeout(LIMIT):
        while not _restarts(server):  # the line follows the start
            await asyncio.sleep(0.05)
    assert _restarts(server) == 1
    assert len(server.errors()) == 1


async def test_a_server_that_is_stopped_does_not_start_it_again(home: Home, http: aiohttp.ClientSession) -> None:
    server = await home.serve()
    await _until_ready(http, server)
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0
    assert home.postmaster() is None
