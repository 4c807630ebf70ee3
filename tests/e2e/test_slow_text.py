"""Test that hostile text costs about as much as ordinary text of the same length, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import psutil
import pytest

from .harness import Client, Home, Sent, Server

pytestmark = pytest.mark.e2e

LONG = 32_000
TIMES = 6
ORDINARY = "We walked along the river, and my sister told me about her new job in the city. "
ATTACKS = {
    "spaces": "my name is " + " " * 3_900 + " z",
    "a long run of spaces": "i like " + " " * (LONG - 10) + " z",
    "moods": "my dog is in the " * (LONG // 17),
    "closers": "I live in Rome" + ", " * (LONG // 2 - 20) + "x",
    "quotes": "I said „a " * (LONG // 10),
    "choices": "should i either go or either " * (LONG // 29),
}


def cpu_seconds(server: psutil.Process) -> float:
    times = server.cpu_times()
    return times.user + times.system


@asynccontextmanager
async def somebody_else(http: aiohttp.ClientSession, server: Server) -> AsyncGenerator[list[int]]:
    """Request the server's health continuously; yield the answers."""
    answers: list[int] = []

    async def ask() -> None:
        while True:
            async with http.get(f"{server.url}/healthz") as response:
                answers.append(response.status)
            await asyncio.sleep(0.05)

    asking = asyncio.create_task(ask())
    try:
        yield answers
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_no_text_costs_much_more_than_an_ordinary_one(home: Home, http: aiohttp.ClientSession) -> None:
    server = await home.serve(RAPPORT_MODEL="builtin")
    process = psutil.Process(server.pid)
    client = Client(http, lambda: server.url)

    async def cost_of(text: str, kind: str = "direct") -> float:
        conversation = await client.create(kind=kind)
        before = cpu_seconds(process)
        for number in range(TIMES):
            said = f"@bot {text}" if kind == "group" else text
            await client.say(Sent(conversation, conversation, number, said))
        await client.say(
            Sent(conversation, conversation, TIMES, f"{'@bot ' if kind == 'group' else ''}what do you know about me?")
        )
        return cpu_seconds(process) - before

    ordinary = ORDINARY * (LONG // len(ORDINARY) - 1)
    await cost_of(ordinary)  # what is made once is made
    limits = {kind: max(await cost_of(ordinary, kind), 0.5) for kind in ("direct", "group")}
    async with somebody_else(http, server) as answers:
        costs = {
            f"{name}, {kind}": await cost_of(text[: LONG - 20], kind) / limit
            for name, text in ATTACKS.items()
            for kind, limit in limits.items()
        }
    assert {name: cost for name, cost in costs.items() if cost > 4} == {}
    assert set(answers) == {200}
