"""Test that a turn asks the model once: what to remember and when to follow up stands beside its answer (MEM, AUTO-1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rapport.agents.tools.recorded import NOT_PLANNED, PLANNED
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, plans, remembers, scripted_model
from tests.support.cases import every_case
from tests.support.world import World, open_world, until
from tests.turns.test_chime_in import DAN

LANDLORD = "I have to call the landlord about the heating."
MATTER = "call the landlord"
FACT = "The user is allergic to peanuts."
CHAT_LOOKUP = ToolCall("get_conversation_history", '{"limit": 2}')


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


async def waiting(world: World) -> list[tuple[Any, ...]]:
    return await world.sql(
        "SELECT trigger_type, topic, round(extract(epoch FROM due_at - created_at))::int FROM timers"
        " WHERE state = 'pending'"
    )


# ---- how often the model is asked


async def test_text_beside_calls_that_need_no_result_ends_the_turn(world: World, model: ScriptedModel) -> None:
    model.answers.append(Uses([*remembers(FACT).calls, plans("allergic to peanuts", "check_in")], "Good to know."))
    reply = await world.says(await world.conversation(), "I'm allergic to peanuts.")
    assert (reply["content"], len(model.calls)) == ("Good to know.", 1)
    assert await world.sql("SELECT content FROM memories") == [(FACT,)]
    assert [row[:2] for row in await waiting(world)] == [("check_in", "allergic to peanuts")]


async def test_calls_without_text_are_answered_and_the_model_asked_once_more(
    world: World, model: ScriptedModel
) -> None:
    model.answers += [Uses([plans(MATTER)]), "I keep my fingers crossed."]
    reply = await world.says(await world.conversation(), LANDLORD)
    assert (reply["content"], len(model.calls)) == ("I keep my fingers crossed.", 2)
    assert model.calls[-1].window[-1] == ("tool", PLANNED)
    assert len(await waiting(world)) == 1


async def test_the_model_is_told_that_a_plan_is_not_made(world: World, model: ScriptedModel) -> None:
    model.answers += [Uses([plans("sell the grandmother's piano")]), "I keep my fingers crossed."]
    await world.says(await world.conversation(), LANDLORD)
    assert model.calls[-1].window[-1] == ("tool", NOT_PLANNED)
    assert await waiting(world) == []


async def test_a_look_up_is_answered_even_beside_text(world: World, model: ScriptedModel) -> None:
    group = await world.conversation(kind="group")
    await world.sql("UPDATE conversations SET autonomy_enabled = true WHERE id = %s", group)
    await world.post(group, "The landlord came yesterday.", author=DAN)
    model.answers += [Uses([CHAT_LOOKUP, plans(MATTER)], "Let me look."), "He came yesterday."]
    reply = await world.says(group, f"@bot {LANDLORD}", author=DAN)
    assert (reply["content"], len(model.calls)) == ("He came yesterday.", 2)
    assert [row[:2] for row in await waiting(world)] == [("task_incomplete", MATTER)]


async def test_an_answer_without_calls_is_one_request(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    for number in range(3):
        await world.says(here, f"hello {number}")
    assert len(model.calls) == 3


# ---- the follow-up


async def test_a_planned_follow_up_is_stored_with_the_reply_and_cancelled_by_the_next_message(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    model.answers.append(Uses([plans(MATTER, delay_seconds=900)], "Good luck!"))
    await world.says(here, LANDLORD)
    assert await waiting(world) == [("task_incomplete", MATTER, 900)]
    # The transaction that stored the reply stored the timer, too.
    assert await world.sql(
        "SELECT DISTINCT m.xmin = t.xmin FROM messages m, timers t WHERE m.role = 'assistant' AND t.state = 'pending'"
    ) == [(True,)]
    await world.says(here, "He answered already.")
    assert await waiting(world) == []


@every_case(
    "call",
    [
        plans("buy a red bicycle"),
        plans(""),
        plans(MATTER, delay_seconds="soon"),
        plans(MATTER, delay_seconds=True),
        ToolCall("follow_up", '{"trigger_type": 5, "delay_seconds": 60, "matter": "call the landlord"}'),
        ToolCall("follow_up", '{"trigger_type": "check_in", "delay_seconds": NaN, "matter": "call the landlord"}'),
        ToolCall("follow_up", '{"trigger_type": "check_in"'),
        ToolCall("follow_up", "[]"),
    ],
)
async def test_what_nobody_said_or_makes_no_sense_is_not_planned(
    world: World, model: ScriptedModel, call: ToolCall
) -> None:
    model.answers.append(Uses([call], "Good luck!"))
    reply = await world.says(await world.conversation(), LANDLORD)
    assert (reply["content"], reply["fallbackUsed"]) == ("Good luck!", False)
    assert await waiting(world) == []


@every_case(("asked", "given"), [(-5, 30), (1, 30), (10**9, 3_600)])
async def test_a_delay_is_brought_within_the_agents_limits(
    world: World, model: ScriptedModel, asked: float, given: int
) -> None:
    await world.sql("DELETE FROM timers")
    model.answers.append(Uses([plans(MATTER, delay_seconds=asked)], "Good luck!"))
    await world.says(await world.conversation(), LANDLORD)
    assert await waiting(world) == [("task_incomplete", MATTER, given)]


async def test_until_the_model_has_called_a_tool_the_rules_plan(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    model.answers.append("Which pizza do you like best?")
    await world.says(here, "I like pizza.")
    assert [row[0] for row in await waiting(world)] == ["question_unanswered"]
    model.answers.append(Uses(remembers("The user likes pizza.").calls, "Noted. Which wine goes with it?"))
    await world.says(here, "I like pizza very much.")
    assert await waiting(world) == []  # it could have asked for one


async def test_the_tool_is_offered_only_where_a_follow_up_may_be_sent(
    database_url: str, world: World, model: ScriptedModel
) -> None:
    async def offered(at: World, conversation: str) -> bool:
        await at.says(conversation, "@bot hello")
        return "follow_up" in model.calls[-1].tools

    assert await offered(world, await world.conversation())
    muted = await world.conversation()
    assert (await world.http.put(f"/api/threads/{muted}/mute", json={"seconds": 60})).status_code == 200
    assert not await offered(world, muted)
    assert not await offered(world, await world.conversation(kind="group"))
    assert not await offered(world, await world.conversation(agent_id="librarian"))
    changes: list[dict[str, Any]] = [{"autonomy": False}, {"reflection": "always"}, {"reflection": "when_open"}]
    for settings in changes:
        async with open_world(database_url, model=chat_model(model), **settings) as other:
            assert not await offered(other, await other.conversation())


# ---- what is learnt from use


async def test_that_a_model_calls_tools_is_known_after_a_restart(database_url: str, model: ScriptedModel) -> None:
    async with open_world(database_url, model=chat_model(model)) as world:
        here = await world.conversation()
        await world.says(here, "hello")
        assert await world.sql("SELECT 1 FROM model_records") == []
        model.answers.append(Uses(remembers("The user likes tea.").calls, "Noted."))
        await world.says(here, "I like tea.")
        stored = "SELECT server, (facts ->> 'tool_calls')::int FROM model_records WHERE model = 'scripted'"
        await until(lambda: world.sql(stored))  # soon after the reply
        assert await world.sql(stored) == [("", 1)]
    async with open_world(database_url, model=chat_model(model)) as world:
        await world.says(await world.conversation(), "I'm allergic to peanuts.")  # the rules would have kept it
        assert await world.sql("SELECT content FROM memories") == [("The user likes tea.",)]
    async with open_world(database_url, model=chat_model(model), model_name="another") as world:
        await world.says(await world.conversation(), "I'm allergic to peanuts.")
        assert (FACT,) in await world.sql("SELECT content FROM memories")


async def test_an_old_record_is_not_used(database_url: str, model: ScriptedModel) -> None:
    async with open_world(database_url, model=chat_model(model)) as world:
        await world.sql(
            "INSERT INTO model_records (model, server, facts, updated_at)"
            " VALUES ('scripted', '', '{\"text_calls\": 3}', clock_timestamp() - interval '31 days')"
        )
    async with open_world(database_url, model=chat_model(model)) as world:
        assert world.app.agent.calls_tools
        await world.sql("UPDATE model_records SET updated_at = clock_timestamp() - interval '29 days'")
    async with open_world(database_url, model=chat_model(model)) as world:
        assert not world.app.agent.calls_tools
        await world.says(await world.conversation(), "hello")
        assert model.calls[-1].tools == []
