"""Stream one reply in OpenAI's format: chunks, then `[DONE]`. The streamed text is the stored one, or the stream ends in an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rapport.channels.http.openai.errors import error_value, mark_as_not_stored
from rapport.channels.http.openai.responses import Envelope
from rapport.channels.http.rendering.json_views import as_json
from rapport.core.turn_runner import Ticket
from rapport.domain.conversation import Message
from rapport.domain.errors import RapportError, Transient

STREAM_HEADERS: Mapping[str, str] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Replaced(Transient):
    """The stored reply differs from the streamed beginning."""


class CompletionStream(StreamingResponse):
    """A reply while it is written. `afterwards` always runs, also when the client disconnects."""

    def __init__(
        self,
        ticket: Ticket,
        envelope: Envelope,
        *,
        counts_tokens: bool,
        headers: Mapping[str, str] | None = None,
        afterwards: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(
            _frames(ticket, envelope, counts_tokens=counts_tokens),
            media_type="text/event-stream",
            headers={**STREAM_HEADERS, **(headers or {})},
        )
        self._ticket = ticket
        self._afterwards = afterwards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not in `_frames`: the generator is cancelled when the client disconnects.
            self._ticket.close()
            if self._afterwards is not None:
                await self._afterwards()


async def _frames(ticket: Ticket, envelope: Envelope, *, counts_tokens: bool) -> AsyncIterator[bytes]:
    # With usage requested, OpenAI sends the field in every chunk.
    extra: dict[str, Any] = {"usage": None} if counts_tokens else {}
    frame = envelope.frame
    yield encode_frame(frame.chunk({"role": "assistant", "content": "", "refusal": None}, **extra))
    streamed: list[str] = []
    try:
        async for token in ticket.tokens():
            if token:
                streamed.append(token)
                yield encode_frame(frame.chunk({"content": token}, **extra))
            else:
                yield b": still here\n\n"  # keeps proxies from closing a silent connection
        reply = await ticket.reply()
        if rest := _rest(reply, "".join(streamed)):
            yield encode_frame(frame.chunk({"content": rest}, **extra))
    except RapportError as error:
        is_true = envelope.kept or isinstance(error, Replaced)
        yield encode_frame(error_value(error if is_true else mark_as_not_stored(error)))
        return
    finally:
        ticket.close()
    yield encode_frame(frame.chunk({}, finish_reason="stop", rapport=envelope.rapport(reply), **extra))
    if counts_tokens:
        yield encode_frame(frame.usage_chunk(envelope.usage(reply)))
    yield b"data: [DONE]\n\n"


def _rest(reply: Message, streamed: str) -> str:
    """Return the text still to be streamed: the whole text if another process made the reply."""
    if not reply.text.startswith(streamed):
        # The model failed midway, or another process started again: the streamed text can't be withdrawn.
        raise Replaced(f"The text streamed so far is not the reply. The reply is: {reply.text}")
    return reply.text[len(streamed) :]


def encode_frame(value: object) -> bytes:
    """Return a value as one server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"
