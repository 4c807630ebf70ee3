"""Read the events of a response over streamable HTTP within limits, and pass them on to the official transport."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

import httpx
import orjson

from rapport.agents.mcp.wire.envelope import estimate_cost, pack
from rapport.agents.mcp.wire.limits import MAX_MESSAGE_BYTES, NO_ANSWER_CODE, TOO_LARGE_CODE, Throttle

_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_LONGEST_END: Final = 4
_GARBAGE: Final = b"data: {}\n\n"
"""An event that the official transport reports as an error."""


class TooLarge(Exception):
    """A message is over the limit."""


class Events(httpx.AsyncByteStream):
    """A stream of events, each of bounded size and with a packed message; it ends with an error if it may lack the answer."""

    def __init__(self, inner: httpx.AsyncByteStream, throttle: Throttle, request_id: int | None) -> None:
        self._inner = inner
        self._throttle = throttle
        self._request_id = request_id
        self._may_resume = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        code = NO_ANSWER_CODE
        try:
            async for event in self._read():
                await self._throttle.take(cost=estimate_cost(event))
                yield self._rewrite(event)
        except TooLarge:
            code, self._may_resume = TOO_LARGE_CODE, False
        except httpx.HTTPError:
            pass  # the connection broke: the same as a stream that ends
        if self._request_id is not None and not self._may_resume:
            yield b"data: " + make_error(self._request_id, code, "its answer broke off") + b"\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _read(self) -> AsyncIterator[bytes]:
        """Yield the events as they are, without the empty line after each."""
        buffer = b""
        async for chunk in self._inner:
            await self._throttle.take(size=len(chunk))
            begin = max(len(buffer) - _LONGEST_END, 0)
            buffer += chunk
            while (end := _END.search(buffer, begin)) is not None:
                yield buffer[: end.start()]
                buffer, begin = buffer[end.end() :], 0
            if len(buffer) > MAX_MESSAGE_BYTES:
                raise TooLarge

    def _rewrite(self, event: bytes) -> bytes:
        """Return the event with its message packed; its other fields stay."""
        data: list[bytes] = []
        others: list[bytes] = []
        for line in _LINE_END.split(event):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field in (b"id", b"event", b"retry"):
                others.append(line[:1_000] + b"\n")
                self._may_resume = self._may_resume or field == b"id"
        return b"".join([*others, *_pack_data(b"\n".join(data)), b"\n"])


def _pack_data(data: bytes) -> Iterator[bytes]:
    if data:
        try:
            yield b"data: " + pack(data) + b"\n"
        except ValueError:
            yield _GARBAGE


def make_error(request_id: int, code: int, text: str) -> bytes:
    """Return an error message that stands for the missing answer of a request."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})
