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

PATIENCE = 20.0
"""Seconds in which a client takes nothing of what is sent to it; then its connection ends. It may come back."""
LOOK_SECONDS = 2.0
MOST_WAITING = 16_384
"""Bytes that wait for one client, here and in the kernel each; from there on whoever sends waits too."""
MOST_RECEIVED = 2_000_000
"""Bytes of one WebSocket message: as much as of a JSON request."""


class Patience:
    """Watches over what waits to be sent to one client, and cuts it off when none of it goes for PATIENCE seconds."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._since = 0.0
        transport.set_write_buffer_limits(high=MOST_WAITING)
        _spare_the_kernel(transport)

    def begin(self) -> None:
        """The client is slower than what is sent."""
        if self._timer is None:
            self._since, self._waiting = self._loop.time(), self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def end(self) -> None:
        """It has caught up, or has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        waiting = self._transport.get_write_buffer_size()
        if waiting < self._waiting:
            self._since = self._loop.time()
        self._waiting = waiting
        if self._loop.time() - self._since >= PATIENCE:
            self._timer = None
            log.info("client.stalled", waiting=waiting)
            self._transport.abort()  # to close it would mean to send the rest first
        else:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)


def _spare_the_kernel(transport: Transport) -> None:
    """Let the kernel hold little for this client too, and give up as soon as we would, where it can be told so."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for option, value in (("TCP_NOTSENT_LOWAT", MOST_WAITING), ("TCP_USER_TIMEOUT", int(PATIENCE * 1000))):
        if (number := getattr(socket, option, None)) is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, number, value)


class _Patient(asyncio.Protocol):
    """What a protocol needs to have patience, and an end of it."""

    patience: Patience | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self.patience = Patience(cast(Transport, transport))
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.patience is not None:
            self.patience.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.patience is not None:
            self.patience.begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.patience is not None:
            self.patience.end()


class PatientHttp(_Patient, LimitedHttp):
    """uvicorn's HTTP, with patience, and with limits on what is received."""


class PatientWebSocket(_Patient, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, with patience: also with one that answers no ping."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # or whoever is refused would be an error in the log

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # or it would wait until the client reads that it is over


def protocols(connections: Connections | None = None) -> dict[str, Any]:
    """Return what one uvicorn server is configured with; `connections` keeps count of those of that server."""
    return {
        "http": functools.partial(PatientHttp, waiting=connections or Connections()),
        "ws": PatientWebSocket,
        "ws_max_size": MOST_RECEIVED,
        # Together less than PATIENCE and a little: whoever is gone without a word is known to be by then.
        "ws_ping_interval": 10.0,
        "ws_ping_timeout": 15.0,
        "ws_per_message_deflate": False,  # its memory is needed for every client, and what is sent is short
    }
