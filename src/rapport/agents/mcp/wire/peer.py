"""Exchange requests and answers with one connected server.

The official package's `ClientSession` is not used: it writes messages that it can't read into the log, leaves requests without an
answer when its connection ends by a cancellation, and does not tell whether a request was sent (ADR 92).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS
from mcp.types import (
    LATEST_PROTOCOL_VERSION,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.texts import clean_text
from rapport.agents.mcp.wire.envelope import unpack
from rapport.agents.mcp.wire.limits import MAX_GARBAGE_MESSAGES, Throttle
from rapport.agents.mcp.wire.streams import ConnectionLost, Streams

log = structlog.get_logger()

_MAX_LOG_CHARACTERS: Final = 300
_CLIENT: Final = {"name": "rapport", "version": "1"}


class ServerError(Exception):
    """The server answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Delivery:
    """Tells whether a request may have reached the server."""

    __slots__ = ("may_be_sent",)

    def __init__(self) -> None:
        self.may_be_sent = False


class Peer:
    """One connection. `read` must run while requests are made."""

    def __init__(self, streams: Streams, server: McpServer, *, on_tools_changed: Callable[[], None]) -> None:
        self._streams = streams
        self._server = server
        self._on_tools_changed = on_tools_changed
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._garbage = 0
        self._logs = Throttle()

    async def initialize(self) -> None:
        """Introduce this client, which offers nothing: no sampling, no roots, no elicitation."""
        result = await self.request(
            "initialize",
            {"protocolVersion": LATEST_PROTOCOL_VERSION, "capabilities": {}, "clientInfo": _CLIENT},
        )
        if result.get("protocolVersion") not in SUPPORTED_PROTOCOL_VERSIONS:
            raise ConnectionLost("it speaks a version of MCP that is not known here")
        await self._send(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, delivery: Delivery | None = None
    ) -> dict[str, Any]:
        """Return the result of a request. Raise ServerError, or ConnectionLost if the connection ends first."""
        number = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=dict(params) if params else None)
            await self._send(request, delivery)
            return await answer
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            self._answers.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # mark it as seen: nobody may wait for it any more

    async def read(self) -> None:
        """Read messages until the connection ends; then every open request raises ConnectionLost."""
        try:
            async for message in self._streams.incoming:
                if isinstance(message, Exception):
                    self._count_garbage()
                else:
                    await self._handle(message.message.root)
        finally:
            self.close()
        raise ConnectionLost("it closed the connection")

    def close(self) -> None:
        """Let every open request raise ConnectionLost."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection ended"))

    async def _handle(self, message: object) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._handle_answer(message)
        elif isinstance(message, JSONRPCNotification):
            self._handle_notification(message)
        elif isinstance(message, JSONRPCRequest):
            await self._refuse(message)

    def _handle_answer(self, message: JSONRPCResponse | JSONRPCError) -> None:
        number = message.id if isinstance(message.id, int) else int(message.id) if message.id.isdecimal() else -1
        answer = self._answers.get(number)
        if answer is None or answer.done():
            return  # of a request that was given up, or of none
        self._garbage = 0
        if isinstance(message, JSONRPCError):
            answer.set_exception(ServerError(message.error.code, message.error.message))
        else:
            answer.set_result(unpack(message.result))

    def _handle_notification(self, message: JSONRPCNotification) -> None:
        if message.method == "notifications/tools/list_changed":
            self._on_tools_changed()
        elif message.method == "notifications/message" and self._logs.may_take():
            text = str(unpack(message.params).get("data", ""))[: 10 * _MAX_LOG_CHARACTERS]
            log.debug("mcp.log", server=self._server.name, text=self._clean(text))

    async def _refuse(self, request: JSONRPCRequest) -> None:
        """Answer a ping. Refuse every other request: a server may not ask this one for anything."""
        if request.method == "ping":
            await self._send(JSONRPCResponse(jsonrpc="2.0", id=request.id, result={}))
            return
        log.debug("mcp.request_refused", server=self._server.name, method=self._clean(request.method))
        error = ErrorData(code=METHOD_NOT_FOUND, message="This client does not offer that.")
        await self._send(JSONRPCError(jsonrpc="2.0", id=request.id, error=error))

    def _clean(self, text: str) -> str:
        """Return text of the server for the log: it may repeat secrets of its configuration."""
        return self._server.redact(clean_text(text))[:_MAX_LOG_CHARACTERS]

    async def _send(
        self,
        message: JSONRPCRequest | JSONRPCNotification | JSONRPCResponse | JSONRPCError,
        delivery: Delivery | None = None,
    ) -> None:
        if delivery is not None:
            delivery.may_be_sent = True
        try:
            await self._streams.outgoing.send(SessionMessage(JSONRPCMessage(message)))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if delivery is not None:
                delivery.may_be_sent = False
            raise ConnectionLost("the connection has ended") from None

    def _give_up(self, number: int) -> None:
        """Tell the server that nobody waits for an answer any more, if that is possible at once."""
        params = {"requestId": number, "reason": "Nobody waits for the answer any more."}
        message = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._streams.outgoing.send_nowait(SessionMessage(JSONRPCMessage(message)))

    def _count_garbage(self) -> None:
        self._garbage += 1
        if self._garbage > MAX_GARBAGE_MESSAGES:
            raise ConnectionLost("it sends messages that are no MCP")
