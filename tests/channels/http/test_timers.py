"""Test follow-ups over HTTP: list, set, move, cancel, mute, quiet hours, outcomes, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.problems import install_error_handlers
from rapport.channels.http.routes.timers import timer_routes
from rapport.core.access import Access
from rapport.core.follow_ups import FollowUpControls
from rapport.domain.follow_up_requests import MAX_DELAY_SECONDS
from rapport.domain.ids import new_id
from rapport.metrics import Metrics
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.cases import every_case
from tests.support.world import World, until

PROBLEM = "application/problem+json"
LATER: dict[str, Any] = {"trigger_type": "check_in", "delay_seconds": 3600}
DAY = 86_400


async def timers_of(world: World, conversation: str) -> dict[str, Any]:
    response = await world.http.get(f"/api/threads/{conversation}/timers")
    assert response.status_code == 200, response.text
    return response.json()


async def set_timer(world: World, conversation: str, **body: Any) -> httpx.Response:
    return await world.http.post(f"/api/threads/{conversation}/timers", json={**LATER, **body})


async def mute(world: World, conversation: str, **body: Any) -> httpx.Response:
    return await world.http.put(f"/api/threads/{conversation}/mute", json=body)


def seconds_until(text: str) -> float:
    return (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()


def assert_problem(response: httpx.Response, *codes: int) -> str:
    assert response.status_code in codes, response.text
    assert response.headers["content-type"] == PROBLEM
    return response.json()["detail"]


# ---- setting, moving, cancelling


async def test_a_timer_is_set_seen_moved_and_cancelled(world: World) -> None:
    conversation = await world.conversation()
    assert await timers_of(world, conversation) == {
        "timers": [],
        "past": [],
        "muted_until": None,
        "autonomy": None,
        "held_reminders": 0,
    }

    made = await set_timer(world, conversation, reason="the dentist at nine", timer_id="dentist")
    assert made.status_code == 201
    timer = made.json()
    assert timer.keys() == {
        *("id", "trigger_type", "reason", "origin", "state", "gate", "message_id"),
        *("due_at", "created_at", "fired_at", "ended_at"),
    }
    assert (timer["id"], timer["trigger_type"], timer["reason"]) == ("dentist", "check_in", "the dentist at nine")
    assert (timer["origin"], timer["state"], timer["fired_at"]) == ("user", "pending", None)
    assert 3590 < seconds_until(timer["due_at"]) < 3610

    sooner = (await set_timer(world, conversation, delay_seconds=60)).json()
    listed = await timers_of(world, conversation)
    assert [one["id"] for one in listed["timers"]] == [sooner["id"], "dentist"]

    moved = await world.http.patch(
        f"/api/threads/{conversation}/timers/dentist", json={"delay_seconds": 10, "trigger_type": "task_incomplete"}
    )
    assert moved.status_code == 200
    assert moved.json()["trigger_type"] == "task_incomplete"
    assert moved.json()["reason"] == "the dentist at nine"
    assert 0 < seconds_until(moved.json()["due_at"]) < 15
    assert [one["id"] for one in (await timers_of(world, conversation))["timers"]] == ["dentist", sooner["id"]]

    for expected in (204, 404):
        gone = await world.http.delete(f"/api/threads/{conversation}/timers/dentist")
        assert gone.status_code == expected
    assert "may have fired" in assert_problem(gone, 404)
    late = await world.http.patch(f"/api/threads/{conversation}/timers/dentist", json={"delay_seconds": 10})
    assert "may have fired" in assert_problem(late, 404)
    assert [one["id"] for one in (await timers_of(world, conversation))["timers"]] == [sooner["id"]]


async def test_the_same_name_again_moves_the_timer(world: World) -> None:
    conversation = await world.conversation()
    first = await set_timer(world, conversation, timer_id="a.b:c_d-1", reason="old", delay_seconds=600)
    again = await set_timer(world, conversation, timer_id="a.b:c_d-1", trigger_type="waiting_for_decision")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["created_at"] == first.json()["created_at"]
    assert again.json()["reason"] is None
    (waiting,) = (await timers_of(world, conversation))["timers"]
    assert waiting == again.json()


async def test_a_reason_can_be_changed_and_taken_away(world: World) -> None:
    conversation = await world.conversation()
    await set_timer(world, conversation, timer_id="one", reason="because")
    path = f"/api/threads/{conversation}/timers/one"
    due = (await timers_of(world, conversation))["timers"][0]["due_at"]
    for sent, kept in (("why not", "why not"), (None, None), ("  ", None), ("\n", None), ("日本 🎈", "日本 🎈")):
        changed = await world.http.patch(path, json={"reason": sent})
        assert (changed.status_code, changed.json()["reason"]) == (200, kept)
        assert changed.json()["due_at"] == due
    for body in ({}, {"delay_seconds": None}, {"trigger_type": None}):
        assert "nothing to change" in assert_problem(await world.http.patch(path, json=body), 400)


@every_case("delay", [1, 1.0, 1.5, 30, MAX_DELAY_SECONDS])
async def test_a_delay_is_between_a_second_and_thirty_days(world: World, delay: float) -> None:
    conversation = await world.conversation()
    assert (await set_timer(world, conversation, delay_seconds=delay)).status_code == 201


BAD_DELAYS = [
    *("0.5", "0", "-1", "0.999", "2592001", "2678400", "1e300", "1e999", "-1e999", "1" + "0" * 400),
    *('"60"', '"1h"', "true", "null", "NaN", "Infinity", "-Infinity", "[60]", "{}"),
]


@every_case("delay", BAD_DELAYS)
async def test_an_invalid_delay_is_refused(world: World, delay: str) -> None:
    conversation = await world.conversation()
    await set_timer(world, conversation, timer_id="one")
    before = await timers_of(world, conversation)
    headers = {"Content-Type": "application/json"}
    body = f'{{"trigger_type": "check_in", "delay_seconds": {delay}}}'
    path = f"/api/threads/{conversation}/timers"
    assert_problem(await world.http.post(path, content=body, headers=headers), 400, 422)
    changed = await world.http.patch(f"{path}/one", content=f'{{"delay_seconds": {delay}}}', headers=headers)
    assert_problem(changed, 400, 422)
    assert await timers_of(world, conversation) == before


async def test_what_does_not_belong_into_a_timer_is_refused(world: World) -> None:
    conversation = await world.conversation()
    path = f"/api/threads/{conversation}/timers"
    unknown = await set_timer(world, conversation, trigger_type="poke")
    for name in ("check_in", "question_unanswered", "task_incomplete", "waiting_for_decision"):
        assert name in assert_problem(unknown, 422)
    refused: list[dict[str, Any]] = [
        {"trigger_type": None},
        {"trigger_type": 1},
        {"trigger_type": "CHECK_IN"},
        {"reason": "x" * 501},
        {"reason": "a\x00b"},
        {"reason": 5},
        {"timer_id": ""},
        {"timer_id": "x" * 65},
        {"timer_id": "a b"},
        {"timer_id": "a/b"},
        {"timer_id": "a\x00"},
        {"timer_id": "é"},
        {"timer_id": "a\n"},
        {"timer_id": 7},
        {"synthetic": True},
        {"origin": "planner"},
        {"state": "fired"},
        {"matter": "x"},
        {"spoken": 0},
        {"owner_id": "ana"},
        {"due_at": "2026-11-16T08:00:00Z"},
    ]
    for extra in refused:
        assert_problem(await set_timer(world, conversation, **extra), 400, 413, 422)
    for text in (r'"\ud800"', '"\udc80"'):
        body = f'{{"trigger_type": "check_in", "delay_seconds": 60, "reason": {text}}}'.encode(errors="surrogatepass")
        assert_problem(
            await world.http.post(path, content=body, headers={"Content-Type": "application/json"}), 400, 422
        )
    for body in (b"", b"[]", b"null", b'"x"', b"{", b"\xff"):
        assert_problem(
            await world.http.post(path, content=body, headers={"Content-Type": "application/json"}), 400, 422
        )
    assert (await timers_of(world, conversation))["timers"] == []

    await set_timer(world, conversation, timer_id="one")
    for edit in ({"state": "fired"}, {"timer_id": "two"}, {"reason": "x" * 501}, {"reason": "\x00"}):
        assert_problem(await world.http.patch(f"{path}/one", json=edit), 400, 413, 422)
    exact = await world.http.patch(f"{path}/one", json={"reason": "x" * 500})
    assert exact.status_code == 200


async def test_a_name_in_the_address_may_be_anything_and_is_not_found(world: World) -> None:
    conversation = await world.conversation()
    await set_timer(world, conversation, timer_id="one")
    for name in ("two", "%00", "a%20b", "%F0%9F%8E%88", "x" * 5000, "one%0A", "One", "%25", "o_e"):
        path = f"/api/threads/{conversation}/timers/{name}"
        assert_problem(await world.http.delete(path), 404)
        assert_problem(await world.http.patch(path, json={"delay_seconds": 5}), 404)
    assert len((await timers_of(world, conversation))["timers"]) == 1


async def test_the_number_of_timers_in_a_conversation_is_limited(world: World) -> None:
    conversation = await world.conversation()
    await world.sql(
        "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at)"
        " SELECT %s, 't' || n, 't' || n, 'local', 'check_in', 'user', 0, now() + interval '1 day'"
        " FROM generate_series(1, 10000) n",
        conversation,
    )
    assert "cancel some" in assert_problem(await set_timer(world, conversation), 400)
    assert (await set_timer(world, conversation, timer_id="t7")).status_code == 200
    assert (await world.http.delete(f"/api/threads/{conversation}/timers/t8")).status_code == 204
    assert (await set_timer(world, conversation)).status_code == 201


async def test_a_person_who_speaks_cancels_what_waits(world: World) -> None:
    conversation = await world.conversation()
    await set_timer(world, conversation, timer_id="mine")
    await world.says(conversation, "bye, that's all")
    assert "mine" not in {one["id"] for one in (await timers_of(world, conversation))["timers"]}


async def test_the_timer_loop_is_notified_of_every_timer_that_is_set_or_moved(database: Database) -> None:
    told: list[None] = []
    app = FastAPI()
    install_error_handlers(app)
    caller = Authenticator(Access(database), loopback=True)
    app.include_router(timer_routes(FollowUpControls(database, lambda: told.append(None)), caller))
    async with database.statement() as connection:
        conversation = (await Conversations(connection).create("local", agent_id="companion")).id
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://localhost/api/threads/{conversation}") as http:
        for method, path, body, calls in (
            ("POST", "/timers", {**LATER, "timer_id": "one"}, 1),
            ("POST", "/timers", {**LATER, "timer_id": "one", "delay_seconds": 1}, 2),
            ("PATCH", "/timers/one", {"delay_seconds": 2}, 3),
            ("PATCH", "/timers/two", {"delay_seconds": 2}, 3),
            ("POST", "/timers", {**LATER, "delay_seconds": 0}, 3),
            ("GET", "/timers", None, 3),
        ):
            await http.request(method, path, json=body)
            assert len(told) == calls, (method, body)


# ---- what became of them


async def past_timer(world: World, conversation: str, owner: str = "local", **values: Any) -> str:
    """A timer that fired a while ago, put into the table by hand."""
    row: dict[str, Any] = {
        "id": new_id(),
        "timer_id": "past",
        "trigger_type": "check_in",
        "state": "delivered",
        "gate": None,
        "regenerated": False,
        "reason": None,
        "ago": 7200,
        "variant": None,
        **values,
    }
    await world.sql(
        "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, state, gate,"
        " regenerated, reason, prompt_variant, topic, due_at, fired_at, ended_at)"
        " SELECT %s, %s, %s, %s, %s, 'planner', 0, %s, %s, %s, %s, %s, 'the secret matter', at, at,"
        " CASE WHEN %s <> 'fired' THEN at END"
        " FROM (SELECT clock_timestamp() - %s * interval '1 second' AS at) AS moment",
        *(conversation, row["id"], row["timer_id"], owner, row["trigger_type"], row["state"], row["gate"]),
        *(row["regenerated"], row["reason"], row["variant"], row["state"], row["ago"]),
    )
    return row["id"]


async def said_ago(world: World, conversation: str, seconds: float, *, role: str = "user", **metadata: Any) -> None:
    await world.sql(
        "INSERT INTO messages (conversation_id, id, owner_id, role, content, metadata, created_at)"
        " SELECT %s, %s, owner_id, %s, 'words', %s::jsonb, clock_timestamp() - %s * interval '1 second'"
        " FROM conversations WHERE id = %s",
        *(conversation, new_id(), role, '{"synthetic": true}' if metadata else "{}", seconds, conversation),
    )


async def test_what_became_of_the_latest_is_listed_newest_first(world: World) -> None:
    conversation = await world.conversation()
    for number in range(60):
        await past_timer(world, conversation, timer_id=f"t{number}", ago=1000 - number)
    await past_timer(world, conversation, timer_id="held", state="suppressed", gate="muted", reason="tea", ago=1)
    await set_timer(world, conversation, timer_id="waits")
    listed = await timers_of(world, conversation)
    assert [one["id"] for one in listed["timers"]] == ["waits"]
    assert len(listed["past"]) == 50
    latest, second, *_ = listed["past"]
    assert (latest["id"], latest["state"], latest["gate"], latest["reason"]) == ("held", "suppressed", "muted", "tea")
    assert second["id"] == "t59"
    assert "secret matter" not in str(listed)


async def test_the_figures_are_those_of_the_rows(world: World) -> None:
    first, second, third = [await world.conversation() for _ in range(3)]
    await past_timer(world, first, ago=7200)
    await said_ago(world, first, 7200 - 3599)  # within the hour
    await past_timer(world, second, ago=7200, regenerated=True)
    await said_ago(world, second, 7200 - 3605)  # after the hour
    await said_ago(world, second, 7300)  # before it
    await past_timer(world, third, ago=7200)
    await said_ago(world, third, 7100, role="assistant")
    await said_ago(world, third, 7100, synthetic=True)  # nobody said that
    await past_timer(world, third, trigger_type="task_incomplete", state="suppressed", gate="muted")
    await past_timer(world, third, trigger_type="task_incomplete", state="suppressed", gate="muted")
    await past_timer(world, third, trigger_type="task_incomplete", state="suppressed", gate="quiet_hours")
    await past_timer(world, third, state="superseded")
    await past_timer(world, third, state="leaked", regenerated=True)
    await past_timer(world, third, state="failed")
    await past_timer(world, third, state="fired")
    await past_timer(world, third, state="expired")
    await past_timer(world, third, ago=20 * DAY, trigger_type="question_unanswered")
    theirs = await world.conversation("ana")
    await past_timer(world, theirs, owner="ana")
    await set_timer(world, third, timer_id="waits")

    stats = (await world.http.get("/api/autonomy/stats", params={"days": 7})).json()
    by_type = stats.pop("by_trigger_type")
    assert stats.pop("by_variant") == []
    assert stats == {
        "days": 7,
        "fired": 10,
        "delivered": 3,
        "suppressed": {"muted": 2, "quiet_hours": 1},
        "superseded": 1,
        "leaked": 1,
        "failed": 1,
        "under_way": 1,
        "expired": 1,
        "regenerated": 2,
        "answered_within_an_hour": 1,
        "response_rate": 0.3333,
    }
    assert by_type.keys() == {"check_in", "question_unanswered", "task_incomplete", "waiting_for_decision"}
    assert (by_type["check_in"]["fired"], by_type["check_in"]["response_rate"]) == (7, 0.3333)
    assert (by_type["task_incomplete"]["fired"], by_type["task_incomplete"]["response_rate"]) == (3, None)
    assert by_type["task_incomplete"]["suppressed"] == {"muted": 2, "quiet_hours": 1}
    assert by_type["question_unanswered"]["fired"] == 0

    month = (await world.http.get("/api/autonomy/stats")).json()
    assert (month["days"], month["fired"]) == (30, 11)
    assert month["by_trigger_type"]["question_unanswered"]["delivered"] == 1
    for days in ("0", "-1", "x", "1.5", "99999", "NaN", ""):
        assert_problem(await world.http.get("/api/autonomy/stats", params={"days": days}), 422)


async def test_variants_are_counted_by_agent_and_type_with_an_honest_interval(world: World) -> None:
    for number in range(4):
        where = await world.conversation()
        await past_timer(world, where, variant="warm")
        if number < 3:
            await said_ago(world, where, 7000)
    held = await world.conversation()
    await past_timer(world, held, variant="warm", state="suppressed", gate="muted")
    await past_timer(world, held, variant="short", trigger_type="task_incomplete", state="failed")
    await past_timer(world, held, state="superseded")
    for _ in range(10):
        await past_timer(world, await world.conversation(agent_id="librarian"), variant="warm")
    theirs = await world.conversation("ana")
    await past_timer(world, theirs, owner="ana", variant="hers")
    variants = (await world.http.get("/api/autonomy/stats")).json()["by_variant"]
    assert variants == (await world.http.get("/api/insight")).json()["variants"]
    assert [(one["agent"], one["trigger_type"], one["variant"], one["text"]) for one in variants] == [
        ("companion", "check_in", "warm", "3 of 4 answered, 30–95 %; too few to compare"),
        ("companion", "task_incomplete", "short", "none delivered"),
        ("librarian", "check_in", "warm", "0 of 10 answered, 0–28 %"),
    ]
    assert variants[0] == {
        "agent": "companion",
        "trigger_type": "check_in",
        "variant": "warm",
        "fired": 5,
        "delivered": 4,
        "answered_within_an_hour": 3,
        "response_rate": 0.75,
        "interval": [0.3006, 0.9544],
        "may_be_compared": False,
        "text": "3 of 4 answered, 30–95 %; too few to compare",
    }
    assert variants[1]["interval"] is None
    assert [one["may_be_compared"] for one in variants] == [False, False, True]


async def test_without_follow_ups_every_figure_is_zero(world: World) -> None:
    stats = (await world.http.get("/api/autonomy/stats")).json()
    assert (stats["fired"], stats["suppressed"], stats["response_rate"]) == (0, {}, None)


# ---- mute, and the switch


async def test_a_conversation_is_muted_for_a_while_until_a_time_and_for_good(world: World) -> None:
    conversation = await world.conversation()
    hour = (await mute(world, conversation, seconds=3600)).json()
    assert 3590 < seconds_until(hour["muted_until"]) < 3610
    assert hour["autonomy"] is None
    assert (await timers_of(world, conversation))["muted_until"] == hour["muted_until"]

    tomorrow = datetime.now(UTC) + timedelta(days=1)
    until = (await mute(world, conversation, until=tomorrow.isoformat())).json()["muted_until"]
    assert datetime.fromisoformat(until) == tomorrow
    until = (await mute(world, conversation, until="2999-01-01T00:00:00+05:30")).json()["muted_until"]
    assert until == "2998-12-31T18:30:00Z"

    for forever in ("forever", "9999-12-31T23:59:59-14:00"):
        assert (await mute(world, conversation, until=forever)).json()["muted_until"] == "9999-12-31T00:00:00Z"
    for unmuted in ({"until": None}, {"seconds": None}):
        await mute(world, conversation, seconds=3600)
        assert (await mute(world, conversation, **unmuted)).json()["muted_until"] is None
    assert (await timers_of(world, conversation))["muted_until"] is None


async def test_an_expired_mute_has_no_effect(world: World) -> None:
    conversation = await world.conversation()
    await world.sql("UPDATE conversations SET muted_until = now() - interval '1 second' WHERE id = %s", conversation)
    assert (await timers_of(world, conversation))["muted_until"] is None


async def test_an_invalid_mute_request_is_refused_and_changes_nothing(world: World) -> None:
    conversation = await world.conversation()
    kept = (await mute(world, conversation, until="forever", autonomy=False)).json()
    refused: list[dict[str, Any]] = [
        {},
        {"seconds": 60, "until": "forever"},
        {"seconds": None, "until": None},
        {"seconds": 0},
        {"seconds": -5},
        {"seconds": 0.5},
        {"seconds": 1e12},
        {"seconds": True},
        {"seconds": "60"},
        {"until": "tomorrow"},
        {"until": ""},
        {"until": "2999-01-01"},
        {"until": "2999-01-01T00:00:00"},
        {"until": "2020-01-01T00:00:00Z"},
        {"until": "0001-01-01T00:00:00+14:00"},
        {"until": "2020-01-01T00:00:00Z", "autonomy": True},
        {"until": "x" * 10_000},
        {"until": "a\x00b"},
        {"until": 5},
        {"autonomy": "yes"},
        {"autonomy": 1},
        {"muted": True},
    ]
    for body in refused:
        assert_problem(await mute(world, conversation, **body), 400, 422)
    shown = await timers_of(world, conversation)
    assert {name: shown[name] for name in kept} == kept


async def test_follow_ups_are_turned_on_and_off_without_touching_the_mute(world: World) -> None:
    group = await world.conversation(kind="group")
    await mute(world, group, until="forever")
    for wanted in (True, False, None):
        shown = (await mute(world, group, autonomy=wanted)).json()
        assert shown == {"muted_until": "9999-12-31T00:00:00Z", "autonomy": wanted, "held_reminders": 0}
        assert await world.sql("SELECT autonomy_enabled FROM conversations WHERE id = %s", group) == [(wanted,)]
    both = (await mute(world, group, autonomy=True, until=None)).json()
    assert both == {"muted_until": None, "autonomy": True, "held_reminders": 0}


# ---- preferences


async def test_quiet_hours_are_kept_with_their_zone(world: World) -> None:
    nothing = {"time_zone": "UTC", "quiet_from": None, "quiet_to": None}
    assert (await world.http.get("/api/preferences")).json() == nothing
    wanted = {"time_zone": "Europe/Berlin", "quiet_from": "22:00", "quiet_to": "08:00"}
    assert (await world.http.put("/api/preferences", json=wanted)).json() == wanted
    assert (await world.http.get("/api/preferences")).json() == wanted

    # A field that is not sent keeps its value.
    zone = (await world.http.put("/api/preferences", json={"time_zone": "america/new_york"})).json()
    assert zone == {**wanted, "time_zone": "America/New_York"}
    end = (await world.http.put("/api/preferences", json={"quiet_to": "00:00"})).json()
    assert end == {**zone, "quiet_to": "00:00"}
    none = await world.http.put("/api/preferences", json={"quiet_from": None, "quiet_to": None})
    assert none.json() == {**zone, "quiet_from": None, "quiet_to": None}


HOSTILE_ZONES = [
    *("../../etc/passwd", "/etc/passwd", "Europe/../Europe/Berlin", "..", "C:\\zones", "Europe/Berlin\x00", "\x00"),
    *("x" * 10_000, "", " ", "Mars/Olympus", "Europe", "localtime", "Factory", "UTC+25", "🎈"),
]


@every_case("zone", HOSTILE_ZONES)
async def test_an_unknown_time_zone_is_refused(world: World, zone: str) -> None:
    refused = await world.http.put("/api/preferences", json={"time_zone": zone})
    detail = assert_problem(refused, 400, 422)
    assert len(detail) < 400
    assert (await world.http.get("/api/preferences")).json()["time_zone"] == "UTC"


async def test_malformed_quiet_hours_are_refused(world: World) -> None:
    refused: list[dict[str, Any]] = [
        {"quiet_from": "22:00"},
        {"quiet_to": "08:00"},
        {"quiet_from": "22:00", "quiet_to": None},
        {"quiet_from": "22:00", "quiet_to": "22:00"},
        {"quiet_from": "24:00", "quiet_to": "08:00"},
        {"quiet_from": "22:60", "quiet_to": "08:00"},
        {"quiet_from": "10pm", "quiet_to": "08:00"},
        {"quiet_from": "", "quiet_to": ""},
        {"quiet_from": "22:00\x00", "quiet_to": "08:00"},
        {"quiet_from": 22, "quiet_to": 8},
        {"time_zone": 1},
        {"zone": "UTC"},
    ]
    for body in refused:
        assert_problem(await world.http.put("/api/preferences", json=body), 400, 422)
    assert await world.sql("SELECT count(*) FROM preferences") == [(0,)]


# ---- owners


async def test_what_is_somebody_elses_is_not_there(world: World) -> None:
    theirs = await world.conversation("ana")
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    path = f"/api/threads/{theirs}"
    made = await world.http.post(f"{path}/timers", json={**LATER, "timer_id": "one"}, headers=ana)
    assert made.status_code == 201
    await past_timer(world, theirs, owner="ana")

    requests: list[tuple[str, str, Any]] = [
        ("GET", "timers", None),
        ("POST", "timers", LATER),
        ("POST", "timers", {**LATER, "timer_id": "one"}),
        ("PATCH", "timers/one", {"delay_seconds": 1}),
        ("DELETE", "timers/one", None),
        ("PUT", "mute", {"until": "forever"}),
        ("PUT", "mute", {"autonomy": False}),
    ]
    for method, rest, body in requests:
        for conversation in (theirs, new_id(), "nonsense", "%00", theirs.lower(), "x" * 3000):
            foreign = await world.http.request(method, f"/api/threads/{conversation}/{rest}", json=body, headers=ben)
            assert "There is no conversation" in assert_problem(foreign, 404)
    listed = (await world.http.get(f"{path}/timers", headers=ana)).json()
    assert [one["id"] for one in listed["timers"]] == ["one"]
    assert listed["timers"][0]["due_at"] == made.json()["due_at"]
    assert (listed["muted_until"], listed["autonomy"]) == (None, None)

    hours = {"time_zone": "Asia/Tokyo", "quiet_from": "21:30", "quiet_to": "06:00"}
    assert (await world.http.put("/api/preferences", json=hours, headers=ana)).json() == hours
    assert (await world.http.get("/api/preferences", headers=ben)).json()["time_zone"] == "UTC"
    assert (await world.http.get("/api/autonomy/stats", headers=ben)).json()["fired"] == 0
    assert (await world.http.get("/api/autonomy/stats", headers=ana)).json()["fired"] == 1


@every_case(
    ("method", "path", "body"),
    [
        ("POST", "timers", LATER),
        ("POST", "timers", {**LATER, "timer_id": "one"}),
        ("PATCH", "timers/one", {"delay_seconds": 60}),
        ("DELETE", "timers/one", None),
        ("PUT", "mute", {"until": "forever"}),
        ("PUT", "mute", {"autonomy": False}),
    ],
)
async def test_a_request_during_the_erasure_of_its_conversation_gets_not_found(
    world: World, method: str, path: str, body: Any
) -> None:
    conversation = await world.conversation()
    assert (await set_timer(world, conversation, timer_id="one")).status_code == 201

    async def waits() -> bool:
        blocked = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return await world.sql(blocked) == [(1,)]

    async with world.database.transaction() as connection:  # everything is deleted, and not committed yet
        await Conversations(connection).delete("local", conversation)
        request = asyncio.create_task(
            world.http.request(method, f"/api/threads/{conversation}/{path}", json=body),
        )
        await until(waits)
    assert_problem(await request, 404)


async def test_once_there_is_a_key_every_route_needs_one(world: World) -> None:
    conversation = await world.conversation()
    await make_key(world, "local")
    await until_closed(world)
    for method, path in (
        ("GET", f"/api/threads/{conversation}/timers"),
        ("POST", f"/api/threads/{conversation}/timers"),
        ("PATCH", f"/api/threads/{conversation}/timers/one"),
        ("DELETE", f"/api/threads/{conversation}/timers/one"),
        ("PUT", f"/api/threads/{conversation}/mute"),
        ("GET", "/api/preferences"),
        ("PUT", "/api/preferences"),
        ("GET", "/api/autonomy/stats"),
        ("GET", "/metrics"),
    ):
        body = None if method in ("GET", "DELETE") else LATER if path.endswith("timers") else {}
        assert_problem(await world.http.request(method, path, json=body), 401)


# ---- /metrics


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


async def test_metrics_can_be_read_and_name_nobody(world: World) -> None:
    conversation = await world.conversation()
    await world.says(conversation, "the launch code is xyzzy")
    await set_timer(world, conversation, timer_id="hush-timer", reason="plugh", delay_seconds=DAY)
    response = await world.http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    found = list(samples(response.text))
    assert {name for name, _, _ in found} >= {"rapport_timers_pending", "rapport_messages_received_total"}
    pending = next(value for name, _, value in found if name == "rapport_timers_pending")
    assert pending == (await world.sql("SELECT count(*) FROM timers WHERE state = 'pending'"))[0][0]
    for private in (conversation, "local", "xyzzy", "hush-timer", "plugh"):
        assert private not in response.text

    await set_timer(world, conversation, timer_id="another", delay_seconds=DAY)
    soon = await world.http.get("/metrics")  # the count is cached for a few seconds
    assert ("rapport_timers_pending", {}, pending) in list(samples(soon.text))


def test_metrics_count_what_happens_under_fixed_names_only() -> None:
    metrics = Metrics()
    metrics.count_follow_up("check_in", "delivered")
    metrics.count_follow_up("check_in", "delivered", regenerated=True)
    metrics.count_follow_up("task_incomplete", "suppressed", "muted")
    metrics.count_follow_up("Ana's secret", "what she said", 'in "her" room\n')
    metrics.count_follow_up(None, "failed")
    for lateness in (0.002, 0.3, -1.0, 5000.0):
        metrics.count_fired(lateness)
    metrics.count_expired()
    metrics.record_phase("model", 1500.0)
    metrics.record_phase("Words of Ana", 1.0)
    metrics.count_received()
    metrics.set_pending(7)

    text = metrics.render().decode()
    found = {(name, tuple(sorted(labels.items()))): value for name, labels, value in samples(text)}

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted(labels.items()))]

    assert value("rapport_followups_total", trigger_type="check_in", outcome="delivered", gate="") == 2
    assert value("rapport_followups_total", trigger_type="task_incomplete", outcome="suppressed", gate="muted") == 1
    assert value("rapport_followups_total", trigger_type="other", outcome="other", gate="other") == 1
    assert value("rapport_followups_total", trigger_type="other", outcome="failed", gate="") == 1
    assert value("rapport_followups_regenerated_total", trigger_type="check_in") == 1
    assert value("rapport_timer_lateness_seconds_count") == 4
    assert value("rapport_timer_lateness_seconds_bucket", le="0.005") == 2
    assert value("rapport_timers_expired_total") == 1
    assert value("rapport_phase_seconds_sum", phase="model") == 1.5
    assert value("rapport_phase_seconds_count", phase="other") == 1
    assert value("rapport_messages_received_total") == 1
    assert value("rapport_timers_pending") == 7
    assert "Ana" not in text
    assert "secret" not in text


def test_two_processes_worth_of_metrics_do_not_share_a_count() -> None:
    one, other = Metrics(), Metrics()
    one.count_received()
    assert ("rapport_messages_received_total", {}, 1.0) in list(samples(one.render().decode()))
    assert ("rapport_messages_received_total", {}, 0.0) in list(samples(other.render().decode()))
