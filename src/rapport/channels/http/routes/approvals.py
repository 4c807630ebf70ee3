"""Serve `/api/threads/{id}/approvals`: what the agent asks before it changes something outside, and the decisions."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import Body, StrictRoute
from rapport.core.approvals import Approvals
from rapport.domain.text_checks import check_text
from rapport.domain.tool_call import ToolCall


class ApprovalView(BaseModel):
    """A tool call that waits for a decision, or had one.

    `message_id` is the person's message that needs the call. `state` is `asked`, `expired`, `denied`, `allowed`, `running`,
    `done`, `failed` (the tool reported an error, or could not be reached) or `unknown` (it gave no answer).
    """

    id: str
    message_id: str
    tool: str
    server: str
    arguments: dict[str, Any]
    state: Literal["asked", "expired", "denied", "allowed", "running", "done", "failed", "unknown"]
    author_id: str | None
    created_at: str
    expires_at: str
    decided_at: str | None
    decided_by: str | None


class ApprovalsView(BaseModel):
    approvals: list[ApprovalView]


class DecisionBody(Body):
    """In a group, `author_id` is the person who decides: the one who called the agent. Without it, the owner of the conversation
    decides as its admin. In a direct chat nobody else may decide.
    """

    decision: Literal["allow", "deny"]
    author_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None


def approval_routes(approvals: Approvals, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/threads/{thread_id}", tags=["tools"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.get("/approvals", response_model=ApprovalsView, summary="List the tool calls that the agent asked about")
    async def list_approvals(thread_id: str, owner: str = owner_id) -> Response:
        found = await approvals.list(owner, thread_id)
        return json_response({"approvals": [approval_view(call) for call in found]})

    @router.post("/approvals/{approval_id}", response_model=ApprovalView, summary="Allow or deny a tool call")
    async def decide(thread_id: str, approval_id: str, body: DecisionBody, owner: str = owner_id) -> Response:
        author = None if body.author_id is None else check_text(body.author_id, what="author_id", limit=200)
        decided = await approvals.decide(
            owner, thread_id, approval_id, body.decision, author_id=author, is_admin=author is None
        )
        return json_response(approval_view(decided))

    return router


def approval_view(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.approval_id,
        "message_id": call.message_id,
        "tool": call.tool,
        "server": call.server,
        "arguments": call.arguments,
        "state": "expired" if call.is_expired else call.state,
        "author_id": call.asker_id,
        "created_at": call.created_at,
        "expires_at": call.expires_at,
        "decided_at": call.decided_at,
        "decided_by": call.decided_by,
    }
