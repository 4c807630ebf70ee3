"""One answer as OpenAI streams it: chunks, then `[DONE]`. What was streamed is what is stored, or the stream ends in an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rapport.channels.http.openai.errors import as_not_kept, error_value
from rapport.channels.http.openai.responses import Envelope
from rapport.channels.http.rendering.json_views import as_json
from rapport.core.turn_runner import Ticket
from rapport.domain.conversation import Message
from rapport.domain.errors import RapportError, Transient


class _Replaced(Transient):
    """The answer that is stored is not the one that was begun."""


class CompletionStream(StreamingResponse):
    """The answer as it comes. `afterwards` is done in any case, also when the client goes away in the middle."""

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
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})},
        )
        self._ticket = ticket
        self._afterwards = afterwards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Here, and not in the frames: those are cancelled with everything they wait for when the client is gone.
            self._ticket.close()
            if self._afterwards is not None:
                await self._afterwards()


async def _frames(ticket: Ticket, envelope: Envelope, *, counts_tokens: bool) -> AsyncIterator[bytes]:
    # Clients that ask for the usage find the field in every chunk, as OpenAI has it.
    more: dict[str, Any] = {"usage": None} if counts_tokens else {}
    yield _data(envelope.chunk({"role": "assistant", "content": "", "refusal": None}, **more))
    streamed: list[str] = []
    try:
        async for token in ticket.tokens():
            if token:
                streamed.append(token)
                yield _data(envelope.chunk({"content": token}, **more))
            else:
                yield b": still here\n\n"  # so that nothing in between takes the silence for the end
        reply = await ticket.reply()
        if rest := _rest(reply, "".join(streamed)):
            yield _data(envelope.chunk({"content": rest}, **more))
    except RapportError as error:
        is_true = envelope.kept or isinstance(error, _Replaced)
        yield _data(error_value(error if is_true else as_not_kept(error)))
        return
    finally:
        ticket.close()
    yield _data(envelope.chunk({}, finish_reason="stop", rapport=envelope.rapport(reply), **more))
    if counts_tokens:
        yield _data(envelope.usage_chunk(reply))
    yield b"data: [DONE]\n\n"


def _rest(reply: Message, streamed: str) -> str:
    """Return the text still to be streamed: all of it if another process has answered, or did so before the client came back."""
    if not reply.text.startswith(streamed):
        # The model failed in the middle, or another process began anew: what was streamed can't be taken back.
        raise _Replaced(f"What was streamed so far is not the answer. The answer is: {reply.text}")
    return reply.text[len(streamed) :]


def _data(value: object) -> bytes:
    return b"data: " + as_json(value) + b"\n\n"
