"""Serve `/api/threads/{id}/context`: the context of a reply with reasons; and `/search`: messages about a question."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import ProblemView, json_response, problem_view
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.core.core import Core
from rapport.domain.caller import Caller
from rapport.domain.context_selection import Strategy
from rapport.domain.conversation import Message
from rapport.domain.read_models import SearchHit
from rapport.domain.text_checks import check_text
from rapport.turns.explain import Explanation
from rapport.turns.group_context import MAX_QUERY_CHARACTERS, check_query

SHOWN_CHARACTERS = 300


class ScoredView(BaseModel):
    id: str
    score: float


class ChosenView(ScoredView):
    """A message that the model was given, with the reasons and a score (0 to 1)."""

    reasons: list[str]


class MemoryUsedView(ScoredView):
    """`text` is set with `include=timeline`; null if the memory was deleted."""

    text: str | None = None


class NoteUsedView(ScoredView):
    """`given` is false for a note that was not close enough. `shared_by` is the owner of somebody else's note. `title` is set
    with `include=timeline`; null if it was deleted or is no longer shared."""

    given: bool
    shared_by: str | None = None
    title: str | None = None


class WhyView(BaseModel):
    reasons: list[str]
    score: float


class MomentView(BaseModel):
    """A message before the reply. `chosen` has the reasons why the model was given it; null if it was not."""

    id: str
    author: str
    role: Literal["user", "assistant"]
    text: str
    created_at: str
    is_call: bool
    chosen: WhyView | None


class ReplyUsageView(BaseModel):
    """The model calls of a turn and their tokens; `estimated` is true if the provider did not count all of them."""

    calls: int
    tokens_in: int
    tokens_out: int
    estimated: bool
    model: str


class ToolUsedView(BaseModel):
    """A tool of another program. `state` is `read`, or that of a call that changes something (`GET …/approvals`)."""

    name: str
    server: str
    state: str


class ContextView(BaseModel):
    """The messages, memories and notes that the model was given for a reply.

    `message_id` is the answered message (for a follow-up, the reply itself). `stored` is true where this was stored with
    the reply, and false where it is what would be chosen now. `looked_up` names the tools that showed the model more of
    the chat. `problem` says what was wrong with the model where the reply is a fallback; only operators get it.
    `usage` is null where no model was called.
    `timeline` is set with `include=timeline`: the messages before the reply, oldest first, and all older chosen ones.
    """

    message_id: str
    reply_id: str | None
    stored: bool
    strategy: Strategy
    anchor_id: str | None
    messages: list[ChosenView]
    memories: list[MemoryUsedView]
    notes: list[NoteUsedView]
    summary_id: str | None
    looked_up: list[str]
    tools: list[ToolUsedView]
    problem: ProblemView | None
    usage: ReplyUsageView | None
    timeline: list[MomentView] | None = None


class FoundView(BaseModel):
    """A message that matches a search. `similarity` is by meaning (null if it has no vector). `words` is the share of the
    question's words in the message, weighted by rarity. Both are at most 1."""

    id: str
    author: str | None
    role: Literal["user", "assistant"]
    text: str
    created_at: str
    thread_id: str | None
    similarity: float | None
    words: float


class SearchView(BaseModel):
    """The results of a search, best match first."""

    messages: list[FoundView]


def context_routes(core: Core, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/threads", tags=["threads"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)
    any_caller = Depends(auth.authenticate)

    @router.get(
        "/{thread_id}/context", response_model=ContextView, summary="Explain which context a reply was made from"
    )
    async def context(
        thread_id: str,
        message_id: Annotated[str | None, Query(description="A reply or the message it answers; the default is the latest reply")] = None,
        strategy: Annotated[Strategy | None, Query(description="Show what this strategy would choose now")] = None,
        include: Annotated[Literal["timeline"] | None, Query(description="`timeline`: include the texts")] = None,
        caller: Caller = any_caller,
    ) -> Response:  # fmt: skip
        explanation = await core.explanations.explain(caller.owner_id, thread_id, message_id, strategy=strategy)
        view = context_view(explanation, operator=caller.is_operator)
        return json_response(view | await _load_texts(core, explanation) if include else view)

    @router.get("/{thread_id}/search", response_model=SearchView, summary="Search the messages of a conversation")
    async def search(
        thread_id: str,
        q: Annotated[str, Query(max_length=MAX_QUERY_CHARACTERS, description="A question, or a few words; names of participants count")],
        limit: Annotated[int, Query(ge=1, le=50)] = 10,
        topic: Annotated[str | None, Query(max_length=200, description="Only in this forum topic")] = None,
        owner: str = owner_id,
    ) -> Response:  # fmt: skip
        question = check_query(q, name="q")
        topic = None if topic is None else check_text(topic, what="topic", limit=200)
        hits = await core.explanations.search(owner, thread_id, question, thread_id=topic, limit=limit)
        return json_response({"messages": [search_hit_view(hit) for hit in hits]})

    return router


def search_hit_view(hit: SearchHit) -> dict[str, Any]:
    """Return a search result for the owner of the conversation."""
    return {
        "id": hit.message.id,
        "author": hit.message.author.name if hit.message.author else None,
        "role": hit.message.role,
        "text": hit.message.text,
        "created_at": hit.message.created_at,
        "thread_id": hit.message.thread_id,
        "similarity": None if hit.similarity is None else round(hit.similarity, 4),
        "words": round(hit.share, 4),
    }


def context_view(explanation: Explanation, *, operator: bool) -> dict[str, Any]:
    """Return an explanation for the owner of the conversation: ids, reasons and scores."""
    subject = explanation.call or explanation.reply
    receipt = explanation.receipt
    return {
        "message_id": subject and subject.id,
        "reply_id": explanation.reply and explanation.reply.id,
        "stored": explanation.is_stored,
        "strategy": receipt["strategy"],
        "anchor_id": receipt["anchor_id"],
        "messages": receipt["messages"],
        "memories": explanation.memories,
        "notes": explanation.notes,
        "summary_id": receipt.get("summary_id"),
        "looked_up": receipt.get("looked_up", []),
        "tools": explanation.tools,
        "agent": explanation.agent_version,
        "problem": problem_view(explanation.reply, operator=operator),
        "usage": explanation.usage,
    }


async def _load_texts(core: Core, explanation: Explanation) -> dict[str, Any]:
    """Return the texts behind the ids of an explanation; null for deleted ones."""
    details = await core.explanations.load_details(explanation)
    reasons_by_id = {
        chosen["id"]: {"reasons": chosen["reasons"], "score": chosen["score"]}
        for chosen in explanation.receipt["messages"]
    }
    return {
        "timeline": [
            _moment_view(message, explanation, reasons_by_id, details.agent_name) for message in details.messages
        ],
        "memories": [{**memory, "text": details.memory_texts.get(memory["id"])} for memory in explanation.memories],
        "notes": [{**note, "title": details.note_titles.get(note["id"])} for note in explanation.notes],
    }


def _moment_view(
    message: Message, explanation: Explanation, reasons_by_id: Mapping[str, Any], agent_name: str
) -> dict[str, Any]:
    agent = agent_name if message.role == "assistant" else "You"
    words = " ".join(message.text.split())
    return {
        "id": message.id,
        "author": message.author.name if message.author else agent,
        "role": message.role,
        "text": words if len(words) <= SHOWN_CHARACTERS else words[: SHOWN_CHARACTERS - 1] + "…",
        "created_at": message.created_at,
        "is_call": explanation.call is not None and message.id == explanation.call.id,
        "chosen": reasons_by_id.get(message.id),
    }
