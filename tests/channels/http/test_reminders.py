"""Test `/api/reminders`: set, delivered in the person's words, once, late if need be, and never by follow-ups' rules (REM)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rapport.domain.reminder import MAX_REMINDERS
from tests.support.cases import every_case
from tests.support.world import World, open_world, until

SOON = timedelta(milliseconds=300)


def at(delay: timedelta) -> str:
    return (datetime.now(UTC) + delay).isoformat()


async def remind(world: World, conversation: str, text: str = "call mum", **fields: Any) -> dict[str, Any]:
    body = {"conversation_id": conversation, "text": text, **fields}
    if "rrule" not in fields:
        body.setdefault("at", at(timedelta(hours=1)))
    response = await world.http.post("/api/reminders", json=body)
    assert response.status_code == 201, response.text
    return response.json()


async def make_due(world: World, reminder: dict[str, Any], *, late: str = "0 s") -> None:
    """Make it due now, or so long ago, as if time had passed."""
    await world.sql(
        "UPDATE reminders SET due_at = clock_timestamp() - %s::interval, moment = CASE WHEN moment IS NOT NULL"
        " THEN clock_timestamp() - %s::interval END, local_at = (clock_timestamp() - %s::interval) AT TIME ZONE"
        " coalesce(zone, 'UTC') WHERE id = %s",
        *(late, late, late, reminder["id"]),
    )


async def said(world: World, conversation: str, number: int = 1) -> list[str]:
    """The agent's messages, once there are so many."""

    async def spoken() -> list[str]:
        return [one["content"] for one in await world.history(conversation) if one["role"] == "assistant"]

    async def are_there() -> bool:
        return len(await spoken()) >= number

    await until(are_there)
    return await spoken()


async def listed(world: World, **query: Any) -> list[dict[str, Any]]:
    response = await world.http.get("/api/reminders", params=query)
    assert response.status_code == 200, response.text
    return response.json()["reminders"]


async def test_a_reminder_says_the_persons_words_and_no_model_is_asked(world: World) -> None:
    here = await world.conversation()
    words = "Call mum: “say *hello*” & <b>ask</b> https://a.example"
    reminder = await remind(world, here, words, at=at(SOON))
    assert (reminder["state"], reminder["rrule"], reminder["sent_at"]) == ("waiting", None, None)
    assert await said(world, here) == [f"Reminder: {words}"]
    assert world.model.calls == []
    [past] = await listed(world, past=True)
    [message] = await world.history(here)
    assert (past["state"], past["message_id"]) == ("done", message["id"])
    assert await listed(world) == []


async def test_talking_does_not_cancel_a_reminder_and_gates_of_follow_ups_do_not_count(world: World) -> None:
    here = await world.conversation()
    await world.http.put("/api/preferences", json={"time_zone": "UTC", "quiet_from": "00:00", "quiet_to": "23:59"})
    await world.sql("UPDATE conversations SET autonomy_enabled = false, consecutive_followups = 99 WHERE id = %s", here)
    reminder = await remind(world, here)
    await world.says(here, "I talk.")
    await make_due(world, reminder)
    assert await said(world, here, 2) == ["re: I talk.", "Reminder: call mum"]
    [(count, last)] = await world.sql(
        "SELECT consecutive_followups, last_followup_at FROM conversations WHERE id = %s", here
    )
    assert (count, last) == (0, None)
    await world.says(here, "Thanks.")
    assert [message.text for message in world.model.calls[-1]][-2:] == ["Reminder: call mum", "Thanks."]


async def test_a_reminder_is_sent_through_its_channel_in_order(world: World) -> None:
    here = await world.conversation(channel="recording")
    for number in range(5):
        await make_due(world, await remind(world, here, f"number {number}"), late=f"{5 - number} s")
    await said(world, here, 5)
    await world.drain()
    assert world.channel.sent == [f"Reminder: number {number}" for number in range(5)]


async def test_a_missed_reminder_comes_once_and_says_when_it_was_due(world: World) -> None:
    here = await world.conversation()
    once, daily = await remind(world, here, "pay"), await remind(world, here, "tea", rrule="FREQ=DAILY")
    async with world.database.transaction() as connection:  # both at once, as after a stop of the server
        await connection.execute(
            "UPDATE reminders SET due_at = now() - interval '50 hours', moment = now() - interval '50 hours' WHERE id = %s",
            (once["id"],),
        )
        await connection.execute(
            "UPDATE reminders SET due_at = now() - interval '50 hours', local_at = (now() - interval '50 hours') AT TIME ZONE 'UTC'"
            " WHERE id = %s",
            (daily["id"],),
        )
    texts = await said(world, here, 2)
    due = datetime.now(UTC) - timedelta(hours=50)
    latest = datetime.now(UTC) - timedelta(hours=2)
    assert sorted(text.partition(", ")[0] for text in texts) == sorted(
        f"Reminder (late: it was due on {when:%a} {when.day} {when:%b %Y}" for when in (due, latest)
    )
    [waiting] = await listed(world)
    assert waiting["id"] == daily["id"]
    assert timedelta(hours=21) < datetime.fromisoformat(waiting["due_at"]) - datetime.now(UTC) < timedelta(hours=23)
    assert await world.sql("SELECT count(*) FROM messages") == [(2,)]


async def mute(world: World, conversation: str, until_when: str | None) -> None:
    response = await world.http.put(f"/api/threads/{conversation}/mute", json={"until": until_when})
    assert response.status_code == 200, response.text


async def test_a_muted_or_unreachable_conversation_holds_a_reminder_until_it_is_open(world: World) -> None:
    muted, lost = await world.conversation(), await world.conversation()
    await mute(world, muted, "forever")
    await world.sql("UPDATE conversations SET unreachable_since = now() WHERE id = %s", lost)
    for here in (muted, lost):
        await make_due(world, await remind(world, here))

    async def are_held() -> bool:
        return [one["state"] for one in await listed(world)] == ["held", "held"]

    await until(are_held)
    await mute(world, muted, None)
    assert await said(world, muted) == ["Reminder: call mum"]
    await world.sql("UPDATE conversations SET unreachable_since = NULL WHERE id = %s", lost)
    assert await said(world, lost) == ["Reminder: call mum"]


async def test_a_recurring_reminder_can_be_skipped_edited_and_cancelled(world: World) -> None:
    here = await world.conversation()
    await world.http.put("/api/preferences", json={"time_zone": "Europe/Vienna"})
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    weekly = await remind(world, here, at=f"{tomorrow}T09:00", rrule="FREQ=WEEKLY")
    assert weekly["when"].endswith(", 09:00 (Europe/Vienna), every week")
    skipped = await world.http.post(f"/api/reminders/{weekly['id']}/skip", json={})
    assert skipped.json()["at"] == f"{tomorrow + timedelta(days=7)}T09:00:00"
    edited = await world.http.patch(f"/api/reminders/{weekly['id']}", json={"text": "tea", "at": f"{tomorrow}T10:30"})
    assert (edited.json()["text"], edited.json()["at"]) == ("tea", f"{tomorrow}T10:30:00")
    assert (await world.http.delete(f"/api/reminders/{weekly['id']}")).status_code == 204
    assert await listed(world) == []
    again = await world.http.patch(f"/api/reminders/{weekly['id']}", json={"text": "late"})
    assert (again.status_code, again.json()["detail"]) == (409, "This reminder is over: it was cancelled.")


async def test_a_reminder_is_snoozed_before_and_after_it_was_sent(world: World) -> None:
    here = await world.conversation()
    reminder = await remind(world, here)
    later = await world.http.post(f"/api/reminders/{reminder['id']}/snooze", json={"minutes": 90})
    assert later.json()["due_at"] > reminder["due_at"]
    await make_due(world, reminder)
    await said(world, here)
    again = await world.http.post(f"/api/reminders/{reminder['id']}/snooze", json={"minutes": 0.001})
    assert (again.status_code, again.json()["state"]) == (200, "waiting")
    assert await said(world, here, 2) == ["Reminder: call mum"] * 2
    daily = await remind(world, here, "tea", rrule="FREQ=DAILY")
    await make_due(world, daily)
    await said(world, here, 3)
    copy = (await world.http.post(f"/api/reminders/{daily['id']}/snooze", json={"minutes": 10})).json()
    assert copy["id"] != daily["id"]
    assert (copy["text"], copy["rrule"]) == ("tea", None)
    assert {one["id"] for one in await listed(world)} == {copy["id"], daily["id"]}


async def test_reminders_move_with_the_persons_clock(world: World) -> None:
    here = await world.conversation()
    day = (datetime.now(UTC) + timedelta(days=2)).date()
    local = await remind(world, here, at=f"{day}T09:00")
    moment = await remind(world, here, at=f"{day}T09:00Z")
    pinned = await remind(world, here, at=f"{day}T09:00", zone="Asia/Tokyo")
    await world.http.put("/api/preferences", json={"time_zone": "Asia/Kolkata"})
    due = {one["id"]: one["due_at"][11:16] for one in await listed(world)}
    assert due == {local["id"]: "03:30", moment["id"]: "09:00", pinned["id"]: "00:00"}


async def test_in_a_group_only_the_author_or_an_admin_changes_a_reminder(world: World) -> None:
    group = await world.conversation(kind="group")
    reminder = await remind(world, group, "bring cake", author={"id": "ann", "name": "Ann"})
    mine = await remind(world, group, "my pills", author={"id": "ann", "name": "Ann"}, personal=True)
    path = f"/api/reminders/{reminder['id']}"
    refused = await world.http.patch(path, json={"text": "no cake", "author_id": "eve"})
    assert refused.status_code == 400
    assert "Only the person who asked" in refused.json()["detail"]
    assert (await world.http.delete(path, params={"author_id": "eve"})).status_code == 400
    assert (await world.http.patch(path, json={"text": "bring pie", "author_id": "ann"})).status_code == 200
    assert (await world.http.patch(path, json={"text": "bring cake!"})).status_code == 200
    await make_due(world, reminder, late="1 s")
    await make_due(world, mine)
    assert await said(world, group, 2) == ["Reminder, asked for by Ann: bring cake!", "Reminder for Ann: my pills"]


async def test_reminders_are_exported_as_a_calendar(world: World) -> None:
    here = await world.conversation()
    await remind(world, here, "long, " + "ü; " * 60 + "\nend", at="2030-05-01T09:00Z")
    await remind(world, here, "tea", at="2030-05-02T09:00", rrule="FREQ=DAILY;COUNT=3", zone="Europe/Vienna")
    response = await world.http.get("/api/reminders.ics")
    assert response.headers["content-type"].startswith("text/calendar")
    lines = response.content.decode().split("\r\n")
    assert max(len(line.encode()) for line in lines) <= 75
    assert "DTSTART:20300501T090000Z" in lines
    assert "DTSTART;TZID=Europe/Vienna:20300502T090000" in lines
    assert "RRULE:FREQ=DAILY;UNTIL=20300504T090000" in lines
    whole = response.text.replace("\r\n ", "")
    assert "SUMMARY:long\\, ü\\;" in whole
    assert "\\nend" in whole


@every_case(
    ("fields", "status", "sentence"),
    [
        ({"at": "2026-01-01T00:00Z"}, 400, "in the past"),
        ({"at": "9999-01-01T00:00"}, 400, "within 50 years"),
        ({"at": "tomorrow"}, 400, "ISO 8601"),
        ({"rrule": "FREQ=SECONDLY"}, 400, "at most one an hour"),
        ({}, 400, "`at` or `rrule` is missing"),
        ({"at": "2030-01-01T00:00", "zone": "Mars/Olympus"}, 400, "There is no time zone"),
        ({"at": "2030-01-01T00:00", "text": " "}, 400, "is empty"),
        ({"at": "2030-01-01T00:00", "text": "x" * 1_000_000}, 413, ""),
        ({"at": "2030-01-01T00:00", "text": "x" * 3_000}, 413, "the limit is 2,000"),
        ({"at": "2030-01-01T00:00", "text": "a\x00b"}, 400, "NUL"),
        ({"at": "2030-01-01T00:00", "colour": "red"}, 422, "colour"),
        ({"at": "2030-01-01T00:00", "conversation_id": "nope"}, 404, "conversation"),
    ],
)  # fmt: skip
async def test_a_mistake_is_one_sentence_and_nothing_is_stored(
    world: World, fields: dict[str, Any], status: int, sentence: str
) -> None:
    here = await world.conversation()
    response = await world.http.post("/api/reminders", json={"conversation_id": here, "text": "call", **fields})
    assert response.status_code == status, response.text
    assert sentence in response.json()["detail"]
    assert await world.sql("SELECT count(*) FROM reminders") == [(0,)]


async def test_the_number_of_reminders_is_limited(world: World) -> None:
    here = await world.conversation()
    first = await remind(world, here)
    await world.sql(
        "INSERT INTO reminders (conversation_id, id, owner_id, text, local_at, due_at) SELECT %s, 'r' || n, 'local', 'x',"
        " now() + interval '1 day', now() + interval '1 day' FROM generate_series(2, %s) n",
        *(here, MAX_REMINDERS),
    )
    body = {"conversation_id": here, "text": "one more", "at": at(timedelta(hours=1))}
    refused = await world.http.post("/api/reminders", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (400, "10,000 reminders wait already: cancel some first.")
    await world.http.delete(f"/api/reminders/{first['id']}")
    assert (await world.http.post("/api/reminders", json=body)).status_code == 201


@pytest.mark.parametrize("processes", [2])
async def test_several_processes_say_each_reminder_once(database_url: str, processes: int) -> None:
    assert processes == 2
    async with open_world(database_url) as one, open_world(database_url) as two:
        here, there = await one.conversation(), await two.conversation()
        await one.sql(
            "INSERT INTO reminders (conversation_id, id, owner_id, text, local_at, due_at, moment) SELECT (ARRAY[%s, %s])[1 + n %% 2],"
            " 'r' || n, 'local', 'number ' || n, now(), now(), now() FROM generate_series(1, 2000) n",
            *(here, there),
        )

        async def are_done() -> bool:
            return await two.sql("SELECT count(*) FROM reminders WHERE state <> 'done'") == [(0,)]

        await until(are_done)
        counts = await one.sql(
            "SELECT count(*), count(DISTINCT content), count(DISTINCT (conversation_id, created_at)) FROM messages"
        )
        assert counts == [(2_000, 2_000, 2_000)]
