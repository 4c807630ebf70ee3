"""Test an outage of Postgres under load: clients get an error at once, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import aiohttp
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, clients_agree, history_agrees, until_idle
from .harness import Client, Cluster, Home, Sent
from .scripted import ScriptedModel

pytestmark = pytest.mark.e2e

log = logging.getLogger("rapport.e2e")

CLIENTS = 8
OUTAGE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Request:
    began: float
    ended: float
    status: int
    type: str
    retry_after: str | None


@dataclass(slots=True)
class Load:
    """Clients that send one message after the other, and repeat each until it is answered."""

    http: aiohttp.ClientSession
    url: str
    conversations: list[str]
    sent: list[Sent] = field(default_factory=list[Sent])
    requests: list[Request] = field(default_factory=list[Request])
    stopping: bool = False

    async def client(self, number: int) -> None:
        place = number % len(self.conversations)
        count = 0
        while not self.stopping:
            count += 1
            message = Sent(self.conversations[place], f"s{number}", count, f"c{place} s{number} says #{count}")
            self.sent.append(message)
            for _ in range(200):
                if await self._try(message):
                    break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError(f"{message.text!r} was never answered")

    async def _try(self, message: Sent) -> bool:
        began = time.monotonic()
        address = f"{self.url}/chat/conversations/{message.conversation}/messages"
        async with self.http.post(address, json=message.body) as response:
            body = await response.read()
            self.requests.append(
                Request(
                    began,
                    time.monotonic(),
                    response.status,
                    response.content_type,
                    response.headers.get("Retry-After"),
                )
            )
            if response.status == 200:
                message.reply, message.acknowledged = await response.json(), True
                return True
            assert response.status == 503, body
            return False


@pytest.fixture
async def cluster(home: Home) -> AsyncGenerator[Cluster]:
    made = Cluster(home)
    home.env["DATABASE_URL"] = await made.start()
    yield made
    await asyncio.to_thread(made.leave)


@pytest.mark.parametrize("suddenly", [False, True], ids=["shutdown", "kill -9"])
async def test_an_outage_of_postgres_is_reported_and_survived(
    suddenly: bool, home: Home, cluster: Cluster, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    chance = random.Random(7)
    model.delay = lambda _text: chance.uniform(0.0, 0.2)
    server = await home.serve()
    client = Client(http, lambda: server.url)
    load = Load(http, server.url, [await client.create() for _ in range(4)])
    clients = [asyncio.create_task(load.client(number)) for number in range(CLIENTS)]
    await asyncio.sleep(1.5)

    await cluster.stop(suddenly=suddenly)
    gone = time.monotonic()
    seen = [await _health(http, server.url)]
    while time.monotonic() - gone < OUTAGE_SECONDS:
        seen.append(await _health(http, server.url))
        await asyncio.sleep(0.2)
    assert set(seen) == {(200, 503)}
    home.env["DATABASE_URL"] = await cluster.start()
    back = time.monotonic()

    async with asyncio.timeout(LIMIT_SECONDS):
        while not any(request.status == 200 and request.ended > back for request in load.requests):
            await asyncio.sleep(0.05)
    async with asyncio.timeout(LIMIT_SECONDS):
        while (await _health(http, server.url)) != (200, 200):
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    load.stopping = True
    await asyncio.wait_for(asyncio.gather(*clients), LIMIT_SECONDS)
    idle = await until_idle(home.env["DATABASE_URL"])

    refused = [request for request in load.requests if request.status != 200]
    slowest = max(request.ended - request.began for request in load.requests)
    first = min(request.ended for request in load.requests if request.status == 200 and request.ended > back) - back
    figures = await audit(home.env["DATABASE_URL"], load.sent, model)
    log.info(
        "%d requests, %d refused, slowest %.1f s, first 200 %.1f s after it was back, idle after %.1f s: %s",
        len(load.requests),
        len(refused),
        slowest,
        first,
        idle,
        figures,
    )
    assert figures.troubles == {}, figures
    assert figures.messages == figures.replies == len(load.sent)
    await clients_agree(home.env["DATABASE_URL"], load.sent)
    await history_agrees(client, home.env["DATABASE_URL"])
    assert refused
    assert all(request.type == "application/problem+json" and request.retry_after for request in refused)
    assert slowest < LIMIT_SECONDS
    assert server.errors() == []


async def _health(http: aiohttp.ClientSession, url: str) -> tuple[int, int]:
    async with http.get(f"{url}/healthz") as healthy, http.get(f"{url}/readyz") as ready:
        return healthy.status, ready.status
