"""Test `/api/usage`: sums of model calls for their owner, and budgets for the operator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rapport.domain.conversation import LOCAL_USER
from rapport.domain.usage import first_of_month
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.cases import every_case
from tests.support.world import World

TODAY = datetime.now(UTC).date()


async def add(
    world: World, owner: str, agent: str, purpose: str, tokens: int, *, days_ago: int = 0, **more: Any
) -> None:
    await world.sql(
        "INSERT INTO model_usage (owner_id, day, agent_id, conversation_id, slot, purpose, model, calls, tokens_in,"
        " tokens_out, estimated_calls) VALUES (%s, %s, %s, %s, 0, %s, %s, 1, %s, 1, %s)",
        *(owner, TODAY - timedelta(days=days_ago), agent, more.get("conversation", "c1"), purpose),
        *(more.get("model", "openai:gpt"), tokens, more.get("estimated", 0)),
    )


async def usage(world: World, headers: dict[str, str] | None = None, **query: Any) -> dict[str, Any]:
    answer = await world.http.get("/api/usage", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_usage_is_added_up_by_what_is_asked_for(world: World) -> None:
    await add(world, "local", "companion", "answer", 10)
    await add(world, "local", "companion", "summary", 5, estimated=1)
    await add(world, "local", "librarian", "answer", 100, conversation="")
    await add(world, "local", "companion", "answer", 1_000, days_ago=40)
    told = await usage(world, by="agent,purpose")
    assert (told["from"], told["to"], told["by"]) == (
        *(first_of_month(TODAY).isoformat(), TODAY.isoformat()),
        ["agent", "purpose"],
    )
    assert [(row["agent"], row["purpose"], row["tokens_in"], row["estimated"]) for row in told["rows"]] == [
        ("librarian", "answer", 100, False),
        ("companion", "answer", 10, False),
        ("companion", "summary", 5, True),
    ]
    assert told["total"] == {"calls": 3, "tokens_in": 115, "tokens_out": 3, "estimated_calls": 1, "estimated": True}
    by_conversation = await usage(world, by="conversation")
    assert [(row["conversation"], row["calls"]) for row in by_conversation["rows"]] == [(None, 1), ("c1", 2)]
    period: dict[str, Any] = {"from": (TODAY - timedelta(days=60)).isoformat()}
    by_day = await usage(world, None, **period)
    assert [row["tokens_in"] for row in by_day["rows"]] == [1_000, 115]
    assert [row["day"] for row in by_day["rows"]] == [(TODAY - timedelta(days=40)).isoformat(), TODAY.isoformat()]
    assert (await usage(world, by="model"))["rows"][0]["model"] == "openai:gpt"
    cut = await usage(world, by="purpose,agent", limit=1)
    assert (len(cut["rows"]), cut["more"], cut["total"]["calls"]) == (1, True, 3)


async def test_without_any_calls_the_total_is_zero(world: World) -> None:
    told = await usage(world)
    assert (told["rows"], told["total"]["calls"], told["more"], told["budgets"]) == ([], 0, False, [])


async def test_everybody_sees_their_own_and_the_operator_sees_all(world: World) -> None:
    await add(world, "ana", "companion", "answer", 10)
    await add(world, "eve", "companion", "answer", 20)
    _, ana = await make_key(world, "ana")
    _, eve = await make_key(world, "eve")
    _, operator = await make_key(world, LOCAL_USER)
    await until_closed(world)
    assert (await usage(world, ana))["total"]["tokens_in"] == 10
    assert (await usage(world, ana, owner="ana"))["total"]["tokens_in"] == 10
    assert (await usage(world, eve, by="owner"))["rows"][0]["owner"] == "eve"
    for owner in ("eve", "*", "nobody"):
        assert (await world.http.get("/api/usage", params={"owner": owner}, headers=ana)).status_code == 403
    assert (await usage(world, operator))["total"]["calls"] == 0
    assert (await usage(world, operator, owner="eve"))["total"]["tokens_in"] == 20
    everybody = await usage(world, operator, owner="*", by="owner")
    assert [(row["owner"], row["tokens_in"]) for row in everybody["rows"]] == [("eve", 20), ("ana", 10)]
    assert (await world.http.get("/api/usage")).status_code == 401

    body = {"monthly_tokens": 40}
    assert (await world.http.put("/api/usage/budgets/ana", headers=ana, json=body)).status_code == 403
    for owner in ("ana", "eve"):
        assert (await world.http.put(f"/api/usage/budgets/{owner}", headers=operator, json=body)).status_code == 200
    [own] = (await usage(world, ana))["budgets"]
    assert (own["kind"], own["id"], own["limit"], own["used"], own["spent"]) == ("owner", "ana", 40, 11, False)
    assert [one["id"] for one in (await usage(world, operator))["budgets"]] == ["ana", "eve"]
    assert (await world.http.get("/api/session", headers=ana)).json()["budgets"] == []


async def test_a_budget_of_somebody_unknown_is_kept_and_said_to_be_so(world: World) -> None:
    await make_key(world, "ana")
    _, operator = await make_key(world, LOCAL_USER)
    await until_closed(world)
    await add(world, "eve", "companion", "answer", 20)
    for owner, is_known in (("ana", True), ("eve", True), ("local", True), ("anna", False)):
        answer = await world.http.put(f"/api/usage/budgets/{owner}", headers=operator, json={"monthly_tokens": 40})
        assert (answer.status_code, answer.json()["owner_is_known"]) == (200, is_known), owner
    assert (
        await world.http.put("/api/usage/budgets/*", headers=operator, json={"monthly_tokens": 4})
    ).status_code == 400


@every_case(
    "query",
    [
        {"by": "colour"},
        {"by": ""},
        {"by": "day,,agent"},
        {"by": "day; DROP TABLE model_usage"},
        {"from": "yesterday"},
        {"from": "2026-02-30"},
        {"from": "2026-03-02", "to": "2026-03-01"},
        {"limit": "0"},
        {"limit": "1001"},
        {"owner": "x" * 201},
    ],
)
async def test_a_wrong_query_is_refused(world: World, query: dict[str, str]) -> None:
    assert (await world.http.get("/api/usage", params=query)).status_code in (400, 422)


@every_case("body", [{}, {"monthly_tokens": -1}, {"monthly_tokens": "many"}, {"monthly_tokens": 10**16}, {"tokens": 5}])
async def test_a_wrong_budget_is_refused(world: World, body: dict[str, Any]) -> None:
    assert (await world.http.put("/api/usage/budgets/ana", json=body)).status_code == 422
    assert await world.sql("SELECT 1 FROM usage_budgets") == []
