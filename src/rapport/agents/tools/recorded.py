"""The tools whose calls are only recorded: the turn stores facts and plan with its reply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypedDict

from rapport.agents.tools.registry import UPSERT_MEMORY, make_follow_up_tool, make_reminder_tool
from rapport.agents.tools.toolbox import BoundTool
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import TRIGGER_TYPES, TriggerType

PLANNED = "Noted. It is planned with your answer, unless the answer leaves no room for it."
NOT_PLANNED = (
    "Not planned: `matter` must be in the user's own words and open, they must not have said goodbye, and follow-ups must not be"
    " too many. Promise none."
)
MAX_REMINDERS_PER_TURN = 5


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


class MayPlan(Protocol):
    """Decides whether a follow-up may be planned, as far as the answer does not matter."""

    def __call__(self, request: PlannedFollowUp, /) -> bool: ...


class RequestedReminder(TypedDict):
    """A reminder that the model asked for, in the person's own words."""

    text: str
    at: str | None
    rrule: str | None
    zone: str | None
    personal: bool


class CheckReminder(Protocol):
    """Checks a reminder that the model asks for."""

    async def __call__(self, requested: RequestedReminder, /) -> tuple[RequestedReminder, str]:
        """Return the reminder in the person's own words, and when it is due in words. Raise InvalidInput if it can't be."""
        ...


@dataclass(slots=True)
class Requests:
    """The facts to save, the follow-up to plan and the reminders to set that a model has asked for in one turn."""

    saved: list[SavedFact] = field(default_factory=list[SavedFact])
    follow_up: PlannedFollowUp | None = None
    reminders: list[RequestedReminder] = field(default_factory=list[RequestedReminder])
    unread_refusals: list[str] = field(default_factory=list[str])
    """Why reminders were not set, as far as the model has not read it yet: then the person must."""


def bind_upsert_memory(may_save: MaySave, requests: Requests) -> BoundTool:
    """Return the tool that saves facts which `may_save` accepts."""
    return BoundTool(UPSERT_MEMORY, partial(_upsert_memory, may_save, requests))


def bind_follow_up(trigger_types: Sequence[TriggerType], may_plan: MayPlan, requests: Requests) -> BoundTool:
    """Return the tool that plans a follow-up of one of these types which `may_plan` accepts."""
    types = tuple(trigger_types)
    return BoundTool(make_follow_up_tool(types), partial(_plan_follow_up, types, may_plan, requests))


def bind_set_reminder(check: CheckReminder, requests: Requests, *, is_group: bool) -> BoundTool:
    """Return the tool that sets reminders which `check` accepts."""
    return BoundTool(make_reminder_tool(is_group=is_group), partial(_set_reminder, check, requests))


async def _upsert_memory(may_save: MaySave, requests: Requests, arguments: Mapping[str, Any]) -> str:
    content, key = arguments.get("content"), arguments.get("key")
    if not isinstance(content, str) or not content.strip():
        return "Not saved: `content` must be a sentence."
    if key is not None and not isinstance(key, str):
        return "Not saved: `key` must be a short text."
    if not may_save(content):
        return "Not saved: only what the user wrote themselves is kept."
    requests.saved.append(SavedFact(content=content.strip(), key=(key or "").strip() or None))
    return "Saved."


async def _plan_follow_up(
    types: Sequence[TriggerType], may_plan: MayPlan, requests: Requests, arguments: Mapping[str, Any]
) -> str:
    trigger_type, delay, matter = (arguments.get(name) for name in ("trigger_type", "delay_seconds", "matter"))
    if not isinstance(trigger_type, str) or not isinstance(matter, str) or not matter.strip():
        return "Not planned: `trigger_type` and `matter` must be texts."
    if trigger_type in TRIGGER_TYPES and trigger_type not in types:
        return f"Not planned: `trigger_type` must be one of {', '.join(types)}."
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not math.isfinite(delay):
        return "Not planned: `delay_seconds` must be a number."
    request = PlannedFollowUp(trigger_type=trigger_type, delay_seconds=float(delay), matter=matter)
    if not may_plan(request):
        return NOT_PLANNED
    requests.follow_up = request
    return PLANNED


async def _set_reminder(check: CheckReminder, requests: Requests, arguments: Mapping[str, Any]) -> str:
    try:
        requested, when = await check(_read_reminder(arguments))
        if requested in requests.reminders:
            return f"Set already: {when}."
        if len(requests.reminders) >= MAX_REMINDERS_PER_TURN:
            raise InvalidInput(f"One message may set at most {MAX_REMINDERS_PER_TURN} reminders.")
    except InvalidInput as error:
        requests.unread_refusals.append(str(error))
        return f"Not set: {error}"
    requests.reminders.append(requested)
    return f"Set for {when}. The user reads that below your answer."


def _read_reminder(arguments: Mapping[str, Any]) -> RequestedReminder:
    """Return the arguments, an empty one as None. Raise InvalidInput for one of another type."""

    def read(name: str) -> str | None:
        value = arguments.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidInput(f"`{name}` must be a text.")
        return (value or "").strip() or None

    text = read("text")
    if text is None:
        raise InvalidInput("`text` is empty: say what to be reminded of.")
    return RequestedReminder(
        text=text, at=read("at"), rrule=read("rrule"), zone=read("zone"), personal=arguments.get("personal") is True
    )
