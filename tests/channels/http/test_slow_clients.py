"""Test the limits on size and time of requests; clients within them, or waiting for an answer, stay connected."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import structlog
from websockets.asyncio.client import connect

from rapport.channels.http.requests.connection_limits import Connections, ReceivingLimits
from tests.support.cases import every_case
from tests.support.listening import listening
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world

QUICK = ReceivingLimits(
    header_seconds=0.4,
    body_seconds=0.6,
    upload_seconds=30.0,
    upload_bytes_per_second=1_000.0,
    window_seconds=0.3,
    idle_seconds=0.5,
    linger_seconds=0.5,
    sweep_seconds=0.05,
    log_seconds=0.1,
)
LIMIT = LIMIT_SECONDS
"""Seconds allowed on a busy machine for something that takes one second."""
HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def world(database_url: str) -> AsyncGenerator[World]:
    async with open_world(database_url, connections=Connections(QUICK)) as opened:
        yield opened


class Raw:
    """A client that sends arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def drip(self, data: bytes, *, every: float = 0.05) -> None:
        """Send the data repeatedly until the server closes the connection."""
        with contextlib.suppress(ConnectionError):
            while not self._reader.at_eof():
                self._writer.write(data)
                await self._writer.drain()
                await asyncio.sleep(every)

    async def head(self) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), LIMIT)

    async def rest(self) -> bytes:
        """Return everything that the server sends until it closes the connection."""
        parts: list[bytes] = []
        with contextlib.suppress(ConnectionError):
            while part := await asyncio.wait_for(self._reader.read(65_536), LIMIT):
                parts.append(part)
        return b"".join(parts)


@contextlib.asynccontextmanager
async def raw(world: World) -> AsyncGenerator[Raw]:
    url = world.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1_000_000)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


def problem_in(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    return json.loads(body)


async def test_who_connects_and_says_nothing_is_sent_away(world: World) -> None:
    async with raw(world) as client:
        assert problem_in(await client.rest())["status"] == 408


async def test_a_header_that_comes_byte_by_byte_is_cut_off(world: World) -> None:
    async with raw(world) as client, asyncio.timeout(LIMIT):
        client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        dripping = asyncio.create_task(client.drip(b"a"))
        assert problem_in(await client.rest())["status"] == 408
        await dripping


async def test_a_websocket_handshake_that_does_not_end_is_cut_off(world: World) -> None:
    async with raw(world) as client, asyncio.timeout(LIMIT):
        client.send(b"GET /api/chat/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: ")
        dripping = asyncio.create_task(client.drip(b"a"))
        assert problem_in(await client.rest())["status"] == 408
        await dripping


@pytest.mark.parametrize("coding", [b"Content-Length: 500\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_body_that_comes_byte_by_byte_is_cut_off(world: World, coding: bytes) -> None:
    async with raw(world) as client, asyncio.timeout(LIMIT):
        client.send(b"POST /api/threads HTTP/1.1\r\n" + HEAD + coding + b"\r\n")
        dripping = asyncio.create_task(client.drip(b"1\r\n \r\n" if b"chunked" in coding else b" "))
        assert problem_in(await client.rest())["status"] == 408
        await dripping
    assert await world.sql("SELECT count(*) FROM conversations") == [(0,)]


async def test_a_body_that_nobody_reads_is_cut_off_after_the_answer(world: World) -> None:
    async with raw(world) as client, asyncio.timeout(LIMIT):
        client.send(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Content-Length: 500\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        await client.drip(b" ")


async def test_empty_lines_between_requests_keep_no_connection_open(world: World) -> None:
    async with raw(world) as client, asyncio.timeout(LIMIT):
        client.send(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        await client.drip(b"\r\n")


async def test_a_connection_without_a_further_request_is_closed(world: World) -> None:
    async with raw(world) as client:
        body = b'{"agent": "companion"}'
        client.send(b"POST /api/threads HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        await asyncio.sleep(0.1)
        client.send(body)
        assert (await client.head()).startswith(b"HTTP/1.1 201 ")
        await client.rest()


@every_case(
    "field",
    [b"X-Long: " + b"a" * 70_000 + b"\r\n", b"a: b\r\n" * 300, b"X-Long: " + b"a" * 5_000_000 + b"\r\n"],
)
async def test_a_header_that_is_too_large_is_refused(world: World, field: bytes) -> None:
    async with raw(world) as client:
        client.send(b"GET /healthz HTTP/1.1\r\n" + HEAD + field + b"\r\n")
        answer = await client.rest()
        if len(field) < 1_000_000:  # who sends much more may be hung up on before it reads
            assert problem_in(answer)["status"] == 431
        assert not answer.startswith(b"HTTP/1.1 200 ")


async def test_a_large_body_in_the_packet_of_its_header_is_no_large_header(world: World) -> None:
    refused = await world.http.post("/api/threads", json={"title": "t" * 200_000})
    assert refused.status_code == 422
    assert (await world.says(await world.conversation(), "word " * 6_000))["content"]


@pytest.mark.parametrize(
    ("start", "endless"),
    [(b"1;", b"x" * 16_384), (b"1\r\n{\r\n0\r\n", b"x: " + b"y" * 1_000 + b"\r\n")],
    ids=["chunk extension", "trailers"],
)
async def test_framing_without_end_is_refused(world: World, start: bytes, endless: bytes) -> None:
    async with raw(world) as client, asyncio.timeout(LIMIT):
        client.send(b"POST /api/threads HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + start)
        await client.drip(endless, every=0)
        assert b" 201 " not in await client.rest()


async def test_a_body_in_chunks_of_one_byte_is_welcome(world: World) -> None:
    body = json.dumps({"agent": "companion", "title": "t" * 190}).encode()
    async with raw(world) as client:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        client.send(
            b"POST /api/threads HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        )
        assert (await client.head()).startswith(b"HTTP/1.1 201 ")


async def test_thousands_of_requests_in_one_packet_are_cut_off(world: World) -> None:
    async with raw(world) as client:
        client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3_000)
        assert (await client.rest()).count(b"HTTP/1.1 200 ") < 3_000
    assert (await world.http.get("/healthz")).status_code == 200


async def test_some_requests_in_one_packet_are_answered_in_order(world: World) -> None:
    async with raw(world) as client:
        client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 9)
        client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await client.rest()).count(b"HTTP/1.1 200 ") == 10


async def test_who_waits_for_an_answer_or_watches_is_not_cut_off(world: World) -> None:
    """The limits apply to what a client sends, not to a slow model, a stream or a WebSocket."""
    thread = await world.conversation()
    step = world.model.will_wait("here it is")
    address = str(world.http.base_url).replace("http", "ws")
    async with (
        listening(world.http, thread) as listener,
        connect(f"{address}/api/chat/ws?threadId={thread}") as socket,
    ):
        asking = asyncio.create_task(world.says(thread, "how are you?"))
        await step.begun.wait()
        await asyncio.sleep(4 * QUICK.body_seconds)
        step.go_on()
        assert (await asking)["content"] == "here it is"
        await listener.until(lambda: "here it is" in listener.messages)
        while json.loads(await asyncio.wait_for(socket.recv(), LIMIT))["type"] != "message":
            pass


async def test_many_who_are_cut_off_are_one_line_in_the_log(world: World) -> None:
    with structlog.testing.capture_logs() as lines:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(raw(world)) for _ in range(20)]
            await asyncio.gather(*(client.rest() for client in clients))
            async with asyncio.timeout(LIMIT):
                while sum(line.get("slow_header", 0) for line in lines) < 20:
                    await asyncio.sleep(0.05)
    told = [line for line in lines if line["event"] == "http.clients_cut_off"]
    assert len(told) <= 10


async def test_too_many_connections_close_those_that_wait_longest(database_url: str) -> None:
    connections = Connections(ReceivingLimits(), max_open=10)
    async with open_world(database_url, connections=connections) as world, contextlib.AsyncExitStack() as stack:
        thread = await world.conversation()
        step = world.model.will_wait("still here")
        asking = asyncio.create_task(world.says(thread, "are you there?"))
        await step.begun.wait()
        clients = [await stack.enter_async_context(raw(world)) for _ in range(30)]
        for _ in range(5):
            async with raw(world) as checking:
                checking.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert (await checking.rest()).startswith(b"HTTP/1.1 200 ")
        assert await clients[0].rest() == b""
        step.go_on()
        assert (await asking)["content"] == "still here"


@pytest.mark.parametrize("kind", [b"multipart/form-data; boundary=edge", b"application/json"])
async def test_who_hangs_up_in_the_middle_of_a_request_is_no_error(
    world: World, kind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with raw(world) as client:
            client.send(
                b"POST /api/notes HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                + kind
                + b"\r\nContent-Length: 5000\r\n\r\n--"
            )
            await asyncio.sleep(0.2)
        async with asyncio.timeout(LIMIT):
            while not any(line["event"] == "http.client_gone" for line in lines):
                await asyncio.sleep(0.02)
    assert [line for line in lines if line["log_level"] not in {"debug", "info"}] == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
