"""Test a second server, a start after kill -9, and a server that others can reach."""

from __future__ import annotations

import asyncio
import re
import signal

import aiohttp
import pytest
from bench.processes import free_port

from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, until_idle
from .harness import Client, Home, Sent
from .scripted import ScriptedModel, reply_to

pytestmark = pytest.mark.e2e


async def test_a_second_server_on_the_same_directory_works_beside_the_first(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    first = await home.serve()
    conversation = await Client(http, lambda: first.url).create()
    second = await home.serve()
    assert first.url != second.url

    sent: list[Sent] = []
    for number, server in enumerate((first, second, first, second)):
        url = server.url
        message = Sent(conversation, "ada", number, f"c0 number {number}")
        sent.append(message)
        reply = await Client(http, lambda url=url: url).say(message)
        assert reply["content"] == reply_to(message.text)
    again = await Client(http, lambda: second.url).say(Sent(conversation, "ada", 0, "c0 number 0"))
    assert again == sent[0].reply  # the same id, at another server: the same answer

    assert (await audit(home.database_url, sent, model)).troubles == {}
    assert first.errors() == second.errors() == []


async def test_the_next_start_takes_over_what_two_killed_servers_left_behind(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    first, second = await asyncio.gather(home.serve(), home.serve())
    client = Client(http, lambda: first.url)
    sent = Sent(await client.create(), "ada", 1, "c0 will anybody answer?")
    model.delay = lambda _text: 60.0
    await client.drop(sent)
    await model.until_asked(sent.text)
    first.kill()
    second.kill()
    left_behind = home.postmaster()
    assert left_behind is not None

    model.delay = lambda _text: 0.0
    third = await home.serve()
    assert home.postmaster() == left_behind
    await until_idle(home.database_url)
    figures = await audit(home.database_url, [sent], model)
    assert (figures.troubles, figures.replies) == ({}, 1)

    third.signal(signal.SIGTERM)
    assert await third.exit_code() == 0
    assert home.postmaster() is None
    assert not (home.data / "postgres" / "postmaster.pid").exists()
    assert third.errors() == []


async def test_without_a_key_the_server_does_not_open_to_others(home: Home) -> None:
    server = home.spawn(HOST="0.0.0.0")

    assert await server.exit_code() == 1

    said = server.log.read_text()
    assert "rapport keys create" in said
    assert "HOST=127.0.0.1" in said
    assert "Traceback" not in said
    assert "listening" not in server.out.read_text()
    assert home.postmaster() is None


async def test_with_keys_everybody_sees_only_what_is_theirs(home: Home, http: aiohttp.ClientSession) -> None:
    ada_id, ada = await _key(home, "laptop", "ada")
    _, bob = await _key(home, "phone", "bob")
    server = await home.serve(HOST="0.0.0.0")
    assert (await _ask(http, server.url, "POST", "/chat/conversations", None))[0] == 401
    assert (await _ask(http, server.url, "POST", "/chat/conversations", "rapport_nonsense"))[0] == 401

    status, made = await _ask(http, server.url, "POST", "/chat/conversations", ada)
    assert status == 201
    id_ = re.findall(r'"id":"(\w+)"', made)[0]
    missing = ("0" if id_[-1] != "0" else "1").join((id_[:-1], ""))
    for method, path in (
        ("GET", "/chat/conversations/{}"),
        ("DELETE", "/chat/conversations/{}"),
        ("POST", "/chat/conversations/{}/messages"),
        ("POST", "/chat/conversations/{}/cancel"),
        ("GET", "/api/threads/{}/history"),
    ):
        foreign = await _ask(http, server.url, method, path.format(id_), bob)
        nothing = await _ask(http, server.url, method, path.format(missing), bob)
        assert foreign[0] == nothing[0] == 404
        assert foreign[1].replace(id_, "") == nothing[1].replace(missing, "")
        assert (await _ask(http, server.url, method, path.format(id_), None))[0] == 401

    status, reply = await _ask(http, server.url, "POST", f"/chat/conversations/{id_}/messages", ada)
    assert (status, "sufficiently relevant documents" in reply) == (200, True)  # the librarian, who has no notes
    assert (await _ask(http, server.url, "GET", "/api/threads", bob))[1].count(id_) == 0
    assert (await _ask(http, server.url, "GET", "/api/threads", ada))[1].count(id_) == 1

    assert (await home.command("keys", "revoke", ada_id))[0] == 0
    assert (await _ask(http, server.url, "GET", f"/chat/conversations/{id_}", ada))[0] == 401
    assert (await _ask(http, server.url, "GET", "/api/threads", bob))[0] == 200
    for secret in (ada, bob):
        assert secret not in server.log.read_text()
    assert server.errors() == []


async def _key(home: Home, name: str, user: str) -> tuple[str, str]:
    """Create a key; return its id and its secret."""
    code, out, err = await home.command("keys", "create", name, "--user", user)
    assert code == 0, err
    found = re.search(r"Key (\w+) for", err)
    assert found is not None
    return found[1], out.strip()


async def _ask(http: aiohttp.ClientSession, url: str, method: str, path: str, secret: str | None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    body = {"content": "c0 hello"} if path.endswith("/messages") else None
    async with http.request(method, url + path, json=body, headers=headers) as response:
        return response.status, await response.text()


async def test_a_server_whose_model_is_down_starts_and_says_what_to_do(home: Home, http: aiohttp.ClientSession) -> None:
    server = await home.serve(OPENAI_BASE_URL=f"http://127.0.0.1:{free_port()}/v1")
    async with asyncio.timeout(LIMIT_SECONDS):
        while not (warned := [line for line in server.lines() if line["event"] == "model.problem"]):
            await asyncio.sleep(0.05)
    assert [(line["level"], line["kind"]) for line in warned] == [("warning", "unreachable")]
    assert "OPENAI_BASE_URL" in warned[0]["remedy"]
    async with http.get(f"{server.url}/readyz") as ready, http.get(f"{server.url}/api/session") as session:
        assert ready.status == 200
        assert (await session.json())["problem"]["kind"] == "unreachable"
    assert server.errors() == []


async def test_a_model_that_works_is_checked_without_a_call(home: Home, model: ScriptedModel) -> None:
    server = await home.serve()
    async with asyncio.timeout(LIMIT_SECONDS):
        while not model.listed:
            await asyncio.sleep(0.05)
    assert model.calls == []
    assert [line for line in server.lines() if line["event"] == "model.problem"] == []
