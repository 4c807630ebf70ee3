"""Limit how requests arrive: bytes of a header, seconds until a request is complete, open connections.

uvicorn and its parser have no such limits. `Connections` checks all connections without a complete request once a second.
See ADR 40.
"""

from __future__ import annotations

import asyncio
import resource
from asyncio.transports import BaseTransport
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import structlog
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rapport.channels.http.problems import problem

log = structlog.get_logger()

LINGER_BYTES = 1_000_000
"""Bytes that are read and discarded from a refused client, so that it can read the response."""
MAX_PIPELINED = 100
FRAMING_FACTOR = 8
"""The most bytes of framing for each byte of a body: a chunk of one byte takes five."""


@dataclass(frozen=True, slots=True)
class ReceivingLimits:
    """Limit the size of a request's header and the time in which a request arrives."""

    header_bytes: int = 65_536
    headers: int = 200
    header_seconds: float = 20.0
    """From the connection, or from the first byte after the previous response, to the end of the header."""
    body_seconds: float = 30.0
    """For a whole body that is not an upload."""
    upload_seconds: float = 300.0
    """For a whole upload (multipart/form-data)."""
    upload_bytes_per_second: float = 1_000.0
    """The slowest accepted upload, measured over `window_seconds`."""
    window_seconds: float = 10.0
    idle_seconds: float = 35.0
    """Between two requests. uvicorn's own limit (30 s) is not restarted after every kind of request."""
    linger_seconds: float = 2.0
    sweep_seconds: float = 1.0
    log_seconds: float = 10.0
    """Between two log lines about clients that were cut off."""


class Phase(Enum):
    """The state of a connection: what it waits for."""

    HEADER = auto()
    BODY = auto()
    IDLE = auto()
    """All its requests are answered; it may send another one."""
    REFUSED = auto()
    """The error response is sent; the connection is about to close."""
    ANSWER = auto()
    """A complete request is being answered, or the connection is a WebSocket. No limit applies here."""


class Connections:
    """The HTTP connections of one server that wait for their client, the longest waiting first in each phase."""

    def __init__(self, limits: ReceivingLimits | None = None, *, max_open: int | None = None) -> None:
        """Keep at most `max_open` connections; by default as many as the limit of open files allows."""
        self.limits = limits or ReceivingLimits()
        self._max_open = max_open
        self._waiting: dict[Phase, dict[LimitedHttp, float]] = {
            phase: {} for phase in (Phase.HEADER, Phase.BODY, Phase.IDLE, Phase.REFUSED)
        }
        self._cut_off: Counter[str] = Counter()
        self._logged_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def move(self, connection: LimitedHttp, phase: Phase) -> None:
        """Put a connection into a phase, and restart its waiting time."""
        if (waiting := self._waiting.get(connection.phase)) is not None:
            waiting.pop(connection, None)
        connection.phase = phase
        if (waiting := self._waiting.get(phase)) is not None:
            waiting[connection] = connection.loop.time()
            if self._timer is None:
                self._timer = connection.loop.call_later(self.limits.sweep_seconds, self._sweep, connection.loop)

    def make_room(self, open_connections: int) -> bool:
        """Close the longest waiting connection if there are too many; return False if none could be closed."""
        if self._max_open is None:
            self._max_open = count_allowed_connections()
        if open_connections <= self._max_open:
            return True
        for phase in (Phase.REFUSED, Phase.HEADER, Phase.IDLE, Phase.BODY):
            if oldest := next(iter(self._waiting[phase]), None):
                self.count("too_many")
                self.move(oldest, Phase.ANSWER)
                oldest.transport.abort()
                return True
        self.count("too_many")
        return False

    def count(self, reason: str) -> None:
        """Count a client that was cut off, for the log."""
        self._cut_off[reason] += 1

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        limits = self.limits
        for phase, seconds in (
            (Phase.HEADER, limits.header_seconds),
            (Phase.BODY, limits.window_seconds),
            (Phase.IDLE, limits.idle_seconds),
            (Phase.REFUSED, limits.linger_seconds),
        ):
            started_before = loop.time() - seconds
            for connection in self._overdue(phase, started_before):
                connection.handle_timeout()
        if self._cut_off and loop.time() - self._logged_at >= limits.log_seconds:
            # One line for all of them: a flood must not fill the log.
            log.warning("http.clients_cut_off", **self._cut_off)
            self._cut_off.clear()
            self._logged_at = loop.time()
        self._timer = None
        if self._cut_off or any(self._waiting.values()):
            self._timer = loop.call_later(limits.sweep_seconds, self._sweep, loop)

    def _overdue(self, phase: Phase, started_before: float) -> list[LimitedHttp]:
        overdue: list[LimitedHttp] = []
        for connection, started_at in self._waiting[phase].items():
            if started_at > started_before:
                break  # sorted by the start of the wait
            overdue.append(connection)
        return overdue


def count_allowed_connections() -> int:
    """Return the number of connections that leaves enough of the open-file limit for everything else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return 1_000_000
    reserve = min(1_024, max(64, files // 4))  # for the database, models, files
    return max(16, files - reserve)


class LimitedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the size and the duration of requests."""

    def __init__(self, *args: Any, waiting: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self.phase = Phase.ANSWER
        self._connections = waiting
        self._limits = waiting.limits
        self._framing = 0
        """Bytes of this request that are not its body."""
        self._body_bytes = 0
        self._body_since = 0.0
        self._window_bytes = 0
        self._discarded = 0

    # ---- the connection

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # pyright: ignore[reportArgumentType]
        if self._connections.make_room(len(self.connections)):
            self._connections.move(self, Phase.HEADER)
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.move(self, Phase.ANSWER)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        if self._has_large_header():
            self._refuse_header()
            return
        self._connections.move(self, Phase.ANSWER)
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.REFUSED:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.transport.abort()
            return
        if self.phase is Phase.IDLE:
            self._connections.move(self, Phase.HEADER)
        self._framing += len(data)
        super().data_received(data)
        if self._framing > self._limits.header_bytes:
            self._check_size()
        if len(self.pipeline) > MAX_PIPELINED:
            self._connections.count("pipelined")
            self.transport.abort()

    def _check_size(self) -> None:
        if self.phase is Phase.HEADER:
            self._refuse_header()
        elif (
            self.phase is Phase.BODY
            and self._framing > 2 * self._limits.header_bytes + FRAMING_FACTOR * self._body_bytes
        ):  # chunk extensions or trailers without end
            self._refuse(400, "The body has more framing than content.", "framing")

    # ---- the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._body_bytes = 0
        if self.phase is Phase.ANSWER:  # a pipelined request
            self._connections.move(self, Phase.HEADER)

    def on_headers_complete(self) -> None:
        if self._has_large_header():
            self.app = _refuse_large_header
            self._connections.count("large_header")
        super().on_headers_complete()
        self._body_since = self.loop.time()
        self._window_bytes = 0
        self._connections.move(self, Phase.BODY)

    def on_body(self, body: bytes) -> None:
        self._framing -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._framing = 0
        self._connections.move(self, Phase.ANSWER if self._is_answering() else Phase.IDLE)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.phase is Phase.ANSWER and not self._is_answering():
            self._connections.move(self, Phase.IDLE)

    def _is_answering(self) -> bool:
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)  # pyright: ignore[reportUnnecessaryComparison]

    def _has_large_header(self) -> bool:
        # Compute the exact size only where the bytes received, perhaps with the body, exceed the limit.
        return len(self.headers) > self._limits.headers or (
            self._framing > self._limits.header_bytes
            and len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.header_bytes
        )

    # ---- time-outs

    def handle_timeout(self) -> None:
        """Refuse or close the connection, unless its body makes progress."""
        match self.phase:
            case Phase.HEADER:
                self._refuse(408, "The header of the request did not arrive in time.", "slow_header")
            case Phase.BODY:
                self._check_body()
            case _:
                self.transport.abort()

    def _check_body(self) -> None:
        seconds = self.loop.time() - self._body_since
        arrived = self._body_bytes - self._window_bytes
        if self.flow.read_paused:  # this server is the slow side
            self._body_since += self._limits.window_seconds
        elif self._is_upload() and self._is_answering():
            if seconds >= self._limits.upload_seconds:
                self._refuse(408, "The upload took too long to arrive; send it again.", "slow_upload")
            elif arrived < self._limits.upload_bytes_per_second * self._limits.window_seconds:
                self._refuse(408, "The upload arrives too slowly; send it again on a faster connection.", "slow_upload")
        elif seconds >= self._limits.body_seconds:
            self._refuse(408, "The body of the request did not arrive in time.", "slow_body")
        if self.phase is Phase.BODY:
            self._window_bytes = self._body_bytes
            self._connections.move(self, Phase.BODY)

    def _is_upload(self) -> bool:
        return any(
            name == b"content-type" and value.lower().startswith(b"multipart/form-data")
            for name, value in self.scope["headers"]
        )

    def _refuse_header(self) -> None:
        self._refuse(431, _LARGE_HEADER, "large_header")

    def _refuse(self, status: int, detail: str, reason: str) -> None:
        """Send an error and stop reading, or just close where the client would match the error to another request."""
        self._connections.count(reason)
        is_next = not self.pipeline and (not self._is_answering() or self.phase is Phase.BODY)
        has_answer = self.phase is Phase.BODY and self.cycle.response_started
        if not is_next or has_answer or self.transport.is_closing():
            self._connections.move(self, Phase.ANSWER)
            self.transport.abort()
            return
        answer = problem(status, detail, headers={"Connection": "close"})
        lines = [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", bytes(answer.body)]))
        if self.phase is Phase.BODY:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # Not closed at once: the kernel drops the response if unread bytes of the client remain.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._connections.move(self, Phase.REFUSED)


_LARGE_HEADER = "The header of the request is too large: at most 64 KB and 200 fields."


async def _refuse_large_header(scope: Scope, receive: Receive, send: Send) -> None:
    await problem(431, _LARGE_HEADER, headers={"Connection": "close"})(scope, receive, send)
