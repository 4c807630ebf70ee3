"""Test `/api/insight`: the statistics of the last hours, for their owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rapport.domain.conversation import LOCAL_USER
from rapport.metrics import Metrics
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.cases import every_case
from tests.support.world import World


async def insight(world: World, headers: dict[str, str] | None = None, **query: Any) -> dict[str, Any]:
    answer = await world.http.get("/api/insight", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_when_nothing_happened_it_says_so(world: World) -> None:
    told = await insight(world)
    assert told["turns"]["count"] == 0
    assert [one["count"] for one in told["turns"]["by_hour"]] == [0] * 25
    assert told["guard"] == told["fallbacks"] == {"count": 0, "share": None}
    assert told["phases"] == []
    assert [one["trigger_type"] for one in told["followups"]] == [
        "check_in",
        "question_unanswered",
        "task_incomplete",
        "waiting_for_decision",
    ]
    assert {one["answer_rate"] for one in told["followups"]} == {None}


async def test_turns_are_counted_by_the_hour_with_those_that_were_no_answers(world: World) -> None:
    here = await world.conversation()
    strict = await world.conversation(agent_id="librarian")
    for number in range(3):
        await world.says(here, f"number {number}")
    await world.says(strict, "Who was Napoleon?")
    [last, *_] = await world.sql("SELECT id FROM messages WHERE role = 'assistant' ORDER BY created_at")
    await world.sql("UPDATE messages SET metadata = metadata || '{\"fallback_used\": true}' WHERE id = %s", last[0])
    await world.sql("UPDATE messages SET created_at = created_at - interval '3 hours' WHERE conversation_id = %s", here)
    told = await insight(world)
    assert told["turns"]["count"] == 4
    by_hour = {one["at"]: one["count"] for one in told["turns"]["by_hour"]}
    now = datetime.now(UTC)
    assert sum(by_hour.values()) == 4
    assert datetime.fromisoformat(told["since"]) < now - timedelta(hours=23, minutes=59)
    times = [datetime.fromisoformat(at) for at in by_hour]
    assert times == sorted(times)
    assert all(at.minute == 0 for at in times)
    assert told["guard"] == {"count": 1, "share": 0.25}
    assert told["fallbacks"] == {"count": 1, "share": 0.25}
    assert (await insight(world, hours=1))["turns"]["count"] == 1
    phases = {one["phase"]: one for one in told["phases"]}
    assert {"load", "model", "commit"} <= set(phases)
    assert phases["commit"]["count"] == 4
    assert all(0 < one["p50_ms"] <= one["p95_ms"] for one in phases.values())


async def test_follow_ups_are_counted_by_what_became_of_them(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord.")
    assert (await world.silence(here)).state == "delivered"
    assert (await world.silence(here)).gate == "too_soon"
    await world.says(here, "I did, thanks.")
    [check_in, *others] = (await insight(world))["followups"]
    assert check_in == {
        "trigger_type": "check_in",
        "fired": 2,
        "delivered": 1,
        "held_back": 1,
        "answered": 1,
        "answer_rate": 1.0,
    }
    assert {one["fired"] for one in others} == {0}
    await world.sql("UPDATE timers SET fired_at = fired_at - interval '90 minutes'")
    assert (await insight(world, hours=1))["followups"][0]["fired"] == 0
    assert (await insight(world, hours=2))["followups"][0]["fired"] == 2


async def test_what_was_imported_or_is_somebody_elses_is_no_turn(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "hello")
    await world.sql(
        "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
        " SELECT conversation_id, overlay(id placing '0' from 26), owner_id, role, 'imported', created_at - interval '1 s'"
        " FROM messages WHERE role = 'assistant' ON CONFLICT DO NOTHING"
    )
    assert (await insight(world))["turns"]["count"] == 1
    _, ana = await make_key(world, "ana")
    _, local = await make_key(world, LOCAL_USER)
    await until_closed(world)
    assert (await insight(world, ana))["turns"]["count"] == 0
    assert (await insight(world, local))["turns"]["count"] == 1
    assert (await world.http.get("/api/insight")).status_code == 401


async def test_the_hours_parameter_is_a_whole_number_within_limits(world: World) -> None:
    for hours in ("0", "-1", "745", "many", "1.5"):
        assert (await world.http.get("/api/insight", params={"hours": hours})).status_code == 422
    assert len((await insight(world, hours=744))["turns"]["by_hour"]) == 745


@every_case(
    ("durations", "p50", "p95"),
    [
        ([1.0] * 100, 0.5, 0.95),  # evenly spread in the bucket that they are all in
        ([4.0] * 50 + [40.0] * 50, 5.0, 47.5),
        ([400.0], 375.0, 487.5),
        ([500_000.0] * 10, 120_000.0, 120_000.0),  # beyond the longest bucket
    ],
)
def test_quantiles_are_those_that_prometheus_would_show(durations: list[float], p50: float, p95: float) -> None:
    metrics = Metrics()
    for duration in durations:
        metrics.record_phase("model", duration)
    [phase] = metrics.summarize_phases()
    assert (phase.phase, phase.count) == ("model", len(durations))
    assert phase.p50_ms == pytest.approx(p50)
    assert phase.p95_ms == pytest.approx(p95)
