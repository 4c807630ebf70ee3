"""Test the circuit breaker: a conversation whose model keeps failing pauses it for a while, and then tries once (RES-3)."""

from __future__ import annotations

import asyncio
import json

import pytest

from rapport.domain.model_problems import BREAKER_FAILURES, BREAKER_WINDOW_SECONDS
from tests.support.world import World, open_world, until

FALLBACK = "Temporary issue generating response. Here are the relevant documents summary: "
REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
HOW_LONG = "How long can I return something I bought?"
MOONS = "Which planet has the most moons?"


async def fail(world: World, conversation: str, *, times: int) -> None:
    """Run this many turns whose model fails, and check that each has called the model."""
    for _ in range(times):
        world.model.will_fail(RuntimeError("out of order"))
        asked = len(world.model.calls)
        assert (await world.says(conversation, HOW_LONG))["fallbackUsed"] is True
        assert len(world.model.calls) == asked + 1


async def rests(world: World, conversation: str) -> bool:
    """Return whether the next turn gives the fallback reply without a model call."""
    asked = len(world.model.calls)
    fell_back = (await world.says(conversation, HOW_LONG))["fallbackUsed"]
    assert fell_back is (len(world.model.calls) == asked)
    return fell_back


async def time_passes(world: World, seconds: float) -> None:
    """Move the times of the breaker into the past by this many seconds."""
    await world.sql(
        "UPDATE conversations SET breaker_open_until = breaker_open_until - %s * interval '1 second', model_failed_at = ARRAY("
        " SELECT at - %s * interval '1 second' FROM unnest(model_failed_at) WITH ORDINALITY AS failure (at, number) ORDER BY number)",
        seconds,
        seconds,
    )


def test_the_numbers_are_those_of_the_specification() -> None:
    assert (BREAKER_FAILURES, BREAKER_WINDOW_SECONDS) == (5, 120)


async def test_five_failed_turns_in_a_row_open_the_breaker_and_the_fallback_stays_the_same(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    conversation = await world.conversation()
    world.model.will_fail(*[RuntimeError("out of order")] * 5)
    replies = [await world.says(conversation, HOW_LONG) for _ in range(8)]
    assert len(world.model.calls) == 5
    assert {reply["content"] for reply in replies} == {f"{FALLBACK}{REFUNDS} [source: refunds]\n\nSources: refunds"}
    assert all(reply["fallbackUsed"] and reply["sources"] == replies[0]["sources"] for reply in replies)
    assert replies[0]["sources"] == [{"id": "refunds", "text": REFUNDS}]
    assert [message["role"] for message in await world.history(conversation)] == ["user", "assistant"] * 8


async def test_an_open_breaker_says_the_same_in_a_stream(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=5)
    response = await world.http.post(
        f"/chat/conversations/{conversation}/messages",
        json={"content": HOW_LONG},
        headers={"accept": "text/event-stream"},
    )
    token, final = response.text.strip().split("\n\n")
    told = json.loads(final.removeprefix("event: final\ndata: "))
    assert json.loads(token.removeprefix("event: token\ndata: ")) == {"token": told["content"]}
    assert told["content"].startswith(FALLBACK)
    assert len(world.model.calls) == 5


async def test_four_failures_and_a_success_begin_the_count_anew(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=4)
    assert not await rests(world, conversation)
    await fail(world, conversation, times=4)
    assert not await rests(world, conversation)
    await fail(world, conversation, times=5)
    assert await rests(world, conversation)


async def test_failures_far_apart_do_not_open_it(world: World) -> None:
    conversation = await world.conversation()
    for _ in range(9):
        await fail(world, conversation, times=1)
        await time_passes(world, 31)  # the first and the fifth lie 124 s apart, again and again
    # Four of them lie within two minutes; with one more there are five.
    await time_passes(world, -31)
    await fail(world, conversation, times=1)
    assert await rests(world, conversation)


async def test_failures_just_within_two_minutes_open_it(world: World) -> None:
    conversation = await world.conversation()
    for _ in range(4):
        await fail(world, conversation, times=1)
        await time_passes(world, 27)
    await fail(world, conversation, times=1)
    assert await rests(world, conversation)


async def test_only_the_latest_failures_are_stored(world: World) -> None:
    conversation = await world.conversation()
    for _ in range(8):
        await fail(world, conversation, times=1)
        await time_passes(world, 60)
    [(model_failed_at,)] = await world.sql("SELECT model_failed_at FROM conversations WHERE id = %s", conversation)
    assert len(model_failed_at) == BREAKER_FAILURES
    assert model_failed_at == sorted(model_failed_at)


async def test_guarded_turns_neither_count_nor_reset(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    conversation = await world.conversation(agent_id="librarian")
    for failures in (2, 2):
        await fail(world, conversation, times=failures)
        for _ in range(3):
            assert (await world.says(conversation, MOONS))["guardUsed"] is True
    assert not await rests(world, conversation), "only four turns have failed"

    for failures in (2, 3):
        await fail(world, conversation, times=failures)
        assert (await world.says(conversation, MOONS))["guardUsed"] is True
    assert await rests(world, conversation), "no answer came between these five"
    # What needs no model is answered as ever.
    assert (await world.says(conversation, MOONS))["guardUsed"] is True
    assert await rests(world, conversation)


async def cancelled_turn(world: World, conversation: str) -> None:
    step = world.model.will_wait()
    turn = asyncio.create_task(world.says(conversation, HOW_LONG))
    await step.begun.wait()
    assert (await world.http.post(f"/chat/conversations/{conversation}/cancel")).json() == {"cancelled": True}
    assert (await turn)["cancelled"] is True


async def test_cancelled_turns_neither_count_nor_reset(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=3)
    await cancelled_turn(world, conversation)
    await fail(world, conversation, times=1)
    await cancelled_turn(world, conversation)
    await fail(world, conversation, times=1)
    assert await rests(world, conversation)


async def test_a_failed_turn_counts_once_however_often_it_was_tried(world: World) -> None:
    conversation = await world.conversation()
    world.model.will_fail(*[ConnectionResetError("gone")] * 6)
    for _ in range(2):
        assert (await world.says(conversation, HOW_LONG))["fallbackUsed"] is True
    assert len(world.model.calls) == 2 * 3
    await fail(world, conversation, times=2)
    assert not await rests(world, conversation), "eight calls have failed, but four turns"


async def test_a_turn_that_succeeds_after_a_retry_is_not_a_failure(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=4)
    world.model.will_fail(ConnectionResetError("gone"))
    world.model.will_say("here again")
    assert (await world.says(conversation, HOW_LONG))["content"] == "here again"
    await fail(world, conversation, times=4)
    assert not await rests(world, conversation)


async def test_after_the_rest_a_good_trial_closes_it(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=5)
    await time_passes(world, BREAKER_WINDOW_SECONDS - 20)
    assert await rests(world, conversation)
    await time_passes(world, 20)
    world.model.will_say("well again")
    assert (await world.says(conversation, HOW_LONG))["content"] == "well again"
    # As if nothing had been: it takes five to open it again.
    await fail(world, conversation, times=4)
    assert not await rests(world, conversation)


async def test_after_the_rest_a_failed_trial_opens_it_again(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=5)
    for _ in range(2):
        await time_passes(world, BREAKER_WINDOW_SECONDS)
        await fail(world, conversation, times=1)
        assert await rests(world, conversation)
        await time_passes(world, BREAKER_WINDOW_SECONDS - 20)
        assert await rests(world, conversation)


async def test_a_cancelled_trial_leaves_the_next_turn_to_try(world: World) -> None:
    conversation = await world.conversation()
    await fail(world, conversation, times=5)
    await time_passes(world, BREAKER_WINDOW_SECONDS)
    await cancelled_turn(world, conversation)
    await fail(world, conversation, times=1)
    assert await rests(world, conversation)


async def test_only_one_trial_runs_at_a_time(world: World) -> None:
    """Messages that arrive during the trial wait for its result."""
    conversation = await world.conversation()
    await fail(world, conversation, times=5)
    await time_passes(world, BREAKER_WINDOW_SECONDS)
    trial = world.model.will_wait()
    trial.error = RuntimeError("still out of order")
    first = asyncio.create_task(world.says(conversation, HOW_LONG))
    await trial.begun.wait()
    others = [asyncio.create_task(world.says(conversation, HOW_LONG)) for _ in range(3)]

    async def all_stored() -> bool:
        return await world.sql("SELECT count(*) FROM events WHERE state = 'queued'") == [(3,)]

    await until(all_stored)
    assert len(world.model.calls) == 6
    assert trial.gate is not None
    trial.gate.set()
    assert all(reply["fallbackUsed"] for reply in await asyncio.gather(first, *others))
    assert len(world.model.calls) == 6


@pytest.mark.parametrize("agent", ["companion", "librarian"])
async def test_a_conversation_has_a_breaker_of_its_own(world: World, agent: str) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    one, other = await world.conversation(agent_id=agent), await world.conversation(agent_id=agent)
    await fail(world, one, times=4)
    await fail(world, other, times=4)
    await fail(world, one, times=1)
    assert await rests(world, one)
    assert not await rests(world, other)
    assert await rests(world, one)


async def test_replicas_count_together_and_rest_together(database_url: str) -> None:
    async with open_world(database_url) as one, open_world(database_url) as two:
        conversation = await one.conversation()
        await fail(one, conversation, times=3)
        await fail(two, conversation, times=2)
        assert await rests(one, conversation)
        assert await rests(two, conversation)
        await time_passes(one, BREAKER_WINDOW_SECONDS)
        await fail(two, conversation, times=1)
        assert await rests(one, conversation)
        await time_passes(two, BREAKER_WINDOW_SECONDS)
        assert not await rests(one, conversation)
        assert not await rests(two, conversation)


async def test_the_breaker_survives_a_restart(database_url: str) -> None:
    async with open_world(database_url) as world:
        conversation = await world.conversation()
        await fail(world, conversation, times=4)
    async with open_world(database_url) as world:
        await fail(world, conversation, times=1)
    async with open_world(database_url) as world:
        assert await rests(world, conversation)
        await time_passes(world, BREAKER_WINDOW_SECONDS)
        assert not await rests(world, conversation)
