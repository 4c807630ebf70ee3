"""Test clients that send without end or stop within a request: nobody else waits for them."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .harness import Home, Server

pytestmark = pytest.mark.e2e

OPEN_FILES = 200
STALLED = 300
HEADER_BYTES = 40_000_000
PIECE = b"a" * 65_536


def _address(server: Server) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


async def test_a_header_of_40_megabytes_is_refused_after_64_kilobytes(home: Home, http: aiohttp.ClientSession) -> None:
    server = await home.serve()
    reader, writer = await asyncio.open_connection(*_address(server))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < HEADER_BYTES and not reader.at_eof():
            writer.write(PIECE)
            await writer.drain()
            sent += len(PIECE)
    assert sent < HEADER_BYTES // 4, "the server read on"
    with contextlib.suppress(ConnectionError):
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()

    async with http.get(f"{server.url}/healthz") as response:
        assert response.status == 200
    assert server.errors() == []
    async with asyncio.timeout(LIMIT_SECONDS):
        while not any(line["event"] == "http.clients_cut_off" for line in server.lines()):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "stalled",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /api/threads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["nothing", "header", "body", "idle"],
)
async def test_stalled_connections_leave_files_for_everybody_else(stalled: bytes, home: Home) -> None:
    """There are more connections than the server may have open files; a health check is still answered."""
    home.open_files = OPEN_FILES
    server = await home.serve()
    opened: list[asyncio.StreamWriter] = []
    try:
        for _ in range(STALLED):
            _, writer = await asyncio.wait_for(asyncio.open_connection(*_address(server)), LIMIT_SECONDS)
            writer.write(stalled)
            opened.append(writer)
        for _ in range(20):
            assert await _is_healthy(server)
    finally:
        for writer in opened:
            writer.close()
    assert server.errors() == []


async def _is_healthy(server: Server) -> bool:
    """Check the health on a separate connection."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection(*_address(server)), LIMIT_SECONDS)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
    except (ConnectionError, TimeoutError):
        return False
    finally:
        writer.close()
    return answer.startswith(b"HTTP/1.1 200 ")
