"""Serve `/api/reminders`: set, list, change, snooze, skip and cancel what people ask to be told (REM)."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.problems import NOT_STORED
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.rendering.reminder_views import (
    RemindersView,
    ReminderView,
    reminder_view,
    write_calendar,
)
from rapport.channels.http.requests.json_bodies import Body, StrictRoute
from rapport.core.reminders import Asker, Change, ReminderBook
from rapport.domain.conversation import Author
from rapport.domain.errors import InvalidInput
from rapport.domain.reminder import MAX_REMINDERS
from rapport.domain.text_checks import check_text

MAX_SNOOZE_MINUTES = 60 * 24 * 366

Time = Annotated[str, Field(max_length=64, description="ISO 8601; without an offset on the person's own clock")]
Rule = Annotated[str, Field(max_length=600, description="A recurrence rule of RFC 5545")]
Zone = Annotated[str, Field(max_length=64)]


class AuthorBody(Body):
    """The person of a group who asks."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    name: Annotated[str | None, Field(max_length=200)] = None


class ReminderBody(Body):
    """`at` is the time, with `rrule` of the first occurrence; `rrule` alone begins now. `zone` pins the clock to a time zone.

    In a group `author` asks, and with `personal` it is for them alone.
    """

    conversation_id: Annotated[str, Field(max_length=64)]
    text: str
    at: Time | None = None
    rrule: Rule | None = None
    zone: Zone | None = None
    author: AuthorBody | None = None
    personal: bool = False


class ReminderEdit(Body):
    """A missing field is not changed; an empty `rrule` makes it one that comes once. `author_id`: the person of a group who asks."""

    text: str | None = None
    at: Time | None = None
    rrule: Rule | None = None
    zone: Zone | None = None
    author_id: Annotated[str | None, Field(max_length=200)] = None


class SnoozeBody(Body):
    """`{"minutes": 10}` from now, or `{"until": "2026-11-20T09:00:00+01:00"}`."""

    minutes: Annotated[float | None, Field(gt=0, le=MAX_SNOOZE_MINUTES, allow_inf_nan=False)] = None
    until: Time | None = None
    author_id: Annotated[str | None, Field(max_length=200)] = None


class SkipBody(Body):
    author_id: Annotated[str | None, Field(max_length=200)] = None


def reminder_routes(reminders: ReminderBook, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["reminders"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.get("/reminders", response_model=RemindersView, summary="List your reminders, the next first")
    async def list_reminders(
        conversation_id: Annotated[str | None, Query(max_length=64)] = None,
        past: bool = False,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000,
        owner: str = owner_id,
    ) -> Response:
        """With `past` those that were sent or cancelled, the newest first."""
        found, preference = await reminders.list(owner, conversation_id=conversation_id, past=past, limit=limit)
        shown = [reminder_view(each, preference) for each in found]
        return json_response({"reminders": shown, "time_zone": preference.time_zone})

    @router.get("/reminders.ics", response_class=Response, summary="Export your waiting reminders as iCalendar")
    async def export_reminders(owner: str = owner_id) -> Response:
        found, preference = await reminders.list(owner, limit=MAX_REMINDERS)
        headers = {**NOT_STORED, "Content-Disposition": 'attachment; filename="reminders.ics"'}
        return Response(write_calendar(found, preference), media_type="text/calendar; charset=utf-8", headers=headers)

    @router.post("/reminders", response_model=ReminderView, status_code=201, summary="Set a reminder")
    async def set_reminder(body: ReminderBody, owner: str = owner_id) -> Response:
        if body.at is None and body.rrule is None:
            raise InvalidInput("`at` or `rrule` is missing: say when.")
        asker = _make_asker(body.author, personal=body.personal)
        at = None if body.at is None else _parse_time(body.at, "at")
        stored, preference = await reminders.add(
            owner, body.conversation_id, text=body.text, at=at, rule=body.rrule, zone=body.zone, asker=asker
        )
        return json_response(reminder_view(stored, preference), status=201)

    _add_routes_of_one(router, reminders, owner_id)
    return router


def _add_routes_of_one(router: APIRouter, reminders: ReminderBook, owner_id: Any) -> None:
    @router.get("/reminders/{reminder_id}", response_model=ReminderView, summary="Get a reminder")
    async def get_reminder(reminder_id: str, owner: str = owner_id) -> Response:
        return json_response(reminder_view(*await reminders.get(owner, reminder_id)))

    @router.patch("/reminders/{reminder_id}", response_model=ReminderView, summary="Change a reminder")
    async def change_reminder(reminder_id: str, body: ReminderEdit, owner: str = owner_id) -> Response:
        at = None if body.at is None else _parse_time(body.at, "at")
        change = Change(body.text, at, body.rrule, body.zone)
        return json_response(
            reminder_view(*await reminders.change(owner, reminder_id, change, by=_identify(body.author_id)))
        )

    @router.delete("/reminders/{reminder_id}", status_code=204, summary="Cancel a reminder with all its occurrences")
    async def cancel_reminder(
        reminder_id: str, author_id: Annotated[str | None, Query(max_length=200)] = None, owner: str = owner_id
    ) -> Response:
        await reminders.cancel(owner, reminder_id, by=_identify(author_id))
        return Response(status_code=204, headers=NOT_STORED)

    @router.post(
        "/reminders/{reminder_id}/snooze", response_model=ReminderView, summary="Say a reminder again, or later"
    )
    async def snooze(reminder_id: str, body: SnoozeBody, owner: str = owner_id) -> Response:
        if (body.minutes is None) is (body.until is None):
            raise InvalidInput("Send either `minutes` or `until`.")
        until = timedelta(minutes=body.minutes) if body.minutes is not None else _parse_time(body.until or "", "until")
        snoozed = await reminders.snooze(owner, reminder_id, until=until, by=_identify(body.author_id))
        return json_response(reminder_view(*snoozed))

    @router.post(
        "/reminders/{reminder_id}/skip",
        response_model=ReminderView,
        summary="Leave out the next occurrence of a reminder",
    )
    async def skip(reminder_id: str, body: SkipBody, owner: str = owner_id) -> Response:
        return json_response(reminder_view(*await reminders.skip(owner, reminder_id, by=_identify(body.author_id))))


def _make_asker(author: AuthorBody | None, *, personal: bool) -> Asker:
    if author is None:
        return Asker()
    checked = Author(
        check_text(author.id, what="author.id", limit=200), check_text(author.name or "", what="author.name", limit=200)
    )
    return Asker(checked.id, checked.name or None, personal)


def _identify(author_id: str | None) -> Asker | None:
    return None if author_id is None else Asker(author_id)


def _parse_time(text: str, field: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidInput(f"`{field}` must be a time in ISO 8601, such as 2026-11-20T09:00:00+01:00.") from error
