"""Serve `/api/preferences` (time zone and quiet hours), `/api/autonomy/stats` (outcomes of follow-ups) and `/metrics`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.problems import NOT_STORED
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.rendering.timer_views import (
    PreferencesView,
    StatsView,
    outcomes_view,
    preference_view,
    variant_view,
)
from rapport.channels.http.requests.json_bodies import Body, StrictRoute
from rapport.core.core import Core
from rapport.domain.caller import Caller
from rapport.domain.follow_up_outcomes import (
    count_outcomes,
    count_outcomes_by_type,
    count_outcomes_by_variant,
)
from rapport.domain.follow_up_requests import Preference, check_preference, parse_time_of_day
from rapport.followups.gates import check_time_zone
from rapport.metrics import CONTENT_TYPE, Metrics


class PreferencesBody(Body):
    """A missing field is not changed; null for both quiet hours removes them."""

    time_zone: Annotated[str | None, Field(max_length=64)] = None
    quiet_from: Annotated[str | None, Field(max_length=16)] = None
    quiet_to: Annotated[str | None, Field(max_length=16)] = None


def autonomy_routes(core: Core, auth: Authenticator, *, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["follow-ups"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)
    operator = Depends(auth.authenticate_operator)

    @router.get("/api/preferences", response_model=PreferencesView, summary="Get your time zone and quiet hours")
    async def get_preferences(owner: str = owner_id) -> Response:
        return json_response(preference_view(await core.follow_ups.get_preference(owner)))

    @router.put("/api/preferences", response_model=PreferencesView, summary="Set your time zone and quiet hours")
    async def set_preferences(body: PreferencesBody, owner: str = owner_id) -> Response:
        changed = await core.follow_ups.update_preference(owner, lambda before: _merge_preference(body, before=before))
        return json_response(preference_view(changed))

    @router.get(
        "/api/autonomy/stats",
        response_model=StatsView,
        summary="Count the outcomes of the follow-ups in your conversations",
    )
    async def get_stats(days: Annotated[int, Query(ge=1, le=3_660)] = 30, owner: str = owner_id) -> Response:
        outcomes = await core.follow_ups.load_outcomes(owner, days=days)
        by_type = {kind: outcomes_view(counts) for kind, counts in count_outcomes_by_type(outcomes).items()}
        return json_response(
            {
                "days": days,
                **outcomes_view(count_outcomes(outcomes)),
                "by_trigger_type": by_type,
                "by_variant": [variant_view(each) for each in count_outcomes_by_variant(outcomes)],
            }
        )

    @router.get("/metrics", tags=["health"], summary="Get the metrics of this process, for Prometheus")
    async def get_metrics(_operator: Caller = operator) -> Response:
        """Requires a key with the role `operator`. On loopback without keys every caller is an operator."""
        metrics.set_pending(await core.monitoring.count_pending_timers())
        return Response(metrics.render(), headers={**NOT_STORED, "Content-Type": CONTENT_TYPE})

    return router


def _merge_preference(body: PreferencesBody, *, before: Preference) -> Preference:
    """Return the fields that were sent, and the earlier value of the others."""
    sent = body.model_fields_set
    start = None if body.quiet_from is None else parse_time_of_day(body.quiet_from)
    end = None if body.quiet_to is None else parse_time_of_day(body.quiet_to)
    return check_preference(
        Preference(
            before.time_zone if body.time_zone is None else check_time_zone(body.time_zone),
            start if "quiet_from" in sent else before.quiet_from,
            end if "quiet_to" in sent else before.quiet_to,
        )
    )
