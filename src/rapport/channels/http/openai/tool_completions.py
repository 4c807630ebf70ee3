"""Answer requests with tools of the client, at once or streamed, in OpenAI's format (ADR 96)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rapport.channels.http.openai.errors import error_value, make_tool_error, mark_as_not_stored
from rapport.channels.http.openai.responses import Frame, make_usage
from rapport.channels.http.openai.stream import STREAM_HEADERS, Replaced, encode_frame
from rapport.core.turn_runner import ClientToolTicket
from rapport.domain.client_tools import ClientCall, ClientToolReply
from rapport.domain.errors import RapportError
from rapport.domain.token_estimate import estimate_tokens

ARGUMENT_CHARACTERS = 500
"""The part of a call's arguments in one chunk."""


@dataclass(frozen=True, slots=True)
class ToolEnvelope:
    """The fields that all parts of one answer share."""

    frame: Frame
    prompt_tokens: int
    """An estimate, for models whose tokens are not counted."""

    def completion(self, reply: ClientToolReply) -> dict[str, Any]:
        """Return the whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
        if reply.calls:
            message["tool_calls"] = [_call_view(call) for call in reply.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(reply)}
        return {
            **self.frame.fields("chat.completion"),
            "choices": [choice],
            "usage": self.usage(reply),
            "rapport": rapport_fields(reply),
        }

    def usage(self, reply: ClientToolReply) -> dict[str, int]:
        """Return the tokens of the model's calls, as its server counts them; an estimate where it counts none."""
        tokens_in = sum(part.tokens_in for part in reply.usage)
        tokens_out = sum(part.tokens_out for part in reply.usage)
        if not tokens_in:
            words = [reply.text, *(call.arguments for call in reply.calls)]
            return make_usage(self.prompt_tokens, sum(map(estimate_tokens, words)))
        return make_usage(tokens_in, tokens_out)


def rapport_fields(reply: ClientToolReply) -> dict[str, Any]:
    return {
        "conversation_id": None,
        "message_id": None,
        "sources": list(reply.sources),
        "guard_used": reply.guard_used,
        "fallback_used": False,
        "cancelled": False,
        "approvals": [],
        "tools_refused": reply.tools_refused,
    }


def finish_reason(reply: ClientToolReply) -> str:
    return "tool_calls" if reply.calls else "stop"


class ToolCompletionStream(StreamingResponse):
    """An answer while the model writes it. If the client disconnects, the model is stopped."""

    def __init__(self, ticket: ClientToolTicket, envelope: ToolEnvelope, *, counts_tokens: bool) -> None:
        super().__init__(
            _frames(ticket, envelope, counts_tokens=counts_tokens),
            media_type="text/event-stream",
            headers=STREAM_HEADERS,
        )
        self._ticket = ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ticket.close()


async def _frames(ticket: ClientToolTicket, envelope: ToolEnvelope, *, counts_tokens: bool) -> AsyncIterator[bytes]:
    # With usage requested, OpenAI sends the field in every chunk.
    extra: dict[str, Any] = {"usage": None} if counts_tokens else {}
    frame = envelope.frame
    yield encode_frame(frame.chunk({"role": "assistant", "content": "", "refusal": None}, **extra))
    streamed = ""
    try:
        async for token in ticket.tokens():
            streamed += token
            yield encode_frame(frame.chunk({"content": token}, **extra)) if token else b": still here\n\n"
        reply = await ticket.reply()
        if not reply.text.startswith(streamed):
            raise Replaced(f"The text streamed so far is not the reply. The reply is: {reply.text}")
    except RapportError as error:
        yield encode_frame(
            error_value(error if isinstance(error, Replaced) else make_tool_error(mark_as_not_stored(error)))
        )
        return
    if rest := reply.text[len(streamed) :]:
        yield encode_frame(frame.chunk({"content": rest}, **extra))
    for index, call in enumerate(reply.calls):
        for delta in _call_deltas(index, call):
            yield encode_frame(frame.chunk({"tool_calls": [delta]}, **extra))
    yield encode_frame(frame.chunk({}, finish_reason=finish_reason(reply), rapport=rapport_fields(reply), **extra))
    if counts_tokens:
        yield encode_frame(frame.usage_chunk(envelope.usage(reply)))
    yield b"data: [DONE]\n\n"


def _call_view(call: ClientCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _call_deltas(index: int, call: ClientCall) -> list[dict[str, Any]]:
    """Return the parts of a streamed call: its id and name first, then its arguments."""
    begin = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    pieces = [
        call.arguments[start : start + ARGUMENT_CHARACTERS]
        for start in range(0, len(call.arguments), ARGUMENT_CHARACTERS)
    ]
    return [begin, *({"index": index, "function": {"arguments": piece}} for piece in pieces)]
