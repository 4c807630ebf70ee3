"""Serve `/api/threads`: list, search and rename conversations, and read their history."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from rapport.agents.profiles import COMPANION
from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import (
    ConversationView,
    HistoryView,
    MessageView,
    ThreadsView,
    ThreadView,
    conversation_view,
    json_response,
    message_view,
    thread_view,
)
from rapport.channels.http.rendering.message_html import Renderer
from rapport.channels.http.requests.cursors import format_cursor, parse_cursor
from rapport.channels.http.requests.json_bodies import Body, NewConversation, StrictRoute
from rapport.channels.http.routes.conversations import create_conversation
from rapport.core.core import Core
from rapport.domain.caller import Caller
from rapport.domain.ids import is_id
from rapport.domain.text_checks import check_text

MAX_PEOPLE = 50

Limit = Annotated[int, Query(ge=1, le=500, description="The most entries of a page")]
Render = Annotated[Literal["html"] | None, Query(description="`html`: add each message as HTML")]
Words = Annotated[str | None, Query(max_length=200, description="Words of the title or of the latest messages")]


class Renaming(Body):
    title: Annotated[str | None, Field(max_length=200)]


class PersonView(BaseModel):
    id: str
    name: str


class AddressedView(PersonView):
    """The agent, and the names that address it after an @."""

    handles: list[str]


class PeopleView(BaseModel):
    people: list[PersonView]
    agent: AddressedView


def thread_routes(core: Core, auth: Authenticator, *, renderer: Renderer) -> APIRouter:
    router = APIRouter(prefix="/api/threads", tags=["threads"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)
    any_caller = Depends(auth.authenticate)

    @router.post("", status_code=201, response_model=ConversationView, summary="Create a conversation")
    async def create(body: NewConversation | None = None, owner: str = owner_id) -> Response:
        conversation = await create_conversation(core, owner, body or NewConversation(), default_agent=COMPANION.id)
        return json_response(conversation_view(conversation), 201)

    @router.get("", response_model=ThreadsView, summary="List conversations, latest first")
    async def list_recent(
        limit: Limit = 50, before: str | None = None, q: Words = None, owner: str = owner_id
    ) -> Response:
        cursor = None if before is None else parse_cursor(before, is_id=is_id)
        words = "" if q is None else check_text(q, what="q", limit=200)
        rows = await core.conversations.list_recent(owner, limit=limit + 1, before=cursor, words=words)
        page = rows[:limit]
        last = page[-1].conversation if page else None
        following = format_cursor(last.last_at, last.id) if last and len(rows) > limit else None
        return json_response({"threads": [thread_view(one) for one in page], "next": following})

    @router.patch("/{thread_id}", response_model=ThreadView, summary="Rename a conversation; null removes its name")
    async def rename(thread_id: str, body: Renaming, owner: str = owner_id) -> Response:
        title = None if body.title is None else check_text(body.title, what="title", limit=200).strip()
        return json_response(thread_view(await core.conversations.rename(owner, thread_id, title or None)))

    @router.get(
        "/{thread_id}/history", response_model=HistoryView, summary="Get the history of a conversation, page by page"
    )
    async def get_history(
        thread_id: str,
        limit: Limit = 100,
        before: str | None = None,
        render: Render = None,
        caller: Caller = any_caller,
    ) -> Response:
        """Return the newest messages, oldest first. `next` is the `before` of the previous page."""
        rows = await core.history.load_page(caller.owner_id, thread_id, limit=limit + 1, before=before)
        page = rows[-limit:]
        following = page[0].id if len(rows) > limit else None
        if render:
            shown = await renderer.views(page, operator=caller.is_operator)
        else:
            shown = [message_view(one, operator=caller.is_operator) for one in page]
        return json_response({"messages": shown, "next": following})

    @router.get("/{thread_id}/messages/{message_id}", response_model=MessageView, summary="Get a message")
    async def get_message(
        thread_id: str, message_id: str, render: Render = None, caller: Caller = any_caller
    ) -> Response:
        message = await core.history.get(caller.owner_id, thread_id, message_id)
        shown = renderer.view(message, operator=caller.is_operator) if render else None
        return json_response(await shown if shown else message_view(message, operator=caller.is_operator))

    @router.get(
        "/{thread_id}/people", response_model=PeopleView, summary="List the authors of a conversation, latest first"
    )
    async def list_people(thread_id: str, owner: str = owner_id) -> Response:
        participants = await core.conversations.load_participants(owner, thread_id, limit=MAX_PEOPLE)
        agent = participants.agent
        return json_response(
            {
                "people": [{"id": person.id, "name": person.name} for person in participants.people],
                "agent": {"id": agent.id, "name": agent.name, "handles": list(agent.handles)},
            }
        )

    return router
