"""Read the tool calls of a model's message."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolCall

from rapport.domain.ids import new_id
from rapport.replies.written_calls import WrittenCall

_RAW_CALLS = "raw_calls"
"""The key under which a message carries its calls as they were written, until `take_raw_calls`."""


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as the model wrote it."""

    id: str | None
    name: str
    arguments: str


def set_calls(reply: AIMessage, calls: Iterable[RawCall]) -> None:
    """Set the calls of the reply. Arguments that are not exactly one JSON object make a call invalid: nothing is repaired.

    Half of a path may be another path, so a call that was cut off must never run.
    """
    reply.tool_calls, reply.invalid_tool_calls = [], []
    raw = list(calls)
    for call in raw:
        arguments = _read_arguments(call.arguments)
        if arguments is None:
            invalid = InvalidToolCall(
                type="invalid_tool_call", id=call.id, name=call.name, args=call.arguments, error="no JSON object"
            )
            reply.invalid_tool_calls.append(invalid)
        else:
            reply.tool_calls.append(ToolCall(type="tool_call", id=call.id, name=call.name, args=arguments))
    if raw:
        reply.additional_kwargs[_RAW_CALLS] = raw


def take_raw_calls(reply: AIMessage) -> list[RawCall]:
    """Remove the calls as the model wrote them from the reply, and return them; none if its provider hides them."""
    return cast("list[RawCall]", reply.additional_kwargs.pop(_RAW_CALLS, []))


def make_real(calls: Iterable[WrittenCall]) -> AIMessage:
    """Return a message with calls that the model wrote as text. Its text is left out: it may claim what is not done yet."""
    return AIMessage(
        "",
        tool_calls=[
            ToolCall(type="tool_call", id=f"call_{new_id()}", name=call.name, args=call.arguments) for call in calls
        ],
    )


def is_quoted(call: WrittenCall, messages: Iterable[BaseMessage]) -> bool:
    """Return True if a person, a note or a result names the tool: then the model may only repeat what stands there."""
    return any(call.name in str(message.text) for message in messages if message.type in ("human", "tool"))


def _read_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments; an empty object for an empty text, by which some models call a tool without parameters."""
    if not text:
        return {}
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def has_calls(reply: AIMessage) -> bool:
    return bool(reply.tool_calls or reply.invalid_tool_calls)


def list_call_names(reply: AIMessage) -> list[str]:
    """Return the names of the tools that the message calls, also with invalid arguments."""
    return [call["name"] or "" for call in (*reply.tool_calls, *reply.invalid_tool_calls)]


def is_answered(reply: AIMessage, needed: Collection[str]) -> bool:
    """Return True if the reply has text, and calls none of the tools whose results are `needed`."""
    return bool(str(reply.text).strip()) and not set(list_call_names(reply)) & set(needed)


def make_repeatable(reply: AIMessage) -> AIMessage:
    """Return the reply in a form that can be sent back to its model: each invalid call gets an empty object as arguments.

    Some servers refuse arguments that are not an object, and some providers drop invalid calls, so that the results would
    belong to no call.
    """
    if not reply.invalid_tool_calls:
        return reply
    valid_calls = [ToolCall(name=call["name"] or "", args={}, id=call["id"]) for call in reply.invalid_tool_calls]
    return AIMessage(reply.content, id=reply.id, tool_calls=[*reply.tool_calls, *valid_calls])
