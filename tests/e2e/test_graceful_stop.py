"""Test SIGTERM and Ctrl-C: short turns are finished, long ones handed over, and the process exits within ten seconds."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass

import aiohttp
import psutil
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .audit import audit, query, until_idle
from .harness import Client, Home, Sent
from .scripted import ScriptedModel, reply_to

pytestmark = pytest.mark.e2e

SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a client: a status and a body, or a closed connection."""

    status: int | None
    type: str = ""
    body: str = ""
    retry_after: str | None = None


async def ask(http: aiohttp.ClientSession, url: str, sent: Sent, *, stream: bool = False) -> Answer:
    headers = {"Accept": "text/event-stream"} if stream else {}
    try:
        address = f"{url}/chat/conversations/{sent.conversation}/messages"
        async with http.post(address, json=sent.body, headers=headers) as response:
            body = ""
            try:
                async for part in response.content.iter_any():
                    body += part.decode()
            except aiohttp.ClientPayloadError:
                assert stream, "half of an answer"
            return Answer(response.status, response.content_type, body, response.headers.get("Retry-After"))
    except aiohttp.ClientConnectionError:
        return Answer(None)


def frames(body: str) -> list[tuple[str, str]]:
    """Return the named events of a stream, without its keep-alive comments."""
    found: list[tuple[str, str]] = []
    for frame in body.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if line and not line.startswith(":"))
        if lines:
            found.append((lines["event"], lines["data"]))
    return found


@SIGNALS
async def test_a_short_turn_is_finished_first(
    number: signal.Signals, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    client = Client(http, lambda: server.url)
    plain, streamed = await messages(client)
    model.delay = lambda _text: 0.5
    waiting = [
        asyncio.create_task(ask(http, server.url, plain)),
        asyncio.create_task(ask(http, server.url, streamed, stream=True)),
    ]
    await model.until_asked(plain.text)
    await model.until_asked(streamed.text)

    server.signal(number)
    assert await server.exit_code() == 0

    answer, stream = await asyncio.gather(*waiting)
    assert (answer.status, json.loads(answer.body)["content"]) == (200, reply_to(plain.text))
    assert stream.status == 200
    names = [name for name, _ in frames(stream.body)]
    assert (names[0], names[-1]) == ("token", "final")
    assert json.loads(frames(stream.body)[-1][1])["content"] == reply_to(streamed.text)
    assert home.postmaster() is None
    assert server.errors() == []


@SIGNALS
async def test_a_long_turn_is_handed_over_and_its_client_told_to_come_back(
    number: signal.Signals, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    client = Client(http, lambda: server.url)
    model.delay = lambda _text: 10 * LIMIT_SECONDS
    running, streamed = await messages(client)
    in_line = Sent(running.conversation, "ada", 2, "c0 and what about me, who stands in line?")
    first = asyncio.create_task(ask(http, server.url, running))
    stream = asyncio.create_task(ask(http, server.url, streamed, stream=True))
    await model.until_asked(running.text)
    await model.until_asked(streamed.text)
    second = asyncio.create_task(ask(http, server.url, in_line))
    await until_stored(home.database_url, 3)

    server.signal(number)
    assert await server.exit_code() == 0

    for answer in (await first, await second):
        assert (answer.status, answer.type) == (503, "application/problem+json"), answer
        assert answer.retry_after is not None
        assert "stored" in json.loads(answer.body)["detail"]
    assert [name for name, _ in frames((await stream).body)] == ["token", "error"]
    assert server.errors() == []

    model.delay = lambda _text: 0.0
    server = await home.serve()
    await until_idle(home.database_url)  # no client asks again: a stored message is answered anyway
    sent = [running, streamed, in_line]
    for message in sent:
        assert (await client.say(message))["content"] == reply_to(message.text)
    figures = await audit(home.database_url, sent, model)
    assert figures.troubles == {}
    assert (figures.messages, figures.replies) == (3, 3)
    assert server.errors() == []


async def messages(client: Client) -> tuple[Sent, Sent]:
    """Make two first messages, each in a separate conversation."""
    return (
        Sent(await client.create(), "ada", 1, "c0 what happens to me when you have to go?"),
        Sent(await client.create(), "bob", 1, "c1 and to me, who listens to every word?"),
    )


async def until_stored(url: str, count: int) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while (await query(url, "SELECT count(*) FROM messages"))[0][0] < count:
            await asyncio.sleep(0.02)


async def test_a_second_server_goes_on_when_the_first_one_stops(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    first, second = await asyncio.gather(home.serve(), home.serve())
    client = Client(http, lambda: second.url)
    conversation = await client.create()
    handed_over = Sent(conversation, "ada", 1, "c0 who will answer me?")
    model.delay = lambda text: (
        10 * LIMIT_SECONDS if text == handed_over.text and len(model.calls_about(text)) == 1 else 0.0
    )
    waiting = asyncio.create_task(ask(http, first.url, handed_over))
    await model.until_asked(handed_over.text)

    first.signal(signal.SIGTERM)
    assert await first.exit_code() == 0
    assert (await waiting).status in {200, 503}  # the other one may have answered before this one was gone

    assert home.postmaster() is not None
    later = Sent(conversation, "ada", 2, "c0 and you, are you still there?")
    assert (await client.say(later))["content"] == reply_to(later.text)
    assert (await client.say(handed_over))["content"] == reply_to(handed_over.text)
    await until_idle(home.database_url)
    assert (await audit(home.database_url, [handed_over, later], model)).troubles == {}
    second.signal(signal.SIGTERM)
    assert await second.exit_code() == 0
    assert home.postmaster() is None
    assert second.errors() == []


@SIGNALS
async def test_a_note_that_is_being_indexed_is_not_waited_for(
    number: signal.Signals, home: Home, http: aiohttp.ClientSession
) -> None:
    """Its sender gets 503 at once, and nothing of it is stored."""
    server = await home.serve()
    sentences = (
        f"Rule {n} says that the {n % 89}th crate goes to harbour {n % 97} on day {n % 31}." for n in range(6_000)
    )
    note = {"id": "rules", "text": "\n\n".join(sentences)}
    process = psutil.Process(server.pid)

    async def worked() -> float:
        times = process.cpu_times()
        return times.user + times.system

    before = await worked()
    sending = asyncio.create_task(put_note(http, server.url, note))
    async with asyncio.timeout(LIMIT_SECONDS):
        while await worked() < before + 1.5:  # it is cut, and some of it is embedded: the whole takes minutes
            await asyncio.sleep(0.05)
            assert not sending.done(), await sending
    server.signal(number)
    answer = await sending
    assert (answer.status, answer.retry_after) == (503, "5")
    assert "send the note again" in answer.body
    assert await server.exit_code() == 0

    again = await home.serve()
    async with http.get(f"{again.url}/api/notes") as response:
        assert (await response.json())["notes"] == []


async def put_note(http: aiohttp.ClientSession, url: str, note: dict[str, str]) -> Answer:
    try:
        async with http.post(f"{url}/api/notes", json=note) as response:
            return Answer(
                response.status, response.content_type, await response.text(), response.headers.get("Retry-After")
            )
    except aiohttp.ClientConnectionError:
        return Answer(None)
