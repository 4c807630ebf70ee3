"""Test tool arguments that are not exactly one JSON object: an invalid call, answered once, in a turn that continues (RES-2, RES-3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rapport.agents.tools.toolbox import MAX_TOOL_ROUNDS
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, remembers, scripted_model
from tests.support.cases import every_case
from tests.support.world import World, open_world

NO_OBJECTS = ["[]", "[1, 2]", '"peanuts"', '""', "null", "5", "0", "true", "false", "-1.5e3"]
NO_SINGLE_OBJECTS = [
    '{"content": "The user likes tea and cof',
    '{"content": "The user likes tea."',
    '{"content": "The user likes tea."} trailing',
    '{"content": "The user likes tea."}{"content": "The user likes milk."}',
    '{"content": "The user likes tea.", "key": NaN}',
    '{"content": "The user\nlikes tea."}',
    " ",
]
MUST_BE_AN_OBJECT = "Not done: the arguments must be a JSON object."


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


async def say(world: World, conversation: str, text: str, *, streamed: bool) -> dict[str, Any]:
    """Send the text, as a client that listens to tokens or not; return the stored answer."""
    if not streamed:
        return await world.says(conversation, text)
    headers = {"Accept": "text/event-stream"}
    path = f"/chat/conversations/{conversation}/messages"
    response = await world.http.post(path, json={"content": text}, headers=headers)
    assert response.status_code == 200, response.text
    return (await world.history(conversation))[-1]


@every_case("streamed", [False, True])
@every_case("arguments", [*NO_OBJECTS, *NO_SINGLE_OBJECTS])
async def test_arguments_that_are_no_object_cost_one_more_call(
    world: World, model: ScriptedModel, arguments: str, *, streamed: bool
) -> None:
    before = len(model.calls)
    model.answers += [Uses([ToolCall("upsert_memory", arguments)]), "Anyway, hello."]
    reply = await say(world, await world.conversation(), "I'm allergic to peanuts.", streamed=streamed)
    assert reply["content"] == "Anyway, hello."
    assert len(model.calls) == before + 2
    assert model.calls[-1].window[-1] == ("tool", MUST_BE_AN_OBJECT)
    assert (await world.http.get("/api/memories")).json()["memories"] == []


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_good_call_beside_a_bad_one_is_done(world: World, model: ScriptedModel, *, streamed: bool) -> None:
    fact = "The user is allergic to peanuts."
    bad = ToolCall("upsert_memory", "[5]")
    model.answers += [Uses([bad, *remembers(fact).calls, bad]), "Noted."]
    await say(world, await world.conversation(), "I'm allergic to peanuts.", streamed=streamed)
    told = [content for role, content in model.calls[-1].window if role == "tool"]
    assert sorted(told) == sorted([MUST_BE_AN_OBJECT, "Saved.", MUST_BE_AN_OBJECT])
    response = await world.http.get("/api/memories")
    assert [one["content"] for one in response.json()["memories"]] == [fact]


async def test_what_is_sent_back_to_the_model_holds_objects_alone(world: World, model: ScriptedModel) -> None:
    """Some servers refuse a conversation in which a call's arguments are no object."""
    model.answers += [Uses([ToolCall("upsert_memory", '"x"'), ToolCall("upsert_memory", '{"content": ')]), "Hello."]
    await world.says(await world.conversation(), "hello there")
    assert model.calls[-1].body.count('"arguments": "{}"') == 2


async def test_a_model_that_insists_has_to_answer_without_tools_and_opens_no_breaker(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    for number in range(6):
        model.answers += [Uses([ToolCall("upsert_memory", '"x"')])] * MAX_TOOL_ROUNDS + [f"Answer {number}."]
        assert (await world.says(here, f"message {number}"))["content"] == f"Answer {number}."
    assert [bool(call.tools) for call in model.calls] == ([True] * MAX_TOOL_ROUNDS + [False]) * 6
    assert await world.sql("SELECT model_failed_at, breaker_open_until FROM conversations WHERE id = %s", here) == [
        ([], None)
    ]
