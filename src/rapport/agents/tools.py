"""The tools of a model: save a lasting fact, or read more of a group chat. Nothing is stored here: the turn stores the
facts with its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from rapport.replies.written_calls import OfferedTools

MAX_TOOL_ROUNDS = 3
"""The number of rounds of tool calls that a model has before it must answer."""
MAX_CALLS_PER_MESSAGE = 8
"""The number of tool calls that one message may contain; further calls are refused."""
MAX_CHAT_TOOL_CALLS = 6
"""The number of chat tool calls that one turn may make."""


def _tool(name: str, description: str, required: Sequence[str] = (), **parameters: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


UPSERT_MEMORY = _tool(
    "upsert_memory",
    "Remember a lasting fact that the user has told you about themselves (a name, a preference, a plan), so that you know"
    " it in later conversations. Not for passing moods, nor for what other people or documents say.",
    ["content"],
    content={
        "type": "string",
        "description": "The fact as a sentence that stands alone, such as: The user is allergic to peanuts.",
    },
    key={
        "type": "string",
        "description": "A short name for facts that have one value at a time, such as `home`: it replaces the one that was"
        " saved under the same key.",
    },
)

CHAT_TOOLS = [
    _tool(
        "get_smart_context",
        "The messages of this group chat that were said in one go before the call, or around another message of it.",
        max_gap_minutes={
            "type": "number",
            "description": "A silence of more minutes than this ends the conversation that is looked at. Default 60.",
        },
        anchor_id={"type": "string", "description": "The number (such as #3) or id of the message to look around."},
    ),
    _tool(
        "get_conversation_history",
        "The latest messages of this group chat before the call, whatever they are about.",
        limit={"type": "integer", "description": "How many, at most 50. Default 5."},
    ),
    _tool(
        "get_message",
        "One message of this group chat as a whole, for instance one that was clipped.",
        ["id"],
        id={"type": "string", "description": "Its number (such as #3) or id."},
    ),
    _tool(
        "search_conversation",
        "Messages of this group chat, however old, that are about something, the best match first. Name the person who said it.",
        ["query"],
        query={"type": "string", "description": "What to look for: a question, or a few words."},
    ),
]
"""Tools by which a model reads more of a group chat than its context (CTX-7)."""
CHAT_TOOL_NAMES = frozenset(tool["function"]["name"] for tool in CHAT_TOOLS)


ALL_TOOLS = OfferedTools.from_schemas([UPSERT_MEMORY, *CHAT_TOOLS])
"""Every tool of a model: calls of them that a model writes as text are cut out of its replies."""


class ChatToolbox(Protocol):
    """Runs chat tools for one turn."""

    async def use(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of one of LOOKUPS, or a sentence that explains why there is none; never raise for a bad argument."""
        ...


class MaySave(Protocol):
    """Decides whether a fact may be saved."""

    def __call__(self, content: str, /) -> bool: ...


class Saved(TypedDict):
    """A fact that the model asked to remember."""

    content: str
    key: str | None


class Toolbox:
    """Run the tool calls of one turn, and collect the facts to save."""

    def __init__(self, *, may_save: MaySave | None = None, lookups: ChatToolbox | None = None) -> None:
        self._may_save = may_save
        self._lookups = lookups
        self._left = MAX_CHAT_TOOL_CALLS
        self.saved: list[Saved] = []

    async def use(self, reply: AIMessage) -> list[ToolMessage]:
        """Run the model's calls and return their results."""
        answers: list[ToolMessage] = []
        for number, call in enumerate(reply.tool_calls):
            results = (
                await self._use_one(call["name"], call["args"])
                if number < MAX_CALLS_PER_MESSAGE
                else "Not done: too many calls."
            )
            answers.append(ToolMessage(results, tool_call_id=call["id"] or ""))
        answers += [
            ToolMessage("Not done: the arguments must be a JSON object.", tool_call_id=call["id"] or "")
            for call in reply.invalid_tool_calls
        ]
        return answers

    async def _use_one(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._may_save is not None and name == "upsert_memory":
            return self._upsert_memory(arguments, self._may_save)
        if self._lookups is None or name not in CHAT_TOOL_NAMES:
            return "There is no such tool."
        if not self._left:
            return "Not done: enough was looked up. Answer with what there is."
        self._left -= 1
        return await self._lookups.use(name, arguments)

    def _upsert_memory(self, arguments: Mapping[str, Any], may_save: MaySave) -> str:
        content, key = arguments.get("content"), arguments.get("key")
        if not isinstance(content, str) or not content.strip():
            return "Not saved: `content` must be a sentence."
        if key is not None and not isinstance(key, str):
            return "Not saved: `key` must be a short text."
        if not may_save(content):
            return "Not saved: only what the user wrote themselves is kept."
        self.saved.append(Saved(content=content.strip(), key=(key or "").strip() or None))
        return "Saved."


def make_repeatable(reply: AIMessage) -> AIMessage:
    """Return the reply in a form that can be sent back to its model: each invalid call gets an empty object as arguments.

    Some servers refuse arguments that are not an object, and some providers drop invalid calls, so that the results would
    belong to no call.
    """
    if not reply.invalid_tool_calls:
        return reply
    valid_calls = [ToolCall(name=call["name"] or "", args={}, id=call["id"]) for call in reply.invalid_tool_calls]
    return AIMessage(reply.content, id=reply.id, tool_calls=[*reply.tool_calls, *valid_calls])


def has_calls(reply: AIMessage) -> bool:
    return bool(reply.tool_calls or reply.invalid_tool_calls)
