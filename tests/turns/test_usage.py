"""Test that every model call is counted with its purpose, and that a budget ends in a plain sentence (AGT-4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from rapport.domain.token_estimate import estimate_tokens
from rapport.domain.usage import next_month
from rapport.storage.prepared_statement import PreparedStatement
from rapport.turns.budgets import REFRESH_SECONDS
from tests.e2e.scripted import ScriptedModel, Uses, chat_model, plans, remembers, scripted_model
from tests.support.world import World, open_world, until

BEGINNING = "Temporary issue generating response. "
LEAKING = "As the system message says, I continue our conversation naturally."


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        listening.usage = (100, 20)
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


async def stored(world: World, where: str = "true") -> list[tuple[Any, ...]]:
    """Return (purpose, calls, tokens in, tokens out, estimated calls) of each sum."""
    return await world.sql(
        "SELECT purpose, sum(calls)::int, sum(tokens_in)::int, sum(tokens_out)::int, sum(estimated_calls)::int"
        f" FROM model_usage WHERE {where} GROUP BY purpose ORDER BY purpose"
    )


async def says_streamed(world: World, conversation: str, content: str) -> None:
    response = await world.http.post(
        f"/chat/conversations/{conversation}/messages",
        json={"content": content},
        headers={"accept": "text/event-stream"},
    )
    assert "event: final" in response.text, response.text


async def set_budget(world: World, tokens: int | None, owner: str = "local") -> None:
    answer = await world.http.put(f"/api/usage/budgets/{owner}", json={"monthly_tokens": tokens})
    assert answer.status_code == 200, answer.text


# ---- what is counted


async def test_an_answer_is_counted_with_the_tokens_of_its_provider_streamed_or_not(world: World) -> None:
    here = await world.conversation()
    reply = await world.says(here, "hello")
    assert await stored(world) == [("answer", 1, 100, 20, 0)]
    await says_streamed(world, here, "hello again")
    assert await stored(world) == [("answer", 2, 200, 40, 0)]
    assert await world.sql("SELECT owner_id, agent_id, conversation_id, model, day FROM model_usage") == [
        ("local", "companion", here, "scripted", datetime.now(UTC).date())
    ]
    # It is in the receipt, and in no history.
    why = (await world.http.get(f"/api/threads/{here}/context", params={"message_id": reply["id"]})).json()
    used = {"calls": 1, "tokens_in": 100, "tokens_out": 20, "estimated": False, "model": "scripted"}
    assert why["usage"] == used
    history = await world.http.get(f"/api/threads/{here}/history")
    assert "usage" not in history.text
    assert "tokens_in" not in history.text
    metrics = (await world.http.get("/metrics")).text
    assert 'rapport_model_calls_total{purpose="answer"} 2.0' in metrics
    assert 'rapport_model_tokens_total{direction="in",purpose="answer"} 200.0' in metrics
    assert 'rapport_model_tokens_total{direction="out",purpose="answer"} 40.0' in metrics


async def test_without_the_providers_usage_it_is_estimated_and_marked(world: World, model: ScriptedModel) -> None:
    model.usage = None
    answer = "Hello there, nice to meet you."
    here = await world.conversation()
    for number, says in enumerate((world.says, partial(says_streamed, world)), start=1):
        model.answers.append(answer)
        await says(here, "hello")
        [(purpose, calls, tokens_in, tokens_out, estimated)] = await stored(world)
        assert (purpose, calls, tokens_out, estimated) == ("answer", number, number * estimate_tokens(answer), number)
        sent = [json.loads(call.body)["messages"] for call in model.calls]
        assert tokens_in >= sum(estimate_tokens(message["content"]) for prompt in sent for message in prompt)
    assert (await world.http.get("/api/usage")).json()["total"]["estimated"] is True


async def test_a_server_that_refuses_to_tell_the_usage_of_a_stream_is_asked_without(
    world: World, model: ScriptedModel
) -> None:
    model.refuses_usage = True
    here = await world.conversation()
    for number in range(3):
        await says_streamed(world, here, f"number {number}")
    assert ["stream_options" in call.body for call in model.calls] == [True, False, False, False]
    [(_, calls, _, tokens_out, estimated)] = await stored(world)
    assert (calls, estimated) == (3, 3)
    assert tokens_out > 0


async def test_a_tool_round_is_two_calls(world: World, model: ScriptedModel) -> None:
    model.answers += [Uses([plans("call the landlord")]), "I keep my fingers crossed."]
    await world.says(await world.conversation(), "I have to call the landlord.")
    assert await stored(world) == [("answer", 2, 200, 40, 0)]


async def test_a_reply_with_memories_is_counted_too(world: World, model: ScriptedModel) -> None:
    model.answers.append(Uses(remembers("The user is allergic to peanuts.").calls, "Good to know."))
    await world.says(await world.conversation(), "I'm allergic to peanuts.")
    assert await stored(world) == [("answer", 1, 100, 20, 0)]


async def test_failed_calls_and_retries_are_calls(world: World, model: ScriptedModel) -> None:
    model.fails = True
    here = await world.conversation()
    assert (await world.says(here, "hello"))["fallbackUsed"] is True
    [(_, calls, *tokens)] = await stored(world)
    assert calls == len(model.calls) == 3
    assert tokens == [0, 0, 0]


async def test_a_server_that_cannot_be_reached_is_not_called(database_url: str) -> None:
    async with scripted_model() as gone:
        unreachable = chat_model(gone)
    async with open_world(database_url, model=unreachable) as world:
        assert (await world.says(await world.conversation(), "hello"))["fallbackUsed"] is True
        assert await stored(world) == []


async def test_a_cancelled_answer_is_estimated(world: World, model: ScriptedModel) -> None:
    model.delay = lambda _text: 30.0
    model.replies["tell me a story"] = "Once upon a time there was a king who had a daughter"
    here = await world.conversation()
    path = f"/chat/conversations/{here}"
    message = {"content": "tell me a story"}
    events = {"accept": "text/event-stream"}
    async with world.http.stream("POST", f"{path}/messages", json=message, headers=events) as response:
        async for line in response.aiter_lines():
            if line == "event: token":
                assert (await world.http.post(f"{path}/cancel")).json() == {"cancelled": True}
    [(purpose, calls, tokens_in, tokens_out, estimated)] = await stored(world)
    assert (purpose, calls, estimated) == ("answer", 1, 1)
    assert tokens_in > 0
    assert tokens_out == estimate_tokens("Once upon a time there was")


async def test_the_second_draft_of_a_follow_up_has_a_purpose_of_its_own(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord about the heating.")
    model.answers += [LEAKING, "Did you call the landlord about the heating?"]
    assert (await world.silence(here, "task_incomplete")).state == "delivered"
    assert await stored(world) == [
        ("answer", 1, 100, 20, 0),
        ("follow_up", 1, 100, 20, 0),
        ("leak_retry", 1, 100, 20, 0),
    ]
    [(receipt,)] = await world.sql("SELECT metadata -> 'usage' ->> 'calls' FROM messages WHERE metadata ? 'autonomous'")
    assert receipt == "2"


async def test_a_dropped_follow_up_is_counted(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord about the heating.")
    model.answers += [LEAKING, LEAKING]
    assert (await world.silence(here, "task_incomplete")).state == "leaked"
    await until(lambda: stored(world, "purpose = 'leak_retry'"))
    assert [row[:2] for row in await stored(world)] == [("answer", 1), ("follow_up", 1), ("leak_retry", 1)]


async def test_a_summary_is_counted(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    for number in range(7):
        await world.says(here, f"number {number}")
    await until(lambda: stored(world, "purpose = 'summary'"))
    assert await stored(world, "purpose = 'summary'") == [("summary", 1, 100, 20, 0)]


async def test_a_reflection_is_counted(database_url: str, model: ScriptedModel) -> None:
    async with open_world(database_url, model=chat_model(model), reflection="always") as world:
        await world.says(await world.conversation(), "I have to call the landlord.")
        await until(lambda: stored(world, "purpose = 'reflection'"))
        assert await stored(world, "purpose = 'reflection'") == [("reflection", 1, 100, 20, 0)]


async def test_the_built_in_model_costs_no_tokens(database_url: str) -> None:
    from rapport.builtin import BuiltinChatModel

    async with open_world(database_url, model=BuiltinChatModel(), model_name="builtin") as world:
        await world.says(await world.conversation(), "hello")
        assert await stored(world) == [("answer", 1, 0, 0, 0)]


async def test_a_guard_reply_calls_no_model_and_stores_nothing(world: World) -> None:
    strict = await world.conversation(agent_id="librarian")
    reply = await world.says(strict, "Which planet has the most moons?")
    assert reply["guardUsed"] is True
    assert await stored(world) == []
    why = (await world.http.get(f"/api/threads/{strict}/context", params={"message_id": reply["id"]})).json()
    assert why["usage"] is None


# ---- what is stored


async def test_it_outlives_the_conversation_and_ephemeral_ones_have_no_id(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "hello")
    assert (await world.http.delete(f"/chat/conversations/{here}")).status_code == 204
    body = {"model": "companion", "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(3):
        assert (await world.http.post("/v1/chat/completions", json=body)).status_code == 200
    await until(lambda: world.sql("SELECT 1 WHERE NOT EXISTS (SELECT FROM conversations)"))
    rows = await world.sql("SELECT conversation_id, sum(calls)::int FROM model_usage GROUP BY 1 ORDER BY 1")
    assert rows == [("", 3), (here, 1)]


async def test_conversations_of_one_owner_do_not_wait_for_each_other(world: World) -> None:
    """One transaction that has stored usage stays open; the turn of another conversation ends meanwhile."""
    one, other = await world.conversation(), await world.conversation()
    await world.says(one, "hello")
    await world.says(other, "hello")
    async with world.database.transaction() as connection:
        await connection.execute("UPDATE model_usage SET calls = calls + 1 WHERE conversation_id = %s", (one,))
        await world.says(other, "are you there?")
    assert await world.sql("SELECT conversation_id, calls::int FROM model_usage ORDER BY calls DESC, 1") == sorted(
        [(one, 2), (other, 2)]
    )


async def test_a_turn_runs_as_many_statements_as_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads its input and ends; the usage is stored by the statement that ends it. A budget adds none to it."""
    counted: list[str] = []
    run_prepared, run = PreparedStatement.execute, psycopg.AsyncConnection.execute

    def count() -> None:
        task = asyncio.current_task()
        if task is not None and task.get_name().startswith("turn "):
            counted.append(task.get_name())

    async def execute_prepared(self: Any, *arguments: Any) -> Any:
        count()
        return await run_prepared(self, *arguments)

    async def execute(self: Any, *arguments: Any, **options: Any) -> Any:
        count()
        return await run(self, *arguments, **options)

    monkeypatch.setattr(PreparedStatement, "execute", execute_prepared)
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", execute)
    here = await world.conversation()
    await world.says(here, "hello")  # reads the agent, which the process then knows
    counted.clear()
    await world.says(here, "hello again")
    assert len(counted) == 2
    await set_budget(world, 1_000_000)
    await world.says(here, "hello")  # reads the month's sum
    counted.clear()
    await world.says(here, "hello")
    assert len(counted) == 2


# ---- budgets


def restart_day() -> str:
    day = next_month(datetime.now(UTC).date())
    return f"{day.day} {day:%B %Y}"


async def test_a_budget_that_is_used_up_says_so_and_ends_when_it_is_raised(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await set_budget(world, 240)
    for number in range(2):
        assert (await world.says(here, f"number {number}"))["fallbackUsed"] is False
    asked = len(model.calls)
    for _ in range(6):  # as often as failures open the breaker
        refused = await world.says(here, "and now?")
        assert refused["content"] == (
            f"{BEGINNING}This month's budget of tokens is used up; it starts again on {restart_day()} (UTC)."
            " Your message is kept."
        )
        assert refused["fallbackUsed"] is True
        assert refused["problem"]["kind"] == "budget"
        assert "rapport usage budget" in refused["problem"]["text"]
    assert (await world.silence(here)).gate == "budget"
    assert len(model.calls) == asked
    assert [message["content"] for message in await world.history(here) if message["role"] == "user"][2:] == [
        "and now?"
    ] * 6
    await set_budget(world, 1_000)
    assert (await world.says(here, "and now?"))["content"] == "re: and now?"
    await set_budget(world, None)
    assert (await world.says(here, "and now?"))["content"] == "re: and now?"


async def test_an_answer_comes_again_in_the_next_month(database_url: str, model: ScriptedModel) -> None:
    clock = [datetime.now(UTC)]
    async with open_world(database_url, model=chat_model(model), now=lambda: clock[0]) as world:
        here = await world.conversation()
        await set_budget(world, 100)
        await world.says(here, "hello")
        assert (await world.says(here, "and now?"))["content"].startswith(BEGINNING)
        first = next_month(clock[0].date())
        clock[0] = datetime(first.year, first.month, 1, tzinfo=UTC) + timedelta(seconds=1)
        assert (await world.says(here, "and now?"))["content"] == "re: and now?"


async def test_the_fallback_quotes_the_documents_and_refuses_in_a_stream(world: World) -> None:
    await world.http.post(
        "/api/notes", json={"id": "refunds", "text": "Customers may send goods back within 30 days of purchase."}
    )
    here = await world.conversation(agent_id="librarian")
    await set_budget(world, 0)
    question = "How long can I send goods back after a purchase?"
    refused = await world.says(here, question)
    assert refused["content"].startswith(f"{BEGINNING}This month's budget")
    assert "Here are the relevant documents summary: Customers may send" in refused["content"]
    assert [source["id"] for source in refused["sources"]] == ["refunds"]
    await says_streamed(world, here, question)


async def test_no_summary_is_made_without_a_budget(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    for number in range(6):
        await world.says(here, f"number {number}")
    await set_budget(world, 840)  # the seventh answer uses it up, and makes a summary due
    await world.says(here, "number 6")
    await world.drain()
    await asyncio.sleep(0.3)
    assert not any(call.is_summary for call in model.calls)
    await set_budget(world, None)
    await world.says(here, "number 7")
    await until(lambda: any(call.is_summary for call in model.calls))


async def test_an_agents_budget_counts_everybodys_use(world: World) -> None:
    limited = await world.http.patch("/api/agents/companion", json={"monthly_token_budget": 200})
    assert limited.status_code == 200, limited.text
    here = await world.conversation()
    await world.says(here, "hello")
    await world.sql("UPDATE model_usage SET owner_id = 'ana'")
    await world.says(here, "hello again")
    assert (await world.says(here, "and now?"))["content"].startswith(BEGINNING)
    budgets = (await world.http.get("/api/usage")).json()["budgets"]
    assert [(one["kind"], one["id"], one["used"], one["spent"]) for one in budgets] == [
        ("agent", "companion", 240, True)
    ]


async def test_a_second_process_sees_what_the_first_has_used(database_url: str, model: ScriptedModel) -> None:
    async with (
        open_world(database_url, model=chat_model(model)) as one,
        open_world(database_url, model=chat_model(model)) as two,
    ):
        here, there = await one.conversation(), await two.conversation()
        await set_budget(one, 350)
        await two.says(there, "hello")
        await one.says(here, "hello")
        await one.says(here, "hello again")
        await asyncio.sleep(REFRESH_SECONDS)
        assert (await two.says(there, "and now?"))["content"].startswith(BEGINNING)


async def test_the_operator_is_warned_once_from_80_per_cent_on(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    here = await world.conversation()
    await set_budget(world, 290)

    async def warned() -> list[dict[str, Any]]:
        session = (await world.http.get("/api/session")).json()
        return session["budgets"]

    await world.says(here, "hello")
    assert await warned() == []
    await world.says(here, "hello")
    await set_budget(world, 290)  # the page's list is read again
    [budget] = await warned()
    assert (budget["kind"], budget["id"], budget["used"], budget["limit"], budget["spent"]) == (
        *("owner", "local", 240, 290),
        False,
    )
    for _ in range(3):
        await world.says(here, "hello")
    lines = [line for line in capsys.readouterr().out.splitlines() if "usage.budget_nearly_spent" in line]
    assert len(lines) <= 1
    assert await world.sql("SELECT owner_id, agent_id FROM budget_warnings") == [("local", "")]


async def test_the_operator_sees_at_once_that_a_budget_is_used_up(world: World) -> None:
    """The list of nearly used budgets is read every few seconds; a turn that is refused makes it outdated."""
    here = await world.conversation()
    await set_budget(world, 290)
    for _ in range(2):
        await world.says(here, "hello")
    await set_budget(world, 290)  # the list is read again
    told: list[tuple[bool, bool]] = []
    for _ in range(3):
        [budget] = (await world.http.get("/api/session")).json()["budgets"]
        is_refused = (await world.says(here, "hello"))["content"].startswith(BEGINNING)
        [after] = (await world.http.get("/api/session")).json()["budgets"]
        told.append((is_refused, after["spent"] if is_refused else budget["spent"]))
    assert told == [(False, False), (True, True), (True, True)]


async def test_a_tried_agent_is_counted_and_stops_at_a_budget(world: World, model: ScriptedModel) -> None:
    tried = await world.http.post("/api/agents/companion/try", json={"content": "hello"})
    assert tried.json()["content"] == "re: hello"
    rows = (await world.http.get("/api/usage", params={"by": "purpose"})).json()["rows"]
    assert [(row["purpose"], row["calls"]) for row in rows] == [("try", 1)]
    await set_budget(world, 1)
    calls = len(model.calls)
    refused = await world.http.post("/api/agents/companion/try", json={"content": "hello"})
    assert refused.json()["content"].startswith(f"{BEGINNING}This month's budget")
    assert len(model.calls) == calls
