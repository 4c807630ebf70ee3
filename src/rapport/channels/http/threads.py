"""`/api/threads`: the same conversations, to list and to look back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from structlog.contextvars import bound_contextvars

from rapport.channels.http.bodies import NewConversation, StrictRoute
from rapport.channels.http.conversations import Caller, agent_named
from rapport.channels.http.cursors import cursor_of, cursor_text
from rapport.channels.http.views import (
    ConversationView,
    HistoryView,
    ThreadsView,
    conversation_view,
    json_response,
    message_view,
)
from rapport.domain.agents import COMPANION
from rapport.domain.ids import is_id
from rapport.domain.text import checked_text
from rapport.storage.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages import Messages

Limit = Annotated[int, Query(ge=1, le=500, description="How many at most")]


def thread_routes(database: Database, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/api/threads", tags=["threads"], route_class=StrictRoute)
    owner_id = Depends(caller)

    @router.post("", status_code=201, response_model=ConversationView, summary="Begin a conversation")
    async def create(body: NewConversation | None = None, owner: str = owner_id) -> Response:
        asked = body or NewConversation()
        title = None if asked.title is None else checked_text(asked.title, what="title", limit=200)
        async with database.statement() as connection:
            made = await Conversations(connection).create(
                owner, agent_id=agent_named(asked.agent, COMPANION.id), kind=asked.kind, title=title
            )
        return json_response(conversation_view(made), 201)

    @router.get("", response_model=ThreadsView, summary="Conversations, the latest first")
    async def recent(limit: Limit = 50, before: str | None = None, owner: str = owner_id) -> Response:
        cursor = None if before is None else cursor_of(before, is_id=is_id)
        async with database.statement() as connection:
            found = await Conversations(connection).recent(owner, limit=limit + 1, before=cursor)
        page = found[:limit]
        following = cursor_text(page[-1].last_at, page[-1].id) if len(found) > limit else None
        return json_response({"threads": [conversation_view(one) for one in page], "next": following})

    @router.get("/{thread_id}/history", response_model=HistoryView, summary="What was said, page by page")
    async def history(thread_id: str, limit: Limit = 100, before: str | None = None, owner: str = owner_id) -> Response:
        """The newest messages (oldest of them first); `next` is the `before` of the page that precedes this one."""
        async with database.statement() as connection:
            thread = await Conversations(connection).get(owner, thread_id)
            messages = Messages(connection)
            cursor = None if before is None else await messages.position(owner, thread_id, before)
            with bound_contextvars(agentId=thread.agent_id):  # for what is logged about it
                found = await messages.before(owner, thread_id, limit=limit + 1, cursor=cursor)
        page = found[-limit:]
        following = page[0].id if len(found) > limit else None
        return json_response({"messages": [message_view(one) for one in page], "next": following})

    return router
