"""Test that a process killed at the worst moments of a turn loses nothing and answers once."""

from __future__ import annotations

import asyncio
import signal
import time

import aiohttp
import psycopg
import pytest

from rapport.domain.failpoints import NAMES
from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, until_idle
from .harness import Client, Home, Sent
from .scripted import ScriptedModel, reply_to

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("place", sorted(name for name in NAMES if name.startswith(("ingest.", "turn."))))
async def test_a_turn_interrupted_by_a_kill_is_finished_after_the_next_start(
    place: str, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve(RAPPORT_FAILPOINT=place)
    client = Client(http, lambda: server.url)
    conversation = await client.create()
    sent = Sent(conversation, "ada", 1, "one what is left of a turn that was killed?")

    with pytest.raises(aiohttp.ClientError):
        async with http.post(f"{server.url}/chat/conversations/{conversation}/messages", json=sent.body):
            pass
    assert await server.exit_code() == -signal.SIGKILL

    begun = time.monotonic()
    server = await home.serve()
    reply = await client.say(sent)
    recovery = time.monotonic() - begun

    assert reply["content"] == reply_to(sent.text)
    assert reply["reply_to_id"] is not None
    await until_idle(home.database_url)
    figures = await audit(home.database_url, [sent], model)
    assert figures.troubles == {}
    assert (figures.messages, figures.replies) == (1, 1)
    assert [message["role"] for message in await client.history(conversation)] == ["user", "assistant"]
    assert recovery < LIMIT_SECONDS
    assert server.errors() == []


async def test_a_kill_between_a_message_of_a_group_and_its_vector_is_mended_by_the_next_start(
    home: Home, http: aiohttp.ClientSession
) -> None:
    server = await home.serve(RAPPORT_FAILPOINT="ingest.stored")
    async with http.post(f"{server.url}/chat/conversations", json={"kind": "group"}) as response:
        conversation = (await response.json())["id"]
    with pytest.raises(aiohttp.ClientError):
        async with http.post(
            f"{server.url}/chat/conversations/{conversation}/messages", json={"content": "the thai place on 10th Ave"}
        ):
            pass
    assert await server.exit_code() == -signal.SIGKILL

    server = await home.serve()
    async with await psycopg.AsyncConnection.connect(home.database_url, autocommit=True) as connection:
        async with asyncio.timeout(LIMIT_SECONDS):
            while (await (await connection.execute("SELECT conversation_id FROM message_vectors")).fetchall()) != [
                (conversation,)
            ]:
                await asyncio.sleep(0.05)
    assert server.errors() == []
