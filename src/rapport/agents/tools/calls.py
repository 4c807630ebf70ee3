"""Read the tool calls of a model's message."""

from __future__ import annotations

from collections.abc import Collection

from langchain_core.messages import AIMessage, ToolCall


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
