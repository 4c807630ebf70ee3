"""Serve `/v1`: the agents as models, for clients of OpenAI's chat API."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.openai.conversation_choice import ConversationChoice, derive_conversation_id
from rapport.channels.http.openai.errors import (
    ERRORS,
    OpenAIRoute,
    UnsupportedField,
    error_response,
    make_tool_error,
    mark_as_not_stored,
)
from rapport.channels.http.openai.requests import (
    MAX_NAME,
    CompletionBody,
    count_sent_tokens,
    parse_earlier_messages,
    parse_last_message,
    refuse_unsupported,
    require_model,
)
from rapport.channels.http.openai.responses import CompletionView, Envelope, Frame, ModelsView, ModelView, model_view
from rapport.channels.http.openai.stream import CompletionStream
from rapport.channels.http.openai.tool_completions import ToolCompletionStream, ToolEnvelope
from rapport.channels.http.openai.tool_requests import parse_tool_request
from rapport.channels.http.rendering.json_views import json_response
from rapport.core.core import Core
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Incoming
from rapport.domain.errors import NotFound, RapportError, Transient
from rapport.domain.ids import new_ephemeral_id
from rapport.domain.text_checks import check_text

if TYPE_CHECKING:
    from rapport.channels.http.auth.rate_limits import Limiter

_TOOLS_ARE_STATELESS = (
    "`tools` work only in stateless requests: leave out `user` and `X-Conversation-Id`, and send the earlier messages"
    " with the request."
)
_ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def openai_routes(core: Core, auth: Authenticator, *, max_characters: int, limiter: Limiter | None = None) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute, responses=ERRORS)
    conversations = ConversationChoice(core)
    completions = _Completions(core, conversations, limiter, max_characters)
    owner_id = Depends(auth.authenticate_owner)
    directory = core.agents.directory

    @router.get("/models", response_model=ModelsView, summary="List the agents as models")
    async def models(owner: str = owner_id) -> Response:
        await conversations.clean_up()
        agents = await directory.list_visible(owner)
        return json_response({"object": "list", "data": [model_view(agent) for agent in agents]})

    @router.get("/models/{model_id}", response_model=ModelView, summary="Get an agent as a model")
    async def model(model_id: str, owner: str = owner_id) -> Response:
        return json_response(model_view(await require_model(directory, owner, model_id)))

    @router.post(
        "/chat/completions",
        response_model=CompletionView,
        summary="Reply to the last message (`stream: true` streams the reply)",
        description="With the header `X-Conversation-Id`, or with `user`, the last message is added to a stored"
        " conversation. Otherwise the messages are an ephemeral conversation, which is erased after the reply."
        " With `tools` nothing is stored at all, and the answer may be calls of them.",
    )
    async def complete(request: Request, body: CompletionBody, owner: str = owner_id) -> Response:
        refuse_unsupported(body)
        agent = await require_model(directory, owner, body.model)
        name = _header(request, "X-Conversation-Id")
        if body.tools:
            if name is not None or body.user:
                raise UnsupportedField(_TOOLS_ARE_STATELESS, param="tools", code="unsupported_parameter")
            return await completions.answer_with_tools(request, body, owner, agent)
        if name is None and not body.user:
            return await completions.answer_ephemerally(request, body, owner, agent)
        return await completions.answer_in_conversation(request, body, owner, agent, conversation_id=name)

    @router.api_route("/{path:path}", methods=_ANY_METHOD, include_in_schema=False)
    async def nothing(request: Request, path: str) -> Response:
        raise NotFound(f"There is no route {request.method} /v1/{path[:64]}; see /docs.")

    return router


@dataclass(frozen=True, slots=True)
class _Completions:
    """Answer a request in a stored conversation, or in an ephemeral one."""

    core: Core
    conversations: ConversationChoice
    limiter: Limiter | None
    max_characters: int

    async def answer_in_conversation(
        self, request: Request, body: CompletionBody, owner: str, agent: AgentProfile, *, conversation_id: str | None
    ) -> Response:
        """Add the last message to a stored conversation and answer it; the other messages of the request are ignored."""
        message = parse_last_message(body, max_characters=self.max_characters)
        key = _header(request, "Idempotency-Key") or _header(request, "X-Client-Message-Id")
        user = check_text(body.user or "", what="user", limit=MAX_NAME)
        target_id = conversation_id or derive_conversation_id(owner, agent.id, user)
        if self.limiter is not None:
            await self.limiter.admit(request, owner, target_id)
        if conversation_id is None:
            await self.conversations.find_or_create(owner, agent, user)
        else:
            await self._refuse_other_agent(owner, target_id, agent)
        incoming = Incoming(owner, target_id, message.content, message.author, client_message_id=key, awaits_reply=True)
        ticket = await self.core.runner.accept(incoming, listen=body.stream is True)
        envelope = Envelope(ticket.accepted, agent.id, count_sent_tokens(body), kept=True)
        headers = {"X-Conversation-Id": target_id}
        if body.stream:
            return CompletionStream(ticket, envelope, headers=headers, counts_tokens=body.counts_tokens)
        try:
            answer = json_response(envelope.completion(await ticket.reply()))
        except RapportError as error:
            # The message is stored. Without a key a client's automatic retry would store it twice.
            return error_response(error, headers=headers if key else {**headers, "X-Should-Retry": "false"})
        answer.headers.update(headers)
        return answer

    async def answer_ephemerally(
        self, request: Request, body: CompletionBody, owner: str, agent: AgentProfile
    ) -> Response:
        """Answer the messages in a conversation that is erased after the reply.

        If the client disconnects, a streamed one is erased at once and another when its turn is over.
        """
        message = parse_last_message(body, max_characters=self.max_characters)
        before = parse_earlier_messages(body, max_characters=self.max_characters)
        ephemeral_id = new_ephemeral_id()
        if self.limiter is not None:
            await self.limiter.admit(request, owner, ephemeral_id)
        await self.conversations.clean_up()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.conversations.end_ephemeral, owner, ephemeral_id)
            await self.conversations.begin_ephemeral(owner, ephemeral_id, agent, before)
            incoming = Incoming(owner, ephemeral_id, message.content, message.author)
            ticket = await self.core.runner.accept(incoming, listen=body.stream is True)
            envelope = Envelope(ticket.accepted, agent.id, count_sent_tokens(body), kept=False)
            if body.stream:
                erase = stack.pop_all().aclose
                return CompletionStream(ticket, envelope, counts_tokens=body.counts_tokens, afterwards=erase)
            try:
                reply = await ticket.reply()
            except Transient as error:
                raise mark_as_not_stored(error) from error
            return json_response(envelope.completion(reply))

    async def answer_with_tools(
        self, request: Request, body: CompletionBody, owner: str, agent: AgentProfile
    ) -> Response:
        """Answer the messages with text, or with calls of the client's tools. Nothing but the usage is stored."""
        parsed = parse_tool_request(body, owner, max_characters=self.max_characters)
        if self.limiter is not None:
            await self.limiter.admit(request, owner, new_ephemeral_id())
        ticket = self.core.runner.begin_client_tools(parsed, agent, listen=body.stream is True)
        envelope = ToolEnvelope(Frame(ticket.id, datetime.now(UTC), agent.id), count_sent_tokens(body))
        if body.stream:
            return ToolCompletionStream(ticket, envelope, counts_tokens=body.counts_tokens)
        try:
            return json_response(envelope.completion(await ticket.reply()))
        except RapportError as error:
            return error_response(make_tool_error(mark_as_not_stored(error)))

    async def _refuse_other_agent(self, owner: str, conversation_id: str, agent: AgentProfile) -> None:
        conversation = await self.core.conversations.get(owner, conversation_id)
        answering = await self.core.agents.get_for_conversation(conversation)
        if answering.id != agent.id:
            raise UnsupportedField(f"The agent of this conversation is `{answering.id}`.", param="model")


def _header(request: Request, name: str) -> str | None:
    value = request.headers.get(name)
    return check_text(value, what=name, limit=MAX_NAME) if value else None
