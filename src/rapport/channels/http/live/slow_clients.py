"""How answers are sent: with little in memory for each client, and without waiting for ever for one that has stopped reading."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from asyncio.transports import BaseTransport, Transport
from typing import Any, cast

import structlog
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rapport.channels.http.requests.connection_limits import Connections, LimitedHttp

log = structlog.get_logger()

STALL_TIMEOUT_SECONDS = 20.0
"""Seconds in which a client takes nothing of what is sent to it; then its connection ends. It may come back."""
CHECK_INTERVAL_SECONDS = 2.0
MAX_BUFFERED_BYTES = 16_384
"""Bytes that wait for one client, here and in the kernel each; from there on whoever sends waits too."""
MAX_FRAME_BYTES = 2_000_000
"""Bytes of one WebSocket message: as much as of a JSON request."""


class StallTimer:
    """Watches over what waits to be sent to one client, and cuts it off when none of it goes for STALL_TIMEOUT_SECONDS seconds."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._since = 0.0
        transport.set_write_buffer_limits(high=MAX_BUFFERED_BYTES)
        _limit_kernel_buffer(transport)

    def start(self) -> None:
        """The client is slower than what is sent."""
        if self._timer is None:
            self._since, self._waiting = self._loop.time(), self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(CHECK_INTERVAL_SECONDS, self._check_progress)

    def stop(self) -> None:
        """It has caught up, or has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_progress(self) -> None:
        waiting = self._transport.get_write_buffer_size()
        if waiting < self._waiting:
            self._since = self._loop.time()
        self._waiting = waiting
        if self._loop.time() - self._since >= STALL_TIMEOUT_SECONDS:
            self._timer = None
            log.info("client.stalled", waiting=waiting)
            self._transport.abort()  # to close it would mean to send the rest first
        else:
            self._timer = self._loop.call_later(CHECK_INTERVAL_SECONDS, self._check_progress)


def _limit_kernel_buffer(transport: Transport) -> None:
    """Let the kernel hold little for this client too, and give up as soon as we would, where it can be told so."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for option, value in (
        ("TCP_NOTSENT_LOWAT", MAX_BUFFERED_BYTES),
        ("TCP_USER_TIMEOUT", int(STALL_TIMEOUT_SECONDS * 1000)),
    ):
        if (number := getattr(socket, option, None)) is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, number, value)


class _StallGuard(asyncio.Protocol):
    """A protocol that closes its connection when the client stops reading."""

    patience: StallTimer | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self.patience = StallTimer(cast(Transport, transport))
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.patience is not None:
            self.patience.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.patience is not None:
            self.patience.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.patience is not None:
            self.patience.stop()


class GuardedHttp(_StallGuard, LimitedHttp):
    """uvicorn's HTTP, with patience, and with limits on what is received."""


class GuardedWebSocket(_StallGuard, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, with patience: also with one that answers no ping."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # or whoever is refused would be an error in the log

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # or it would wait until the client reads that it is over


def uvicorn_protocols(connections: Connections | None = None) -> dict[str, Any]:
    """Return what one uvicorn server is configured with; `connections` keeps count of those of that server."""
    return {
        "http": functools.partial(GuardedHttp, waiting=connections or Connections()),
        "ws": GuardedWebSocket,
        "ws_max_size": MAX_FRAME_BYTES,
        # Together less than STALL_TIMEOUT_SECONDS and a little: whoever is gone without a word is known to be by then.
        "ws_ping_interval": 10.0,
        "ws_ping_timeout": 15.0,
        "ws_per_message_deflate": False,  # its memory is needed for every client, and what is sent is short
    }
