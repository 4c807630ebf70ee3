"""Test live streams of real servers: through kill -9, restarts and several replicas nothing is missed or repeated."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

import aiohttp
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.listening import Listener, read_events
from tests.support.waiting import LIMIT_SECONDS

from .harness import Client, Home, Sent
from .scripted import ScriptedModel

pytestmark = pytest.mark.e2e


@dataclass(slots=True)
class Browser:
    """Listen as a browser does: reconnect whenever the stream ends, with the last event id."""

    url: Callable[[], str]
    thread: str
    listener: Listener = field(default_factory=Listener)
    connections: int = 0

    async def run(self) -> None:
        while True:
            known = {"Last-Event-ID": self.listener.last_id} if self.listener.events else {}
            with contextlib.suppress(httpx.TransportError):
                async with (
                    httpx.AsyncClient(base_url=self.url(), timeout=30) as http,
                    http.stream("GET", f"/api/threads/{self.thread}/events", headers=known) as response,
                ):
                    if response.status_code == 200:
                        self.connections += 1
                        await read_events(response, self.listener)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def watching(url: Callable[[], str], thread: str) -> AsyncGenerator[Browser]:
    browser = Browser(url, thread)
    task = asyncio.create_task(browser.run())
    try:
        await browser.listener.until(lambda: browser.listener.named("hello"))
        yield browser
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def heard_in_order(browser: Browser) -> list[str]:
    """Return the ids of the messages; check that their numbers increase."""
    numbers = [int(event.id or 0) for event in browser.listener.events if event.name == "message"]
    assert numbers == sorted(set(numbers))
    return [message["id"] for message in browser.listener.named("message")]


async def until_heard(browser: Browser, client: Client) -> None:
    """Wait until all messages were received, including a summary that is made later."""
    history: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_SECONDS):
            while heard_in_order(browser) != history:
                history = [message["id"] for message in await client.history(browser.thread)]
                await asyncio.sleep(0.1)
    assert heard_in_order(browser) == history


async def test_a_stream_goes_on_through_kills_and_restarts(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    model.delay = lambda _text: 0.05
    client = Client(http, lambda: server.url)
    thread = await client.create()
    async with watching(lambda: server.url, thread) as browser:
        talking = asyncio.create_task(talk(client, thread, 12))
        for said in (5, 13):
            await browser.listener.until(lambda said=said: len(browser.listener.messages) >= said)
            server.kill()
            server = await home.serve()
        await talking
        await browser.listener.until(lambda: len(browser.listener.messages) >= 24)
        await until_heard(browser, client)
        assert browser.connections >= 3
    assert server.errors() == []


async def talk(client: Client, thread: str, times: int) -> None:
    for number in range(times):
        await client.say(Sent(thread, "ada", number, f"c0 message {number}"))


async def test_two_replicas_tell_the_same_and_one_goes_on_when_the_other_dies(
    home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    one, other = await home.serve(), await home.serve()
    here, there = Client(http, lambda: one.url), Client(http, lambda: other.url)
    thread = await here.create()
    async with watching(lambda: other.url, thread) as browser:
        await here.say(Sent(thread, "ada", 1, "c0 one"))
        await there.say(Sent(thread, "ada", 2, "c0 two"))
        await browser.listener.until(lambda: len(browser.listener.messages) >= 4)

        model.delay = lambda text: 5.0 if len(model.calls_about(text)) == 1 else 0.0
        asked = Sent(thread, "ada", 3, "c0 who answers?")
        waiting = asyncio.create_task(here.drop(asked))
        await model.until_asked(asked.text)
        await waiting
        one.kill()
        await browser.listener.until(lambda: len(browser.listener.messages) >= 6)
        await until_heard(browser, there)
        assert browser.connections == 1
    assert other.errors() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_open_streams_keep_nobody_from_stopping(
    number: signal.Signals, home: Home, http: aiohttp.ClientSession
) -> None:
    server = await home.serve()
    thread = await Client(http, lambda: server.url).create()
    socket_url = server.url.replace("http://", "ws://")
    async with (
        http.get(f"{server.url}/api/threads/{thread}/events") as stream,
        connect(f"{socket_url}/api/chat/ws?threadId={thread}") as phone,
    ):
        await stream.content.readuntil(b"hello")
        server.signal(number)
        with contextlib.suppress(aiohttp.ClientError):
            await asyncio.wait_for(stream.content.read(), LIMIT_SECONDS)  # to its end
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(phone.recv(), LIMIT_SECONDS)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        assert await server.exit_code() == 0
    assert server.errors() == []
