"""Test the stories, requirements and measures of follow-ups by their id: over HTTP, with a model behind real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from statistics import mean
from typing import Any

import psycopg
import pytest
import structlog
from langchain_core.messages import BaseMessage, HumanMessage
from structlog.testing import capture_logs

from rapport.agents.graph import LangGraphAgent
from rapport.agents.metadata import MetadataLost, verify_metadata
from rapport.agents.profiles import COMPANION
from rapport.builtin import BuiltinChatModel
from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES, Timer, TriggerType
from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from rapport.domain.note import Vector
from rapport.domain.synthetic import is_synthetic
from rapport.followups.leaks import find_leak
from rapport.ingest.archive_rows import read_jsonl
from rapport.ingest.import_messages import import_archive
from rapport.memory.recall import HEADING, QuestionEmbedder
from rapport.storage.work.checkpoints import Checkpoints, checkpoint_pool
from tests.agents.test_metadata import Forgetful, Lossy
from tests.e2e.scripted import Call, ScriptedModel, chat_model, scripted_model
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until

EMPTY_THREAD = "Autonomous message triggered on empty thread - misconfiguration"
FALLBACK = "Memory query used fallback strategy due to synthetic trigger"
DETECTED = "Synthetic message detected in memory retrieval"
CAT = {"type": "image", "url": "https://example.org/cat.png"}
META = re.compile(r"incomplete message|follow-up request|system message|trigger|synthetic|autonomous", re.IGNORECASE)


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


@pytest.fixture
async def builtin(database_url: str) -> AsyncGenerator[World]:
    """A world with the built-in model, which writes follow-ups itself."""
    async with open_world(database_url, model=BuiltinChatModel()) as opened:
        yield opened


@contextmanager
def everything_logged() -> Generator[list[Any]]:
    """Every line at every level, with the conversation that it belongs to."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            yield lines
    finally:
        structlog.configure(wrapper_class=before)


def lines_of(logs: Sequence[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


async def pause(world: World, conversation: str) -> None:
    """Long enough since the last follow-up for another one."""
    await world.sql("UPDATE conversations SET last_followup_at = NULL WHERE id = %s", conversation)


async def spoke_up(world: World, conversation: str, trigger_type: TriggerType = "check_in", **more: Any) -> str:
    """Deliver a follow-up and return its text."""
    await pause(world, conversation)
    became = await world.silence(conversation, trigger_type, **more)
    assert became.state == "delivered", became
    said = (await world.history(conversation))[-1]
    assert (said["id"], said["role"], said["trigger_type"]) == (became.message_id, "assistant", trigger_type)
    return said["content"]


def assert_natural(text: str) -> None:
    assert find_leak(text, prompts=PROMPTS.values()) is None, text
    assert not META.search(text), text


async def triggers_of(world: World, conversation: str) -> list[tuple[Any, ...]]:
    """Return the triggers, from the database."""
    return await world.sql(
        "SELECT id, role, content, metadata FROM messages WHERE conversation_id = %s AND synthetic ORDER BY created_at",
        conversation,
    )


async def checkpoint_of(world: World, timer: Timer) -> list[BaseMessage]:
    """Return the messages in the checkpoint of a follow-up's turn."""
    state = await world.app.agent.graph.aget_state({"configurable": {"thread_id": timer.id}})
    return state.values["messages"]


def lines_remembered(call: Call) -> list[str]:
    """The memories that the model was given: in a follow-up's system prompt, otherwise in the newest message's note."""
    _, _, block = call.told.partition(HEADING)
    return [line.removeprefix("- ") for line in block.strip().splitlines() if line.startswith("- ")]


# ---- US1: natural follow-ups


async def test_us1_1_a_check_in_after_a_silence_is_on_topic_and_natural(builtin: World) -> None:
    here = await builtin.conversation()
    await builtin.says(here, "I love pizza with mushrooms.")
    timer = {"trigger_type": "check_in", "delay_seconds": 1}
    assert (await builtin.http.post(f"/api/threads/{here}/timers", json=timer)).status_code == 201

    async def spoke() -> bool:
        return len(await builtin.history(here)) == 3

    await until(spoke)
    said = (await builtin.history(here))[-1]
    assert (said["role"], said["autonomous"], said["trigger_type"]) == ("assistant", True, "check_in")
    assert "pizza" in said["content"]
    assert_natural(said["content"])


async def test_us1_2_an_unanswered_question_is_taken_up_without_a_word_about_requests(
    builtin: World,
) -> None:
    here = await builtin.conversation()
    await builtin.says(here, "Which pizza goes with red wine?")
    assert_natural(await spoke_up(builtin, here, "question_unanswered"))


async def test_us1_2_a_reply_that_mentions_a_follow_up_request_is_not_delivered(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    await world.says(here, "Which pizza goes with red wine?")
    model.answers += ["I see you sent a follow-up request.", "By the way, did you find a wine?"]
    assert await spoke_up(world, here, "question_unanswered") == "By the way, did you find a wine?"
    assert not any("follow-up request" in str(one["content"]) for one in await world.history(here))


async def test_us1_3_several_in_a_row_stay_natural_and_differ(builtin: World) -> None:
    here = await builtin.conversation()
    await builtin.says(here, "I have to finish my report about bridges.")
    said = [await spoke_up(builtin, here, kind) for kind in ("check_in", "task_incomplete", "question_unanswered")]
    assert len(set(said)) == 3
    for text in said:
        assert_natural(text)
    answer = await builtin.says(here, "It is nearly done.")
    assert_natural(answer["content"])


async def test_us1_3_prompts_do_not_accumulate_triggers(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await world.says(here, "I have to finish my report.")
    for number, kind in enumerate(TRIGGER_TYPES[:3]):
        model.answers.append(f"Is the report done, number {number}?")
        await spoke_up(world, here, kind)
        *earlier, current = model.calls[-1].window
        assert current == ("user", PROMPTS[kind])
        assert [text for role, text in earlier if role == "user"] == ["I have to finish my report."]
        assert [text for role, text in earlier if role == "assistant"][1:] == [
            f"Is the report done, number {one}?" for one in range(number)
        ]


# ---- US2: relevant memories

WORK = "The user has an incomplete work project about bridges."
HOLIDAY = "The user wants to travel to Greece for a vacation by the sea."
MACHINERY = ["The user has a follow-up appointment at the dentist.", "The user has an incomplete stamp collection."]


async def remembering(world: World, *facts: str) -> None:
    for fact in facts:
        await world.app.memory.create("local", "companion", MemoryCandidate(fact))


async def test_us2_1_memories_are_looked_up_by_the_last_real_words(world: World, model: ScriptedModel) -> None:
    await remembering(world, WORK, HOLIDAY, *MACHINERY)
    here = await world.conversation()
    await world.says(here, "My bridge project at work drags on.")
    by_a_person = lines_remembered(model.calls[-1])
    model.answers.append("How is the bridge?")
    await spoke_up(world, here, "check_in")
    assert lines_remembered(model.calls[-1]) == by_a_person
    assert by_a_person[0] == WORK
    assert not set(by_a_person) & set(MACHINERY)


async def test_us2_2_without_words_of_a_person_the_summary_is_what_is_looked_up(
    world: World, model: ScriptedModel
) -> None:
    await remembering(world, WORK, HOLIDAY, *MACHINERY)
    here = await world.conversation()
    await summed_up(world, here, "They planned a vacation by the sea in Greece.")
    model.answers.append("Did you book a ferry?")
    with everything_logged() as logs:
        await spoke_up(world, here, "check_in")
    assert lines_remembered(model.calls[-1])[0] == HOLIDAY
    assert [line["source"] for line in lines_of(logs, FALLBACK)] == ["summary"]
    assert lines_of(logs, EMPTY_THREAD) == []


async def test_us2_3_after_words_about_a_holiday_memories_are_about_travel(world: World, model: ScriptedModel) -> None:
    await remembering(world, WORK, HOLIDAY, *MACHINERY)
    here = await world.conversation()
    await world.says(here, "Where should we go on vacation this summer?")
    for kind in TRIGGER_TYPES[:3]:
        model.answers.append(f"Would the sea be nice, says {kind[:4]}?")
        await spoke_up(world, here, kind)
        recalled = lines_remembered(model.calls[-1])
        assert recalled[0] == HOLIDAY
        assert not set(recalled) & set(MACHINERY)


async def summed_up(world: World, conversation: str, text: str) -> None:
    """Cover all messages so far by a summary."""
    await world.sql(
        "WITH line AS (UPDATE conversations SET last_at = clock_timestamp(), summary_id = %s,"
        " summarized_until = clock_timestamp() WHERE id = %s RETURNING id, owner_id, summary_id, last_at)"
        " INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
        " SELECT id, summary_id, owner_id, 'system-summary', %s, last_at FROM line",
        new_id(), conversation, text,
    )  # fmt: skip


class Overhearing:
    """The real embedder, which records the queries for memories."""

    def __init__(self, embedder: QuestionEmbedder) -> None:
        self._embedder = embedder
        self.asked: list[str] = []

    @property
    def name(self) -> str:
        return self._embedder.name

    async def embed_question(self, question: str) -> Vector:
        self.asked.append(question)
        return await self._embedder.embed_question(question)


def overhear(world: World) -> Overhearing:
    tools = world.worker.running_turns.deps
    ears = Overhearing(tools.recall.embedder)
    overheard = replace(tools, recall=replace(tools.recall, embedder=ears))
    world.worker.running_turns.deps = overheard
    return ears


async def test_fr_005_the_order_of_the_queries_for_recall(world: World, model: ScriptedModel) -> None:
    await remembering(world, WORK)
    ears = overhear(world)

    nowhere = await world.conversation()  # pictures only: nothing to look up, and nothing wrong
    with everything_logged() as logs:
        await world.says(nowhere, [CAT])
        model.answers.append("Nice picture.")
        await spoke_up(world, nowhere)
    assert ears.asked == []
    assert not [line for line in logs if line["log_level"] == "error"]

    here = await world.conversation()
    await world.says(here, "How is the bridge project?")
    await world.says(here, [CAT])  # a picture alone says nothing: what was said before it does
    await world.says(here, [{"type": "text", "text": "And this bridge?"}, CAT, {"type": "text", "text": "Is it old?"}])
    await world.says(here, [CAT])
    model.answers += ["What a bridge.", "Still there?"]
    await spoke_up(world, here, "check_in")
    await spoke_up(world, here, "task_incomplete")
    multimodal = "And this bridge?\nIs it old?"
    question = "How is the bridge project?"
    assert ears.asked == [question, question, multimodal, multimodal, multimodal, multimodal]

    ears.asked.clear()
    await summed_up(world, here, "They talked about a bridge.")
    model.answers.append("How is the river?")
    await pause(world, here)
    await spoke_up(world, here, "question_unanswered")
    assert ears.asked == ["They talked about a bridge."]

    ears.asked.clear()
    empty = await world.conversation()
    model.answers.append("Hello there!")
    with everything_logged() as logs:
        await spoke_up(world, empty)
    assert ears.asked == []
    assert [line["log_level"] for line in lines_of(logs, EMPTY_THREAD)] == ["error"]
    assert not any(prompt in asked for prompt in PROMPTS.values() for asked in ears.asked)


# ---- US3: clean history


async def test_us3_1_history_shows_what_people_and_the_agent_said_and_nothing_else(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    await world.says(here, "hello there")
    model.answers.append("How are you?")
    await spoke_up(world, here)
    assert [(one["role"], one["content"]) for one in await world.history(here)] == [
        ("user", "hello there"),
        ("assistant", "re: hello there"),
        ("assistant", "How are you?"),
    ]


async def test_us3_2_a_developer_finds_the_tags_in_the_database_and_in_the_checkpoint(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    await world.says(here, "hello there")
    timers: list[Timer] = []
    for number, kind in enumerate(TRIGGER_TYPES[:3]):
        model.answers.append(f"Question {number}?")
        await pause(world, here)
        timers.append(await world.silence(here, kind, reason=f"because of {number}"))
    rows = await triggers_of(world, here)
    assert [(row[1], row[2]) for row in rows] == [("user", PROMPTS[kind]) for kind in TRIGGER_TYPES[:3]]
    for number, (timer, row) in enumerate(zip(timers, rows, strict=True)):
        tags = {
            "synthetic": True,
            "trigger_type": timer.trigger_type,
            "trigger_reason": f"because of {number}",
            "lc_source": "autonomy",
        }
        assert row[3] == tags
        *earlier, current = await checkpoint_of(world, timer)
        assert current.additional_kwargs == tags
        assert current.id == timer.id == row[0]
        assert is_synthetic(current)
        assert not any(is_synthetic(message) for message in earlier)


async def test_us3_3_the_history_asks_the_tag_and_never_the_words(world: World) -> None:
    """A person may write the text of a trigger; and a trigger is hidden whatever its text is."""
    here = await world.conversation()
    theirs = [*PROMPTS.values(), "[AUTONOMOUS_FOLLOWUP: check_in] hm", '{"synthetic": true}']
    for text in theirs:
        await world.says(here, text)
    await hidden(world, here, "What I had for lunch", None)
    await hidden(world, here, "", None)
    shown = [one["content"] for one in await world.history(here) if one["role"] == "user"]
    assert shown == theirs


async def test_us3_4_of_multimodal_messages_only_the_tag_is_looked_at(world: World) -> None:
    here = await world.conversation()
    blocks = [{"type": "text", "text": PROMPTS["check_in"]}, CAT, {"type": "text", "text": "[AUTONOMOUS_FOLLOWUP]"}]
    await world.says(here, blocks)
    await hidden(world, here, "Look", [{"type": "text", "text": "Look"}, CAT])
    await hidden(world, here, "", [CAT])
    for tag in ("true", 1, None, [True]):
        await hidden(world, here, "shown", [{"type": "text", "text": "shown"}, CAT], synthetic=tag)
    shown = [one["content"] for one in await world.history(here) if one["role"] == "user"]
    assert shown == [blocks] + [[{"type": "text", "text": "shown"}, CAT]] * 4


async def hidden(world: World, conversation: str, text: str, blocks: object, *, synthetic: object = True) -> None:
    """A message with this tag."""
    await world.sql(
        "INSERT INTO messages (conversation_id, id, owner_id, role, content, blocks, metadata, created_at)"
        " VALUES (%s, %s, 'local', 'user', %s, %s::jsonb, %s::jsonb, clock_timestamp())",
        conversation, new_id(), text, blocks and json.dumps(blocks), json.dumps({"synthetic": synthetic}),
    )  # fmt: skip


# ---- US4: all trigger types


async def made_by(world: World, model: ScriptedModel, kind: TriggerType) -> BaseMessage:
    """The message that a timer of this type becomes, as it went through the graph."""
    here = await world.conversation()
    await world.says(here, "I have to choose a pizza.")
    model.answers.append("Did you?")
    became = await world.silence(here, kind)
    assert became.state == "delivered"
    assert model.calls[-1].window[-1] == ("user", PROMPTS[kind])
    message = (await checkpoint_of(world, became))[-1]
    assert message.additional_kwargs["trigger_type"] == kind
    return message


async def test_us4_1_check_in(world: World, model: ScriptedModel) -> None:
    assert (await made_by(world, model, "check_in")).text == "Continue our conversation naturally."


async def test_us4_2_question_unanswered(world: World, model: ScriptedModel) -> None:
    made = await made_by(world, model, "question_unanswered")
    assert made.text == "The user asked a question but hasn't responded. Follow up on it."


async def test_us4_3_task_incomplete(world: World, model: ScriptedModel) -> None:
    made = await made_by(world, model, "task_incomplete")
    assert made.text == "Check in about the incomplete task we discussed."


async def test_us4_4_waiting_for_decision(world: World, model: ScriptedModel) -> None:
    made = await made_by(world, model, "waiting_for_decision")
    assert made.text == "Follow up on the decision the user needs to make."


# ---- the requirements


async def test_fr_001_to_003_a_human_message_with_natural_words_and_tags_that_no_model_sees(
    world: World, model: ScriptedModel
) -> None:
    made = await made_by(world, model, "task_incomplete")
    assert isinstance(made, HumanMessage)
    assert made.additional_kwargs == {"synthetic": True, "trigger_type": "task_incomplete", "lc_source": "autonomy"}
    sent = model.calls[-1].body
    assert not any(word in sent for word in ("synthetic", "trigger_type", "lc_source", "additional_kwargs"))


REASONS = ["plain", "👩‍👩‍👧‍👦 🇧🇷 שלום", '"quoted" \\ {json: true}\nline', "x" * 500, None]


async def test_fr_004_and_sc_005_tags_survive_the_checkpoint_and_a_restart_unchanged(
    database_url: str, model: ScriptedModel
) -> None:
    timers: list[Timer] = []
    async with open_world(database_url, model=chat_model(model)) as world:
        for number, reason in enumerate(REASONS * len(TRIGGER_TYPES)):
            here = await world.conversation()
            await world.says(here, "hello there")
            model.answers.append("How are you?")
            timers.append(await world.silence(here, TRIGGER_TYPES[number % 4], reason=reason))
    async with open_world(database_url, model=chat_model(model)) as world:
        for timer in timers:
            message = (await checkpoint_of(world, timer))[-1]
            wanted = {"synthetic": True, "trigger_type": timer.trigger_type, "lc_source": "autonomy"}
            assert message.additional_kwargs == (
                wanted if timer.reason is None else {**wanted, "trigger_reason": timer.reason}
            )
            assert isinstance(message, HumanMessage)
    assert {(timer.trigger_type, timer.reason) for timer in timers} == {
        (kind, reason) for kind in TRIGGER_TYPES for reason in REASONS
    }


async def test_fr_004_a_checkpoint_that_is_just_being_written_is_waited_for(database_url: str) -> None:
    """A concurrent read or erasure waits for it: nothing is read too early, or written after it was erased."""
    async with (
        checkpoint_pool(database_url) as pool,
        await psycopg.AsyncConnection[tuple[Any, ...]].connect(database_url, autocommit=True) as other,
    ):
        saver = Checkpoints(pool)
        agent = LangGraphAgent(BuiltinChatModel(), saver, deadline=LIMIT_SECONDS)
        await agent.run("hello", thread_id="thread", system="Be kind.", fresh=True)

        async def is_held_up() -> bool:
            return bool(await (await other.execute("SELECT 1 FROM pg_locks WHERE NOT granted")).fetchall())

        async with other.transaction():
            await other.execute("LOCK TABLE checkpoint_blobs IN SHARE MODE")
            writing = asyncio.create_task(saver.flush())
            await until(is_held_up)
            reading = asyncio.create_task(agent.graph.aget_state({"configurable": {"thread_id": "thread"}}))
            await asyncio.wait({reading}, timeout=0.3)
        await writing
        assert [message.text for message in (await reading).values["messages"]] == ["hello"]


def test_fr_006_checking_a_message_costs_little() -> None:
    """The specification allows 5 ms a message."""
    many = [HumanMessage("x" * 10_000, additional_kwargs={"synthetic": number % 2 == 0}) for number in range(10_000)]
    began = time.process_time()
    assert sum(map(is_synthetic, many)) == 5_000
    assert (time.process_time() - began) / len(many) < 0.005 / 10


def test_fr_007_the_prompts_are_the_specified_ones() -> None:
    assert PROMPTS == {
        "check_in": "Continue our conversation naturally.",
        "question_unanswered": "The user asked a question but hasn't responded. Follow up on it.",
        "task_incomplete": "Check in about the incomplete task we discussed.",
        "waiting_for_decision": "Follow up on the decision the user needs to make.",
    }


async def test_fr_008_the_agent_takes_plain_text_and_messages_alike(world: World, model: ScriptedModel) -> None:
    tagged = HumanMessage("hello", additional_kwargs={"synthetic": True, "trigger_type": "check_in"})
    for message in ("hello", tagged):
        thread = new_id()
        answer = await world.app.agent.run(message, thread_id=thread, system="Be kind.")
        assert answer.text == "re: hello"
        state = await world.app.agent.graph.aget_state({"configurable": {"thread_id": thread}})
        kept = state.values["messages"][-1]
        assert (kept.text, is_synthetic(kept)) == ("hello", message is tagged)
    assert model.calls[0].window == model.calls[1].window


async def test_fr_009_timers_gates_and_queue_work_across_a_restart(database_url: str, model: ScriptedModel) -> None:
    timer = {"trigger_type": "check_in", "delay_seconds": 1}
    async with open_world(database_url, model=chat_model(model), autonomy=True) as world:
        here, muted = await world.conversation(), await world.conversation()
        for one in (here, muted):
            await world.says(one, "hello there")
        assert (await world.http.put(f"/api/threads/{muted}/mute", json={"seconds": 600})).status_code == 200
        for one in (here, muted):
            assert (await world.http.post(f"/api/threads/{one}/timers", json=timer)).status_code == 201
    model.replies[PROMPTS["check_in"]] = "How are you?"
    async with open_world(database_url, model=chat_model(model)) as world:

        async def ended() -> bool:
            return await world.sql("SELECT 1 FROM timers WHERE state IN ('pending', 'fired')") == []

        await until(ended)
        assert [one["content"] for one in await world.history(here)][2:] == ["How are you?"]
        assert len(await world.history(muted)) == 2
        past = (await world.http.get(f"/api/threads/{muted}/timers")).json()["past"]
        assert [(one["state"], one["gate"]) for one in past] == [("suppressed", "muted")]


async def test_fr_010_each_step_is_logged_at_its_level(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await world.says(here, "hello zebra")
    with everything_logged() as logs:
        for number in range(3):
            model.answers.append(f"Walrus number {number}?")
            await pause(world, here)
            await world.silence(here, "check_in", reason="because of giraffes")
        logs_of_turns = list(logs)
        logs.clear()
        await world.history(here)
        logs_of_history = list(logs)

    where = {"conversationId": here, "agentId": "companion"}
    created = lines_of(logs_of_turns, "autonomy.synthetic_created")
    assert [line["log_level"] for line in created] == ["debug"] * 3
    tags = {"synthetic": True, "trigger_type": "check_in", "lc_source": "autonomy", "has_reason": True}
    assert all((where | tags).items() <= line.items() for line in created)

    detected = lines_of(logs_of_turns, DETECTED)
    assert [(line["log_level"], line["trigger_type"]) for line in detected] == [("debug", "check_in")] * 3
    fallbacks = lines_of(logs_of_turns, FALLBACK)
    assert [(line["log_level"], line["source"]) for line in fallbacks] == [("info", "last_user_message")] * 3
    assert all(where.items() <= line.items() for line in [*detected, *fallbacks])

    filtered = lines_of(logs_of_history, "autonomy.message_filtered")
    assert [line["log_level"] for line in filtered] == ["debug"] * 3
    assert {line["messageId"] for line in filtered} == {row[0] for row in await triggers_of(world, here)}
    [counted] = lines_of(logs_of_history, "Filtered 3 synthetic messages from thread history")
    assert counted["log_level"] == "info"
    for line in [*filtered, counted]:
        assert where.items() <= line.items(), line

    every = [*logs_of_turns, *logs_of_history]
    assert {line["log_level"] for line in every} == {"debug", "info"}
    told = json.dumps(every, default=str)
    assert not any(word in told for word in ("zebra", "Walrus", "giraffes", *PROMPTS.values()))


async def test_fr_010_a_history_without_triggers_says_nothing_about_them(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "hello there")
    with everything_logged() as logs:
        await world.history(here)
    assert not any("Filtered" in line["event"] for line in logs)


async def test_fr_010_an_empty_thread_is_one_error_and_the_turn_goes_on(world: World, model: ScriptedModel) -> None:
    await remembering(world, WORK)
    here = await world.conversation()
    model.answers.append("Hello there!")
    with everything_logged() as logs:
        assert await spoke_up(world, here, "waiting_for_decision") == "Hello there!"
    [error] = [line for line in logs if line["log_level"] in {"error", "critical"}]
    assert error["event"] == EMPTY_THREAD
    assert error["trigger_type"] == "waiting_for_decision"
    assert (error["conversationId"], error["agentId"]) == (here, "companion")
    assert lines_of(logs, FALLBACK) == []
    assert lines_remembered(model.calls[-1]) == []
    assert model.calls[-1].window == [("user", PROMPTS["waiting_for_decision"])]


async def test_fr_010_lost_tags_are_an_error_and_no_start(database_url: str) -> None:
    async with checkpoint_pool(database_url) as pool:
        saver = Lossy(pool, Forgetful())
        graph = LangGraphAgent(BuiltinChatModel(), saver, deadline=LIMIT_SECONDS).graph
        with everything_logged() as logs, pytest.raises(MetadataLost):
            await verify_metadata(graph, saver)
    assert [(line["event"], line["log_level"]) for line in logs] == [("agent.metadata_lost", "error")]


# ---- the measures

OPENINGS = [
    "I love pizza with mushrooms.",
    "What do you think about the new library?",
    "I have to finish my tax return this week.",
    "Should I take the job in Hamburg or stay in Berlin?",
    "My daughter starts school on Monday.",
    "hi",
    "Please check my incomplete message system and follow up on the trigger.",
    "Ich ziehe nächste Woche nach Köln.",
]


async def test_sc_001_every_follow_up_of_the_built_in_model_is_natural(builtin: World) -> None:
    for opening in OPENINGS:
        for kinds in (TRIGGER_TYPES[:2], TRIGGER_TYPES[2:]):
            here = await builtin.conversation()
            await builtin.says(here, opening)
            for kind in kinds:
                assert_natural(await spoke_up(builtin, here, kind))


LEAKS = [
    "I see you mentioned an incomplete message.",
    "It looks like you sent a system message asking me to follow up.",
    "As instructed, I will continue our conversation naturally.",
    "This is an automated check-in triggered by your silence.",
    "The user asked a question but hasn't responded.",
    "[AUTONOMOUS_FOLLOWUP: check_in] How are you?",
]


async def test_sc_001_whatever_the_model_says_no_meta_commentary_is_delivered(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    await world.says(here, "hello there")
    for number, leak in enumerate(LEAKS):
        model.answers += [leak, leak if number % 2 else f"How is it going, {number}?"]
        await pause(world, here)
        await world.sql("UPDATE conversations SET consecutive_followups = 0")
        became = await world.silence(here)
        assert became.state == ("leaked" if number % 2 else "delivered")
    model.answers.clear()
    told = [one["content"] for one in await world.history(here)][2:]
    assert told == [f"How is it going, {number}?" for number in range(0, len(LEAKS), 2)]


TOPICS = [
    ("The user has a dog called Rex.", "How much exercise does my dog need?"),
    ("The user is learning Portuguese.", "Which Portuguese verbs should I practise today?"),
    ("The user works as a nurse in a hospital.", "My shift at the hospital was long."),
    ("The user is allergic to peanuts.", "What could I cook without peanuts?"),
    ("The user plans a trip to Japan in spring.", "What should I see in Japan?"),
    ("The user is training for a marathon.", "My knees hurt after running so far."),
    ("The user's daughter is called Mia.", "What could I give my daughter for her birthday?"),
    ("The user grows tomatoes on the balcony.", "Why do my tomatoes have yellow leaves?"),
]


async def test_sc_002_memories_are_as_near_in_a_follow_up_as_in_a_turn(world: World, model: ScriptedModel) -> None:
    await remembering(world, *(fact for fact, _ in TOPICS))
    asked: list[float] = []
    unasked: list[float] = []
    for number, (fact, words) in enumerate(TOPICS):
        here = await world.conversation()
        await world.says(here, words)
        assert lines_remembered(model.calls[-1])[0] == fact
        model.answers.append(f"Any news, {number}?")
        await spoke_up(world, here, TRIGGER_TYPES[number % 4])
        assert lines_remembered(model.calls[-1])[0] == fact
        kept = await world.sql(
            "SELECT metadata FROM messages WHERE conversation_id = %s AND role = 'assistant' ORDER BY created_at", here
        )
        reply, follow_up = ([one["score"] for one in row[0]["memories"]] for row in kept)
        asked += reply
        unasked += follow_up
    assert abs(mean(unasked) - mean(asked)) <= 0.05 * mean(asked)


async def test_sc_003_no_marker_of_older_systems_is_in_any_history(world: World, model: ScriptedModel) -> None:
    rows = [
        {"id": 1, "author": "Ana", "text": "Shall we eat?", "created_at": "2024-05-06T08:31:00Z"},
        {"id": 2, "author": "Ana", "text": "[AUTONOMOUS_FOLLOWUP: check_in]", "created_at": "2024-05-06T08:32:00Z"},
        {"id": 3, "author": "Companion", "role": "assistant", "text": "Hungry?", "created_at": "2024-05-06T08:33:00Z"},
        {"id": 4, "author": "Ana", "text": "[AUTONOMOUS_FOLLOWUP: task_incomplete] the report",
         "created_at": "2024-05-06T08:34:00Z"},
    ]  # fmt: skip
    archive = read_jsonl([json.dumps(row).encode() for row in rows], agent=COMPANION, now=datetime.now(UTC), chat="old")
    assert archive.problems == []
    here = await world.conversation()
    await import_archive(world.database, archive, owner_id="local", agent_id="companion", conversation_id=here)
    model.answers.append("Still hungry?")
    await spoke_up(world, here)
    shown = await world.history(here)
    assert [one["content"] for one in shown] == ["Shall we eat?", "Hungry?", "Still hungry?"]
    assert "AUTONOMOUS" not in json.dumps(shown)
    assert "AUTONOMOUS" not in model.calls[-1].body


async def test_sc_004_all_four_types_keep_a_conversation_going(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    for number, kind in enumerate(TRIGGER_TYPES):
        await world.says(here, f"I have to decide about number {number}.")
        model.answers.append(f"How about number {number}?")
        await spoke_up(world, here, kind)
    told = [(one["role"], one["content"]) for one in await world.history(here)]
    assert [text for role, text in told if role == "user"] == [f"I have to decide about number {n}." for n in range(4)]
    assert [text for _, text in told if text.startswith("How about")] == [f"How about number {n}?" for n in range(4)]


async def test_sc_006_a_log_line_identifies_a_synthetic_message_without_its_text(
    world: World, model: ScriptedModel
) -> None:
    here = await world.conversation()
    await world.says(here, "hello there")
    model.answers.append("How are you?")
    with everything_logged() as logs:
        became = await world.silence(here, "question_unanswered", reason="zebra")
    [line] = [one for one in logs if one.get("synthetic") is True]
    assert (line["messageId"], line["trigger_type"]) == (became.id, "question_unanswered")
    assert line["log_level"] == "debug"
    assert not any(PROMPTS["question_unanswered"] in str(one) or "zebra" in str(one) for one in logs)


async def test_sc_007_of_fifty_follow_ups_none_is_lost_late_or_said_twice(world: World, model: ScriptedModel) -> None:
    model.replies |= dict.fromkeys(PROMPTS.values(), "How are you?")
    places = [await world.conversation() for _ in range(50)]
    await asyncio.gather(*(world.says(here, "hello there") for here in places))
    for number, here in enumerate(places):
        timer = {"trigger_type": TRIGGER_TYPES[number % 4], "delay_seconds": 1 + number % 10 / 10}
        assert (await world.http.post(f"/api/threads/{here}/timers", json=timer)).status_code == 201

    async def all_ended() -> bool:
        return await world.sql("SELECT count(*) FROM timers WHERE ended_at IS NOT NULL") == [(50,)]

    await until(all_ended)
    assert await world.sql("SELECT state, count(*) FROM timers GROUP BY state") == [("delivered", 50)]
    assert await world.sql(
        "SELECT count(*), count(DISTINCT conversation_id) FROM messages WHERE metadata ->> 'autonomous' = 'true'"
    ) == [(50, 50)]
    [(early, late)] = await world.sql(
        "SELECT count(*) FILTER (WHERE fired_at < due_at),"
        " count(*) FILTER (WHERE fired_at > due_at + interval '1 minute') FROM timers"
    )
    assert (early, late) == (0, 0)


async def test_sc_008_a_conversation_with_follow_ups_makes_no_error_noise(world: World, model: ScriptedModel) -> None:
    with everything_logged() as logs:
        here = await world.conversation()
        for number in range(4):
            await world.says(here, f"number {number}")
            model.answers.append(f"How is number {number}?")
            await spoke_up(world, here, TRIGGER_TYPES[number])
        await world.drain()
    assert {line["log_level"] for line in logs} == {"debug", "info"}
    for event in ("autonomy.synthetic_created", DETECTED, FALLBACK):
        assert len(lines_of(logs, event)) == 4
    counts = [line["event"] for line in logs if line["event"].startswith("Filtered")]
    assert counts == [f"Filtered {number} synthetic messages from thread history" for number in range(1, 5)]
