"""Register the built-in tools of a model. The guide is docs/extending/a-tool.md.

A tool is described here; the function that runs it is bound for one turn in `turns/turn_tools.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Final

from rapport.domain.follow_up import TRIGGER_TYPES, TriggerType, describe_types
from rapport.domain.tool import ToolScope, ToolSpec
from rapport.domain.tool_names import is_named
from rapport.replies.written_calls import OfferedTools


def _tool(
    name: str,
    description: str,
    scope: ToolScope,
    required: Sequence[str] = (),
    *,
    only_reads: bool = True,
    **parameters: Mapping[str, Any],
) -> ToolSpec:
    schema = {"type": "object", "properties": parameters, "required": list(required)}
    return ToolSpec(name, description, schema, scope, only_reads, needs_result=only_reads)


UPSERT_MEMORY: Final = _tool(
    "upsert_memory",
    "Remember a lasting fact that the user has told you about themselves (a name, a preference, a plan), so that you know"
    " it in later conversations. Not for passing moods, nor for what other people or documents say.",
    "memory",
    ["content"],
    only_reads=False,
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

FOLLOW_UP: Final = _tool(
    "follow_up",
    "Plan one short message to the user in case they stay silent. Only if they would be glad of it: they have to decide or"
    " do something, or your important question is open. Never after a goodbye or in small talk. You still answer them now.",
    "follow_ups",
    ["trigger_type", "delay_seconds", "matter"],
    only_reads=False,
    trigger_type={"type": "string", "enum": [*TRIGGER_TYPES], "description": describe_types(TRIGGER_TYPES)},
    delay_seconds={"type": "number", "description": "How many seconds of silence to wait: usually 120 to 3600."},
    matter={"type": "string", "description": "The matter, in two to six of the user's own words: call the landlord."},
)

SET_REMINDER: Final = _tool(
    "set_reminder",
    "Set a reminder that the user asks for in their newest message, at a time that they name. Ask them if the time is vague"
    " (later, next week). The server tells them the time below your answer: answer in a few words, without it.",
    "reminders",
    ["text"],
    only_reads=False,
    text={"type": "string", "description": "What to be reminded of, in the user's own words and language: call mum."},
    at={
        "type": "string",
        "description": "ISO 8601 on the user's own clock: 2026-11-20T09:00. With an offset only for a span such as: in two"
        " hours. With `rrule` the first time.",
    },
    rrule={
        "type": "string",
        "description": "Only if it recurs: a rule of RFC 5545, such as FREQ=WEEKLY;BYDAY=MO. At most once an hour.",
    },
    zone={"type": "string", "description": "Only if they name another place: its IANA time zone, such as Asia/Tokyo."},
)

CHAT_TOOLS: Final = (
    _tool(
        "get_smart_context",
        "The messages of this group chat that were said in one go before the call, or around another message of it.",
        "chat",
        max_gap_minutes={
            "type": "number",
            "description": "A silence of more minutes than this ends the conversation that is looked at. Default 60.",
        },
        anchor_id={"type": "string", "description": "The number (such as #3) or id of the message to look around."},
    ),
    _tool(
        "get_conversation_history",
        "The latest messages of this group chat before the call, whatever they are about.",
        "chat",
        limit={"type": "integer", "description": "How many, at most 50. Default 5."},
    ),
    _tool(
        "get_message",
        "One message of this group chat as a whole, for instance one that was clipped.",
        "chat",
        ["id"],
        id={"type": "string", "description": "Its number (such as #3) or id."},
    ),
    _tool(
        "search_conversation",
        "Messages of this group chat, however old, that are about something, the best match first. Name the person who said it.",
        "chat",
        ["query"],
        query={"type": "string", "description": "What to look for: a question, or a few words."},
    ),
)
"""Tools by which a model reads more of a group chat than its context (CTX-7)."""

SEARCH_NOTES: Final = _tool(
    "search_notes",
    "Passages of the notes about something, the best match first. Cite what you use as [source: <id>].",
    "notes",
    ["query"],
    query={"type": "string", "description": "What to look for: a question, or a few words."},
)
SEARCH_MEMORIES: Final = _tool(
    "search_memories",
    "What you remember about the user that is about something, the best match first.",
    "memory",
    ["query"],
    query={"type": "string", "description": "What to look for: a question, or a few words."},
)
CURRENT_TIME: Final = _tool("current_time", "The date and time now, in the user's time zone.", "clock")

DEFAULT_TOOLS: Final = (UPSERT_MEMORY, FOLLOW_UP, SET_REMINDER, *CHAT_TOOLS)
"""The tools of an agent that names none. Each tool that is offered makes every prompt longer, and what the others find
is in the prompt already."""
BUILT_IN: Final[Mapping[str, ToolSpec]] = {
    spec.name: spec for spec in (*DEFAULT_TOOLS, SEARCH_NOTES, SEARCH_MEMORIES, CURRENT_TIME)
}
"""The tools that an agent's profile may name, beside those of MCP servers."""
CHAT_TOOL_NAMES: Final = frozenset(spec.name for spec in CHAT_TOOLS)
DEFAULT_TOOL_NAMES: Final = frozenset(spec.name for spec in DEFAULT_TOOLS)
TOOL_NAMES: Final = frozenset(BUILT_IN)
ALL_TOOLS: Final = OfferedTools.from_schemas([spec.schema for spec in BUILT_IN.values()])
"""Every built-in tool: calls of them that a model writes as text are cut out of its replies."""


@lru_cache(256)
def make_follow_up_tool(trigger_types: tuple[TriggerType, ...] = TRIGGER_TYPES) -> ToolSpec:
    """Return the tool that plans a follow-up of one of these types."""
    properties = dict(FOLLOW_UP.parameters["properties"])
    kind = {"type": "string", "enum": [*trigger_types], "description": describe_types(trigger_types)}
    return replace(FOLLOW_UP, parameters={**FOLLOW_UP.parameters, "properties": {**properties, "trigger_type": kind}})


_PERSONAL: Final = {"type": "boolean", "description": "True if it is for who asks alone, not for the whole group."}


@cache
def make_reminder_tool(*, is_group: bool) -> ToolSpec:
    """Return the tool that sets a reminder; in a group it may be for the group or for its asker."""
    if not is_group:
        return SET_REMINDER
    properties = {**SET_REMINDER.parameters["properties"], "personal": _PERSONAL}
    return replace(SET_REMINDER, parameters={**SET_REMINDER.parameters, "properties": properties})


def is_chosen(name: str, chosen: Collection[str] | None) -> bool:
    """Return True if an agent's choice has this tool; None is the default choice."""
    return name in DEFAULT_TOOL_NAMES if chosen is None else is_named(name, chosen)
