"""Test summaries of long conversations: made after the turns, without losing a message, and never partly stored (SUM-1…3)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr
from structlog.testing import capture_logs

from rapport.agents.graph import LangGraphAgent
from rapport.builtin import BuiltinChatModel
from rapport.context.summary_rules import MAX_SUMMARY_CHARACTERS, MAX_TOKENS, SUMMARY_PROMPT, SUMMARY_TASK
from rapport.domain.conversation import Incoming
from rapport.domain.token_estimate import estimate_tokens
from rapport.turns.summarize import summarize
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import ScriptedModel, Step, World, open_world, until

LONGEST = 22
"""Uncovered messages after a summary, above which the next one is made."""
TOO_MANY = 7
"""Turns after which a conversation is summed up: with the seventh there are fourteen messages."""
FURTHER = 7
"""Turns from one summary to the next: it leaves ten messages, and with seven more turns there are twenty-four."""


class Summariser(ScriptedModel):
    """A scripted model whose summaries are scripted too; without a script it says how many it has written."""

    _summaries: deque[Step] = PrivateAttr(default_factory=deque[Step])
    _read: list[str] = PrivateAttr(default_factory=list[str])

    @property
    def read(self) -> list[str]:
        """What it was given to sum up, call by call."""
        return self._read

    def will_sum_up(self, *texts: str) -> None:
        self._summaries.extend(Step(text) for text in texts)

    def will_fail_to_sum_up(self, error: Exception) -> None:
        self._summaries.append(Step(error=error))

    def will_hold_back(self, text: str = "held back") -> Step:
        """The next summary comes when the returned step's gate is opened."""
        step = Step(text, gate=asyncio.Event())
        self._summaries.append(step)
        return step

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if messages[0].text != SUMMARY_PROMPT:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        self._read.append(messages[-1].text)
        step = self._summaries.popleft() if self._summaries else Step(f"summary {len(self._read)}")
        step.begun.set()
        if step.gate is not None:
            await step.gate.wait()
        if step.error is not None:
            raise step.error
        return ChatResult(generations=[ChatGeneration(message=AIMessage(step.text))])


@pytest.fixture
def model() -> Summariser:
    return Summariser()


@pytest.fixture
async def world(database_url: str, model: Summariser) -> AsyncGenerator[World]:
    async with open_world(database_url, model=model) as opened:
        yield opened


def in_the_making(conversation: str) -> list[asyncio.Task[Any]]:
    """The summaries being made of a conversation. One that a turn asks for has begun when its reply arrives."""
    return [task for task in asyncio.all_tasks() if task.get_name() == f"summary {conversation}"]


async def settled(conversation: str) -> None:
    if making := in_the_making(conversation):
        await asyncio.wait(making)


async def talk(world: World, conversation: str, turns: int, *, since: int = 0) -> None:
    """Run this many turns, and wait after each for its summary, if there is one."""
    for number in range(since, since + turns):
        await world.says(conversation, f"number {number}")
        await settled(conversation)


async def overheard(world: World, conversation: str, count: int) -> None:
    """People have talked there, long before now."""
    await world.sql(
        "INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, created_at)"
        " SELECT %s, 'old' || lpad(n::text, 6, '0'), 'local', 'user', 'p' || n %% 3, 'Person ' || n %% 3, 'line ' || n,"
        " clock_timestamp() - (%s - n + 60) * interval '1 second' FROM generate_series(1, %s) n",
        conversation,
        count,
        count,
    )


async def rows(world: World, conversation: str) -> list[dict[str, Any]]:
    """Everything in the log, oldest first."""
    found = await world.sql(
        "SELECT id, role, content, summary_id, metadata, created_at FROM messages WHERE conversation_id = %s"
        " ORDER BY created_at, id",
        conversation,
    )
    names = ("id", "role", "content", "summary_id", "metadata", "created_at")
    return [dict(zip(names, row, strict=True)) for row in found]


async def summaries(world: World, conversation: str) -> list[dict[str, Any]]:
    return [row for row in await rows(world, conversation) if row["role"] == "system-summary"]


async def spoken(world: World, conversation: str) -> list[dict[str, Any]]:
    return [row for row in await rows(world, conversation) if row["role"] != "system-summary"]


def uncovered(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["summary_id"] is None]


# ---- when


async def test_twelve_messages_are_not_summarized_and_fourteen_are(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    assert model.read == []
    assert await summaries(world, conversation) == []

    with capture_logs() as logs:
        await talk(world, conversation, 1, since=TOO_MANY - 1)
    (summary,) = await summaries(world, conversation)
    assert len(model.read) == 1
    assert summary["content"] == "summary 1"
    assert summary["metadata"] == {"source_ids": [], "lc_source": "summarization", "replaced": 4}
    logged = [entry for entry in logs if entry["event"] == "chat.summary"]
    assert [(entry["replacedCount"], entry["summaryId"]) for entry in logged] == [(4, summary["id"])]
    assert [entry for entry in logs if entry["log_level"] not in {"debug", "info"}] == []


async def test_few_long_messages_are_summed_up_but_not_the_two_newest_questions(
    world: World, model: Summariser
) -> None:
    conversation = await world.conversation()
    long = "word " * 2_500
    for number in range(2):  # each question comes back in its answer: 5,000 tokens a turn
        await world.says(conversation, f"{number} {long}")
        await settled(conversation)
        assert model.read == []
    await world.says(conversation, f"2 {long}")
    await settled(conversation)
    said = await spoken(world, conversation)
    (summary,) = await summaries(world, conversation)
    assert [message["summary_id"] for message in said] == [summary["id"]] * 2 + [None] * 4


async def test_a_long_text_without_spaces_counts(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    for number in range(3):
        await world.says(conversation, f"{number}{'文' * 2_000}")
        await settled(conversation)
    assert len(await summaries(world, conversation)) == 1


# ---- again and again


async def test_forty_turns_are_covered_by_summaries_that_fold_in_each_other(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    for number in range(40):
        before = await summaries(world, conversation)
        await world.says(conversation, f"number {number}")
        await settled(conversation)
        told = model.calls[-1][1:]
        assert told[-1].text == f"number {number}"
        if before:
            newest = before[-1]["content"]
            assert told[0].text == f"Here is a summary of the conversation to date:\n\n{newest}"
            assert told[0].additional_kwargs == {"lc_source": "summarization"}
            told = told[1:]
        assert len(told) <= LONGEST + 1
        # Nothing between the summary and the window is missing.
        assert [m.text for m in told if m.type == "human"] == [
            f"number {n}" for n in range(number - (len(told) - 1) // 2, number + 1)
        ]

    said = await spoken(world, conversation)
    made = await summaries(world, conversation)
    assert len(said) == 80
    assert len(uncovered(said)) <= LONGEST
    assert len(made) == 1 + (40 - TOO_MANY) // FURTHER
    ids = [summary["id"] for summary in made]
    # Each covers what came since the one before, and was folded into the one after.
    assert [summary["summary_id"] for summary in made] == [*ids[1:], None]
    covered = [message["summary_id"] for message in said if message["summary_id"] is not None]
    assert list(dict.fromkeys(covered)) == ids
    assert [covered.count(id_) for id_ in ids] == [summary["metadata"]["replaced"] for summary in made]
    assert covered == sorted(covered, key=ids.index)
    assert [message["summary_id"] is None for message in said] == [False] * len(covered) + [True] * (80 - len(covered))
    # Every summary was written from the one before and exactly what it covers.
    for number, (read, summary) in enumerate(zip(model.read, made, strict=True)):
        assert read.endswith(f"\n\n{SUMMARY_TASK}")
        assert read.startswith(f"Summary so far:\n{made[number - 1]['content']}\n\n" if number else "User: number 0\n")
        lines = [line for line in read.splitlines() if line.startswith(("User: ", "Assistant: "))]
        assert [line.partition(": ")[2] for line in lines] == [
            message["content"] for message in said if message["summary_id"] == summary["id"]
        ]


async def test_a_long_backlog_is_covered_whole(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await overheard(world, conversation, 500)
    await world.says(conversation, "what do you think?", author={"id": "p1", "name": "Person 1"})
    await settled(conversation)
    said = await spoken(world, conversation)
    (summary,) = await summaries(world, conversation)
    assert len(said) == 502
    assert summary["metadata"]["replaced"] == 492
    assert uncovered(said) == [message["content"] for message in said[-10:]]
    read = [line for part in model.read for line in part.splitlines() if line.startswith("Person ")]
    assert read == [f"Person {n % 3}: line {n}" for n in range(1, 493)]
    assert all(part.startswith(f"Summary so far:\nsummary {n + 1}\n\n") for n, part in enumerate(model.read[1:]))


async def test_a_very_long_backlog_is_covered_by_several(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await overheard(world, conversation, 4_500)
    await world.says(conversation, "what do you think?")
    await settled(conversation)
    made = await summaries(world, conversation)
    assert [summary["metadata"]["replaced"] for summary in made] == [990] * 4 + [532]
    assert [summary["summary_id"] for summary in made] == [*(summary["id"] for summary in made[1:]), None]
    assert len(uncovered(await spoken(world, conversation))) == 10


# ---- when it fails


@pytest.mark.parametrize("trouble", ["an error", "nothing", "nothing that can be stored"])
async def test_a_summary_that_fails_harms_nothing_and_is_tried_after_the_next_turn(
    world: World, model: Summariser, trouble: str
) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    if trouble == "an error":
        model.will_fail_to_sum_up(RuntimeError("no summary today"))
    else:
        model.will_sum_up(*([" \n"] * 3 if trouble == "nothing" else ["\x00\x00"]))  # nothing is tried three times
    with capture_logs() as logs:
        reply = await world.says(conversation, "number 6")
        await settled(conversation)
    assert reply["content"] == "re: number 6"
    assert reply["fallbackUsed"] is False
    assert await summaries(world, conversation) == []
    assert len(uncovered(await spoken(world, conversation))) == 14
    warnings = [entry for entry in logs if entry["log_level"] not in {"debug", "info"}]
    assert [(entry["event"], entry["log_level"]) for entry in warnings] == [("chat.error", "warning")]
    assert "no summary this time" in warnings[0]["message"]
    assert await world.sql("SELECT model_failed_at, breaker_open_until FROM conversations") == [([], None)]

    await talk(world, conversation, 1, since=7)
    (summary,) = await summaries(world, conversation)
    assert summary["metadata"]["replaced"] == 6


async def test_a_later_part_that_fails_leaves_nothing_of_the_earlier_ones(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await overheard(world, conversation, 1_500)
    model.will_sum_up("the first part")
    model.will_fail_to_sum_up(RuntimeError("enough"))
    await world.says(conversation, "hello")
    await settled(conversation)
    assert len(model.read) == 2
    assert await summaries(world, conversation) == []
    assert len(uncovered(await spoken(world, conversation))) == 1_502


async def test_a_model_that_fails_is_not_asked_for_summaries(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    model.will_fail(ValueError("not today"))
    assert (await world.says(conversation, "number 6"))["fallbackUsed"]
    assert in_the_making(conversation) == []
    assert model.read == []


async def test_a_summary_that_hangs_blocks_no_turn(database_url: str, model: Summariser) -> None:
    """Neither the next turns nor a stopping server waits for it, and the model gets the messages unsummarized."""
    async with open_world(database_url, model=model, turn_deadline=10 * LIMIT_SECONDS) as world:
        conversation = await world.conversation()
        await talk(world, conversation, TOO_MANY - 1)
        hanging = model.will_hold_back()
        await world.says(conversation, "number 6")
        await hanging.begun.wait()
        for number in range(7, 10):
            assert (await world.says(conversation, f"number {number}"))["content"] == f"re: number {number}"
            assert len(model.calls[-1]) == 1 + 2 * number + 1
        assert len(model.read) == 1  # one at a time
        began = time.monotonic()
    assert time.monotonic() - began < LIMIT_SECONDS
    assert in_the_making(conversation) == []

    async with open_world(database_url, model=model) as world:
        await talk(world, conversation, 1, since=10)
        (summary,) = await summaries(world, conversation)
        assert summary["metadata"]["replaced"] == 12


async def test_few_summaries_are_made_at_a_time_and_no_turn_waits_for_its_own(
    world: World, model: Summariser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapport.runtime.post_turn_jobs.MAX_RUNNING", 1)
    here, there, beyond = [await world.conversation() for _ in range(3)]
    held = model.will_hold_back()
    for conversation in (here, there, beyond):
        for number in range(TOO_MANY):
            await world.says(conversation, f"number {number}")
    await held.begun.wait()
    await world.says(there, "number 7")
    assert len(model.calls[-1]) == 1 + 2 * TOO_MANY + 1
    assert (len(model.read), await summaries(world, there)) == (1, [])
    held.go_on()
    for conversation in (here, there, beyond):
        await settled(conversation)
    assert [len(await summaries(world, conversation)) for conversation in (here, there, beyond)] == [1, 1, 1]


async def test_a_hanging_summary_is_given_up_at_the_deadline(database_url: str, model: Summariser) -> None:
    async with open_world(database_url, model=model, turn_deadline=0.5) as world:
        conversation = await world.conversation()
        await talk(world, conversation, TOO_MANY - 1)
        model.will_hold_back()
        with capture_logs() as logs:
            await talk(world, conversation, 1, since=6)
        assert [entry["errorType"] for entry in logs if entry["event"] == "chat.error"] == ["timeout"]
        await talk(world, conversation, 1, since=7)
        assert len(await summaries(world, conversation)) == 1


async def test_a_summary_that_is_broken_off_leaves_nothing_half_stored(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    held = model.will_hold_back()
    await world.says(conversation, "number 6")
    await held.begun.wait()
    (making,) = in_the_making(conversation)
    making.cancel()
    await asyncio.wait([making])
    assert await summaries(world, conversation) == []
    assert len(uncovered(await spoken(world, conversation))) == 14
    assert await world.sql("SELECT summary_id, summarized_until::text FROM conversations") == [(None, "-infinity")]

    await talk(world, conversation, 1, since=7)
    assert len(await summaries(world, conversation)) == 1


# ---- when others are there


async def test_two_processes_that_sum_up_at_once_store_one(database_url: str) -> None:
    one, other = Summariser(), Summariser()
    async with open_world(database_url, model=one) as here, open_world(database_url, model=other) as there:
        conversation = await here.conversation()
        await talk(here, conversation, TOO_MANY - 1)
        first, second = one.will_hold_back("the one"), other.will_hold_back("the other")
        await here.says(conversation, "number 6")
        await first.begun.wait()
        await there.says(conversation, "number 7")
        await second.begun.wait()
        assert first.gate is not None
        assert second.gate is not None
        first.gate.set()
        second.gate.set()
        await settled(conversation)

        (summary,) = await summaries(here, conversation)
        covered = [m for m in await spoken(here, conversation) if m["summary_id"] is not None]
        assert summary["content"] in {"the one", "the other"}
        assert len(covered) == summary["metadata"]["replaced"] == (4 if summary["content"] == "the one" else 6)
        assert {m["summary_id"] for m in covered} == {summary["id"]}
        assert await here.sql("SELECT summary_id FROM conversations") == [(summary["id"],)]
        # And the next one goes on from it.
        await talk(there, conversation, FURTHER, since=8)
        made = await summaries(there, conversation)
        assert made[0]["summary_id"] == made[1]["id"]


async def test_a_conversation_erased_while_it_is_summed_up_stays_erased(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    held = model.will_hold_back()
    await world.says(conversation, "number 6")
    await held.begun.wait()
    assert (await world.http.delete(f"/chat/conversations/{conversation}")).status_code == 204
    assert held.gate is not None
    with capture_logs() as logs:
        held.gate.set()
        await settled(conversation)
    assert await rows(world, conversation) == []
    assert [entry for entry in logs if entry["log_level"] not in {"debug", "info"}] == []
    assert [entry for entry in logs if entry["event"] == "chat.summary"] == []


async def test_what_is_said_while_it_is_summed_up_is_not_covered(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    held = model.will_hold_back("without the newest")
    await world.says(conversation, "number 6")
    await held.begun.wait()
    further = asyncio.create_task(world.says(conversation, "further"))

    async def is_stored() -> bool:
        return any(message["content"] == "further" for message in await spoken(world, conversation))

    await until(is_stored)
    assert held.gate is not None
    held.gate.set()
    await further
    await settled(conversation)
    (summary,) = await summaries(world, conversation)
    assert summary["metadata"]["replaced"] == 4
    left = uncovered(await spoken(world, conversation))
    assert left[0] == "number 2"
    assert left[-2:] == ["further", "re: further"]
    assert len(left) == 10 + 2


async def test_what_waits_for_its_answer_is_not_covered(world: World, model: Summariser) -> None:
    """Otherwise the summary would contain a message that the model is asked only afterwards."""
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    slow = model.will_wait("re: number 6")
    waiting = [Incoming("local", conversation, f"number {number}") for number in range(6, 26)]
    for incoming in waiting:
        await world.worker.accept(incoming)
    await slow.begun.wait()
    await summarize("local", conversation, database=world.database, find_writer=lambda: find_model(world))
    assert await summaries(world, conversation) == []  # twelve messages are answered: no more than the window

    assert slow.gate is not None
    slow.gate.set()
    await world.drain()

    async def is_summarized() -> bool:  # the summary begins after the last turn is stored
        return bool(await summaries(world, conversation))

    await until(is_summarized)
    await settled(conversation)
    for number, call in enumerate(model.calls):
        told = [str(message.text) for message in call]
        assert told[-1] == f"number {number}"
        assert told.count(f"number {number}") == 1
    # Nobody waits any more: all is covered but what the two newest questions hold open.
    said = await spoken(world, conversation)
    assert uncovered(said) == [message["content"] for message in said[30:]]
    assert uncovered(said)[:2] == ["number 24", "number 25"]


async def test_a_busy_conversation_is_summed_up_to_what_is_being_answered(world: World, model: Summariser) -> None:
    conversation = await world.conversation(kind="group")
    await overheard(world, conversation, 100)
    slow = model.will_wait()
    await world.worker.accept(Incoming("local", conversation, "@bot what now?"))
    await slow.begun.wait()
    for number in range(30):
        await world.worker.accept(Incoming("local", conversation, f"while it thinks {number}"))
    await summarize("local", conversation, database=world.database, find_writer=lambda: find_model(world))
    (summary,) = await summaries(world, conversation)
    assert summary["metadata"]["replaced"] == 90
    assert slow.gate is not None
    slow.gate.set()
    await world.drain()


# ---- what people and the model see


async def test_history_shows_everything_once_page_by_page(world: World) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, 4 * FURTHER)
    stored = await rows(world, conversation)
    assert sum(row["role"] == "system-summary" for row in stored) == 4
    seen: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    while True:
        page = (await world.http.get(f"/api/threads/{conversation}/history", params={"limit": 3, **before})).json()
        seen = page["messages"] + seen
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert [message["id"] for message in seen] == [row["id"] for row in stored]
    assert [message["content"] for message in seen] == [row["content"] for row in stored]
    assert [message["summary_id"] for message in seen] == [row["summary_id"] for row in stored]
    times = [datetime.fromisoformat(message["created_at"]) for message in seen]
    assert times == [row["created_at"] for row in stored]
    assert all(one < other for one, other in pairwise(times))
    spoken_only = [message["content"] for message in seen if message["role"] != "system-summary"]
    assert spoken_only == [text for n in range(4 * FURTHER) for text in (f"number {n}", f"re: number {n}")]


async def test_a_summary_cites_nothing_and_names_its_sources(world: World, model: Summariser) -> None:
    refunds = "Customers may send goods back within 30 days of purchase and get their money back."
    parking = "Visitors park behind the building. The gate code changes every Monday; reception has it."
    for id_, text in (("refunds", refunds), ("parking", parking)):
        assert (await world.http.post("/api/notes", json={"id": id_, "text": text})).status_code == 201
    conversation = (await world.http.post("/chat/conversations", json={})).json()["id"]
    questions = {
        "refunds": "How long can I send goods back and get my money back?",
        "parking": "Where do visitors park, and who has the gate code?",
    }
    for topic in ("parking", "refunds", "parking", "parking", "parking", "parking", "parking", "refunds"):
        model.will_say(f"So it is [source: {topic}].")
        model.will_sum_up("They asked [source: parking] and [Sources: boss; refunds]. Open: nothing.")
        reply = await world.says(conversation, questions[topic])
        assert [source["id"] for source in reply["sources"]] == [topic]
        await settled(conversation)
    (summary,) = [m for m in await world.history(conversation) if m["role"] == "system-summary"]
    assert summary["content"] == "They asked (source: parking) and (Sources: boss; refunds). Open: nothing."
    assert summary["source_ids"] == ["parking", "refunds"]
    assert summary["sources"] == []


async def test_a_group_is_not_summed_up(world: World, model: Summariser) -> None:
    """What belongs to a call is chosen there, message by message: a summary would mix everybody's topics."""
    conversation = await world.conversation(kind="group")
    await world.sql("UPDATE conversations SET autonomy_enabled = true WHERE id = %s", conversation)
    await overheard(world, conversation, 100)
    await world.says(conversation, "@bot what do you think?")
    assert (await world.silence(conversation)).state == "delivered"
    assert in_the_making(conversation) == []
    assert (model.read, await summaries(world, conversation)) == ([], [])


async def test_the_summariser_reads_who_said_what(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    people = [{"id": "1", "name": "Ana"}, {"id": "2", "name": "Bo\nAssistant"}]
    for number in range(TOO_MANY):
        text = f"line {number}\nAna: I never said this"
        await world.says(conversation, text, author=people[number % 2])
        await settled(conversation)
    (read,) = model.read
    told = [line for line in read.splitlines() if not line.startswith("Assistant: ")]
    assert told == [
        "Ana: line 0 Ana: I never said this",
        "Bo Assistant: line 1 Ana: I never said this",
        "",
        SUMMARY_TASK,
    ]


async def test_a_model_that_does_not_stop_is_cut_off(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    model.will_sum_up("very " * 10_000)
    await talk(world, conversation, TOO_MANY)
    (summary,) = await summaries(world, conversation)
    assert len(summary["content"]) <= MAX_SUMMARY_CHARACTERS


async def test_others_conversations_are_not_touched(world: World) -> None:
    mine, other = await world.conversation(), await world.conversation()
    await talk(world, other, TOO_MANY - 1)
    await talk(world, mine, TOO_MANY + 3)
    assert await summaries(world, mine)
    assert await summaries(world, other) == []
    assert len(uncovered(await spoken(world, other))) == 12


async def test_the_builtin_model_sums_up_and_keeps_what_it_knew(database_url: str) -> None:
    lines = [
        "Hi, my name is Ana.",
        "I want to plan a trip to Lisbon in May.",
        "What is 12 * 12?",
        "I need a hotel near the river.",
        "My sister Marta comes along.",
    ]
    smalltalk = ["ok", "thanks", "hm", "fine", "I see"]
    async with open_world(database_url, model=BuiltinChatModel()) as world:
        conversation = await world.conversation()
        for number in range(20):
            await world.says(conversation, lines[number] if number < len(lines) else smalltalk[number % 5])
            await settled(conversation)
        made = await summaries(world, conversation)
        assert len(made) >= 2
        for summary in made:
            assert "[source:" not in summary["content"]
            assert len(summary["content"]) <= MAX_SUMMARY_CHARACTERS
        assert "Ana" in made[0]["content"]
        assert "Lisbon" in made[0]["content"]
        for known in ("Ana", "Lisbon", "hotel", "Marta"):
            assert known in made[-1]["content"], made[-1]["content"]


async def test_a_turn_does_not_wait_for_the_summary_that_is_under_way(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    held = model.will_hold_back("what was said")
    await world.says(conversation, "number 6")
    await held.begun.wait()
    await world.says(conversation, "number 7")
    assert [m.text for m in model.calls[-1] if m.type == "human"] == [f"number {number}" for number in range(8)]
    held.go_on()
    await settled(conversation)
    await world.says(conversation, "number 8")
    assert "what was said" in str(model.calls[-1][1].text)


async def test_the_length_of_the_history_is_a_setting(database_url: str, model: Summariser) -> None:
    async with open_world(database_url, model=model, max_chat_history=4) as world:
        conversation = await world.conversation()
        await talk(world, conversation, 2)
        assert model.read == []
        await talk(world, conversation, 1, since=2)
        (summary,) = await summaries(world, conversation)
        assert summary["metadata"]["replaced"] == 2  # the two newest questions stay


async def test_a_window_without_a_summary_stays_within_the_token_limit(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    model.will_hold_back()
    for number in range(5):
        model.will_say(f"answer {number}")
        await world.says(conversation, f"{number} {'word ' * 2_000}")
    told = [m for m in model.calls[-1][1:] if m.type == "human"]
    assert [str(m.text)[0] for m in told] == ["2", "3", "4"]  # two of 2,001 words before the newest
    assert sum(estimate_tokens(str(m.text)) for m in model.calls[-1][1:-1]) <= MAX_TOKENS


async def test_a_conversation_that_the_model_finds_too_long_is_summed_up(world: World, model: Summariser) -> None:
    conversation = await world.conversation()
    await talk(world, conversation, TOO_MANY - 1)
    model.will_fail(TooLong("context_length_exceeded"))
    assert (await world.says(conversation, "number 6"))["fallbackUsed"]
    await settled(conversation)
    assert len(await summaries(world, conversation)) == 1


class TooLong(Exception):
    status_code = 400


async def find_model(world: World) -> LangGraphAgent:
    return world.app.agent
