"""Run the tool `get_smart_context`: choose the messages of a chat that belong to a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.schemas import ChosenResult, SentMessage, SmartContextArguments, SmartContextResult
from rapport.channels.http.mcp.search_tools import format_time
from rapport.context.fence import clip
from rapport.domain.context_selection import MAX_LINE_CHARACTERS, ContextSelection
from rapport.domain.errors import InvalidInput
from rapport.domain.ids import new_id
from rapport.domain.text_checks import check_text, has_visible_text
from rapport.turns.sent_context import GivenId, read_sent_context, read_time


async def get_smart_context(access: CallerAccess, body: SmartContextArguments) -> SmartContextResult:
    """Return the messages that belong to a question. Nothing is stored and no model is called."""
    if not has_visible_text(check_text(body.question, what="question", limit=access.max_characters)):
        raise InvalidInput("`question` needs at least one visible character.")
    if body.messages is not None and body.conversation_id is None:
        return await _select_in_sent(access, body, body.messages)
    if body.messages is not None or body.conversation_id is None:
        raise InvalidInput("Send either `conversation_id` or `messages`.")
    if body.author is not None or body.time is not None:
        raise InvalidInput("`author` and `time` go with `messages`: in a stored conversation you ask, and now.")
    selection = await access.core.smart_context.select_in_conversation(
        access.owner_id,
        body.conversation_id,
        body.question,
        anchor_id=None if body.anchor_id is None else str(body.anchor_id),
        strategy=body.strategy,
    )
    return _make_result(selection, {})


async def _select_in_sent(
    access: CallerAccess, body: SmartContextArguments, messages: list[SentMessage]
) -> SmartContextResult:
    rows = [message.model_dump() for message in messages]
    call: dict[str, Any] = {
        "id": new_id(),
        "author": body.author,
        "time": _find_latest_time(rows) if body.time is None else body.time,
        "text": body.question,
        "reply_to": body.anchor_id,
    }
    if body.anchor_id is not None and body.anchor_id not in {row["id"] for row in rows}:
        raise InvalidInput("`anchor_id` names none of the messages.")
    sent = read_sent_context(rows, call)
    return _make_result(await access.core.smart_context.select_in_sent(sent, strategy=body.strategy), sent.given)


def _find_latest_time(rows: Sequence[Mapping[str, Any]]) -> str | int:
    try:
        return max(read_time(row["time"]) for row in rows).isoformat() if rows else 0
    except InvalidInput:
        return 0  # `read_sent_context` says which message has no valid time


def _make_result(selection: ContextSelection, given: Mapping[str, GivenId]) -> SmartContextResult:
    """Return the selection, with the ids as the caller wrote them."""
    return SmartContextResult(
        strategy=selection.strategy,
        anchor_id=None if selection.anchor is None else given.get(selection.anchor.id, selection.anchor.id),
        messages=[
            ChosenResult(
                id=given.get(chosen.message.id, chosen.message.id),
                author=chosen.message.author.name if chosen.message.author else None,
                text=clip(chosen.message.text, MAX_LINE_CHARACTERS),
                created_at=format_time(chosen.message.created_at),
                reasons=list(chosen.reasons),
                score=round(chosen.score, 3),
            )
            for chosen in selection.earlier
        ],
    )
