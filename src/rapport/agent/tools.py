"""What a model may do beside talking: note down a lasting fact. Nothing happens here; the turn stores what it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from langchain_core.messages import AIMessage, ToolMessage

ROUNDS = 3
"""So many times a model may use its tools before it has to answer."""
MOST_CALLS = 8
"""So many calls of one message are heard: each fact that is kept costs the turn some time."""

UPSERT_MEMORY: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "upsert_memory",
        "description": (
            "Remember a lasting fact that the user has told you about themselves (a name, a preference, a plan), so that"
            " you know it in later conversations. Not for passing moods, nor for what other people or documents say."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "content": {
                    "type": "string",
                    "description": "The fact as a sentence that stands alone, such as: The user is allergic to peanuts.",
                },
                "key": {
                    "type": "string",
                    "description": "A short name for facts that have one value at a time, such as `home`: it replaces the one"
                    " that was saved under the same key.",
                },
            },
            "required": ["content"],
        },
    },
}


class Saved(TypedDict):
    """A fact that the model asked to remember."""

    content: str
    key: str | None


def use_tools(reply: AIMessage) -> tuple[list[ToolMessage], list[Saved]]:
    """What is answered to each of the model's calls, and what it asked to remember."""
    answers: list[ToolMessage] = []
    saved: list[Saved] = []
    for number, call in enumerate(reply.tool_calls):
        said, fact = _used(call["name"], call["args"]) if number < MOST_CALLS else ("Not done: too many calls.", None)
        answers.append(ToolMessage(said, tool_call_id=call["id"] or ""))
        saved += [fact] if fact else []
    answers += [
        ToolMessage("Not done: the arguments were no valid JSON.", tool_call_id=call["id"] or "")
        for call in reply.invalid_tool_calls
    ]
    return answers, saved


def _used(name: str, arguments: Mapping[str, Any]) -> tuple[str, Saved | None]:
    return _upsert_memory(arguments) if name == "upsert_memory" else ("There is no such tool.", None)


def _upsert_memory(arguments: Mapping[str, Any]) -> tuple[str, Saved | None]:
    content, key = arguments.get("content"), arguments.get("key")
    if not isinstance(content, str) or not content.strip():
        return "Not saved: `content` must be a sentence.", None
    if key is not None and not isinstance(key, str):
        return "Not saved: `key` must be a short text.", None
    return "Saved.", Saved(content=content.strip(), key=(key or "").strip() or None)


def calls_tools(reply: AIMessage) -> bool:
    return bool(reply.tool_calls or reply.invalid_tool_calls)
