"""Test checkpoints: kept for a day, at a cost that does not grow with the conversation, and written in batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from ulid import ULID

from rapport.agents.graph import LangGraphAgent
from rapport.domain.ids import new_id
from rapport.domain.synthetic import is_synthetic
from rapport.storage.work.checkpoints import MAX_PENDING, Checkpoints, checkpoint_pool
from tests.support.world import ScriptedModel, World, until

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
TRIGGER_TYPES = ("check_in", "question_unanswered", "task_incomplete", "waiting_for_decision")

# What Postgres, JSON and MessagePack can hold of text: everything but NUL and halves of surrogate pairs.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)
REASON = TEXT | st.sampled_from(["👩‍👩‍👧‍👦 🇧🇷", "שלום, 世界", "‮right to left", "é vs é", '"quoted" \\ {json: true}'])


def tags_of(trigger: str, reason: str | None) -> dict[str, Any]:
    tags = {"synthetic": True, "trigger_type": trigger, "lc_source": "autonomy"}
    return tags if reason is None else {**tags, "trigger_reason": reason}


TAGS = st.builds(tags_of, st.sampled_from(TRIGGER_TYPES), st.none() | REASON)
BLOCK = st.one_of(
    TEXT.map(lambda text: {"type": "text", "text": text}),
    st.just({"type": "image", "url": "https://example.org/cat.png"}),
    st.just({"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}),
)
CONTENT: st.SearchStrategy[Any] = TEXT | st.lists(BLOCK, min_size=1, max_size=4)


@asynccontextmanager
async def savers(url: str) -> AsyncGenerator[tuple[Checkpoints, Checkpoints]]:
    """Two savers on one database, as two processes have them."""
    async with checkpoint_pool(url) as first, checkpoint_pool(url) as second:
        yield Checkpoints(first), Checkpoints(second)


def agent_on(saver: Checkpoints) -> LangGraphAgent:
    return LangGraphAgent(ScriptedModel(), saver, deadline=10)


async def messages_of(saver: Checkpoints, thread: str) -> Sequence[BaseMessage]:
    """The messages of a turn as its checkpoint has them."""
    state = await agent_on(saver).graph.aget_state({"configurable": {"thread_id": thread}})
    return state.values.get("messages", [])


def count(url: str, table: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
        assert row is not None
        return int(row[0])


async def test_metadata_comes_back_as_it_was(database_url: str) -> None:
    """metadata round trip 100 %"""
    cases: list[tuple[Any, dict[str, Any]]] = []

    @settings(max_examples=150, database=None)
    @given(content=CONTENT, tags=TAGS)
    def collect(content: Any, tags: dict[str, Any]) -> None:
        cases.append((content, tags))

    collect()
    async with savers(database_url) as (writer, reader):
        agent = agent_on(writer)
        written: dict[str, HumanMessage] = {}
        for content, tags in cases:
            thread = new_id()
            written[thread] = HumanMessage(content, id=thread, additional_kwargs=dict(tags))
            await agent.run(written[thread], thread_id=thread, system="be kind", fresh=True)
        await writer.flush()
        for (thread, message), (content, tags) in zip(written.items(), cases, strict=True):
            [found] = await messages_of(reader, thread)
            assert found.additional_kwargs == tags
            assert [type(value) for value in found.additional_kwargs.values()] == [
                type(value) for value in tags.values()
            ]
            assert isinstance(found, HumanMessage)
            assert (found.content, found.id) == (content, message.id)
            assert is_synthetic(found)
    assert {tags["trigger_type"] for _, tags in cases} == set(TRIGGER_TYPES)
    assert {"trigger_reason" in tags for _, tags in cases} == {True, False}
    assert {type(content) for content, _ in cases} == {str, list}


async def test_each_message_of_a_window_keeps_its_own_tags(database_url: str) -> None:
    async with savers(database_url) as (writer, reader):
        tags = {"synthetic": True, "trigger_type": "check_in"}
        history = [HumanMessage("real"), HumanMessage("made", additional_kwargs=dict(tags)), HumanMessage("real again")]
        thread = new_id()
        await agent_on(writer).run("now", thread_id=thread, system="", history=history, fresh=True)
        await writer.flush()
        found = await messages_of(reader, thread)
        assert [message.additional_kwargs for message in found] == [{}, tags, {}, {}]
        assert [is_synthetic(message) for message in found] == [False, True, False, False]


async def test_the_agent_takes_words_or_a_message(database_url: str) -> None:
    async with savers(database_url) as (writer, reader):
        agent = agent_on(writer)
        words, message = new_id(), new_id()
        assert (await agent.run("hello", thread_id=words, system="")).text == "re: hello"
        assert (await agent.run(HumanMessage("hello"), thread_id=message, system="")).text == "re: hello"
        await writer.flush()
        for thread in (words, message):
            [found] = await messages_of(reader, thread)
            assert isinstance(found, HumanMessage)
            assert (found.content, found.additional_kwargs) == ("hello", {})


async def test_checkpoints_are_written_together(database_url: str) -> None:
    async with savers(database_url) as (writer, reader):
        agent = agent_on(writer)
        threads = [new_id() for _ in range(5)]
        for thread in threads:
            await agent.run("hello", thread_id=thread, system="", fresh=True)
        assert count(database_url, "checkpoints") == 0
        await writer.flush()
        assert count(database_url, "checkpoints") == 5
        await writer.flush()
        assert [len(await messages_of(reader, thread)) for thread in threads] == [1] * 5


async def test_no_more_than_a_batch_is_ever_pending(database_url: str) -> None:
    async with savers(database_url) as (writer, _):
        agent = agent_on(writer)
        for _ in range(MAX_PENDING):
            await agent.run("hello", thread_id=new_id(), system="", fresh=True)
        assert count(database_url, "checkpoints") == MAX_PENDING


async def test_reading_finds_what_was_not_written_yet(database_url: str) -> None:
    async with savers(database_url) as (writer, _):
        thread = new_id()
        await agent_on(writer).run("hello", thread_id=thread, system="", fresh=True)
        assert [message.text for message in await messages_of(writer, thread)] == ["hello"]


async def test_a_deleted_thread_leaves_nothing(database_url: str) -> None:
    async with savers(database_url) as (writer, _):
        gone, kept = new_id(), new_id()
        for thread in (gone, kept):
            await agent_on(writer).run("hello", thread_id=thread, system="", fresh=True)
        await writer.adelete_thread(gone)
        assert await messages_of(writer, gone) == []
        assert len(await messages_of(writer, kept)) == 1
        assert count(database_url, "checkpoints") == 1


async def test_a_turn_that_is_run_again_finds_its_thread(database_url: str) -> None:
    """As after a crash: the same event, tried a second time."""
    async with savers(database_url) as (first, second):
        thread = new_id()
        await agent_on(first).run("hello", thread_id=thread, system="", fresh=True)
        await first.flush()
        assert (await agent_on(second).run("hello", thread_id=thread, system="", fresh=False)).text == "re: hello"
        assert [message.text for message in await messages_of(second, thread)] == ["hello"]


async def test_only_old_checkpoints_are_swept(database_url: str) -> None:
    now = datetime.now(UTC)
    old = [str(ULID.from_datetime(now - timedelta(hours=hours))) for hours in (25, 30, 1000)]
    new = [str(ULID.from_datetime(now - timedelta(hours=hours))) for hours in (0, 1, 23)]
    async with savers(database_url) as (writer, reader):
        agent = agent_on(writer)
        for thread in (*old, *new):
            await agent.run("hello", thread_id=thread, system="", fresh=True)
        await writer.flush()
        assert await writer.sweep(now - timedelta(days=1)) > 0
        assert [await messages_of(reader, thread) for thread in old] == [[], [], []]
        assert [len(await messages_of(reader, thread)) for thread in new] == [1, 1, 1]
        assert await writer.sweep(now - timedelta(days=1)) == 0
    for table in TABLES:
        with psycopg.connect(database_url, autocommit=True) as connection:
            found = connection.execute(f"SELECT DISTINCT thread_id FROM {table}".encode()).fetchall()
        assert {row[0] for row in found} <= set(new), table


async def largest_blob(world: World) -> int:
    async def written() -> bool:
        [(behind,)] = await world.sql(
            "SELECT count(*) FROM events WHERE trigger_type IS NOT NULL AND id NOT IN (SELECT thread_id FROM checkpoints)"
        )
        return behind == 0

    await until(written)
    [(size,)] = await world.sql(
        "SELECT greatest((SELECT max(length(blob)) FROM checkpoint_blobs),"
        " (SELECT max(length(checkpoint::text)) FROM checkpoints))"
    )
    return int(size)


async def test_checkpoints_do_not_grow_with_the_conversation(world: World) -> None:
    sizes: list[int] = []
    for length in (10, 40):
        conversation = await world.conversation()
        for number in range(length):
            await world.says(conversation, f"message number {number:04d}")
        await world.silence(conversation)
        sizes.append(await largest_blob(world))
    assert sizes[1] <= 2 * sizes[0]  # no more than the window, which a summary that is being made lets grow a little
    # One checkpoint a follow-up. Answers leave none (ADR 71).
    [(turns, checkpoints)] = await world.sql("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM checkpoints)")
    assert (turns, checkpoints) == (52, 2)


@dataclass
class Intruder:
    """Something that only an attacker would put into a checkpoint."""

    command: str


async def test_no_code_is_revived_from_a_checkpoint(database_url: str) -> None:
    """What is read back is messages and plain values; anything else stays data."""
    trusting = JsonPlusSerializer(allowed_msgpack_modules=True)
    stored = trusting.dumps_typed([HumanMessage("hi"), Intruder("rm -rf")])
    assert isinstance(trusting.loads_typed(stored)[1], Intruder)
    async with savers(database_url) as (saver, _):
        message, other = saver.serde.loads_typed(stored)
        assert message == HumanMessage("hi")
        assert not isinstance(other, Intruder)
