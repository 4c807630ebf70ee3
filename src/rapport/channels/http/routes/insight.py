"""Serve `/api/insight`: statistics of the last hours."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.rendering.timer_views import VariantView, variant_view
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.core.core import Core
from rapport.domain.follow_up import TriggerType
from rapport.domain.follow_up_outcomes import Outcomes, count_outcomes_by_type, count_outcomes_by_variant
from rapport.domain.read_models import HourlyReplies
from rapport.metrics import Metrics

MAX_HOURS = 31 * 24


class HourView(BaseModel):
    at: str
    count: int


class TurnsView(BaseModel):
    count: int
    by_hour: list[HourView]


class PhaseView(BaseModel):
    phase: str
    count: int
    p50_ms: float
    p95_ms: float


class ShareView(BaseModel):
    """A number of turns, and its share of all turns; `share` is null when there were none."""

    count: int
    share: float | None


class FollowedUpView(BaseModel):
    """`held_back` counts those that a gate stopped, `answered` those answered within an hour. `answer_rate` is the share of
    `delivered` that was answered; null when none was delivered."""

    trigger_type: TriggerType
    fired: int
    delivered: int
    held_back: int
    answered: int
    answer_rate: float | None


class InsightView(BaseModel):
    """Turns and follow-ups are those of your conversations. Phases are those of all turns of this process."""

    since: str
    turns: TurnsView
    phases: list[PhaseView]
    guard: ShareView
    fallbacks: ShareView
    followups: list[FollowedUpView]
    variants: list[VariantView]


def insight_routes(core: Core, auth: Authenticator, *, metrics: Metrics) -> APIRouter:
    router = APIRouter(prefix="/api/insight", tags=["insight"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.get("", response_model=InsightView, summary="Get statistics of the last hours")
    async def insight(hours: Annotated[int, Query(ge=1, le=MAX_HOURS)] = 24, owner: str = owner_id) -> Response:
        activity = await core.monitoring.load_activity(owner, hours=hours)
        replies = activity.hours
        return json_response(
            {
                "since": activity.since,
                "turns": {
                    "count": sum(hour.replies for hour in replies),
                    "by_hour": [{"at": hour.at, "count": hour.replies} for hour in replies],
                },
                "phases": [
                    {
                        "phase": phase.phase,
                        "count": phase.count,
                        "p50_ms": round(phase.p50_ms, 2),
                        "p95_ms": round(phase.p95_ms, 2),
                    }
                    for phase in metrics.summarize_phases()
                ],
                "guard": _share(sum(hour.guarded for hour in replies), replies),
                "fallbacks": _share(sum(hour.fallen_back for hour in replies), replies),
                "followups": [
                    _follow_up_view(kind, outcomes)
                    for kind, outcomes in count_outcomes_by_type(activity.follow_ups).items()
                ],
                "variants": [variant_view(each) for each in count_outcomes_by_variant(activity.follow_ups)],
            }
        )

    return router


def _share(count: int, hours: Sequence[HourlyReplies]) -> dict[str, Any]:
    total = sum(hour.replies for hour in hours)
    return {"count": count, "share": round(count / total, 4) if total else None}


def _follow_up_view(kind: TriggerType, outcomes: Outcomes) -> dict[str, Any]:
    rate = outcomes.response_rate
    return {
        "trigger_type": kind,
        "fired": outcomes.fired,
        "delivered": outcomes.delivered,
        "held_back": sum(outcomes.suppressed.values()),
        "answered": outcomes.answered,
        "answer_rate": None if rate is None else round(rate, 4),
    }
