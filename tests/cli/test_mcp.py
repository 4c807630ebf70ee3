"""Test `rapport mcp`: the official client starts the real command and talks with it over standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.channels.http.mcp.clients import Client, make_belongings, make_key
from tests.support.commands import COMMAND, Home
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World

pytestmark = pytest.mark.e2e

PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
PONG: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {}}


@contextlib.asynccontextmanager
async def started(home: Home, *arguments: str, **environment: str) -> AsyncGenerator[Client]:
    """Start the command by the official client, and check that nothing but messages comes out of it."""
    values = home.environment(**environment)
    parameters = StdioServerParameters(
        command=str(COMMAND), args=["mcp", *arguments], env=values, cwd=home.path, encoding_error_handler="strict"
    )
    strangers: list[Exception] = []

    async def notice(message: object) -> None:
        if isinstance(message, Exception):
            strangers.append(message)

    with (home.path / "stderr").open("w") as errors:
        async with (
            stdio_client(parameters, errlog=errors) as (read, write),
            ClientSession(read, write, message_handler=notice) as session,
        ):
            yield Client(session, await session.initialize())
    assert strangers == []
    assert (home.path / "stderr").read_text() == ""


def answers(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


async def test_the_command_answers_from_its_own_data(home: Home, database_url: str) -> None:
    async with started(home, DATABASE_URL=database_url) as client:
        assert client.initialized.serverInfo.name == "rapport"
        added = await client.call("add_note", text="The night train to Lisbon leaves at nine.", title="Trains")
        asked = await client.call("ask", message="When does the night train leave?", agent="librarian", keep=True)
        assert [source["id"] for source in asked["sources"]] == [added["id"]]
        several = await asyncio.gather(*(client.call("search_notes", query=f"train {n}") for n in range(30)))
        assert all(one["passages"] for one in several)
        assert await client.list_uris() == [added["uri"], f"rapport://conversations/{asked['conversation_id']}"]


async def test_it_works_beside_a_server_of_the_same_data(home: Home, world: World, database_url: str) -> None:
    async with started(home, DATABASE_URL=database_url) as client:
        here = (await client.call("ask", message="Good morning", keep=True))["conversation_id"]
        assert [one["role"] for one in await world.history(here)] == ["user", "assistant"]
        await world.says(here, "And from the page")
        hits = (await client.call("search_conversation", conversation_id=here, query="page"))["messages"]
        assert "And from the page" in {one["text"] for one in hits}


async def test_a_user_sees_their_own_things_alone(home: Home, world: World, database_url: str) -> None:
    ana = await make_belongings(world, "ana", word="quokka")
    await world.drain()
    async with started(home, "--user", "ben", DATABASE_URL=database_url) as his:
        assert await his.list_uris() == []
        assert (await his.call("list_conversations"))["conversations"] == []
        for tool in ("search_conversation", "get_smart_context"):
            words = {"query": "quokka"} if tool == "search_conversation" else {"question": "quokka"}
            assert "There is no conversation" in await his.refuse(tool, conversation_id=ana.conversation_id, **words)
    async with started(home, "--user", "ana", DATABASE_URL=database_url) as hers:
        assert "quokka" in await hers.read(f"rapport://notes/{ana.note_id}")


async def test_a_key_says_whose_things_it_reaches(home: Home, world: World, database_url: str) -> None:
    ana = await make_belongings(world, "ana", word="quokka")
    await world.drain()
    uri = f"rapport://notes/{ana.note_id}"
    async with started(home, DATABASE_URL=database_url, RAPPORT_KEY=f" {ana.key} ") as hers:
        assert "quokka" in await hers.read(uri)
        await world.sql("UPDATE api_keys SET revoked_at = clock_timestamp()")
        with pytest.raises(Exception, match="not valid, or was revoked"):
            await hers.read(uri)
    for wrong in (ana.key, "rapport_nobody"):
        failed = await asyncio.to_thread(home.fails, "mcp", DATABASE_URL=database_url, RAPPORT_KEY=wrong)
        assert "RAPPORT_KEY is not valid, or was revoked." in failed
        assert wrong not in failed
    bens = await make_key(world, "ben")
    as_ana = await asyncio.to_thread(home.fails, "mcp", "--user", "ana", DATABASE_URL=database_url, RAPPORT_KEY=bens)
    assert "is one of 'ben', not of the user of --user" in as_ana
    assert "--user does not go with --url" in home.fails("mcp", "--url", "http://127.0.0.1:9", "--user", "ana")


async def test_it_passes_messages_on_to_a_server(home: Home, world: World) -> None:
    address = str(world.http.base_url)
    async with started(home, "--url", address) as client:
        assert (await client.call("ask", message="Hello"))["reply"] == "re: Hello"
    ana = await make_belongings(world, "ana", word="quokka")
    async with started(home, "--url", f"{address}/mcp", RAPPORT_KEY=ana.key) as hers:
        assert "quokka" in await hers.read(f"rapport://conversations/{ana.conversation_id}")
        await world.sql("UPDATE api_keys SET revoked_at = clock_timestamp()")
        with pytest.raises(Exception, match="not valid, or was revoked"):
            await hers.call("list_conversations")
    ran = await asyncio.to_thread(home.run, "mcp", "--url", address, stdin=PING + "nonsense\n")
    assert {answer["error"]["message"][:10] for answer in answers(ran.out)} == {"Send a key"}
    assert not (home.path / "data").exists()


async def test_a_server_that_can_t_be_reached_is_said(home: Home, world: World) -> None:
    await make_key(world, "ana")
    notification = '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    ran = await asyncio.to_thread(home.run, "mcp", "--url", "http://127.0.0.1:9", stdin=PING + notification)
    [answer] = answers(ran.out)
    assert answer["id"] == 1
    assert "can't be reached at http://127.0.0.1:9/mcp" in answer["error"]["message"]
    for wrong in ("127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://127.0.0.1:port"):
        failed = home.fails("mcp", "--url", wrong)
        assert "--url" in failed


def test_bad_lines_get_an_error_each_and_the_others_their_answer(home: Home, database_url: str) -> None:
    huge = '{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": "' + "x" * 2_000_000 + '"}}\n'
    given = "nonsense\n\n  \n[]\n" + huge + PING.replace("1,", '"last",').rstrip()
    ran = home.run("mcp", stdin=given, DATABASE_URL=database_url)
    assert (ran.code, ran.err) == (0, "")
    told = {str(answer["id"]): answer for answer in answers(ran.out) if answer["id"] is not None}
    assert told["7"]["error"]["message"] == "The message is larger than 2,000,000 bytes."
    assert told["last"]["result"] == {}
    unnamed = [answer["error"]["message"] for answer in answers(ran.out) if answer["id"] is None]
    assert sorted(sentence[:20] for sentence in unnamed) == ["A message is one JSO", "The message is not v"]


def test_a_running_answer_is_finished_when_the_input_ends(home: Home, database_url: str) -> None:
    params = {"name": "ask", "arguments": {"message": "my name is Ana", "keep": True}}
    asked = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})
    ran = home.run("mcp", stdin=asked, DATABASE_URL=database_url)
    [answer] = answers(ran.out)
    assert (answer["id"], answer["result"]["isError"]) == (5, False)
    assert "Ana" in answer["result"]["structuredContent"]["reply"]


def test_the_command_says_what_is_wrong_with_a_user(home: Home) -> None:
    refused = home.run("mcp", "--user", " ")
    assert refused.code == 2
    assert "The name of the user is empty" in refused.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_though_its_client_neither_writes_nor_reads(
    home: Home, database_url: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [COMMAND, "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=home.environment(DATABASE_URL=database_url),
        cwd=home.path,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdin.write(PING.encode())
        running.stdin.flush()
        assert json.loads(running.stdout.readline()) == PONG
        # More answers than a pipe holds; nobody reads them.
        listing = b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}\n'
        for _ in range(40):
            running.stdin.write(listing)
        running.stdin.flush()
        running.send_signal(number)
        assert running.wait(LIMIT_SECONDS) in (0, 130)
        assert b"Traceback" not in running.stderr.read()


def test_whatever_is_printed_does_not_come_between_the_messages(tmp_path: Path) -> None:
    program = (
        "import os, subprocess\nfrom rapport.cli.mcp import claim_stdout\n"
        "with claim_stdout() as output:\n"
        "    print('stray')\n    subprocess.run(['echo', 'child'])\n    os.write(output, b'message\\n')\n"
        "print('after')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), check=True
    )
    assert ran.stdout == "message\nafter\n"
    assert sorted(ran.stderr.split()) == ["child", "stray"]
