"""Test every way out of the server: no call, thought or token that a model writes as text reaches a person or the store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from langchain_core.messages import AIMessage

from rapport.agents.graph_run import Answer
from rapport.agents.tools.recorded import SavedFact
from rapport.turns.check import check_reply
from rapport.turns.findings import Findings
from tests.channels.http.test_websocket import calling
from tests.channels.telegram.town import Town, open_town
from tests.e2e.scripted import ScriptedModel, chat_model, remembers, scripted_model
from tests.replies.recorded_forms import CALLS, FACT, RECORDED, THOUGHTS, TOOLS, Recorded
from tests.support.cases import every_case
from tests.support.world import World, open_world
from tests.turns.test_memory import brief_lull, facts, streamed, thought

__all__ = ["brief_lull"]
SIGNS = [
    "proud",
    FACT,
    *TOOLS.names,
    *"<|>｜◁{`",
    "tool",
    "think",
    "nalysis",
    "Action",
    "Thought",
    "functions",
    "TOOL",
    "ARGS",
    "Cheer",
]
"""Parts of the recorded machinery that no visible text has."""


@pytest.fixture
async def town(database_url: str) -> AsyncGenerator[Town]:
    async with open_town(database_url) as opened:
        yield opened


async def read_reply(world: World) -> str:
    return (await world.says(await world.conversation(), "I made my first lasagne"))["content"]


async def read_events(world: World) -> str:
    tokens, final = await streamed(world, await world.conversation(), "I made my first lasagne")
    assert final["content"] == tokens
    return tokens


async def read_websocket(world: World) -> str:
    async with calling(world, await world.conversation()) as phone:
        await phone.ask("r1", "I made my first lasagne")
        final = await phone.until("final")
        assert phone.tokens("r1") == final["message"]["content"]
        return json.dumps(phone.heard, ensure_ascii=False) if not phone.tokens("r1") else phone.tokens("r1")


async def read_history(world: World) -> str:
    conversation = await world.conversation()
    await world.says(conversation, "I made my first lasagne")
    return (await world.history(conversation))[-1]["content"]


async def read_completion(world: World, *, stream: bool) -> str:
    body = {"model": "companion", "stream": stream, "messages": [{"role": "user", "content": "I made lasagne"}]}
    response = await world.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    if not stream:
        return response.json()["choices"][0]["message"]["content"]
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def read_completion_stream(world: World) -> str:
    return await read_completion(world, stream=True)


async def read_whole_completion(world: World) -> str:
    return await read_completion(world, stream=False)


WAYS: list[Callable[[World], Awaitable[str]]] = [
    read_reply,
    read_events,
    read_websocket,
    read_history,
    read_completion_stream,
    read_whole_completion,
]


def expect_clean(shown: str, recorded: Recorded) -> None:
    """Fail if the text has a part of machinery, or lacks what the model said to the person."""
    assert [sign for sign in SIGNS if sign in shown] == [], (recorded.origin, shown)
    assert recorded.visible in shown, (recorded.origin, shown)
    assert shown.strip(), recorded.origin


@every_case("way", WAYS)
async def test_no_recorded_machinery_reaches_a_client(town: Town, way: Callable[[World], Awaitable[str]]) -> None:
    for recorded in RECORDED:
        town.world.model.will_say(recorded.text)
        expect_clean(await way(town.world), recorded)


async def test_no_recorded_machinery_reaches_telegram(town: Town) -> None:
    sent = 0
    for recorded in RECORDED:
        for text in (recorded.text, "Fine."):  # the good reply resets the breaker
            town.world.model.will_say(text)
            sent += 1
            town.ann_alone.says(town.ann, f"I made lasagne number {sent}")
            await town.peer.until_sent(town.ann_alone, sent)
        expect_clean(town.peer.sent(town.ann_alone)[-2], recorded)


async def test_no_recorded_machinery_is_stored(town: Town) -> None:
    for recorded in RECORDED:
        town.world.model.will_say(recorded.text)
        await town.world.says(await town.world.conversation(), "I made my first lasagne")
    for (content,) in await town.world.sql("SELECT content FROM messages WHERE role = 'assistant'"):
        assert [sign for sign in SIGNS if sign in content] == [], content


@every_case("recorded", [recorded for recorded in RECORDED if recorded.visible])
async def test_no_recorded_machinery_reaches_a_summary(town: Town, recorded: Recorded) -> None:
    """Summaries are written by the agent's plain answers."""
    town.world.model.will_say(recorded.text)
    assert await town.world.app.agent.ask("Sum up.", "User: I made lasagne") == recorded.visible, recorded.origin


@every_case("recorded", RECORDED)
def test_no_recorded_machinery_reaches_a_memory(recorded: Recorded) -> None:
    answer = Answer(AIMessage("Noted."), [SavedFact(content=recorded.text, key=None)])
    candidates = check_reply(answer, Findings()).memory_candidates
    assert [candidate.content for candidate in candidates] == ([recorded.visible] if recorded.visible else [])


async def test_memories_of_an_answer_and_of_a_reflection_are_clean(database_url: str, brief_lull: None) -> None:
    fact = "The user is allergic to peanuts."
    async with scripted_model() as model, open_world(database_url, model=chat_model(model)) as world:
        await _remember(world, model, f"<think>Allergic to peanuts.</think>{fact}")
        assert await facts(world) == [fact]


async def _remember(world: World, model: ScriptedModel, text: str) -> None:
    model.decisions.append({"follow_up": None, "memories": [text]})
    model.answers += [remembers(text), "Noted."]
    await world.says(await world.conversation(), "I'm allergic to peanuts.")
    await thought(world)


def test_the_signs_are_in_the_recorded_machinery() -> None:
    for recorded in [*CALLS, *THOUGHTS]:
        assert any(sign in recorded.text for sign in SIGNS), recorded.origin
