"""`/api/chat/ws`: a conversation over one WebSocket. Frames are JSON objects, each with a `type`."""

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

from rapport.channels.http.live.event_feed import (
    EventRenderer,
    EventRenderers,
    Live,
    Subscription,
    follow_events,
    parse_sequence,
)
from rapport.channels.http.problems import describe_validation_error, get_status, problem, problem_from_error
from rapport.channels.http.rendering.json_views import as_json
from rapport.channels.http.rendering.message_html import Renderer
from rapport.channels.http.requests.json_bodies import NewMessage, parse_body
from rapport.channels.http.routes.conversations import Caller, parse_incoming
from rapport.core.core import Core
from rapport.core.turn_runner import Ticket
from rapport.domain.errors import InvalidInput, NotFound, Permanent, RapportError, TooMany, Unauthorized
from rapport.domain.live_updates import LiveEvent, MemoryChanged, MessageStored, TextStreamed, TurnEnded

if TYPE_CHECKING:
    from rapport.channels.http.auth.rate_limits import Limiter

MOST_WAITING = 32
"""Messages of one connection that wait for their answer."""
REASON_CHARACTERS = 100
"""Of a reason for closing: the frame has room for 123 bytes."""
GOING_AWAY = 1012
"""The server restarts, or what was watched is gone: come back."""
NOT_LET_IN = 4401
"""The key was revoked, or the session has ended: coming back is of no use without another one."""


def websocket_routes(
    core: Core,
    live: Live,
    caller: Caller,
    *,
    renderer: Renderer,
    max_characters: int,
    limiter: "Limiter | None" = None,
) -> APIRouter:
    router = APIRouter()
    showings = EventRenderers(renderer)

    @router.websocket("/api/chat/ws")
    async def talk(websocket: WebSocket) -> None:
        thread_id = websocket.query_params.get("threadId", "")
        try:
            owner = await caller(websocket)
            watcher = await live.subscribe(owner, thread_id, after=parse_sequence(websocket.query_params.get("after")))
        except RapportError as error:
            await websocket.send_denial_response(problem_from_error(error))
            return
        except HTTPException as error:
            await websocket.send_denial_response(problem(error.status_code, str(error.detail)))
            return
        await websocket.accept()
        desk = _Desk(core, owner, thread_id, max_characters, limiter)
        await _Talk(websocket, desk, watcher, showings.get_for(owner), caller).run()

    return router


@dataclass(frozen=True, slots=True)
class _Desk:
    """Takes what somebody says in one conversation."""

    core: Core
    owner: str
    thread_id: str
    max_characters: int
    limiter: "Limiter | None"

    async def take(self, websocket: WebSocket, body: Mapping[str, Any]) -> Ticket:
        message = parse_body(NewMessage, body)
        incoming = parse_incoming(self.owner, self.thread_id, message, max_characters=self.max_characters)
        if self.limiter is not None:
            await self.limiter.admit(websocket, self.owner, self.thread_id)
        return await self.core.runner.accept(incoming, listen=True)

    async def cancel(self, message_id: str) -> bool:
        return await self.core.runner.cancel(self.owner, self.thread_id, message_id)


@dataclass(slots=True)
class _Asked:
    """A request of this connection that waits for its answer."""

    request_id: str
    has_words: bool = False
    """Some of the answer has been sent."""
    is_retried: bool = False
    """Its words were cut off and begin anew: only the whole answer is sent."""


@dataclass(slots=True)
class _Talk:
    """One connection: what comes in is stored and answered, what happens goes out. Both end together."""

    websocket: WebSocket
    desk: _Desk
    watcher: Subscription
    shown: EventRenderer
    caller: Caller
    asked: dict[str, _Asked] = field(default_factory=dict[str, _Asked])
    """By the id of the message."""
    in_order: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a message is taken: nothing of its answer goes out before it is known whose it is."""

    async def run(self) -> None:
        async with anyio.create_task_group() as both:
            both.start_soon(self._hear, both)
            await self._tell()
            both.cancel_scope.cancel()

    async def _send(self, kind: str, **parts: bytes) -> None:
        fields = b"".join(b',"%s":%s' % (name.encode(), value) for name, value in parts.items())
        frame = b'{"type":"%s"%s}' % (kind.encode(), fields)
        await self.websocket.send_text(frame.decode())

    # ---- what comes in

    async def _hear(self, both: "anyio.abc.TaskGroup") -> None:
        try:
            while True:
                received = await self.websocket.receive()
                if received["type"] == "websocket.disconnect":
                    break
                await self._take(received.get("text"), both)
        except WebSocketDisconnect:
            pass
        except Unauthorized as error:
            await self._close(NOT_LET_IN, str(error))
        both.cancel_scope.cancel()

    async def _take(self, text: str | None, both: "anyio.abc.TaskGroup") -> None:
        request_id: object = None
        try:
            frame = _frame_of(text)
            request_id = frame.pop("requestId", None)
            kind = frame.pop("type", None)
            if not isinstance(request_id, str) or not 0 < len(request_id) <= 200:
                raise InvalidInput("A frame has a `requestId`: a text of your own that the answer carries too.")
            await self._check_caller()
            if kind == "message":
                with anyio.CancelScope(shield=True):  # whoever hangs up now has still said it
                    await self._ask(request_id, frame, both)
            elif kind == "cancel" and not frame:
                await self._cancel(request_id)
            else:
                raise InvalidInput(
                    'A frame is {"type": "message", "requestId", "content", …} or {"type": "cancel", "requestId"}.'
                )
        except RapportError as error:
            more = {"retryAfter": error.retry_after} if isinstance(error, TooMany) else {}
            detail = "The server could not do this; its log says why." if isinstance(error, Permanent) else str(error)
            await self._refuse(request_id, get_status(error), detail, **more)
            if isinstance(error, Unauthorized):
                raise
        except RequestValidationError as error:
            await self._refuse(request_id, 422, describe_validation_error(error))

    async def _check_caller(self) -> None:
        """Raise Unauthorized unless the key or session is still the owner's: each message is a request of its own."""
        try:
            if await self.caller(self.websocket) == self.desk.owner:
                return
        except HTTPException as error:
            raise Unauthorized(str(error.detail)) from error
        raise Unauthorized("This connection was opened by somebody else.")

    async def _close(self, code: int, reason: str = "") -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # it may be closed already, by either side
            await self.websocket.close(code, reason[:REASON_CHARACTERS])

    async def _refuse(self, request_id: object, status: int, detail: str, **more: Any) -> None:
        named = request_id if isinstance(request_id, str) else None
        parts = {"requestId": named, "status": status, "detail": detail, **more}
        await self._send("error", **{name: as_json(value) for name, value in parts.items()})

    async def _ask(self, request_id: str, body: Mapping[str, Any], both: "anyio.abc.TaskGroup") -> None:
        if any(one.request_id == request_id for one in self.asked.values()):
            raise InvalidInput("This `requestId` waits for its answer already: give each message its own.")
        if len(self.asked) >= MOST_WAITING:
            raise TooMany(f"{MOST_WAITING} messages wait for their answers already.", retry_after=1)
        async with self.in_order:
            ticket = await self.desk.take(self.websocket, body)
            accepted = ticket.accepted
            if accepted.is_for_agent:
                self.asked[accepted.message_id] = _Asked(request_id)
        if not accepted.is_for_agent:
            await self._send("final", requestId=as_json(request_id), message=b"null", id=as_json(accepted.message_id))
        elif accepted.is_repeated:
            both.start_soon(self._answer_again, ticket)  # it may have been answered long ago
        else:
            ticket.close()  # the answer is seen like everything else that is said

    async def _answer_again(self, ticket: Ticket) -> None:
        try:
            reply = await ticket.reply()
        except RapportError as error:
            if (asked := self.asked.pop(ticket.accepted.message_id, None)) is not None:
                await self._refuse(asked.request_id, get_status(error), str(error))
            return
        async with self.in_order:
            await self._answer(MessageStored(0, reply))

    async def _cancel(self, request_id: str) -> None:
        message_id = next((id_ for id_, one in self.asked.items() if one.request_id == request_id), None)
        if message_id is None or not await self.desk.cancel(message_id):
            raise NotFound("Nothing of that `requestId` waits for an answer: it may have come already.")

    # ---- what goes out

    async def _tell(self) -> None:
        try:
            async with aclosing(follow_events(self.watcher, self.websocket, self.caller)) as events:
                async for event in events:
                    async with self.in_order:
                        await self._pass_on(event)
            await self._close(GOING_AWAY)
        except Unauthorized as error:
            await self._close(NOT_LET_IN, str(error))
        except WebSocketDisconnect:
            pass

    async def _pass_on(self, event: LiveEvent) -> None:
        match event:
            case MessageStored():
                if not await self._answer(event) and event.message.id not in self.asked:
                    await self._send("message", seq=as_json(event.seq), message=await self.shown.message(event))
            case TextStreamed(message_id, text):
                asked = self.asked.get(message_id)
                if asked is not None and not asked.is_retried:
                    asked.has_words = True
                    await self._send("token", requestId=as_json(asked.request_id), token=as_json(text))
            case TurnEnded(message_id, None):
                if message_id in self.asked:
                    self.asked[message_id].is_retried = True
            case MemoryChanged(change):
                await self._send(f"memory.{change}", memory=self.shown.memory(event))
            case _:
                pass

    async def _answer(self, said: MessageStored) -> bool:
        """Send a message as the answer to a request, if it is one."""
        asked = self.asked.pop(said.message.event_id or "", None)
        if asked is None:
            return False
        request_id, text = as_json(asked.request_id), said.message.text
        kind = "cancelled" if said.message.metadata.get("cancelled") is True else "final"
        if kind == "final" and text and not asked.has_words:
            await self._send("token", requestId=request_id, token=as_json(text))  # written elsewhere, or at once
        await self._send(kind, requestId=request_id, message=await self.shown.message(said))
        return True


def _frame_of(text: str | None) -> dict[str, Any]:
    try:
        frame: object = orjson.loads(text or "")
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"A frame is a JSON object in a text message: {error}.") from error
    if not isinstance(frame, dict):
        raise InvalidInput("A frame is a JSON object.")
    return {str(name): value for name, value in frame.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
