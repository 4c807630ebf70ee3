"""The tools of a model: save a lasting fact, plan a follow-up, or read more of a group chat. Nothing is stored here: the turn
stores facts and plan with its reply."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypedDict

from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from rapport.domain.follow_up import TRIGGER_TYPES, TriggerType, describe_types
from rapport.replies.written_calls import OfferedTools, WrittenCall

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


@lru_cache(256)
def make_follow_up_tool(trigger_types: tuple[TriggerType, ...] = TRIGGER_TYPES) -> dict[str, Any]:
    """Return the tool that plans a follow-up of one of these types."""
    return _tool(
        "follow_up",
        "Plan one short message to the user in case they stay silent. Only if they would be glad of it: they have to decide or"
        " do something, or your important question is open. Never after a goodbye or in small talk. You still answer them now.",
        ["trigger_type", "delay_seconds", "matter"],
        trigger_type={
            "type": "string",
            "enum": [*trigger_types],
            "description": describe_types(trigger_types),
        },
        delay_seconds={"type": "number", "description": "How many seconds of silence to wait: usually 120 to 3600."},
        matter={
            "type": "string",
            "description": "The matter, in two to six of the user's own words: call the landlord.",
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
TOOL_NAMES = frozenset({"upsert_memory", "follow_up", *CHAT_TOOL_NAMES})
"""The tools that an agent's profile may name."""
ALL_TOOLS = OfferedTools.from_schemas([UPSERT_MEMORY, make_follow_up_tool(), *CHAT_TOOLS])
"""Every tool of a model: calls of them that a model writes as text are cut out of its replies."""


class ChatToolbox(Protocol):
    """Runs chat tools for one turn."""

    async def use(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of one of CHAT_TOOLS, or a sentence that explains why there is none; never raise for a bad argument."""
        ...


class MaySave(Protocol):
    """Decides whether a fact may be saved."""

    def __call__(self, content: str, /) -> bool: ...


class SavedFact(TypedDict):
    """A fact that the model asked to remember."""

    content: str
    key: str | None


class PlannedFollowUp(TypedDict):
    """A follow-up that the model asked for, unchecked."""

    trigger_type: str
    delay_seconds: float
    matter: str


class Toolbox:
    """Run the tool calls of one turn, and collect the facts to save and the follow-up to plan."""

    def __init__(
        self,
        *,
        may_save: MaySave | None = None,
        may_plan: Sequence[TriggerType] = (),
        lookups: ChatToolbox | None = None,
        allowed: Collection[str] | None = None,
    ) -> None:
        """`may_plan` are the types of follow-ups that the model may plan. `allowed` are the names of the tools that the agent may use; None: all."""
        self._allowed = TOOL_NAMES if allowed is None else frozenset(allowed)
        self._may_save = may_save if "upsert_memory" in self._allowed else None
        self._may_plan = tuple(may_plan) if "follow_up" in self._allowed else ()
        self._lookups = lookups
        self._left = MAX_CHAT_TOOL_CALLS
        self.saved: list[SavedFact] = []
        self.follow_up: PlannedFollowUp | None = None

    def list_tools(self) -> list[dict[str, Any]]:
        """Return the descriptions of the tools that the model may use in this turn."""
        return [
            *([UPSERT_MEMORY] if self._may_save is not None else []),
            *([make_follow_up_tool(self._may_plan)] if self._may_plan else []),
            *(tool for tool in CHAT_TOOLS if self._lookups is not None and tool["function"]["name"] in self._allowed),
        ]

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

    async def use_written(self, calls: Sequence[WrittenCall]) -> None:
        """Run calls that the model wrote as text, as far as it needs no result of them."""
        for call in calls[:MAX_CALLS_PER_MESSAGE]:
            if call.name not in CHAT_TOOL_NAMES:
                await self._use_one(call.name, call.arguments)

    async def _use_one(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._may_save is not None and name == "upsert_memory":
            return self._upsert_memory(arguments, self._may_save)
        if self._may_plan and name == "follow_up":
            return self._plan_follow_up(arguments)
        if self._lookups is None or name not in CHAT_TOOL_NAMES & self._allowed:
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
        self.saved.append(SavedFact(content=content.strip(), key=(key or "").strip() or None))
        return "Saved."

    def _plan_follow_up(self, arguments: Mapping[str, Any]) -> str:
        trigger_type, delay, matter = (arguments.get(name) for name in ("trigger_type", "delay_seconds", "matter"))
        if not isinstance(trigger_type, str) or not isinstance(matter, str) or not matter.strip():
            return "Not planned: `trigger_type` and `matter` must be texts."
        if trigger_type in TRIGGER_TYPES and trigger_type not in self._may_plan:
            return f"Not planned: `trigger_type` must be one of {', '.join(self._may_plan)}."
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not math.isfinite(delay):
            return "Not planned: `delay_seconds` must be a number."
        self.follow_up = PlannedFollowUp(trigger_type=trigger_type, delay_seconds=float(delay), matter=matter)
        return "Planned."


def is_answered(reply: AIMessage) -> bool:
    """Return True if the reply has text, and the model needs the result of none of its calls."""
    names = {call["name"] for call in (*reply.tool_calls, *reply.invalid_tool_calls)}
    return bool(str(reply.text).strip()) and not names & CHAT_TOOL_NAMES


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
