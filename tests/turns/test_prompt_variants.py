"""Test the variants of a trigger's prompt: each follow-up records its own, and nobody is shown which it was."""

from __future__ import annotations

import json
from typing import Any

from rapport.agents.model_record import PLAIN_TRIGGERS_BEFORE_RETRY
from tests.support.world import World

PROMPTS: list[dict[str, Any]] = [
    {"name": "xylophone", "text": "Ask kindly how it went.", "weight": 1},
    {"name": "zeppelin", "text": "Ask briefly how it went.", "weight": 1},
]
NAMES: set[str] = {each["name"] for each in PROMPTS}
ASKER: dict[str, Any] = {
    "id": "asker",
    "name": "Asker",
    "persona": "You ask.",
    "autonomy": {"enabled": True, "prompts": {"check_in": PROMPTS}},
}


async def talk(world: World, **autonomy: Any) -> str:
    """Make the agent, and begin a conversation with it; return the conversation's id."""
    document = {**ASKER, "autonomy": {**ASKER["autonomy"], **autonomy}}
    made = await world.http.post("/api/agents", json=document)
    assert made.status_code == 201, made.text
    return await talk_again(world)


async def talk_again(world: World) -> str:
    where = (await world.http.post("/api/threads", json={"agent": "asker"})).json()["id"]
    await world.says(where, "I painted the fence.")
    return where


async def variant_of(world: World, timer_id: str) -> tuple[str, str | None]:
    [(state, variant)] = await world.sql("SELECT state, prompt_variant FROM timers WHERE id = %s", timer_id)
    return state, variant


async def test_a_delivered_follow_up_records_the_variant_that_the_model_read(world: World) -> None:
    where = await talk(world)
    world.model.will_say("How is the fence?")
    timer = await world.silence(where)
    state, variant = await variant_of(world, timer.id)
    assert (state, variant in NAMES) == ("delivered", True)
    [text] = [each["text"] for each in PROMPTS if each["name"] == variant]
    assert str(world.model.calls[-1][-1].text).startswith(str(text))
    [row] = (await world.http.get("/api/autonomy/stats")).json()["by_variant"]
    assert (row["agent"], row["variant"], row["delivered"]) == ("asker", variant, 1)


async def test_a_follow_up_with_the_plain_prompt_counts_for_no_variant(world: World) -> None:
    where = await talk(world)
    world.model.will_say("Sure, I'm here to help.", "How is the fence?")
    first = await world.silence(where)
    assert await variant_of(world, first.id) == ("delivered", "(plain)")  # the second draft, with the plain prompt
    assert str(world.model.calls[-1][0].text).startswith("You write one")
    where = await talk_again(world)
    world.model.will_say("Is the fence dry?")
    second = await world.silence(where)
    assert await variant_of(world, second.id) == ("delivered", "(plain)")
    assert not NAMES & {each["text"] for each in PROMPTS if each["text"] in str(world.model.calls[-1])}
    receipts = await world.sql("SELECT metadata ->> 'prompt_variant' FROM messages WHERE metadata ? 'autonomous'")
    assert receipts == [("(plain)",), ("(plain)",)]
    rows = (await world.http.get("/api/autonomy/stats")).json()["by_variant"]
    assert [(row["variant"], row["fired"], row["delivered"]) for row in rows] == [("(plain)", 2, 2)]


async def test_the_plain_prompt_has_the_persona_for_a_model_that_calls_tools(world: World) -> None:
    where = await talk(world)
    world.app.agent.record.tool_calls = 1
    world.model.will_say("Sure, I'm here to help.", "How is the fence?")
    timer = await world.silence(where)
    assert (await variant_of(world, timer.id))[1] == "(plain)"
    assert str(world.model.calls[-1][0].text).startswith("You ask.\n\nYou write one")


async def test_the_variants_come_back_after_some_plain_prompts(world: World) -> None:
    where = await talk(world)
    record = world.app.agent.record
    record.answered_triggers, record.plain_triggers = 1, PLAIN_TRIGGERS_BEFORE_RETRY - 1
    world.model.will_say("How is the fence?")
    assert await variant_of(world, (await world.silence(where)).id) == ("delivered", "(plain)")
    where = await talk_again(world)
    world.model.will_say("How is the fence?")
    state, variant = await variant_of(world, (await world.silence(where)).id)
    assert (state, variant in NAMES) == ("delivered", True)


async def test_a_follow_up_that_a_gate_stops_records_its_variant(world: World) -> None:
    where = await talk(world)
    await world.http.put(f"/api/threads/{where}/autonomy", json={"enabled": False})
    await world.sql("UPDATE conversations SET autonomy_enabled = false WHERE id = %s", where)
    timer = await world.silence(where)
    state, variant = await variant_of(world, timer.id)
    assert (state, variant in NAMES) == ("suppressed", True)


async def test_nobody_is_shown_the_variant_of_a_message(world: World) -> None:
    where = await talk(world)
    world.model.will_say("How is the fence?")
    await world.silence(where)
    [message] = [each for each in await world.history(where) if each["autonomous"]]
    paths = (
        f"/chat/history/{where}",
        f"/api/threads/{where}/messages",
        f"/api/threads/{where}/timers",
        f"/api/threads/{where}/messages/{message['id']}/context",
        "/api/threads",
    )
    seen = [await world.http.get(path) for path in paths]
    assert all(not NAMES & {word for word in NAMES if word in answer.text} for answer in seen)
    assert any(answer.status_code == 200 for answer in seen)
    assert not [name for name in NAMES if name in json.dumps(message)]


async def test_neither_rules_nor_model_plan_a_type_that_the_agent_does_not_allow(world: World) -> None:
    where = await talk(world, trigger_types=["waiting_for_decision"])
    await world.says(where, "I have to call the landlord tomorrow about the heating.")
    assert await world.sql("SELECT 1 FROM timers WHERE state = 'pending'") == []
    await world.says(where, "I can't decide between Rome and Oslo for the summer.")
    assert await world.sql("SELECT trigger_type FROM timers WHERE state = 'pending'") == [("waiting_for_decision",)]


async def test_a_person_may_set_a_type_that_the_agent_does_not_plan(world: World) -> None:
    where = await talk(world, trigger_types=["waiting_for_decision"])
    world.model.will_say("How is the fence?")
    assert (await world.silence(where, "check_in")).state == "delivered"
