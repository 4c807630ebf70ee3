"""Serve `/api/threads/{id}/events`: the events of a conversation as server-sent events."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.live.event_feed import (
    EventRenderer,
    EventRenderers,
    Live,
    Subscription,
    follow_events,
    parse_sequence,
)
from rapport.channels.http.rendering.json_views import as_json
from rapport.channels.http.rendering.message_html import Renderer
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.domain.caller import Caller
from rapport.domain.errors import Unauthorized
from rapport.domain.live_updates import (
    ApprovalsChanged,
    LiveEvent,
    MemoryChanged,
    MessageStored,
    TextStreamed,
    TimersChanged,
    TurnEnded,
    TurnStarted,
)

RECONNECT_MS = 1_000
CHUNK_BYTES = 16_384
"""Bytes that are sent at once, so that a large image is never buffered whole for one client."""

Frame: TypeAlias = tuple[bytes, bytes, bytes]
"""The bytes before the data, the data, and the bytes after it."""


class EventStream(StreamingResponse):
    """A stream of events that closes its subscription when the client disconnects or the events end."""

    def __init__(self, frames: AsyncGenerator[bytes]) -> None:
        super().__init__(
            frames, media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        )
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames):
            await super().__call__(scope, receive, send)


def event_routes(live: Live, auth: Authenticator, *, renderer: Renderer) -> APIRouter:
    router = APIRouter(prefix="/api/threads", tags=["threads"], route_class=StrictRoute)
    any_caller = Depends(auth.authenticate)
    renderers = EventRenderers(renderer)

    @router.get(
        "/{thread_id}/events",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {}}, "description": "Events until one side closes the connection"}
        },
        summary="Follow the events of a conversation",
    )
    async def events(
        request: Request,
        thread_id: str,
        after: Annotated[str | None, Query(description="The id of the last event you have; without it the stream starts now")] = None,
        last_event_id: Annotated[str | None, Header()] = None,
        caller: Caller = any_caller,
    ) -> EventStream:  # fmt: skip
        """`message` is a message that was stored or changed. Each comes once and in order, also after a reconnect with the id
        of the last one. `started`, `token` and `ended` report a reply while this process writes it, by the id of
        the message that it answers (by another id if it goes on after a decision about a tool call). `timers` says that follow-ups or reminders have changed, `approvals` that the
        questions about tool calls have; `memory.created`, `memory.updated` and `memory.deleted` report changes of your memories.
        The first connection begins with `hello`, whose id is its starting point.
        """
        # A browser that reconnects sends the header; its address still has the first `after`.
        last_known = parse_sequence(last_event_id)
        last_known = parse_sequence(after) if last_known is None else last_known
        subscription = await live.subscribe(caller.owner_id, thread_id, after=last_known)
        return EventStream(
            _frames(
                follow_events(subscription, request, auth, caller),
                subscription,
                renderers.get_for(caller),
                says_hello=last_known is None,
            )
        )

    return router


async def _frames(
    followed: AsyncGenerator[LiveEvent], subscription: Subscription, renderer: EventRenderer, *, says_hello: bool
) -> AsyncGenerator[bytes]:
    yield f"retry: {RECONNECT_MS}\n\n".encode()
    if says_hello:
        yield b"".join(_frame("hello", as_json({"seq": subscription.seq}), seq=subscription.seq))
    # A client whose access ended gets a 401 with the reason when it reconnects.
    with suppress(Unauthorized):
        async with aclosing(followed) as events:
            async for event in events:
                for piece in _split_frame(await _render_event(event, renderer)):
                    yield piece


async def _render_event(event: LiveEvent, renderer: EventRenderer) -> Frame:
    match event:
        case MessageStored(seq=seq):
            return _frame("message", await renderer.message(event), seq=seq)
        case TurnStarted(message_id):
            return _frame("started", as_json({"message_id": message_id}))
        case TextStreamed(message_id, text):
            return _frame("token", as_json({"message_id": message_id, "text": text}))
        case TurnEnded(message_id, reply_id):
            return _frame("ended", as_json({"message_id": message_id, "reply_id": reply_id}))
        case TimersChanged():
            return _frame("timers", b"{}")
        case ApprovalsChanged():
            return _frame("approvals", b"{}")
        case MemoryChanged(change):
            return _frame(f"memory.{change}", renderer.memory(event))
        case _:
            return b": still here", b"", b"\n\n"


def _frame(name: str, data: bytes, *, seq: int | None = None) -> Frame:
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {name}\ndata: ".encode(), data, b"\n\n"


def _split_frame(frame: Frame) -> Iterator[bytes]:
    before, data, after = frame
    if len(data) <= CHUNK_BYTES:
        yield before + data + after
        return
    yield before
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]  # `data` is shared by all subscribers and not copied whole
    yield after
