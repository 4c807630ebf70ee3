"""Test models whose server begins a thought outside of the reply, so that they write only the tag that ends it (ADR 99)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from rapport.agents.model_record import ANSWERS_TO_FORGET_THOUGHTS
from tests.agents.test_models import DONE, Provider, event, model_at, provider, stream
from tests.channels.http.test_websocket import calling
from tests.support.world import World, open_world, until
from tests.turns.test_memory import streamed

__all__ = ["provider"]
THOUGHT = "hidden thoughts without an opening tag"
REPLY = f"{THOUGHT}</think>The answer."
SHOWN_LATE = f"{THOUGHT}\n\nThe answer."

Way = Callable[[World], Awaitable[tuple[str, str]]]


async def read_events(world: World) -> tuple[str, str]:
    """Return what was streamed, and what is stored."""
    conversation = await world.conversation()
    tokens, final = await streamed(world, conversation, "hello")
    stored = (await world.history(conversation))[-1]["content"]
    assert final["content"] == stored
    return tokens, stored


async def read_websocket(world: World) -> tuple[str, str]:
    conversation = await world.conversation()
    async with calling(world, conversation) as phone:
        await phone.ask("r1", "hello")
        final = await phone.until("final")
    stored = (await world.history(conversation))[-1]["content"]
    assert final["message"]["content"] == stored
    return phone.tokens("r1"), stored


async def read_completion(world: World) -> tuple[str, str]:
    body = {"model": "companion", "user": "anna", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    response = await world.http.post("/v1/chat/completions", json=body)
    lines = response.text.splitlines()
    stored = (await world.history(response.headers["x-conversation-id"]))[-1]["content"]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if "choices" in chunk)
    if text == stored:
        assert lines[-2] == "data: [DONE]"
    else:  # the client is told that the text was not the reply
        assert chunks[-1]["error"]["message"].endswith(f"The reply is: {stored}")
    return text, stored


WAYS: list[Way] = [read_events, read_websocket, read_completion]


@pytest.mark.parametrize("way", WAYS)  # each with a database of its own: it remembers models
async def test_a_thought_is_never_stored_and_streamed_at_most_once(database_url: str, way: Way) -> None:
    async with open_world(database_url) as world:
        world.model.will_say(REPLY, REPLY, "A reply without a thought.", f"{THOUGHT}\n</think>\n\nMore.")
        assert await way(world) == (SHOWN_LATE, "The answer.")  # nobody could know: a stream can't take it back
        assert await way(world) == ("The answer.", "The answer.")
        assert await way(world) == ("A reply without a thought.", "A reply without a thought.")
        assert await way(world) == ("More.", "More.")


async def test_a_reply_that_nobody_watches_teaches_it_without_showing_a_thought(database_url: str) -> None:
    async with open_world(database_url) as world:
        world.model.will_say(REPLY, REPLY)
        assert (await world.says(await world.conversation(), "hello"))["content"] == "The answer."
        assert await read_events(world) == ("The answer.", "The answer.")


async def test_it_is_known_after_a_restart_and_by_the_operator(database_url: str) -> None:
    async with open_world(database_url) as world:
        world.model.will_say(REPLY)
        await world.says(await world.conversation(), "hello")
        await until(lambda: world.sql("SELECT 1 FROM model_records"))
        assert "not streamed before it ends a thought" in world.app.agent.record.describe()
    async with open_world(database_url) as world:
        world.model.will_say(REPLY)
        assert await read_events(world) == ("The answer.", "The answer.")


async def test_the_answer_is_streamed_piece_by_piece_after_the_thought(database_url: str) -> None:
    async with open_world(database_url) as world:
        world.app.agent.record.bare_closings = 1
        step = world.model.will_wait(f"{THOUGHT.replace(' ', '_')}</think>One two three")
        conversation = await world.conversation()
        async with calling(world, conversation) as phone:
            await phone.ask("r1", "hello")
            assert (await phone.until("token"))["token"] == "One"
            step.go_on()
            final = await phone.until("final")
        assert phone.tokens("r1") == final["message"]["content"] == "One two three"


async def test_a_model_that_stops_doing_it_is_streamed_again(database_url: str) -> None:
    async with open_world(database_url) as world:
        world.model.will_say(REPLY)
        await world.says(await world.conversation(), "hello")
        for _ in range(ANSWERS_TO_FORGET_THOUGHTS):
            assert world.app.agent.record.begins_in_thought
            await world.says(await world.conversation(), "hello")
        assert not world.app.agent.record.begins_in_thought


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("<think>They greet me.</think>\n\nHello.", "Hello."),
        ("Wait. <think>They greet me.</think> Hello.", "Wait. Hello."),
        ("Just an answer.", "Just an answer."),
        ("</think>\n\nHello.", "Hello."),
    ],
)
async def test_other_forms_of_a_model_that_does_it_stay_right(database_url: str, reply: str, said: str) -> None:
    async with open_world(database_url) as world:
        world.app.agent.record.bare_closings = 1
        world.model.will_say(reply, reply)
        assert await read_events(world) == (said, said)
        assert (await world.says(await world.conversation(), "hello"))["content"] == said


async def test_thoughts_in_a_field_of_their_own_are_neither_shown_nor_counted(
    database_url: str, provider: Provider
) -> None:
    deltas = [{"reasoning_content": "They "}, {"reasoning_content": "greet."}, {"content": "Hel"}, {"content": "lo."}]
    async with model_at(provider.url) as model, open_world(database_url, model=model) as world:
        provider.will.append(stream([*map(event, deltas), DONE]))
        assert await read_events(world) == ("Hello.", "Hello.")
        assert not world.app.agent.record.begins_in_thought
