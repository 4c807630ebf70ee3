"""Define the responses under `/v1`: models, completions and their chunks, in OpenAI's format."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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
    """Numbers of tokens: of a request with tools those of the model, of others estimates."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class RapportView(BaseModel):
    """Fields that OpenAI does not have. `conversation_id` is null for a conversation that is not stored.

    `approvals` are the ids of the questions that a person must decide before the agent goes on.

    `message_id` is null, and there is `tools_refused`, in the answer to a request with tools.
    """

    conversation_id: str | None
    message_id: str | None
    sources: list[dict[str, str]]
    guard_used: bool
    fallback_used: bool
    cancelled: bool
    approvals: list[str]
    tools_refused: bool | None = None


class FunctionView(BaseModel):
    name: str
    arguments: str


class CallView(BaseModel):
    id: str
    type: Literal["function"]
    function: FunctionView


class AnswerView(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[CallView] | None = None


class ChoiceView(BaseModel):
    index: int
    message: AnswerView
    logprobs: None
    finish_reason: Literal["stop", "tool_calls"]


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


def make_usage(prompt_tokens: int, reply_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": reply_tokens,
        "total_tokens": prompt_tokens + reply_tokens,
    }


@dataclass(frozen=True, slots=True)
class Frame:
    """The beginning of every answer and chunk."""

    id: str
    created_at: datetime
    model: str

    def fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.id}",
            "object": kind,
            "created": int(self.created_at.timestamp()),
            "model": self.model,
        }

    def chunk(self, delta: dict[str, Any], *, finish_reason: str | None = None, **extra: Any) -> dict[str, Any]:
        """Return one chunk of a streamed reply."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self.fields("chat.completion.chunk"), "choices": [choice], **extra}

    def usage_chunk(self, usage: dict[str, int]) -> dict[str, Any]:
        return {**self.fields("chat.completion.chunk"), "choices": [], "usage": usage}


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that all parts of one reply share. They are known before the reply is."""

    accepted: Accepted
    agent_id: str
    prompt_tokens: int
    kept: bool
    """True where the conversation stays after the reply."""

    @property
    def frame(self) -> Frame:
        # The id of the answered message: the reply has none while it is being written.
        return Frame(self.accepted.message_id, self.accepted.created_at, self.agent_id)

    def completion(self, reply: Message) -> dict[str, Any]:
        """Return the whole reply."""
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self.frame.fields("chat.completion"),
            "choices": [choice],
            "usage": self.usage(reply),
            "rapport": self.rapport(reply),
        }

    def usage(self, reply: Message) -> dict[str, int]:
        return make_usage(self.prompt_tokens, estimate_tokens(reply.text))

    def rapport(self, reply: Message) -> dict[str, Any]:
        return {
            "conversation_id": self.accepted.conversation_id if self.kept else None,
            "message_id": reply.id,
            "sources": reply.sources,
            "guard_used": reply.metadata.get("guard_used") is True,
            "fallback_used": reply.metadata.get("fallback_used") is True,
            "cancelled": reply.metadata.get("cancelled") is True,
            "approvals": reply.metadata.get("approvals", []),
        }
