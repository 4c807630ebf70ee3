"""Define the JSON of responses, and build it from the values of the domain."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel

from rapport.agents.advice import advise_about_reply
from rapport.channels.http.problems import NOT_STORED
from rapport.domain.conversation import Conversation, Message
from rapport.domain.memory import Memory, Origin
from rapport.domain.note import Note, Passage
from rapport.domain.read_models import ListedConversation
from rapport.memory.memory_store import MemoryStats


class ConversationView(BaseModel):
    id: str
    agent: str
    kind: Literal["direct", "group"]
    channel: str
    title: str | None
    created_at: str
    last_at: str


class LastMessageView(BaseModel):
    """The beginning of the last message, on one line."""

    author: str | None
    role: Literal["user", "assistant"]
    text: str
    created_at: str


class ThreadView(ConversationView):
    last_message: LastMessageView | None


class ProblemView(BaseModel):
    """The reason why the model could not answer, and what to do about it. Only operators get it."""

    kind: str
    text: str


class MessageView(BaseModel):
    """A message of the history.

    `summary_id` names the summary that replaces it for the model. `source_ids` are the notes that a summary mentions.
    `thread_id` is the forum topic. `context_snapshot` is the message it replies to, if that is older than the agent.
    `problem` says what is wrong with the model where `fallbackUsed` is true; only operators get it.
    `html` is set with `render=html`: the content as HTML that is safe to put into a page.
    `approvals` are the ids of the questions about tool calls that the message asks (`GET …/approvals`).
    `reminder_id` is the reminder that the message delivers.
    """

    id: str
    role: Literal["user", "assistant", "system-summary"]
    author: dict[str, str] | None
    content: str | list[dict[str, Any]]
    created_at: str
    reply_to_id: str | None
    sources: list[dict[str, str]]
    guardUsed: bool  # noqa: N815 - the seed's name
    fallbackUsed: bool  # noqa: N815 - the seed's name
    problem: ProblemView | None
    cancelled: bool
    autonomous: bool
    trigger_type: str | None
    summary_id: str | None
    source_ids: list[str]
    thread_id: str | None
    is_bot: bool
    approvals: list[str]
    reminder_id: str | None
    context_snapshot: dict[str, Any] | None
    html: str | None = None


class ThreadsView(BaseModel):
    threads: list[ThreadView]
    next: str | None


class HistoryView(BaseModel):
    messages: list[MessageView]
    next: str | None


class CreatedView(BaseModel):
    id: str


class StoredView(BaseModel):
    id: str
    replied: Literal[False]


class CancelledView(BaseModel):
    cancelled: bool


class NoteView(BaseModel):
    """`shared_with` is `owner`, `everyone` or the id of a group conversation. Only its owner changes a note."""

    id: str
    title: str
    file_name: str | None
    characters: int
    chunks: int
    created_at: str
    updated_at: str
    collections: list[str]
    shared_with: str
    owner: str
    is_own: bool
    unchanged: bool = False


class NoteTextView(NoteView):
    text: str


class NotesView(BaseModel):
    notes: list[NoteView]
    next: str | None


class CollectionView(BaseModel):
    """The number of notes in a collection that you may see, and of your own among them."""

    name: str
    notes: int
    own: int


class CollectionsView(BaseModel):
    collections: list[CollectionView]


class PassageView(BaseModel):
    """`shared_by` is the owner of somebody else's note."""

    id: str
    title: str
    heading: str
    text: str
    similarity: float
    shared_by: str | None


class PassagesView(BaseModel):
    """A strict agent does not answer when `relevance` (the corrected `best_similarity`) is below `min_similarity`."""

    passages: list[PassageView]
    best_similarity: float
    relevance: float
    min_similarity: float


class MemoryView(BaseModel):
    """`origin` says who saved it; `conversation_id` and `message_id` name the message that it comes from, if any."""

    id: str
    agent: str
    key: str | None
    content: str
    origin: Origin
    conversation_id: str | None
    message_id: str | None
    created_at: str
    updated_at: str


class FoundMemoryView(MemoryView):
    similarity: float


class MemoriesView(BaseModel):
    memories: list[MemoryView]
    next: str | None


class FoundMemoriesView(BaseModel):
    memories: list[FoundMemoryView]


class MemoryStatsView(BaseModel):
    """`warning` says what to do when the memory is nearly full."""

    count: int
    capacity: int
    share: float
    warning: str | None
    oldest: str | None
    newest: str | None
    by_origin: dict[Origin, int]


def note_view(note: Note, *, reader: str) -> dict[str, Any]:
    """Return a note for somebody who may see it."""
    return {
        "id": note.id,
        "title": note.title,
        "file_name": note.file_name,
        "characters": note.characters,
        "chunks": note.chunks,
        "created_at": note.created_at,
        "updated_at": note.updated_at,
        "collections": note.collections,
        "shared_with": note.shared_with,
        "owner": note.owner_id,
        "is_own": note.owner_id == reader,
    }


def passage_view(passage: Passage) -> dict[str, Any]:
    return {
        "id": passage.note_id,
        "title": passage.title,
        "heading": passage.heading,
        "text": passage.text,
        "similarity": passage.similarity,
        "shared_by": passage.shared_by,
    }


def memory_view(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "agent": memory.agent_id,
        "key": memory.key,
        "content": memory.content,
        "origin": memory.origin,
        "conversation_id": memory.conversation_id,
        "message_id": memory.message_id,
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
    }


def memory_stats_view(stats: MemoryStats) -> dict[str, Any]:
    return {
        "count": stats.count,
        "capacity": stats.capacity,
        "share": stats.share,
        "warning": stats.warning,
        "oldest": stats.oldest,
        "newest": stats.newest,
        "by_origin": dict(stats.by_origin),
    }


def conversation_view(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "agent": conversation.agent_id,
        "kind": conversation.kind,
        "channel": conversation.channel,
        "title": conversation.title,
        "created_at": conversation.created_at,
        "last_at": conversation.last_at,
    }


def thread_view(thread: ListedConversation) -> dict[str, Any]:
    """Return a conversation as an entry of a list."""
    last = thread.last_message
    return {
        **conversation_view(thread.conversation),
        "last_message": last
        and {"author": last.author, "role": last.role, "text": last.text, "created_at": last.created_at},
    }


def problem_view(message: Message | None, *, operator: bool) -> dict[str, str] | None:
    """Return what was wrong with the model when it made this reply; None for everybody but operators."""
    stored: Any = message.metadata.get("problem") if message is not None and operator else None
    return stored and {"kind": stored["kind"], "text": advise_about_reply(stored)}


def message_view(message: Message, *, operator: bool = False) -> dict[str, Any]:
    """Return a stored message for its owner. Metadata that is not listed here is never sent."""
    reminder: Any = message.metadata.get("reminder")
    return {
        "id": message.id,
        "role": message.role,
        "author": message.author and {"id": message.author.id, "name": message.author.name},
        "content": message.content,
        "created_at": message.created_at,
        "reply_to_id": message.reply_to_id,
        "sources": message.sources,
        "guardUsed": message.metadata.get("guard_used") is True,
        "fallbackUsed": message.metadata.get("fallback_used") is True,
        "problem": problem_view(message, operator=operator),
        "cancelled": message.metadata.get("cancelled") is True,
        "autonomous": message.metadata.get("autonomous") is True,
        "trigger_type": message.metadata.get("trigger_type"),
        "summary_id": message.summary_id,
        "source_ids": message.metadata.get("source_ids", []),
        "thread_id": message.thread_id,
        "is_bot": message.is_bot,
        "approvals": message.metadata.get("approvals", []),
        "reminder_id": reminder and reminder["id"],
        "context_snapshot": message.context_snapshot,
    }


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON response, with times in UTC and to the microsecond."""
    return Response(as_json(value), status_code=status, media_type="application/json", headers=NOT_STORED)


def as_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)
