"""`/api/threads/{id}/context`: what the model was given for a reply, and why."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from rapport.channels.http.bodies import StrictRoute
from rapport.channels.http.conversations import Caller
from rapport.channels.http.views import json_response
from rapport.chiming import Chooser
from rapport.domain.selection import Strategy
from rapport.receipts import Explanation, explain


class ScoredView(BaseModel):
    id: str
    score: float


class ChosenView(ScoredView):
    """A message of the conversation, why it was given to the model, and how sure that was (0 to 1)."""

    reasons: list[str]


class ContextView(BaseModel):
    """What a reply was made from.

    `message_id` is what was answered (of something said unasked, the reply itself). `stored` says whether this was kept
    with the reply, or is what would be chosen now. `looked_up` names the tools with which the model saw more of the chat.
    """

    message_id: str
    reply_id: str | None
    stored: bool
    strategy: Strategy
    anchor_id: str | None
    messages: list[ChosenView]
    memories: list[ScoredView]
    notes: list[ScoredView]
    summary_id: str | None
    looked_up: list[str]


def context_routes(chooser: Chooser, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/api/threads", tags=["threads"], route_class=StrictRoute)
    owner_id = Depends(caller)

    @router.get("/{thread_id}/context", response_model=ContextView, summary="What a reply was made from, and why")
    async def context(
        thread_id: str,
        message_id: Annotated[str | None, Query(description="A reply, or the message it answers; else the latest reply")] = None,
        strategy: Annotated[Strategy | None, Query(description="What this strategy would choose now")] = None,
        owner: str = owner_id,
    ) -> Response:  # fmt: skip
        return json_response(context_view(await explain(chooser, owner, thread_id, message_id, strategy=strategy)))

    return router


def context_view(explanation: Explanation) -> dict[str, Any]:
    """An explanation for the owner of the conversation: ids, reasons and scores."""
    subject = explanation.call or explanation.reply
    receipt = explanation.receipt
    return {
        "message_id": subject and subject.id,
        "reply_id": explanation.reply and explanation.reply.id,
        "stored": explanation.stored,
        "strategy": receipt["strategy"],
        "anchor_id": receipt["anchor_id"],
        "messages": receipt["messages"],
        "memories": explanation.memories,
        "notes": explanation.notes,
        "summary_id": receipt.get("summary_id"),
        "looked_up": receipt.get("looked_up", []),
    }
