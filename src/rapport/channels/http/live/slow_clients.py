"""Bound the memory that one client needs while responses are sent, and close connections that stop reading."""

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
"""The connection of a client that reads nothing for this time is closed. It may reconnect."""
CHECK_INTERVAL_SECONDS = 2.0
MAX_BUFFERED_BYTES = 16_384
"""Bytes buffered for one client, here and in the kernel each. Beyond it the sender waits."""
MAX_FRAME_BYTES = 2_000_000
"""Bytes of one WebSocket message: the same as of a JSON request."""


class StallTimer:
    """Close a connection when its client reads none of the buffered bytes for STALL_TIMEOUT_SECONDS.

    The time is counted in checks: while this process itself stands still, no check is made and no client is blamed for it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._checks_without_progress = 0
        transport.set_write_buffer_limits(high=MAX_BUFFERED_BYTES)
        _limit_kernel_buffer(transport)

    def start(self) -> None:
        """Begin to watch: the write buffer is full."""
        if self._timer is None:
            self._checks_without_progress, self._waiting = 0, self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(CHECK_INTERVAL_SECONDS, self._check_progress)

    def stop(self) -> None:
        """Stop watching: the client has caught up or disconnected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_progress(self) -> None:
        buffered = self._transport.get_write_buffer_size()
        self._checks_without_progress = 0 if buffered < self._waiting else self._checks_without_progress + 1
        self._waiting = buffered
        if self._checks_without_progress * CHECK_INTERVAL_SECONDS >= STALL_TIMEOUT_SECONDS:
            self._timer = None
            log.info("client.stalled", waiting=buffered)
            self._transport.abort()  # `close` would send the rest first
        else:
            self._timer = self._loop.call_later(CHECK_INTERVAL_SECONDS, self._check_progress)


def _limit_kernel_buffer(transport: Transport) -> None:
    """Set the same buffer limit and time-out on the kernel's side, where the platform supports it."""
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
    """uvicorn's HTTP protocol with limits on receiving and on stalled clients."""


class GuardedWebSocket(_StallGuard, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol that closes stalled clients, also those that answer no ping."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # otherwise uvicorn logs an error for a refused client

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # otherwise it waits until the client reads the close frame


def uvicorn_protocols(connections: Connections | None = None) -> dict[str, Any]:
    """Return the protocol options of one uvicorn server; `connections` counts the connections of that server."""
    return {
        "http": functools.partial(GuardedHttp, waiting=connections or Connections()),
        "ws": GuardedWebSocket,
        "ws_max_size": MAX_FRAME_BYTES,
        # A client that vanished is noticed after interval plus time-out: 25 s.
        "ws_ping_interval": 10.0,
        "ws_ping_timeout": 15.0,
        "ws_per_message_deflate": False,  # it costs memory per client, and messages are short
    }
