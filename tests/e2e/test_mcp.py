"""Test the MCP server in real processes: it stops gracefully while a client is connected, and any replica answers."""

from __future__ import annotations

import asyncio
import signal

import aiohttp
import pytest

from tests.channels.http.mcp.clients import connected
from tests.support.waiting import LIMIT_SECONDS

from .audit import until_idle
from .harness import Client, Home
from .scripted import ScriptedModel, reply_to

pytestmark = pytest.mark.e2e


async def test_a_server_stops_while_clients_are_connected_and_finishes_their_answers(
    home: Home, model: ScriptedModel
) -> None:
    server = await home.serve()
    model.delay = lambda _text: 0.5
    async with connected(server.url) as idle, connected(server.url) as client:
        await idle.call("list_conversations")
        await client.session.list_tools()  # it checks the answer against the tool's schema, when the server has gone
        asking = asyncio.create_task(client.call("ask", message="c0 what happens to me?", keep=True))
        await model.until_asked("c0 what happens to me?")
        server.signal(signal.SIGTERM)
        assert (await asking)["reply"] == reply_to("c0 what happens to me?")
        assert await server.exit_code() == 0
    assert home.postmaster() is None
    assert server.errors() == []


async def test_a_long_answer_is_handed_over_and_its_client_told_so(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    here = await Client(http, lambda: server.url).create()
    text = "c0 and what happens to me?"
    model.delay = lambda _text: 10 * LIMIT_SECONDS
    async with connected(server.url) as client:
        asking = asyncio.create_task(client.refuse("ask", message=text, conversation_id=here, client_message_id="mine"))
        await model.until_asked(text)
        keeping = asyncio.create_task(client.refuse("ask", message="c1 and this?", keep=True))
        await model.until_asked("c1 and this?")
        server.signal(signal.SIGTERM)
        assert await asking == "The server is stopping. Your message is stored and will be answered."
        kept = (await keeping).removeprefix(f"{await asking} The conversation is `").removesuffix("`.")
        assert await server.exit_code() == 0
    assert server.errors() == []

    model.delay = lambda _text: 0.0
    server = await home.serve()
    await until_idle(home.database_url)
    async with connected(server.url) as client:
        again = await client.call("ask", message=text, conversation_id=here, client_message_id="mine")
        assert again["reply"] == reply_to(text)
        assert reply_to("c1 and this?") in await client.read(f"rapport://conversations/{kept}")
    history = await Client(http, lambda: server.url).history(here)
    assert [one["role"] for one in history] == ["user", "assistant"]
    assert server.errors() == []


async def test_any_replica_answers_the_next_message_of_a_client(home: Home, http: aiohttp.ClientSession) -> None:
    replicas = await asyncio.gather(home.serve(), home.serve())
    async with connected(replicas[0].url) as client:
        added = await client.call("add_note", text="The boat leaves at ten.")
        for replica in replicas:  # no replica has seen this client begin, and none needs to
            body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": added["uri"]}}
            async with http.post(f"{replica.url}/mcp", json=body) as answer:
                told = await answer.json()
                assert told["result"]["contents"][0]["text"] == "The boat leaves at ten."
