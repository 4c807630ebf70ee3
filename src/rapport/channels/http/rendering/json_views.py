"""Answers: what of our values leaves through HTTP, and in which shape."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel

from rapport.agents.advice import advise
from rapport.channels.http.problems import NOT_STORED
from rapport.domain.conversation import Conversation, Message
from rapport.domain.memory import Memory, Origin
from rapport.domain.note import Note, Passage
from rapport.domain.read_models import ListedConversation
from rapport.memory.memory_store import Stats


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
    """Why the model could not answer, and what to do about it; told to whoever runs the server."""

    kind: str
    text: str


class MessageView(BaseModel):
    """A message as history shows it.

    `summary_id` names the summary that stands for it when the model is asked; `source_ids` are those a summary rests on;
    `thread_id` is the forum topic; `context_snapshot` is what it replies to, if that was said before the agent was there.
    `problem` says what is wrong with the model, where `fallbackUsed` is true, to whoever runs the server: the user `local`.
    `html` is there with `render=html`: its words, safe to put into a page.
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
    id: str
    title: str
    file_name: str | None
    characters: int
    chunks: int
    created_at: str
    updated_at: str
    unchanged: bool = False


class NoteTextView(NoteView):
    text: str


class NotesView(BaseModel):
    notes: list[NoteView]
    next: str | None


class PassageView(BaseModel):
    id: str
    title: str
    heading: str
    text: str
    similarity: float


class PassagesView(BaseModel):
    """`relevance`, which is `best_similarity` corrected, under `min_similarity` is what a strict agent does not answer to."""

    passages: list[PassageView]
    best_similarity: float
    relevance: float
    min_similarity: float


class MemoryView(BaseModel):
    """`origin` is who wrote it down; `conversation_id` and `message_id` say where it comes from, if from a message."""

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
    """`warning` says what to do once it is nearly full."""

    count: int
    capacity: int
    share: float
    warning: str | None
    oldest: str | None
    newest: str | None
    by_origin: dict[Origin, int]


def note_view(note: Note) -> dict[str, Any]:
    return {
        "id": note.id,
        "title": note.title,
        "file_name": note.file_name,
        "characters": note.characters,
        "chunks": note.chunks,
        "created_at": note.created_at,
        "updated_at": note.updated_at,
    }


def passage_view(passage: Passage) -> dict[str, Any]:
    return {
        "id": passage.note_id,
        "title": passage.title,
        "heading": passage.heading,
        "text": passage.text,
        "similarity": passage.similarity,
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


def memory_stats_view(stats: Stats) -> dict[str, Any]:
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
    """A conversation in a list."""
    last = thread.last_message
    return {
        **conversation_view(thread.conversation),
        "last_message": last
        and {"author": last.author, "role": last.role, "text": last.text, "created_at": last.created_at},
    }


def problem_view(message: Message | None, *, operator: bool) -> dict[str, str] | None:
    """Return what was wrong with the model when this reply was made; None for all but the operator."""
    kept: Any = message.metadata.get("problem") if message is not None and operator else None
    return kept and {"kind": kept["kind"], "text": advise(kept["kind"], kept["model"])}


def message_view(message: Message, *, operator: bool = False) -> dict[str, Any]:
    """A stored message for its owner. Only named metadata leaves: what is not listed here stays inside."""
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
        "context_snapshot": message.context_snapshot,
    }


def json_response(value: Any, status: int = 200) -> Response:
    """JSON, with times in UTC and to the microsecond."""
    return Response(as_json(value), status_code=status, media_type="application/json", headers=NOT_STORED)


def as_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)
