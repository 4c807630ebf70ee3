"""Define the JSON of follow-ups. The topic that the planner noted has no field here and is never sent."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from rapport.domain.follow_up import Gate, Timer, TimerState, TriggerType
from rapport.domain.follow_up_outcomes import Outcomes, VariantOutcomes
from rapport.domain.follow_up_requests import Permission, Preference


class TimerView(BaseModel):
    """A planned follow-up, or the outcome of an earlier one.

    `origin` says who set it. `gate` is the rule that held it back, `message_id` the message that was sent.
    """

    id: str
    trigger_type: TriggerType
    reason: str | None
    origin: Literal["planner", "user"]
    state: TimerState
    gate: Gate | None
    message_id: str | None
    due_at: str
    created_at: str
    fired_at: str | None
    ended_at: str | None


class PermissionView(BaseModel):
    """`muted_until` is null when the conversation isn't muted, and 9999-12-31 when it is muted forever.

    `autonomy` is null until somebody sets whether the agent may follow up here: the default is on in direct chats and off
    in groups. `held_reminders` are the reminders that wait until the mute ends.
    """

    muted_until: str | None
    autonomy: bool | None
    held_reminders: int


class TimersView(PermissionView):
    timers: list[TimerView]
    past: list[TimerView]


class PreferencesView(BaseModel):
    time_zone: str
    quiet_from: str | None
    quiet_to: str | None


class OutcomesView(BaseModel):
    """`fired` counts all that came due: it is the sum of `delivered`, all of `suppressed`, `superseded`, `leaked`, `failed`
    and `under_way`. `expired` ones never fired. `response_rate` is the share of `delivered` that was answered within an
    hour, null when nothing was delivered."""

    fired: int
    delivered: int
    suppressed: dict[str, int]
    superseded: int
    leaked: int
    failed: int
    under_way: int
    expired: int
    regenerated: int
    answered_within_an_hour: int
    response_rate: float | None


class VariantView(BaseModel):
    """The outcomes of one variant of an agent's prompt. `interval` is the Wilson 95 % interval of `response_rate`: from and
    to, null when nothing was delivered. Below 10 `delivered`, `may_be_compared` is false. `text` says it all in words."""

    agent: str
    trigger_type: TriggerType
    variant: str
    fired: int
    delivered: int
    answered_within_an_hour: int
    response_rate: float | None
    interval: list[float] | None
    may_be_compared: bool
    text: str


class StatsView(OutcomesView):
    days: int
    by_trigger_type: dict[TriggerType, OutcomesView]
    by_variant: list[VariantView]


def timer_view(timer: Timer) -> dict[str, Any]:
    return {
        "id": timer.timer_id,
        "trigger_type": timer.trigger_type,
        "reason": timer.reason,
        "origin": timer.origin,
        "state": timer.state,
        "gate": timer.gate,
        "message_id": timer.message_id,
        "due_at": timer.due_at,
        "created_at": timer.created_at,
        "fired_at": timer.fired_at,
        "ended_at": timer.ended_at,
    }


def permission_view(permission: Permission) -> dict[str, Any]:
    return {
        "muted_until": permission.muted_until,
        "autonomy": permission.autonomy,
        "held_reminders": permission.held_reminders,
    }


def preference_view(preference: Preference) -> dict[str, Any]:
    return {
        "time_zone": preference.time_zone,
        "quiet_from": None if preference.quiet_from is None else f"{preference.quiet_from:%H:%M}",
        "quiet_to": None if preference.quiet_to is None else f"{preference.quiet_to:%H:%M}",
    }


def outcomes_view(outcomes: Outcomes) -> dict[str, Any]:
    rate = outcomes.response_rate
    return {
        "fired": outcomes.fired,
        "delivered": outcomes.delivered,
        "suppressed": dict(outcomes.suppressed),
        "superseded": outcomes.superseded,
        "leaked": outcomes.leaked,
        "failed": outcomes.failed,
        "under_way": outcomes.under_way,
        "expired": outcomes.expired,
        "regenerated": outcomes.regenerated,
        "answered_within_an_hour": outcomes.answered,
        "response_rate": None if rate is None else round(rate, 4),
    }


def variant_view(outcomes: VariantOutcomes) -> dict[str, Any]:
    rate = outcomes.rate
    return {
        "agent": outcomes.agent_id,
        "trigger_type": outcomes.trigger_type,
        "variant": outcomes.variant,
        "fired": outcomes.fired,
        "delivered": rate.delivered,
        "answered_within_an_hour": rate.answered,
        "response_rate": round(rate.answered / rate.delivered, 4) if rate.delivered else None,
        "interval": rate.interval and [round(bound, 4) for bound in rate.interval],
        "may_be_compared": rate.may_be_compared,
        "text": rate.describe(),
    }
