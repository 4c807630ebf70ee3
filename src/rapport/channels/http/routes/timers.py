"""Serve `/api/threads/{id}/timers` and `/mute`: see, set, postpone, cancel and mute follow-ups (AUTO-12)."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import Field

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.rendering.timer_views import (
    PermissionView,
    TimersView,
    TimerView,
    permission_view,
    timer_view,
)
from rapport.channels.http.requests.json_bodies import Body, StrictRoute
from rapport.core.follow_ups import UNCHANGED, FollowUpControls
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import TriggerType
from rapport.domain.follow_up_requests import (
    FOREVER,
    MAX_DELAY_SECONDS,
    MAX_MUTE_SECONDS,
    MIN_DELAY_SECONDS,
    check_reason,
    check_timer_id,
    parse_moment,
)
from rapport.domain.ids import new_id

PAST_SHOWN = 50

Delay = Annotated[
    float, Field(ge=MIN_DELAY_SECONDS, le=MAX_DELAY_SECONDS, allow_inf_nan=False, description="Seconds from now")
]
MuteSeconds = Annotated[float, Field(ge=1, le=MAX_MUTE_SECONDS, allow_inf_nan=False)]


class TimerBody(Body):
    trigger_type: TriggerType
    delay_seconds: Delay
    reason: str | None = None
    timer_id: str | None = None


class TimerEdit(Body):
    delay_seconds: Delay | None = None
    trigger_type: TriggerType | None = None
    reason: str | None = None


class MuteBody(Body):
    """`{"seconds": 3600}`, `{"until": "2026-11-17T08:00:00Z"}` or `{"until": "forever"}` mutes, `{"until": null}` unmutes.

    `autonomy` says whether the agent may follow up here; null is the default: on in direct chats, off in groups. A missing
    field is not changed.
    """

    seconds: MuteSeconds | None = None
    until: Annotated[str | None, Field(max_length=64)] = None
    autonomy: bool | None = None


def timer_routes(follow_ups: FollowUpControls, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/threads/{thread_id}", tags=["follow-ups"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.get(
        "/timers", response_model=TimersView, summary="List planned follow-ups and the outcomes of earlier ones"
    )
    async def list_timers(thread_id: str, owner: str = owner_id) -> Response:
        listing = await follow_ups.load(owner, thread_id, past=PAST_SHOWN)
        return json_response(
            {
                "timers": [timer_view(timer) for timer in listing.waiting],
                "past": [timer_view(timer) for timer in listing.past],
                **permission_view(listing.permission),
            }
        )

    @router.post(
        "/timers",
        status_code=201,
        response_model=TimerView,
        responses={200: {"model": TimerView, "description": "A follow-up with this `timer_id` existed and was moved"}},
        summary="Set a follow-up; the same `timer_id` again moves it",
    )
    async def create(thread_id: str, body: TimerBody, owner: str = owner_id) -> Response:
        name = new_id() if body.timer_id is None else check_timer_id(body.timer_id)
        reason = None if body.reason is None else check_reason(body.reason) or None
        timer, is_new = await follow_ups.set_timer(
            owner,
            thread_id,
            timer_id=name,
            trigger_type=body.trigger_type,
            delay=body.delay_seconds,
            reason=reason,
        )
        return json_response(timer_view(timer), 201 if is_new else 200)

    @router.patch(
        "/timers/{timer_id}",
        response_model=TimerView,
        summary="Postpone or change a follow-up; `reason: null` removes its reason",
    )
    async def edit(thread_id: str, timer_id: str, body: TimerEdit, owner: str = owner_id) -> Response:
        reason = "" if "reason" in body.model_fields_set else None
        if body.reason is not None:
            reason = check_reason(body.reason)
        if body.delay_seconds is None and body.trigger_type is None and reason is None:
            raise InvalidInput("There is nothing to change: send `delay_seconds`, `trigger_type` or `reason`.")
        timer = await follow_ups.change_timer(
            owner,
            thread_id,
            timer_id,
            delay=body.delay_seconds,
            trigger_type=body.trigger_type,
            reason=reason,
        )
        return json_response(timer_view(timer))

    @router.delete("/timers/{timer_id}", status_code=204, summary="Cancel a follow-up")
    async def cancel(thread_id: str, timer_id: str, owner: str = owner_id) -> Response:
        await follow_ups.cancel_timer(owner, thread_id, timer_id)
        return Response(status_code=204)

    @router.put("/mute", response_model=PermissionView, summary="Mute or unmute follow-ups, or turn them on or off")
    async def mute(thread_id: str, body: MuteBody, owner: str = owner_id) -> Response:
        sent = body.model_fields_set
        if not sent:
            raise InvalidInput(
                'Send `{"seconds": 3600}`, `{"until": "2026-11-17T08:00:00Z"}` or `{"until": "forever"}` to mute,'
                ' `{"until": null}` to unmute, `{"autonomy": true}` or `false` to turn follow-ups on or off.'
            )
        if {"seconds", "until"} <= sent:
            raise InvalidInput("Send `seconds` or `until`, not both.")
        permission = await follow_ups.set_permission(
            owner,
            thread_id,
            allowed=body.autonomy if "autonomy" in sent else UNCHANGED,
            muted_until=_mute_end(body) if "seconds" in sent or "until" in sent else UNCHANGED,
        )
        return json_response(permission_view(permission))

    return router


def _mute_end(body: MuteBody) -> datetime | float | None:
    """Return the moment, or the seconds from now, at which the mute ends; None unmutes."""
    if body.until is None:
        return body.seconds
    return FOREVER if body.until == "forever" else parse_moment(body.until)
