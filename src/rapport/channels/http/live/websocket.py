"""Serve `/api/chat/ws`: a conversation over one WebSocket. Frames are JSON objects, each with a `type`."""

from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from fastapi import APIRouter, WebSocket
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.live.event_feed import (
    EventRenderer,
    EventRenderers,
    Live,
    Subscription,
    follow_events,
    parse_sequence,
    require_same_caller,
)
from rapport.channels.http.problems import (
    SERVER_ERROR,
    get_status,
    problem,
    problem_from_error,
)
from rapport.channels.http.rendering.json_views import as_json
from rapport.channels.http.rendering.message_html import Renderer
from rapport.channels.http.requests.json_bodies import NewMessage, parse_body
from rapport.channels.http.routes.conversations import parse_incoming
from rapport.core.core import Core
from rapport.core.turn_runner import Ticket
from rapport.domain.caller import Caller
from rapport.domain.errors import InvalidInput, NotFound, Permanent, RapportError, TooMany, Unauthorized
from rapport.domain.live_updates import LiveEvent, MemoryChanged, MessageStored, TextStreamed, TurnEnded
from rapport.domain.validation_errors import describe_errors

if TYPE_CHECKING:
    from rapport.channels.http.auth.rate_limits import Limiter

MAX_PENDING = 32
"""Messages of one connection that wait for their reply."""
REASON_CHARACTERS = 100
"""The length of a close reason: the frame has room for 123 bytes."""
GOING_AWAY = 1012
"""The server restarts, or the subscription has ended: the client may reconnect."""
ACCESS_DENIED = 4401
"""The key was revoked, or the session has ended: reconnecting needs another one."""


def websocket_routes(
    core: Core,
    live: Live,
    auth: Authenticator,
    *,
    renderer: Renderer,
    max_characters: int,
    limiter: "Limiter | None" = None,
) -> APIRouter:
    router = APIRouter()
    renderers = EventRenderers(renderer)

    @router.websocket("/api/chat/ws")
    async def talk(websocket: WebSocket) -> None:
        thread_id = websocket.query_params.get("threadId", "")
        try:
            caller = await auth.authenticate(websocket)
            subscription = await live.subscribe(
                caller.owner_id, thread_id, after=parse_sequence(websocket.query_params.get("after"))
            )
        except RapportError as error:
            await websocket.send_denial_response(problem_from_error(error))
            return
        except HTTPException as error:
            await websocket.send_denial_response(problem(error.status_code, str(error.detail)))
            return
        await websocket.accept()
        conversation = _ConversationPort(core, caller.owner_id, thread_id, max_characters, limiter)
        await _Connection(websocket, conversation, subscription, renderers.get_for(caller), auth, caller).run()

    return router


@dataclass(frozen=True, slots=True)
class _ConversationPort:
    """Send and cancel the messages of one owner in one conversation."""

    core: Core
    owner: str
    thread_id: str
    max_characters: int
    limiter: "Limiter | None"

    async def send(self, websocket: WebSocket, body: Mapping[str, Any]) -> Ticket:
        message = parse_body(NewMessage, body)
        incoming = parse_incoming(self.owner, self.thread_id, message, max_characters=self.max_characters)
        if self.limiter is not None:
            await self.limiter.admit(websocket, self.owner, self.thread_id)
        return await self.core.runner.accept(incoming, listen=True)

    async def cancel(self, message_id: str) -> bool:
        return await self.core.runner.cancel(self.owner, self.thread_id, message_id)


@dataclass(slots=True)
class _PendingRequest:
    """A message of this connection that waits for its reply."""

    request_id: str
    has_tokens: bool = False
    """Some of the reply has been sent."""
    is_retried: bool = False
    """The turn failed and is repeated: only the whole reply is sent."""


@dataclass(slots=True)
class _Connection:
    """One connection: store the incoming messages, and send the events of the conversation. Both tasks end together."""

    websocket: WebSocket
    conversation: _ConversationPort
    subscription: Subscription
    renderer: EventRenderer
    auth: Authenticator
    caller: Caller
    pending: dict[str, _PendingRequest] = field(default_factory=dict[str, _PendingRequest])
    """Pending requests by the id of their message."""
    order_lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a message is stored, so that its reply is not sent before the request is known."""

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._receive_frames, tasks)
            await self._send_events()
            tasks.cancel_scope.cancel()

    async def _send(self, kind: str, **parts: bytes) -> None:
        fields = b"".join(b',"%s":%s' % (name.encode(), value) for name, value in parts.items())
        frame = b'{"type":"%s"%s}' % (kind.encode(), fields)
        await self.websocket.send_text(frame.decode())

    # ---- incoming frames

    async def _receive_frames(self, tasks: "anyio.abc.TaskGroup") -> None:
        try:
            while True:
                received = await self.websocket.receive()
                if received["type"] == "websocket.disconnect":
                    break
                await self._handle_frame(received.get("text"), tasks)
        except WebSocketDisconnect:
            pass
        except Unauthorized as error:
            await self._close(ACCESS_DENIED, str(error))
        tasks.cancel_scope.cancel()

    async def _handle_frame(self, text: str | None, tasks: "anyio.abc.TaskGroup") -> None:
        request_id: object = None
        try:
            frame = _parse_frame(text)
            request_id = frame.pop("requestId", None)
            kind = frame.pop("type", None)
            if not isinstance(request_id, str) or not 0 < len(request_id) <= 200:
                raise InvalidInput("A frame needs a `requestId`: any text; the reply carries it too.")
            await require_same_caller(self.auth, self.websocket, self.caller)  # with each message
            if kind == "message":
                with anyio.CancelScope(shield=True):  # a message is stored even if the client disconnects now
                    await self._accept_message(request_id, frame, tasks)
            elif kind == "cancel" and not frame:
                await self._cancel(request_id)
            else:
                raise InvalidInput(
                    'A frame is {"type": "message", "requestId", "content", …} or {"type": "cancel", "requestId"}.'
                )
        except RapportError as error:
            extra = {"retryAfter": error.retry_after} if isinstance(error, TooMany) else {}
            detail = SERVER_ERROR if isinstance(error, Permanent) else str(error)
            await self._refuse(request_id, get_status(error), detail, **extra)
            if isinstance(error, Unauthorized):
                raise
        except RequestValidationError as error:
            await self._refuse(request_id, 422, describe_errors(error.errors()))

    async def _close(self, code: int, reason: str = "") -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # either side may have closed it already
            await self.websocket.close(code, reason[:REASON_CHARACTERS])

    async def _refuse(self, request_id: object, status: int, detail: str, **extra: Any) -> None:
        known_id = request_id if isinstance(request_id, str) else None
        parts = {"requestId": known_id, "status": status, "detail": detail, **extra}
        await self._send("error", **{name: as_json(value) for name, value in parts.items()})

    async def _accept_message(self, request_id: str, body: Mapping[str, Any], tasks: "anyio.abc.TaskGroup") -> None:
        if any(request.request_id == request_id for request in self.pending.values()):
            raise InvalidInput("This `requestId` already waits for a reply: use another one for each message.")
        if len(self.pending) >= MAX_PENDING:
            raise TooMany(f"{MAX_PENDING} messages already wait for their replies.", retry_after=1)
        async with self.order_lock:
            ticket = await self.conversation.send(self.websocket, body)
            accepted = ticket.accepted
            if accepted.is_for_agent:
                self.pending[accepted.message_id] = _PendingRequest(request_id)
        if not accepted.is_for_agent:
            await self._send("final", requestId=as_json(request_id), message=b"null", id=as_json(accepted.message_id))
        elif accepted.is_repeated:
            tasks.start_soon(self._send_earlier_reply, ticket)  # the reply may exist already
        else:
            ticket.close()  # the reply comes as an event

    async def _send_earlier_reply(self, ticket: Ticket) -> None:
        try:
            reply = await ticket.reply()
        except RapportError as error:
            if (request := self.pending.pop(ticket.accepted.message_id, None)) is not None:
                await self._refuse(request.request_id, get_status(error), str(error))
            return
        async with self.order_lock:
            await self._send_reply(MessageStored(0, reply))

    async def _cancel(self, request_id: str) -> None:
        message_id = next((id_ for id_, request in self.pending.items() if request.request_id == request_id), None)
        if message_id is None or not await self.conversation.cancel(message_id):
            raise NotFound("No message with this `requestId` waits for a reply: the reply may have been sent already.")

    # ---- outgoing events

    async def _send_events(self) -> None:
        try:
            async with aclosing(follow_events(self.subscription, self.websocket, self.auth, self.caller)) as events:
                async for event in events:
                    async with self.order_lock:
                        await self._send_event(event)
            await self._close(GOING_AWAY)
        except Unauthorized as error:
            await self._close(ACCESS_DENIED, str(error))
        except WebSocketDisconnect:
            pass

    async def _send_event(self, event: LiveEvent) -> None:
        match event:
            case MessageStored():
                if not await self._send_reply(event) and event.message.id not in self.pending:
                    await self._send("message", seq=as_json(event.seq), message=await self.renderer.message(event))
            case TextStreamed(message_id, text):
                request = self.pending.get(message_id)
                if request is not None and not request.is_retried:
                    request.has_tokens = True
                    await self._send("token", requestId=as_json(request.request_id), token=as_json(text))
            case TurnEnded(message_id, None):
                if message_id in self.pending:
                    self.pending[message_id].is_retried = True
            case MemoryChanged(change):
                await self._send(f"memory.{change}", memory=self.renderer.memory(event))
            case _:
                pass

    async def _send_reply(self, stored: MessageStored) -> bool:
        """Send a message as the reply to a pending request; return False if it is not one."""
        request = self.pending.pop(stored.message.event_id or "", None)
        if request is None:
            return False
        request_id, text = as_json(request.request_id), stored.message.text
        kind = "cancelled" if stored.message.metadata.get("cancelled") is True else "final"
        if kind == "final" and text and not request.has_tokens:
            await self._send(
                "token", requestId=request_id, token=as_json(text)
            )  # another process wrote it, or it was not streamed
        await self._send(kind, requestId=request_id, message=await self.renderer.message(stored))
        return True


def _parse_frame(text: str | None) -> dict[str, Any]:
    try:
        frame: object = orjson.loads(text or "")
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"A frame is a JSON object in a text message: {error}.") from error
    if not isinstance(frame, dict):
        raise InvalidInput("A frame is a JSON object.")
    return {str(name): value for name, value in frame.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
