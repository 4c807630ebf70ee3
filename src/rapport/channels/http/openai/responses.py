"""Define the responses under `/v1`: models, completions and their chunks, in OpenAI's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Message
from rapport.domain.event import Accepted
from rapport.domain.token_estimate import estimate_tokens

_MADE = 1_767_225_600
"""The creation date of the built-in agents, for clients that need one: the beginning of 2026."""


class ModelView(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsView(BaseModel):
    object: Literal["list"]
    data: list[ModelView]


class UsageView(BaseModel):
    """Estimated numbers of tokens, not those of the model."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class RapportView(BaseModel):
    """Fields that OpenAI does not have. `conversation_id` is null for a conversation that is not stored."""

    conversation_id: str | None
    message_id: str
    sources: list[dict[str, str]]
    guard_used: bool
    fallback_used: bool
    cancelled: bool


class AnswerView(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChoiceView(BaseModel):
    index: int
    message: AnswerView
    logprobs: None
    finish_reason: Literal["stop"]


class CompletionView(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceView]
    usage: UsageView
    rapport: RapportView


def model_view(agent: AgentProfile) -> dict[str, Any]:
    return {"id": agent.id, "object": "model", "created": _MADE, "owned_by": "rapport"}


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that all parts of one reply share. They are known before the reply is."""

    accepted: Accepted
    prompt_tokens: int
    kept: bool
    """True where the conversation stays after the reply."""

    def completion(self, reply: Message) -> dict[str, Any]:
        """Return the whole reply."""
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._frame("chat.completion"),
            "choices": [choice],
            "usage": self.usage(reply),
            "rapport": self.rapport(reply),
        }

    def chunk(self, delta: dict[str, Any], *, finish_reason: str | None = None, **extra: Any) -> dict[str, Any]:
        """Return one chunk of a streamed reply."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._frame("chat.completion.chunk"), "choices": [choice], **extra}

    def usage_chunk(self, reply: Message) -> dict[str, Any]:
        return {**self._frame("chat.completion.chunk"), "choices": [], "usage": self.usage(reply)}

    def usage(self, reply: Message) -> dict[str, int]:
        reply_tokens = estimate_tokens(reply.text)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": reply_tokens,
            "total_tokens": self.prompt_tokens + reply_tokens,
        }

    def rapport(self, reply: Message) -> dict[str, Any]:
        return {
            "conversation_id": self.accepted.conversation_id if self.kept else None,
            "message_id": reply.id,
            "sources": reply.sources,
            "guard_used": reply.metadata.get("guard_used") is True,
            "fallback_used": reply.metadata.get("fallback_used") is True,
            "cancelled": reply.metadata.get("cancelled") is True,
        }

    def _frame(self, kind: str) -> dict[str, Any]:
        # The id of the answered message: the reply has none while it is being written.
        return {
            "id": f"chatcmpl-{self.accepted.message_id}",
            "object": kind,
            "created": int(self.accepted.created_at.timestamp()),
            "model": self.accepted.agent_id,
        }
