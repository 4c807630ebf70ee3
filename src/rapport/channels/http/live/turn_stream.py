"""Stream one turn as server-sent events: `token`… then `final`, `cancelled` or `error`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse

from rapport.channels.http.problems import get_status
from rapport.channels.http.rendering.json_views import as_json, message_view
from rapport.core.turn_runner import Ticket
from rapport.domain.errors import RapportError


def event(name: str, value: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + as_json(value) + b"\n\n"


def turn_stream(ticket: Ticket, *, operator: bool) -> StreamingResponse:
    """Return the events of a running turn. If the client disconnects, the turn goes on and its reply is stored."""
    return StreamingResponse(
        _frames(ticket, operator=operator),
        media_type="text/event-stream",
        headers={
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
            "X-Message-Id": ticket.accepted.message_id,
        },
    )


async def _frames(ticket: Ticket, *, operator: bool) -> AsyncIterator[bytes]:
    has_streamed = False
    try:
        async for token in ticket.tokens():
            if token:
                has_streamed = True
                yield event("token", {"token": token})
            else:
                yield b": still here\n\n"  # keeps proxies from closing a silent connection
        reply = await ticket.reply()
    except RapportError as error:
        yield event("error", {"status": get_status(error), "detail": str(error)})
        return
    finally:
        ticket.close()
    view = message_view(reply, operator=operator)
    if reply.metadata.get("cancelled") is True:
        yield event("cancelled", view)
        return
    if not has_streamed and reply.text:
        yield event("token", {"token": reply.text})  # the reply came from another process, or before a reconnect
    yield event("final", view)
