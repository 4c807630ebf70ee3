"""Inject faults between a bot and Telegram, on demand and counted."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Json = dict[str, Any]


class Refusal(Exception):
    """An answer that is no result: its code and its words, as Telegram says them."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def response(self) -> web.Response:
        body: Json = {"ok": False, "error_code": self.code, "description": self.description}
        if self.parameters:
            body["parameters"] = self.parameters
        return web.json_response(body, status=self.code)


def bad(description: str, **parameters: int) -> Refusal:
    return Refusal(400, f"Bad Request: {description}", **parameters)


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail. `after`: what was asked for has happened, and only the answer is lost."""

    how: Literal["refuse", "reset", "hang", "babble"]
    after: bool = False
    status: int = 500
    is_json: bool = True
    retry_after: int | None = None


def flood(seconds: int = 3) -> Fault:
    """429: come back in so many seconds."""
    return Fault("refuse", status=429, retry_after=seconds)


def fails(status: int = 502, *, is_json: bool = True, after: bool = False) -> Fault:
    """A server's own trouble; without JSON it is the page of some proxy."""
    return Fault("refuse", status=status, is_json=is_json, after=after)


def resets(*, after: bool = False) -> Fault:
    """The connection breaks."""
    return Fault("reset", after=after)


def hangs(*, after: bool = False) -> Fault:
    """No answer, until the client gives up or the peer heals."""
    return Fault("hang", after=after)


def babbles(*, after: bool = True) -> Fault:
    """200, and a body that isn't JSON."""
    return Fault("babble", after=after)


@dataclass(slots=True)
class _Planned:
    fault: Fault
    method: str | None
    times: int | None
    skip: int


@dataclass(slots=True)
class Faults:
    """The next faults. Each is used once."""

    _planned: list[_Planned] = field(default_factory=list[_Planned])
    _healed: asyncio.Event = field(default_factory=asyncio.Event)

    def plan(self, fault: Fault, method: str | None, times: int | None, skip: int) -> None:
        self._planned.append(_Planned(fault, method and method.lower(), times, skip))

    def heal(self) -> None:
        self._planned.clear()
        self._healed.set()
        self._healed = asyncio.Event()

    def next(self, method: str) -> Fault | None:
        """The fault that meets this call, if any: the first planned one that applies."""
        for planned in self._planned:
            if planned.method not in (None, method.lower()):
                continue
            if planned.skip:
                planned.skip -= 1
                return None
            if planned.times is not None:
                planned.times -= 1
                if planned.times == 0:
                    self._planned.remove(planned)
            return planned.fault
        return None

    async def strike(self, fault: Fault, request: web.Request) -> web.Response:
        """Return the response that a client gets for a fault."""
        if fault.how == "hang":
            await self._healed.wait()
        if fault.how in ("hang", "reset"):
            return _reset(request)
        if fault.how == "babble":
            return web.Response(text="<html>Welcome to nginx!</html>", content_type="text/html")
        if fault.retry_after is not None:
            words = f"Too Many Requests: retry after {fault.retry_after}"
            return Refusal(fault.status, words, retry_after=fault.retry_after).response()
        if fault.is_json:
            return Refusal(fault.status, _WORDS.get(fault.status, "Error")).response()
        return web.Response(status=fault.status, text="<html>nginx</html>", content_type="text/html")


_WORDS = {
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def _reset(request: web.Request) -> web.Response:
    """Break the connection as a dying machine does: at once, with a reset instead of an end."""
    transport = request.transport
    if transport is not None:
        connection: Any = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()
