"""The tools whose calls are only recorded: the turn stores facts and plan with its reply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypedDict

from rapport.agents.tools.registry import UPSERT_MEMORY, make_follow_up_tool
from rapport.agents.tools.toolbox import BoundTool
from rapport.domain.follow_up import TRIGGER_TYPES, TriggerType

PLANNED = "Noted. It is planned with your answer, unless the answer leaves no room for it."
NOT_PLANNED = (
    "Not planned: `matter` must be in the user's own words and open, they must not have said goodbye, and follow-ups must not be"
    " too many. Promise none."
)


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


@dataclass(slots=True)
class Requests:
    """The facts to save and the follow-up to plan that a model has asked for in one turn."""

    saved: list[SavedFact] = field(default_factory=list[SavedFact])
    follow_up: PlannedFollowUp | None = None


def bind_upsert_memory(may_save: MaySave, requests: Requests) -> BoundTool:
    """Return the tool that saves facts which `may_save` accepts."""
    return BoundTool(UPSERT_MEMORY, partial(_upsert_memory, may_save, requests))


def bind_follow_up(trigger_types: Sequence[TriggerType], may_plan: MayPlan, requests: Requests) -> BoundTool:
    """Return the tool that plans a follow-up of one of these types which `may_plan` accepts."""
    types = tuple(trigger_types)
    return BoundTool(make_follow_up_tool(types), partial(_plan_follow_up, types, may_plan, requests))


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
