"""Speak with a server over streamable HTTP: the official package's transport on a client with limits.

A request that fails is answered here with an error message of its own, so that it ends neither the connection nor other calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import orjson
from mcp.client.streamable_http import streamable_http_client

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.wire.envelope import TooComplex, estimate_cost, pack
from rapport.agents.mcp.wire.events import Events, TooLarge, make_error
from rapport.agents.mcp.wire.limits import (
    MAX_MESSAGE_BYTES,
    NO_ANSWER_CODE,
    NOT_SENT_CODE,
    TOO_LARGE_CODE,
    Throttle,
)
from rapport.agents.mcp.wire.streams import Streams

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 150.0
"""Longer than the longest call, which has a limit of its own."""
_FAREWELL_SECONDS: Final = 1.0
"""The longest time that the end of a connection may take."""
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 406, 413, 415, 421, 422, 429})
"""The statuses by which a server says that it did not run a request."""


class LimitedTransport(httpx.AsyncBaseTransport):
    """Bounds each message of a response, and answers requests that fail."""

    def __init__(self, inner: httpx.AsyncBaseTransport, throttle: Throttle) -> None:
        self._inner = inner
        self._throttle = throttle

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number = _find_id(request)
        if number is None:  # a GET stays open for notifications, however long there are none
            limit = {"GET": None, "DELETE": _FAREWELL_SECONDS}.get(request.method, _CONNECT_SECONDS)
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": limit}
        try:
            response = await self._inner.handle_async_request(request)
        except httpx.HTTPError as error:
            if request.method != "POST":
                raise
            never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            code = NOT_SENT_CODE if never_sent else NO_ANSWER_CODE
            return _answer(number, code, f"it can't be reached ({type(error).__name__})")
        if response.status_code >= 400 and request.method == "POST":
            await response.aclose()
            code = NOT_SENT_CODE if response.status_code in _REFUSED else NO_ANSWER_CODE
            return _answer(number, code, f"it answered with HTTP status {response.status_code}")
        return await self._limit(response, number)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _limit(self, response: httpx.Response, number: int | None) -> httpx.Response:
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        if (
            response.headers.get("content-encoding", "identity") != "identity"
        ):  # it was not asked for, and may be a bomb
            await response.aclose()
            return _answer(number, NO_ANSWER_CODE, "it compresses its answers")
        if response.headers.get("content-type", "").lower().startswith(_EVENTS):
            events = Events(stream, self._throttle, number)
            return httpx.Response(response.status_code, headers=response.headers, stream=events)
        try:
            content = await self._read(stream)
            if number is not None:
                await self._throttle.take(cost=estimate_cost(content))
                content = pack(content)
        except (TooLarge, TooComplex):
            return _answer(number, TOO_LARGE_CODE, "its answer is too large")
        except (httpx.HTTPError, ValueError):
            return _answer(number, NO_ANSWER_CODE, "its answer is no MCP")
        finally:
            await response.aclose()
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return httpx.Response(response.status_code, headers=headers, content=content)

    async def _read(self, stream: httpx.AsyncByteStream) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in stream:
            await self._throttle.take(size=len(chunk))
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise TooLarge
            parts.append(chunk)
        return b"".join(parts)


def _find_id(request: httpx.Request) -> int | None:
    """Return the id of the JSON-RPC request in a POST; None for everything else."""
    if request.method != "POST":
        return None
    message: Any = orjson.loads(request.content)
    number = message.get("id") if "method" in message else None
    return number if isinstance(number, int) else None


def _answer(number: int | None, code: int, text: str) -> httpx.Response:
    """Return a response with an error for the request. A notification that fails is dropped: nothing waits for its answer."""
    if number is None:
        return httpx.Response(202)
    return httpx.Response(200, headers={"content-type": _JSON}, content=make_error(number, code, text))


@contextlib.asynccontextmanager
async def open_http(server: McpServer, throttle: Throttle) -> AsyncGenerator[Streams]:
    """Connect with the server's address."""
    transport = LimitedTransport(httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=32)), throttle)
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    headers = {**server.headers, "Accept-Encoding": "identity"}
    async with (
        httpx.AsyncClient(transport=transport, headers=headers, timeout=timeout) as client,
        streamable_http_client(server.url, http_client=client) as (incoming, outgoing, _),
    ):
        yield Streams(incoming, outgoing)
