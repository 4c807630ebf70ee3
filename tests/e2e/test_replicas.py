"""Test two servers on one database, one of them killed: order, exclusiveness and completeness hold."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time

import aiohttp
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, clients_agree, history_agrees, query, until_idle
from .harness import Client, Home, Sent, Server
from .scripted import ScriptedModel, reply_to

pytestmark = pytest.mark.e2e

log = logging.getLogger("rapport.e2e")

CONVERSATIONS, MESSAGES = (int(part) for part in os.environ.get("RAPPORT_REPLICA_SCALE", "12x12").split("x"))
SENDERS = 4


@pytest.mark.timeout(120 + CONVERSATIONS * MESSAGES // 4)
async def test_two_servers_keep_order_when_one_is_killed(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    seed = int(os.environ.get("RAPPORT_REPLICA_SEED", "0")) or time.time_ns() % 1_000_000
    log.info("seed %d", seed)
    chance = random.Random(seed)
    model.delay = lambda _text: chance.uniform(0.03, 0.08)
    first, second = await asyncio.gather(home.serve(OPENAI_API_KEY="first"), home.serve(OPENAI_API_KEY="second"))
    alive: list[Server] = [first, second]
    client = Client(http, lambda: chance.choice(alive).url)
    conversations = [await client.create() for _ in range(CONVERSATIONS)]
    sent: list[Sent] = []
    answered = 0

    async def sender(name: str, place: int) -> None:
        """Send one sender's messages of a conversation, each after the answer to the one before, to either server."""
        nonlocal answered
        for number in range(MESSAGES // SENDERS):
            message = Sent(conversations[place], name, number, f"c{place} {name} says #{number}")
            sent.append(message)
            await client.say(message)
            answered += 1

    async def killer() -> str:
        """After half of the messages, kill the server that starts the next turn, during that turn."""
        while answered < CONVERSATIONS * MESSAGES // 2:
            await asyncio.sleep(0.002)
        quick = model.delay
        model.delay = lambda _text: 1.0
        name = await next_caller(model)
        doomed = first if name == "first" else second
        doomed.signal(signal.SIGKILL)
        model.delay = quick
        await asyncio.sleep(0.05)  # for a moment clients still try the dead one
        alive.remove(doomed)
        return name

    begun = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        killing = tasks.create_task(killer())
        for place in range(CONVERSATIONS):
            for number in range(SENDERS):
                tasks.create_task(sender(f"s{number}", place))
    took = time.monotonic() - begun

    await until_idle(home.database_url)
    figures = await audit(home.database_url, sent, model)
    broken = sum(call.broken for call in model.calls)
    assert not any(call.broken for call in model.calls if call.caller != killing.result())
    log.info("%.1f s, %d calls (%d broken): %s", took, len(model.calls), broken, figures)
    assert figures.troubles == {}, f"seed {seed}: {figures}"
    assert figures.messages == figures.replies == CONVERSATIONS * (MESSAGES // SENDERS) * SENDERS
    assert broken > 0  # otherwise no turn was running at the kill
    await clients_agree(home.database_url, sent)
    await history_agrees(client, home.database_url)
    assert first.errors() == second.errors() == []


async def next_caller(model: ScriptedModel) -> str:
    """Return the server that calls the model next."""
    before = len(model.calls)
    while len(model.calls) == before:
        await asyncio.sleep(0.002)
    return model.calls[before].caller


async def test_a_server_that_was_frozen_and_taken_for_dead_shows_no_second_reply(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    """A suspended laptop or a paused container: when it continues, it still assumes that it owns the turn."""
    frozen, other = await asyncio.gather(home.serve(), home.serve())
    client = Client(http, lambda: frozen.url)
    sent = Sent(await client.create(), "ada", 1, "c0 are you asleep?")
    model.delay = lambda text: 1.0 if len(model.calls_about(text)) == 1 else 0.0
    waiting = asyncio.create_task(client.say(sent))
    await model.until_asked(sent.text)

    frozen.signal(signal.SIGSTOP)
    await until_idle(home.database_url)  # its lease ends, and the other one answers
    frozen.signal(signal.SIGCONT)

    reply = await asyncio.wait_for(waiting, LIMIT_SECONDS)
    assert reply["content"] == reply_to(sent.text)
    later = Sent(sent.conversation, "ada", 2, "c0 and awake again?")
    assert (await client.say(later))["content"] == reply_to(later.text)
    figures = await audit(home.database_url, [sent, later], model)
    assert (figures.troubles, figures.replies) == ({}, 2)
    assert len(model.calls_about(sent.text)) == 2
    assert frozen.errors() == other.errors() == []


async def test_a_turn_that_comes_back_to_the_server_that_lost_it_is_answered_once(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    """Other servers declared the worker dead and returned its event (as `reap_dead_workers` does), but it claims it again first."""
    server = await home.serve()
    client = Client(http, lambda: server.url)
    sent = Sent(await client.create(), "ada", 1, "c0 who has me now?")
    # Long enough for the server to poll several times after the first attempt has found a higher fence.
    model.delay = lambda text: 2.0 if len(model.calls_about(text)) == 1 else 7.0
    waiting = asyncio.create_task(client.say(sent))
    await model.until_asked(sent.text)

    await query(
        home.database_url,
        "UPDATE events SET state = 'queued', worker_id = NULL, due_at = clock_timestamp() RETURNING id",
    )

    reply = await asyncio.wait_for(waiting, LIMIT_SECONDS)
    assert (reply["content"], reply["fallbackUsed"]) == (reply_to(sent.text), False)
    await until_idle(home.database_url)
    figures = await audit(home.database_url, [sent], model)
    figures.overlaps = 0  # the same event runs twice for a moment; only one can commit
    assert (figures.troubles, figures.replies) == ({}, 1)
    assert len(model.calls_about(sent.text)) == 2
    assert server.errors() == []
