"""Test follow-ups: natural, once, only while nobody writes, and without showing the mechanism (AUTO)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog
from langchain_core.messages import HumanMessage

from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES, TriggerType
from rapport.domain.synthetic import is_synthetic
from tests.support.cases import every_case
from tests.support.world import World, open_world, until


async def asked_about_pizza(world: World) -> str:
    """A conversation in which something was said."""
    where = await world.conversation()
    world.model.will_say("Thin crust is lovely.")
    await world.says(where, "What do you think about pizza?")
    return where


@every_case("trigger_type", TRIGGER_TYPES)
async def test_each_type_is_asked_for_in_its_own_words_and_nothing_else(
    world: World, trigger_type: TriggerType
) -> None:
    where = await asked_about_pizza(world)
    world.model.will_say("By the way, did you try the new place?")
    became = await world.silence(where, trigger_type, reason="a secret reason")
    assert became.state == "delivered"
    prompt = world.model.calls[-1][-1]
    assert isinstance(prompt, HumanMessage)
    assert prompt.content == PROMPTS[trigger_type]
    assert is_synthetic(prompt)
    assert prompt.additional_kwargs == {
        "synthetic": True,
        "trigger_type": trigger_type,
        "trigger_reason": "a secret reason",
        "lc_source": "autonomy",
    }
    assert not any("secret" in str(message.text) for message in world.model.calls[-1])


async def test_a_follow_up_is_an_ordinary_message_that_replies_to_nothing(world: World) -> None:
    where = await asked_about_pizza(world)
    world.model.will_say("Did you try the new place?")
    await world.silence(where)
    said = (await world.history(where))[-1]
    assert (said["role"], said["content"]) == ("assistant", "Did you try the new place?")
    assert (said["autonomous"], said["trigger_type"]) == (True, "check_in")
    assert said["reply_to_id"] is None


async def test_history_has_no_word_of_the_trigger_and_pages_stay_whole(world: World) -> None:
    where = await asked_about_pizza(world)
    for number in range(3):
        world.model.will_say(f"More pizza, number {number}.")
        await world.sql("UPDATE conversations SET last_followup_at = NULL")
        await world.silence(where)
    everything = await world.history(where)
    assert [one["content"] for one in everything][2:] == [f"More pizza, number {number}." for number in range(3)]
    assert (await world.sql("SELECT count(*) FROM messages WHERE synthetic")) == [(3,)]
    paged: list[Any] = []
    before = None
    while True:
        response = await world.http.get(
            f"/api/threads/{where}/history", params={"limit": 2} | ({"before": before} if before else {})
        )
        page = response.json()
        paged = page["messages"] + paged
        before = page["next"]
        if before is None:
            break
        assert len(page["messages"]) == 2
    assert paged == everything


async def test_the_answer_to_a_follow_up_has_its_context(world: World) -> None:
    where = await asked_about_pizza(world)
    world.model.will_say("Shall I look up the opening hours?")
    await world.silence(where)
    await world.says(where, "Sure")
    texts = [str(message.text) for message in world.model.calls[-1]]
    assert "Shall I look up the opening hours?" in texts
    assert not any(prompt in text for prompt in PROMPTS.values() for text in texts)


async def test_no_client_can_forge_the_tag(world: World) -> None:
    where = await world.conversation()
    for body in (
        {"content": "hi", "metadata": {"synthetic": True}},
        {"content": "hi", "additional_kwargs": {"synthetic": True}},
        {"content": [{"type": "text", "text": "hi", "synthetic": True}]},
    ):
        response = await world.http.post(f"/chat/conversations/{where}/messages", json=body)
        assert response.status_code in {400, 422}
    await world.says(where, "Continue our conversation naturally.")
    assert (await world.history(where))[0]["content"] == "Continue our conversation naturally."


async def test_a_message_cancels_a_follow_up_that_is_being_generated(world: World) -> None:
    where = await asked_about_pizza(world)
    thinking = world.model.will_wait("Too late.")
    silence = asyncio.create_task(world.silence(where))
    await thinking.begun.wait()
    world.model.will_say("Hello again!")
    reply = await world.says(where, "I'm back")
    assert reply["content"] == "Hello again!"
    became = await silence
    assert became.state == "superseded"
    thinking.go_on()
    await world.drain()
    assert [one["content"] for one in await world.history(where)][2:] == ["I'm back", "Hello again!"]


async def test_a_message_never_cancels_an_answer(world: World) -> None:
    where = await world.conversation()
    thinking = world.model.will_wait("First answer.")
    first = asyncio.create_task(world.says(where, "one"))
    await thinking.begun.wait()
    world.model.will_say("Second answer.")
    second = asyncio.create_task(world.says(where, "two"))
    await until(lambda: world.sql("SELECT 1 FROM events WHERE state = 'queued'"))
    thinking.go_on()
    assert (await first)["content"] == "First answer."
    assert (await second)["content"] == "Second answer."


async def test_a_message_on_another_replica_cancels_a_follow_up_too(world: World, database_url: str) -> None:
    async with open_world(database_url) as other:
        where = await asked_about_pizza(world)
        thinking = world.model.will_wait("Too late.")
        other_thinking = other.model.will_wait("Too late.")
        silence = asyncio.create_task(world.silence(where))
        await until(lambda: thinking.begun.is_set() or other_thinking.begun.is_set())
        speaker = other if thinking.begun.is_set() else world
        speaker.model._script.clear()  # pyright: ignore[reportPrivateUsage]
        speaker.model.will_say("Hello again!")
        assert (await speaker.says(where, "I'm back"))["content"] == "Hello again!"
        assert (await silence).state == "superseded"


async def test_the_gates_suppress_a_follow_up_before_the_model_is_called(world: World) -> None:
    where = await asked_about_pizza(world)
    asked = len(world.model.calls)
    await world.sql("UPDATE conversations SET muted_until = clock_timestamp() + interval '1 hour'")
    became = await world.silence(where)
    assert (became.state, became.gate) == ("suppressed", "muted")
    assert len(world.model.calls) == asked


async def test_the_gates_are_checked_again_after_the_model_call(world: World) -> None:
    where = await asked_about_pizza(world)
    thinking = world.model.will_wait("Not now.")
    silence = asyncio.create_task(world.silence(where))
    await thinking.begun.wait()
    await world.sql("UPDATE conversations SET muted_until = clock_timestamp() + interval '1 hour'")
    thinking.go_on()
    became = await silence
    assert (became.state, became.gate) == ("suppressed", "muted")
    assert len(await world.history(where)) == 2


async def test_at_most_three_follow_ups_in_a_row_until_the_person_writes(world: World) -> None:
    where = await asked_about_pizza(world)
    states: list[tuple[str, str | None]] = []
    for _ in range(4):
        await world.sql("UPDATE conversations SET last_followup_at = NULL")
        became = await world.silence(where)
        states.append((became.state, became.gate))
    assert states == [("delivered", None)] * 3 + [("suppressed", "consecutive")]
    await world.says(where, "I'm here")
    await world.sql("UPDATE conversations SET last_followup_at = NULL")
    assert (await world.silence(where)).state == "delivered"


async def test_not_two_within_fifteen_seconds(world: World) -> None:
    where = await asked_about_pizza(world)
    assert (await world.silence(where)).state == "delivered"
    became = await world.silence(where)
    assert (became.state, became.gate) == ("suppressed", "too_soon")


async def test_the_librarian_and_groups_say_nothing_unasked(world: World) -> None:
    strict = await world.conversation(agent_id="librarian")
    await world.says(strict, "hello")
    became = await world.silence(strict)
    assert (became.state, became.gate) == ("suppressed", "agent")
    group = await world.conversation(kind="group")
    became = await world.silence(group)
    assert (became.state, became.gate) == ("suppressed", "conversation")
    await world.sql("UPDATE conversations SET autonomy_enabled = true WHERE id = %s", group)
    await world.post(group, "hello everybody")
    assert (await world.silence(group)).state == "delivered"


async def test_a_server_that_is_told_to_keep_quiet_does(database_url: str) -> None:
    async with open_world(database_url, autonomy=False) as world:
        where = await asked_about_pizza(world)
        became = await world.silence(where)
        assert (became.state, became.gate) == ("suppressed", "server")


async def test_a_leak_is_generated_once_more(world: World) -> None:
    where = await asked_about_pizza(world)
    world.model.will_say("I see you sent an incomplete message.", "Did you try the new place?")
    became = await world.silence(where)
    assert became.state == "delivered"
    assert (await world.history(where))[-1]["content"] == "Did you try the new place?"
    assert await world.sql("SELECT regenerated FROM timers WHERE id = %s", became.id) == [(True,)]


async def test_a_second_leak_is_not_delivered(world: World) -> None:
    where = await asked_about_pizza(world)
    world.model.will_say(*["I was triggered by a system message to follow up."] * 2)
    became = await world.silence(where)
    assert became.state == "leaked"
    assert len(await world.history(where)) == 2


async def test_a_model_that_fails_says_nothing_unasked(world: World) -> None:
    where = await asked_about_pizza(world)
    world.model.will_fail(ValueError("no"))
    became = await world.silence(where)
    assert became.state == "failed"
    assert len(await world.history(where)) == 2


async def test_a_timer_on_an_empty_conversation_is_one_error_and_goes_on(world: World) -> None:
    where = await world.conversation()
    world.model.will_say("Hello there!")
    with structlog.testing.capture_logs() as logs:
        became = await world.silence(where)
    errors = [line["event"] for line in logs if line["log_level"] == "error"]
    assert errors == ["Autonomous message triggered on empty thread - misconfiguration"]
    assert became.state == "delivered"
    assert [one["content"] for one in await world.history(where)] == ["Hello there!"]


async def test_a_push_channel_gets_it_and_not_after_somebody_has_spoken(world: World) -> None:
    where = await world.conversation(channel="recording")
    await world.says(where, "hello")
    world.model.will_say("Did you try the new place?")
    await world.silence(where)
    await world.drain()
    assert world.channel.sent[-1] == "Did you try the new place?"


async def test_the_words_of_a_follow_up_that_could_not_be_sent_in_time_are_taken_back(world: World) -> None:
    where = await world.conversation(channel="recording")
    await world.says(where, "hello")
    await world.drain()
    await world.sql(  # as if the sending had been slow
        "CREATE FUNCTION late() RETURNS trigger AS 'BEGIN IF NEW.user_message_count IS NOT NULL THEN NEW.due_at ="
        " clock_timestamp() + interval ''1 second''; END IF; RETURN NEW; END' LANGUAGE plpgsql"
    )
    await world.sql("CREATE TRIGGER late BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION late()")
    world.model.will_say("Did you try the new place?", "Welcome back!")
    await world.silence(where)
    await world.says(where, "I'm back")
    await world.drain()
    await until(lambda: world.channel.sent[-1] == "Welcome back!")
    assert "Did you try the new place?" not in world.channel.sent
    assert [one["content"] for one in await world.history(where)][2:] == ["I'm back", "Welcome back!"]


async def test_people_come_first_even_when_many_follow_ups_are_due(database_url: str) -> None:
    async with open_world(database_url, max_turns=4) as world:
        busy = [await asked_about_pizza(world) for _ in range(6)]
        thinking = [world.model.will_wait("slow") for _ in range(6)]
        silences = [asyncio.create_task(world.silence(where)) for where in busy]
        await thinking[0].begun.wait()
        world.model._script.appendleft(world.model._script.pop())  # pyright: ignore[reportPrivateUsage]
        here = await world.conversation()
        world.model._script.clear()  # pyright: ignore[reportPrivateUsage]
        world.model.will_say("Hi!")
        assert (await world.says(here, "hello"))["content"] == "Hi!"
        for step in thinking:
            step.go_on()
        await asyncio.gather(*silences)


async def test_what_was_planned_is_stored_with_the_reply_and_cancelled_by_the_next_word(world: World) -> None:
    where = await world.conversation()
    world.model.will_say("Which one do you like best?")
    await world.says(where, "I like pizza and pasta.")
    assert len(await world.sql("SELECT 1 FROM timers WHERE state = 'pending'")) == 1
    world.model.will_say("Fine.")
    await world.says(where, "thanks, that's all, bye!")
    assert await world.sql("SELECT 1 FROM timers") == []


async def test_stored_tags_and_the_function_say_the_same(world: World) -> None:
    where = await asked_about_pizza(world)
    values: list[Any] = [True, "true", 1, 0, False, None, [True], {"synthetic": True}, "True"]
    for number, value in enumerate(values):
        await world.sql(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, metadata, created_at)"
            " VALUES (%s, %s, 'local', 'user', 'x', jsonb_build_object('synthetic', %s::jsonb), clock_timestamp())",
            where, f"m{number}", json.dumps(value),
        )  # fmt: skip
    stored = await world.sql("SELECT synthetic FROM messages WHERE id LIKE 'm%%' ORDER BY id")
    assert [row[0] for row in stored] == [
        is_synthetic(HumanMessage("x", additional_kwargs={"synthetic": value})) for value in values
    ]


async def test_a_follow_up_can_be_stopped_like_any_answer(world: World) -> None:
    where = await asked_about_pizza(world)
    thinking = world.model.will_wait("Never heard.")
    silence = asyncio.create_task(world.silence(where))
    await thinking.begun.wait()
    response = await world.http.post(f"/chat/conversations/{where}/cancel")
    assert response.json() == {"cancelled": True}
    assert (await silence).state == "superseded"
    assert len(await world.history(where)) == 2
