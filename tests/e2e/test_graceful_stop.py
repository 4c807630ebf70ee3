"""SIGTERM and Ctrl-C: short turns are finished, long ones handed over, and the process is gone within ten seconds."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

import aiohttp
import pytest

from .audit import audit, until_idle
from .harness import Client, Home, Json, Sent
from .scripted import ScriptedModel, reply_to

pytestmark = pytest.mark.e2e

SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
GONE_SECONDS = 10.0
TEXT = "c0 what happens to me when you have to go?"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got: a status and a body, or a connection that was closed."""

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
    """The named events of a stream, without its signs of life."""
    found: list[tuple[str, str]] = []
    for frame in body.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if line and not line.startswith(":"))
        if lines:
            found.append((lines["event"], lines["data"]))
    return found


@SIGNALS
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
async def test_a_turn_of_two_seconds_is_finished_first(
    number: signal.Signals, stream: bool, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    client = Client(http, lambda: server.url)
    sent = Sent(await client.create(), "ada", 1, TEXT)
    model.delay = lambda _text: 2.0
    waiting = asyncio.create_task(ask(http, server.url, sent, stream=stream))
    await model.until_asked(TEXT)

    server.signal(number)
    assert await server.exit_code(seconds=GONE_SECONDS) == 0

    answer = await waiting
    assert answer.status == 200
    if stream:
        names = [name for name, _ in frames(answer.body)]
        assert names[0] == "token"
        assert names[-1] == "final"
    assert reply_to(TEXT) in answer.body
    assert home.postmaster() is None
    assert server.errors() == []


@SIGNALS
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
async def test_a_turn_of_a_minute_is_handed_over(
    number: signal.Signals, stream: bool, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    client = Client(http, lambda: server.url)
    sent = Sent(await client.create(), "ada", 1, TEXT)
    model.delay = lambda _text: 60.0
    waiting = asyncio.create_task(ask(http, server.url, sent, stream=stream))
    await model.until_asked(TEXT)

    server.signal(number)
    assert await server.exit_code(seconds=GONE_SECONDS) == 0

    answer = await waiting
    if stream:
        assert all(name in {"token", "error"} for name, _ in frames(answer.body)), answer
    elif answer.status is not None:
        assert (answer.status, answer.type) == (503, "application/problem+json"), answer
        assert answer.retry_after is not None
    assert server.errors() == []

    model.delay = lambda _text: 0.0
    server = await home.serve()
    await until_idle(home.database_url, seconds=20)  # nobody asks again: the stored message is answered by itself
    reply: Json = await client.say(sent)
    assert reply["content"] == reply_to(TEXT)
    figures = await audit(home.database_url, [sent], model)
    assert figures.troubles == {}
    assert (figures.messages, figures.replies) == (1, 1)


async def test_the_client_of_a_turn_that_is_handed_over_is_told_to_come_back(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    """Not only not answered: told so, whether its turn runs or stands in line, as JSON or as a stream."""
    server = await home.serve()
    client = Client(http, lambda: server.url)
    model.delay = lambda _text: 60.0
    running, streamed = Sent(await client.create(), "ada", 1, TEXT), Sent(await client.create(), "bob", 1, f"{TEXT} ?")
    in_line = Sent(running.conversation, "ada", 2, f"{TEXT} !")
    first = asyncio.create_task(ask(http, server.url, running))
    stream = asyncio.create_task(ask(http, server.url, streamed, stream=True))
    await model.until_asked(running.text)
    await model.until_asked(streamed.text)
    second = asyncio.create_task(ask(http, server.url, in_line))
    await asyncio.sleep(0.3)

    server.signal(signal.SIGTERM)
    assert await server.exit_code(seconds=GONE_SECONDS) == 0

    for answer in (await first, await second):
        assert (answer.status, answer.type) == (503, "application/problem+json"), answer
        assert answer.retry_after is not None
    assert [name for name, _ in frames((await stream).body)] == ["token", "error"]


async def test_a_second_server_goes_on_when_the_first_one_stops(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    first, second = await asyncio.gather(home.serve(), home.serve())
    client = Client(http, lambda: second.url)
    conversation = await client.create()
    handed_over = Sent(conversation, "ada", 1, TEXT)
    model.delay = lambda text: 60.0 if text == TEXT and len(model.calls_about(TEXT)) == 1 else 0.0
    waiting = asyncio.create_task(ask(http, first.url, handed_over))
    await model.until_asked(TEXT)

    first.signal(signal.SIGTERM)
    assert await first.exit_code(seconds=GONE_SECONDS) == 0
    await waiting

    assert home.postmaster() is not None
    later = Sent(conversation, "ada", 2, "c0 and you, are you still there?")
    assert (await client.say(later))["content"] == reply_to(later.text)
    assert (await client.say(handed_over))["content"] == reply_to(TEXT)
    await until_idle(home.database_url, seconds=20)
    assert (await audit(home.database_url, [handed_over, later], model)).troubles == {}
    second.signal(signal.SIGTERM)
    assert await second.exit_code(seconds=GONE_SECONDS) == 0
    assert home.postmaster() is None
    assert second.errors() == []
