"""Answers: what of our values leaves through HTTP, and in which shape."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel

from rapport.domain.conversation import Conversation, Message


class ConversationView(BaseModel):
    id: str
    agent: str
    kind: Literal["direct", "group"]
    title: str | None
    created_at: str
    last_at: str


class MessageView(BaseModel):
    """A message as history shows it."""

    id: str
    role: Literal["user", "assistant", "system-summary"]
    author: dict[str, str] | None
    content: str | list[dict[str, Any]]
    created_at: str
    reply_to_id: str | None
    sources: list[dict[str, str]]
    guardUsed: bool  # noqa: N815 - the seed's name
    fallbackUsed: bool  # noqa: N815 - the seed's name
    cancelled: bool
    autonomous: bool
    trigger_type: str | None


class ThreadsView(BaseModel):
    threads: list[ConversationView]
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


def conversation_view(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "agent": conversation.agent_id,
        "kind": conversation.kind,
        "title": conversation.title,
        "created_at": conversation.created_at,
        "last_at": conversation.last_at,
    }


def message_view(message: Message) -> dict[str, Any]:
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
        "cancelled": message.metadata.get("cancelled") is True,
        "autonomous": message.metadata.get("autonomous") is True,
        "trigger_type": message.metadata.get("trigger_type"),
    }


def json_response(value: Any, status: int = 200) -> Response:
    """JSON, with times in UTC and to the microsecond."""
    return Response(as_json(value), status_code=status, media_type="application/json")


def as_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)
