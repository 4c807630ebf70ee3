"""Listen to a conversation's event stream and record the events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.waiting import LIMIT_SECONDS


@dataclass(frozen=True, slots=True)
class Heard:
    """One event of a stream."""

    name: str
    data: dict[str, Any]
    id: str | None = None


@dataclass(slots=True)
class Listener:
    """The events that were received so far."""

    events: list[Heard] = field(default_factory=list[Heard])
    comments: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last_id(self) -> str:
        """Return the id that a reconnecting browser sends."""
        return next(event.id for event in reversed(self.events) if event.id is not None)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.name == name]

    @property
    def messages(self) -> list[str]:
        """Return the texts of the messages, in the order of their arrival."""
        return [str(message["content"]) for message in self.named("message")]

    def written(self, message_id: str) -> str:
        """Return the tokens of an answer, joined."""
        return "".join(one["text"] for one in self.named("token") if one["message_id"] == message_id)

    def hear(self, event: Heard) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, condition: Callable[[], Any], *, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until the condition holds; check it with every event."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"heard only {self.events}") from None

    async def until_said(self, *texts: str, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until exactly these messages were received."""
        await self.until(lambda: len(self.messages) >= len(texts), seconds=seconds)
        assert self.messages == list(texts)


async def read_events(response: httpx.Response, listener: Listener) -> None:
    """Parse server-sent events until the stream ends."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            listener.comments += 1
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            listener.hear(Heard(fields["event"], json.loads(fields["data"]), fields.get("id")))
            fields = {}
        else:
            fields = {}


@contextlib.asynccontextmanager
async def listening(
    http: httpx.AsyncClient, thread_id: str, *, after: str | None = None, at: str = "", **headers: str
) -> AsyncGenerator[Listener]:
    """Listen during the block, from now on or after the id `after`; `at` is appended to the URL."""
    listener = Listener()
    headers |= {} if after is None else {"Last-Event-ID": after}
    async with http.stream("GET", f"/api/threads/{thread_id}/events{at}", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")

        async def read() -> None:
            try:
                await read_events(response, listener)
            except httpx.TransportError:
                pass
            finally:
                listener.ended.set()

        task = asyncio.create_task(read())
        try:
            if after is None and not at:
                await listener.until(lambda: listener.named("hello"))
            yield listener
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
