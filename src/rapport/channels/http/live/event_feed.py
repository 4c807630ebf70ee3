"""Follow the events of a conversation, and render them for clients."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import as_json, memory_view
from rapport.channels.http.rendering.message_html import Renderer
from rapport.domain.caller import Caller
from rapport.domain.conversation import Message
from rapport.domain.errors import InvalidInput, RapportError, Unauthorized
from rapport.domain.live_updates import AccessChanged, LiveEvent, MemoryChanged, MessageRenderer, MessageStored

KEEPALIVE_SECONDS = 15.0
ACCESS_CACHE_SECONDS = 15.0
"""On an open connection the key or session is checked again after this time, or at once when access changes."""
MAX_DIGITS = 18


class Subscription(Protocol):
    """A subscription to the events of a conversation."""

    @property
    def seq(self) -> int:
        """Return the sequence number up to which the subscriber knows all events."""
        ...

    def events(self, *, silence: float) -> AsyncGenerator[LiveEvent]: ...


class Live(Protocol):
    """The source of subscriptions."""

    async def subscribe(self, owner_id: str, conversation_id: str, *, after: int | None = None) -> Subscription: ...

    def on_access_change(self, callback: Callable[[], None]) -> None: ...


def parse_sequence(text: str | None) -> int | None:
    """Return the sequence number that a client sent as the last it knows; None if it sent none."""
    if text is None or not text.strip():
        return None
    if not (text.strip().isdecimal() and text.isascii() and len(text) <= MAX_DIGITS):
        raise InvalidInput("`after` (or `Last-Event-ID`) must be the id of an earlier event: a number.")
    return int(text)


async def follow_events(
    subscription: Subscription, connection: HTTPConnection, auth: Authenticator, caller: Caller
) -> AsyncGenerator[LiveEvent]:
    """Yield events while the subscription can be read; the client may subscribe again afterwards.

    Raises Unauthorized as soon as the caller's key or session is no longer valid, or has another owner or role.
    """
    known_until = time.monotonic() + ACCESS_CACHE_SECONDS
    async with aclosing(subscription.events(silence=KEEPALIVE_SECONDS)) as events:
        try:
            async for event in events:
                if isinstance(event, AccessChanged) or time.monotonic() >= known_until:
                    await require_same_caller(auth, connection, caller)
                    known_until = time.monotonic() + ACCESS_CACHE_SECONDS
                if not isinstance(event, AccessChanged):
                    yield event
        except Unauthorized:
            raise
        except RapportError:
            return


async def require_same_caller(auth: Authenticator, connection: HTTPConnection, caller: Caller) -> None:
    """Raise Unauthorized unless an open connection still belongs to the caller that opened it, in the same role."""
    try:
        if await auth.authenticate(connection) == caller:
            return
    except HTTPException as error:
        raise Unauthorized(str(error.detail)) from error
    raise Unauthorized("Another user, or another role, opened this connection. Connect again.")


class EventRenderers:
    """Hold one renderer for operators and one for everybody else, so that each message is rendered once for both."""

    def __init__(self, renderer: Renderer) -> None:
        self._of = {operator: EventRenderer(renderer, operator=operator) for operator in (True, False)}

    def get_for(self, caller: Caller) -> EventRenderer:
        return self._of[caller.is_operator]


class EventRenderer:
    """Render messages as JSON, with their HTML."""

    def __init__(self, renderer: Renderer, *, operator: bool) -> None:
        self._renderer = renderer
        self._operator = operator
        self._by: MessageRenderer = self._show  # always the same object, because it is a cache key

    async def message(self, stored: MessageStored) -> bytes:
        return await stored.render(self._by)

    async def _show(self, message: Message) -> bytes:
        return as_json(await self._renderer.view(message, operator=self._operator))

    def memory(self, change: MemoryChanged) -> bytes:
        return as_json({"id": change.memory_id} if change.memory is None else memory_view(change.memory))
