"""Generate load from one process: a minimal keep-alive HTTP/1.1 client, and closed-loop clients that use it.

Common HTTP clients need as much CPU per request as the measured servers; this one needs a fraction of it.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import httptools
import orjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

LOOPBACK = ("127.0.0.1", "::1", "localhost")
TURNS_PER_CONVERSATION = 10
MOST_ERRORS = 10


class UnexpectedAnswerError(Exception):
    """The server gave an answer that the benchmark does not expect."""


class Connection(asyncio.Protocol):
    """Send one request at a time over a connection that stays open."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._status = 0
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"not an HTTP answer: {error}"))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self.usable = self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._status, b"".join(self._parts)))

    async def send(self, request: bytes, timeout_s: float) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        self._parser, self._parts = httptools.HttpResponseParser(self), []
        self._answer = loop.create_future()
        # A timer and a future are cheaper than asyncio.timeout, which matters at this rate.
        timer = loop.call_later(timeout_s, self._fail, TimeoutError(f"no answer in {timeout_s:.0f} s"))
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.usable = False
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class Client:
    """Send requests to one server on this machine, over as many connections as there are concurrent requests."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.hostname not in LOOPBACK:
            raise ValueError(f"load goes to loopback only, not to {parts.hostname}")
        self._host, self._port, self._timeout_s = parts.hostname, parts.port or 80, timeout_s
        self._idle: list[Connection] = []

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Return the status and the body of the answer. No request is repeated."""
        data = b"" if body is None else orjson.dumps(body)
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n"
        connection = await self._connection()
        try:
            return await connection.send(f"{head}\r\n".encode() + data, self._timeout_s)
        finally:
            if connection.usable:
                self._idle.append(connection)
            else:
                connection.close()

    async def json(self, method: str, path: str, body: object = None) -> Any:
        """Return the parsed body of a successful answer. Raise UnexpectedAnswerError for any other."""
        status, answer = await self.request(method, path, body)
        if not 200 <= status < 300:
            raise UnexpectedAnswerError(f"{method} {path}: {status} {answer[:300].decode(errors='replace')}")
        return orjson.loads(answer)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port)
        return connection


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile; NaN if there are no values."""
    if not values:
        return math.nan
    ranked = sorted(values)
    return ranked[max(0, math.ceil(percent / 100 * len(ranked)) - 1)]


@dataclass
class Drive:
    """The result of one load phase: one entry of `seconds` per turn."""

    wall_s: float = 0.0
    seconds: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])

    @property
    def turns(self) -> int:
        return len(self.seconds)

    def ms(self, percent: float) -> float:
        return percentile(self.seconds, percent) * 1000


async def drive(
    create: Callable[[], Awaitable[str]],
    turn: Callable[[str], Awaitable[object]],
    *,
    clients: int,
    seconds: float,
    most_turns: int = 10**6,
) -> Drive:
    """Run concurrent clients, each with one turn at a time in a separate conversation, and a new conversation every ten turns.

    The time to create conversations is not measured. Ends after `seconds`, `most_turns`, or ten errors.
    """
    seen = Drive()
    begun = time.perf_counter()
    left = most_turns

    async def client() -> None:
        nonlocal left
        conversation, taken = "", TURNS_PER_CONVERSATION
        while left > 0 and time.perf_counter() - begun < seconds and len(seen.errors) < MOST_ERRORS:
            left -= 1
            try:
                if taken == TURNS_PER_CONVERSATION:
                    conversation, taken = await create(), 0
                at = time.perf_counter()
                await turn(conversation)
                seen.seconds.append(time.perf_counter() - at)
                taken += 1
            except (OSError, TimeoutError, UnexpectedAnswerError) as error:
                seen.errors.append(f"{type(error).__name__}: {error}")
                taken = TURNS_PER_CONVERSATION

    await asyncio.gather(*(client() for _ in range(clients)))
    seen.wall_s = time.perf_counter() - begun
    return seen
