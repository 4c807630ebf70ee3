"""Serve `/chat/conversations`: create conversations, send messages, get replies."""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from rapport.agents.profiles import LIBRARIAN
from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.live.turn_stream import turn_stream
from rapport.channels.http.rendering.json_views import (
    CancelledView,
    ConversationView,
    CreatedView,
    MessageView,
    StoredView,
    conversation_view,
    json_response,
    message_view,
)
from rapport.channels.http.requests.json_bodies import (
    AuthorBody,
    NewConversation,
    NewMessage,
    StrictRoute,
    make_direct_route,
)
from rapport.core.core import Core
from rapport.domain.caller import Caller
from rapport.domain.chat_archive import KEY_PREFIX
from rapport.domain.conversation import Author, Conversation, Incoming
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text
from rapport.ingest.content import check_content, check_mentions, check_snapshot

if TYPE_CHECKING:
    from rapport.channels.http.auth.rate_limits import Limiter


def conversation_routes(
    core: Core, auth: Authenticator, *, max_characters: int, limiter: "Limiter | None" = None
) -> APIRouter:
    router = APIRouter(prefix="/chat/conversations", tags=["chat"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.post("", status_code=201, response_model=CreatedView, summary="Create a conversation")
    async def create(body: NewConversation | None = None, owner: str = owner_id) -> Response:
        conversation = await create_conversation(core, owner, body or NewConversation(), default_agent=LIBRARIAN.id)
        return json_response({"id": conversation.id}, 201)

    @router.get("/{conversation_id}", response_model=ConversationView, summary="Get a conversation")
    async def get(conversation_id: str, owner: str = owner_id) -> Response:
        return json_response(conversation_view(await core.conversations.get(owner, conversation_id)))

    @router.delete("/{conversation_id}", status_code=204, summary="Erase a conversation and all its messages")
    async def delete(conversation_id: str, owner: str = owner_id) -> Response:
        await core.runner.erase(owner, conversation_id)
        return Response(status_code=204)

    any_caller = Depends(auth.authenticate)

    async def send(request: Request, conversation_id: str, body: NewMessage, caller: Caller = any_caller) -> Response:
        streaming = "text/event-stream" in request.headers.get("accept", "")
        incoming = parse_incoming(caller.owner_id, conversation_id, body, max_characters=max_characters)
        if limiter is not None:
            await limiter.admit(request, caller.owner_id, conversation_id)
        ticket = await core.runner.accept(incoming, listen=streaming)
        if not ticket.accepted.is_for_agent:
            return json_response({"id": ticket.accepted.message_id, "replied": False}, 202)
        if streaming:
            return turn_stream(ticket, operator=caller.is_operator)
        return json_response(message_view(await ticket.reply(), operator=caller.is_operator))

    async def send_directly(request: Request, body: NewMessage) -> Response:
        return await send(request, request.path_params["conversation_id"], body, await auth.authenticate(request))

    router.add_api_route(
        "/{conversation_id}/messages",
        send,
        methods=["POST"],
        route_class_override=make_direct_route(NewMessage, send_directly),
        response_model=MessageView,
        responses={
            202: {
                "model": StoredView,
                "description": "Stored without a reply: a group message that doesn't address the agent",
            },
            429: {"description": "Too many messages: nothing was stored; `retryAfter` says when to try again"},
        },
        summary="Send a message; the response is the agent's reply (`Accept: text/event-stream` streams it)",
    )

    @router.post("/{conversation_id}/cancel", response_model=CancelledView, summary="Stop the running turn")
    async def cancel(conversation_id: str, owner: str = owner_id) -> Response:
        return json_response({"cancelled": await core.runner.cancel(owner, conversation_id)})

    return router


async def create_conversation(core: Core, owner_id: str, body: NewConversation, *, default_agent: str) -> Conversation:
    """Create the conversation that a request describes."""
    return await core.conversations.create(
        owner_id,
        agent_id=await resolve_agent(core, owner_id, body.agent, default_agent),
        kind=body.kind,
        title=None if body.title is None else check_text(body.title, what="title", limit=200),
    )


_NAMES = ("client_message_id", "reply_to_id", "thread_id", "platform_id", "reply_to_platform_id")


def parse_incoming(
    owner: str, conversation_id: str, body: NewMessage, *, max_characters: int, content_field: str = "content"
) -> Incoming:
    """Return the checked message of a request. Other metadata of a client has no field and is never accepted."""
    for name in _NAMES:
        if (value := getattr(body, name)) is not None:
            check_text(value, what=name, limit=200)
    if (body.client_message_id or "").startswith(KEY_PREFIX):
        raise InvalidInput(f"`client_message_id` can't begin with `{KEY_PREFIX}`: that prefix marks imported messages.")
    snapshot = body.context_snapshot
    return Incoming(
        owner_id=owner,
        conversation_id=conversation_id,
        content=check_content(body.content, limit=max_characters, field=content_field),
        author=_author(body.author, field="author"),
        reply_to_id=body.reply_to_id,
        client_message_id=body.client_message_id,
        mentions=check_mentions(body.mentions),
        thread_id=body.thread_id,
        is_bot=body.is_bot,
        platform_id=body.platform_id,
        # A snapshot with an id names the message that is replied to: it is linked if it is stored.
        reply_to_platform_id=body.reply_to_platform_id or (snapshot and snapshot.id),
        context_snapshot=snapshot
        and check_snapshot(
            snapshot.text,
            id=snapshot.id,
            author=_author(snapshot.author, field="context_snapshot.author"),
            created_at=snapshot.created_at,
            limit=max_characters,
        ),
    )


def _author(author: AuthorBody | str | None, *, field: str) -> Author | None:
    if author is None:
        return None
    if isinstance(author, str):
        return Author(check_text(author, what=field, limit=200), author)
    return Author(
        check_text(author.id, what=f"{field}.id", limit=200), check_text(author.name, what=f"{field}.name", limit=200)
    )


async def resolve_agent(core: Core, owner_id: str, name: str | None, default: str) -> str:
    """Return the id of the requested agent, or the default; raise InvalidInput for one that the caller may not use."""
    return default if name is None else (await core.agents.require(owner_id, name)).id
