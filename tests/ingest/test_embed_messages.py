"""Test the vectors of group messages: made in the background, completed after a crash, deleted with their messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from rapport.agents.profiles import COMPANION
from rapport.domain.conversation import Incoming
from rapport.domain.errors import Transient
from rapport.domain.note import Vector
from rapport.ingest import embed_messages as chat_index
from rapport.ingest.accept import accept
from rapport.ingest.archive_rows import read_jsonl
from rapport.ingest.embed_messages import BATCH_MESSAGES, MAX_CHARACTERS, MAX_REFUSALS, MessageEmbedding, prepare_text
from rapport.ingest.import_messages import import_archive
from rapport.runtime import embedding_loop as indexing
from rapport.runtime.embedding_loop import EmbeddingLoop
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from tests.memory.vectors import HandMade
from tests.storage.explained import Explained, PlanMode, plans
from tests.support.cases import every_case
from tests.support.commands import Run
from tests.support.world import until

MORNING = datetime(2024, 5, 6, 8, 30, tzinfo=UTC)


async def a_chat(database: Database, kind: Any = "group") -> str:
    async with database.statement() as connection:
        return (await Conversations(connection).create("local", agent_id="companion", kind=kind)).id


async def said(database: Database, where: str, *texts: str, **more: Any) -> None:
    for text in texts:
        await accept(database, Incoming("local", where, text, **more), worker_id="somebody", claim=False)


async def rows(database: Database, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    async with database.statement() as connection:
        return await (await connection.execute(query.encode(), parameters)).fetchall()


async def embedded(database: Database, embedder: str = "hand-made") -> list[str]:
    """Return the texts of the messages with a vector, in their order."""
    found = await rows(
        database,
        "SELECT m.content FROM message_vectors v JOIN messages m ON m.conversation_id = v.conversation_id"
        " AND m.id = v.message_id WHERE v.embedder = %s ORDER BY m.created_at",
        embedder,
    )
    return [row[0] for row in found]


async def catch_up(index: MessageEmbedding) -> int:
    """Embed all pending messages; return the number of vectors."""
    made = 0
    while behind := await index.list_pending_groups():
        for where in behind:
            made += (await index.embed_next(where)).embedded_count
    return made


@asynccontextmanager
async def at_work(loop: EmbeddingLoop) -> AsyncGenerator[None]:
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_what_is_said_in_a_group_gets_its_vector_once(database: Database) -> None:
    where, alone = await a_chat(database), await a_chat(database, "direct")
    await said(database, where, "shall we?", "gladly")
    await said(database, alone, "this is between us")
    embedder = HandMade()
    index = MessageEmbedding(database, embedder)
    assert await index.list_pending_groups() == [where]
    assert await catch_up(index) == 2
    assert await embedded(database) == ["shall we?", "gladly"]
    assert await index.list_pending_groups() == []
    await said(database, where, "when?")
    assert await index.list_pending_groups() == [where]
    assert await catch_up(index) == 1
    assert embedder.asked == ["shall we?", "gladly", "when?"]
    assert (await index.embed_next(where)).embedded_count == 0
    assert await rows(database, "SELECT vectors FROM embedding_progress") == [(3,)]


async def test_triggers_summaries_and_messages_without_words_get_no_vector(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "@bot", "\u200b\u2060", "👍", "hello")
    await said(database, where, "beep", is_bot=True)
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, metadata, created_at)"
            " SELECT id, 's', owner_id, 'user', 'Continue', '{\"synthetic\": true}'::jsonb, last_at - interval '1 s' FROM conversations"
        )
        await connection.execute(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
            " SELECT id, 'sum', owner_id, 'system-summary', 'They talked', last_at - interval '2 s' FROM conversations"
        )
    index = MessageEmbedding(database, HandMade())
    await catch_up(index)
    assert await embedded(database) == ["👍", "hello", "beep"]
    assert await index.list_pending_groups() == []


@every_case(
    ("text", "words"),
    [
        ("@bot what do you think?", "what do you think?"),
        ("so, @Companion: tea?", "so, : tea?"),
        ("/ask@bot about tea", "about tea"),
        ("mail me@bot.example", "mail me@bot.example"),
        ("  @bot\n\n^ ", "^"),
        ("@bot", ""),
        ("x" * 5_000, "x" * MAX_CHARACTERS),
    ],
)
def test_that_the_agent_is_called_is_not_what_a_message_means(text: str, words: str) -> None:
    assert prepare_text(text) == words


async def test_hostile_words_are_embedded_like_others(database: Database) -> None:
    where = await a_chat(database)
    texts = ["x" * 30_000, "שלום עולם \u202e abc", "👍🏽" * 50, "`@bot`" * 100, "a\u0301" * 900, "​"]
    await said(database, where, *texts)
    index = MessageEmbedding(database, HandMade())
    assert await catch_up(index) == len(texts) - 1
    assert await index.list_pending_groups() == []


async def test_a_long_chat_is_embedded_stretch_by_stretch(database: Database) -> None:
    where, other = await a_chat(database), await a_chat(database)
    await said(database, where, *(f"number {n}" for n in range(2 * BATCH_MESSAGES + 5)))
    await said(database, other, "a word")
    index = MessageEmbedding(database, HandMade())
    assert await index.embed_next(where) == (BATCH_MESSAGES, True)
    assert await index.embed_next(where) == (BATCH_MESSAGES, True)
    assert await index.embed_next(where) == (5, False)
    assert await index.list_pending_groups() == [other]


async def test_a_chat_of_exactly_one_batch_is_embedded(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, *(f"number {n}" for n in range(BATCH_MESSAGES)))
    index = MessageEmbedding(database, HandMade())
    assert await catch_up(index) == BATCH_MESSAGES
    assert await index.list_pending_groups() == []


async def test_what_a_crash_left_is_found_at_the_next_start(database: Database) -> None:
    """Killed between a message and its vector, or in the middle of many."""
    where = await a_chat(database)
    await said(database, where, *(f"number {n}" for n in range(BATCH_MESSAGES + 10)))
    await MessageEmbedding(database, HandMade()).embed_next(where)  # and then the process is gone
    loop = EmbeddingLoop(MessageEmbedding(database, HandMade()))
    async with at_work(loop):

        async def complete() -> bool:
            return len(await embedded(database)) == BATCH_MESSAGES + 10

        await until(complete)


async def test_several_processes_may_do_the_same_work(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, *(f"number {n}" for n in range(3 * BATCH_MESSAGES)))
    await asyncio.gather(*(catch_up(MessageEmbedding(database, HandMade())) for _ in range(3)))
    assert len(await embedded(database)) == 3 * BATCH_MESSAGES
    assert await rows(database, "SELECT vectors FROM embedding_progress") == [(3 * BATCH_MESSAGES,)]
    assert await MessageEmbedding(database, HandMade()).list_pending_groups() == []


async def test_speaking_while_others_are_embedded_loses_nothing(database: Database) -> None:
    where = await a_chat(database)
    index = MessageEmbedding(database, HandMade())
    await asyncio.gather(
        *(said(database, where, *(f"{who} {n}" for n in range(40))) for who in ("ana", "ben", "eve")),
        *(catch_up(index) for _ in range(3)),
    )
    await catch_up(index)
    assert len(await embedded(database)) == 120


async def test_an_embedder_that_is_away_is_asked_again_and_mentioned_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "MAX_BACKOFF_SECONDS", 0.01)
    where = await a_chat(database)
    await said(database, where, "hello")
    embedder = HandMade(fails=Transient("The embedder is away."))
    loop = EmbeddingLoop(MessageEmbedding(database, embedder))
    monkeypatch.setattr(loop, "_pause", 0.01)
    with capture_logs() as logs:
        async with at_work(loop):
            tried: list[int] = []
            embed = embedder.embed

            async def counted(texts: list[str]) -> list[Vector]:
                tried.append(len(texts))
                return await embed(texts)

            monkeypatch.setattr(embedder, "embed", counted)
            await until(lambda: len(tried) >= 3)
            embedder.fails = None

            async def done() -> bool:
                return await embedded(database) == ["hello"]

            await until(done)
    assert [one["event"] for one in logs] == ["messages.not_embedded"]
    assert logs[0]["reason"] == "The embedder is away."


@dataclass
class Picky(HandMade):
    """An embedder that refuses texts with a certain word."""

    word: str = "poison"

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if any(self.word in text for text in texts):
            raise Transient("It answered with 400.")
        return await super().embed(texts)


@pytest.mark.parametrize(
    "texts", [("fine", "poison", "fine too"), ("poison",), ("poison", "more poison"), ("fine", "poison")]
)
async def test_a_text_that_the_embedder_refuses_holds_up_no_others(database: Database, texts: tuple[str, ...]) -> None:
    where = await a_chat(database)
    await said(database, where, *texts)
    embedder = Picky()
    index = MessageEmbedding(database, embedder)
    with capture_logs() as logs:
        while (await index.embed_next(where)).has_more:
            pass
    assert len(logs) == MAX_REFUSALS
    assert logs[0]["messages"] == sum("poison" in text for text in texts)
    assert await embedded(database) == [text for text in texts if "poison" not in text]
    assert await index.list_pending_groups() == []
    await said(database, where, "and on it goes")
    await catch_up(index)
    assert (await embedded(database))[-1] == "and on it goes"
    assert embedder.asked.count("fine") == texts.count("fine")


async def test_what_is_refused_once_only_gets_its_vector(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "one", "two", "three")
    embedder = Picky(word="two")
    index = MessageEmbedding(database, embedder)
    assert await index.embed_next(where) == (2, True)
    embedder.word = "nothing"
    assert await index.embed_next(where) == (1, False)
    assert await embedded(database) == ["one", "two", "three"]


async def test_while_the_embedder_is_away_nothing_is_given_up(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "one", "two")
    embedder = HandMade(fails=Transient("The embedder is away."))
    index = MessageEmbedding(database, embedder)
    for _ in range(2 * MAX_REFUSALS):
        with pytest.raises(Transient, match="is away"):
            await index.embed_next(where)
    embedder.fails = None
    assert await catch_up(index) == 2


async def test_what_is_noticed_is_embedded_at_once_and_an_import_with_the_next_look_round(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "BATCH_DELAY_SECONDS", 0.01)
    where = await a_chat(database)
    loop = EmbeddingLoop(MessageEmbedding(database, HandMade()))

    async def has(count: int) -> None:
        async def complete() -> bool:
            return len(await embedded(database)) == count

        await until(complete)

    async with at_work(loop):
        await said(database, where, "one")
        loop.enqueue(where)
        await has(1)
        await said(database, where, "two")
        loop.enqueue(where)
        await has(2)
    monkeypatch.setattr(indexing, "SWEEP_INTERVAL_SECONDS", 0.05)
    async with at_work(loop):
        await has(2)
        await imported(database, where, 3)
        await has(5)


async def imported(database: Database, where: str, count: int) -> None:
    """Import this many messages of years ago."""
    lines = [
        {
            "id": n,
            "author": f"u{n % 3}",
            "text": f"long ago {n}",
            "created_at": (MORNING + timedelta(minutes=n)).isoformat(),
        }
        for n in range(count)
    ]
    archive = read_jsonl(
        [json.dumps(line).encode() for line in lines], agent=COMPANION, now=datetime.now(UTC), chat="old"
    )
    await import_archive(database, archive, owner_id="local", agent_id="companion", conversation_id=where)


async def test_an_import_into_the_past_of_a_live_group_is_embedded_too(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "live")
    index = MessageEmbedding(database, HandMade())
    await catch_up(index)
    await imported(database, where, 5)
    assert await index.list_pending_groups() == [where]
    assert await catch_up(index) == 5
    assert (await embedded(database))[-2:] == ["long ago 4", "live"]
    await imported(database, where, 5)  # nothing new in it
    assert await index.list_pending_groups() == []


async def test_an_import_that_ends_while_a_group_is_embedded_is_not_missed(database: Database) -> None:
    """The imported rows become visible after the scan has passed their place, or before it has started."""
    where = await a_chat(database)
    await said(database, where, "live")
    index = MessageEmbedding(database, HandMade())
    importing = asyncio.create_task(imported(database, where, 2_500))
    while not importing.done():
        await catch_up(index)
    await importing
    await catch_up(index)
    assert len(await embedded(database)) == 2_501


async def told_elsewhere(database: Database, where: str, row_id: str, text: str, at: datetime) -> None:
    line = {"id": row_id, "author": "Ann", "text": text, "created_at": at.isoformat()}
    archive = read_jsonl([json.dumps(line).encode()], agent=COMPANION, now=datetime.now(UTC), chat="old")
    await import_archive(database, archive, owner_id="local", agent_id="companion", conversation_id=where)


@dataclass
class Gated(HandMade):
    """An embedder that waits until it is released."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.begun.set()
        await self.gate.wait()
        return await super().embed(texts)


@pytest.mark.parametrize("is_first_walk", [True, False])
async def test_an_import_while_a_stretch_is_embedded_is_not_missed(database: Database, is_first_walk: bool) -> None:
    """Its rows lie between the stored progress and the next one, and the scan has not seen them."""
    where = await a_chat(database)
    await said(database, where, "live")
    if not is_first_walk:
        await catch_up(MessageEmbedding(database, HandMade()))
        await told_elsewhere(database, where, "1", "an early one", MORNING)
    embedder = Gated()
    index = MessageEmbedding(database, embedder)
    under_way = asyncio.create_task(index.embed_next(where))
    await embedder.begun.wait()
    await told_elsewhere(database, where, "2", "a late one", MORNING + timedelta(hours=1))
    embedder.gate.set()
    assert (await under_way).has_more
    assert await index.list_pending_groups() == [where]
    await catch_up(index)
    assert await embedded(database) == ([] if is_first_walk else ["an early one"]) + ["a late one", "live"]
    assert not (await index.embed_next(where)).has_more


async def test_erasing_a_group_erases_its_vectors_also_those_just_being_made(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "secret")
    index = MessageEmbedding(database, HandMade())
    await catch_up(index)
    await said(database, where, "another secret")
    gate, begun = asyncio.Event(), asyncio.Event()

    class Slow(HandMade):
        async def embed(self, texts: Any) -> list[Vector]:
            begun.set()
            await gate.wait()
            return await super().embed(texts)

    under_way = asyncio.create_task(MessageEmbedding(database, Slow()).embed_next(where))
    await begun.wait()
    async with database.transaction() as connection:
        await Conversations(connection).delete("local", where)
    gate.set()
    await under_way
    assert await rows(
        database, "SELECT (SELECT count(*) FROM message_vectors), (SELECT count(*) FROM embedding_progress)"
    ) == [(0, 0)]
    assert (await index.embed_next(where)).has_more is False


async def test_a_message_that_is_taken_back_takes_its_vector_with_it(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "stays", "goes")
    await catch_up(MessageEmbedding(database, HandMade()))
    await rows(database, "DELETE FROM messages WHERE content = 'goes' RETURNING id")
    assert await embedded(database) == ["stays"]


async def test_vectors_of_another_length_get_an_index_of_their_own(database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "hello")
    await catch_up(MessageEmbedding(database, HandMade()))
    assert await rows(database, "SELECT to_regclass('message_vectors_near_64') IS NOT NULL") == [(True,)]


@pytest.mark.e2e
async def test_reindex_moves_what_was_said_to_another_embedder(rapport: Run, database: Database) -> None:
    where = await a_chat(database)
    await said(database, where, "shall we?", "gladly", "@bot")
    await catch_up(MessageEmbedding(database, HandMade()))
    assert await embedded(database) == ["shall we?", "gladly"]
    moved = await asyncio.to_thread(rapport, "reindex", RAPPORT_EMBEDDINGS="wordllama")
    assert moved == (0, "Indexed 2 messages of groups anew.\nEvery note is indexed already.\n", "")
    ((embedder,),) = await rows(database, "SELECT DISTINCT embedder FROM message_vectors")
    assert embedder.startswith("wordllama")
    assert await embedded(database, embedder) == ["shall we?", "gladly"]
    assert await rows(database, "SELECT embedder, vectors FROM embedding_progress") == [(embedder, 2)]
    again = await asyncio.to_thread(rapport, "reindex", RAPPORT_EMBEDDINGS="wordllama")
    assert again == (0, "Every note is indexed already.\n", "")


@plans
async def test_groups_with_missing_vectors_are_found_without_reading_messages(
    database: Database, mode: PlanMode
) -> None:
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO conversations (id, owner_id, agent_id, kind, channel, last_at)"
            " SELECT 'c' || lpad(n::text, 6, '0'), 'local', 'companion', CASE WHEN n % 10 = 0 THEN 'group' ELSE 'direct' END,"
            " 'api', now() FROM generate_series(1, 20000) n"
        )
        await connection.execute(
            "INSERT INTO embedding_progress (conversation_id, embedder, owner_id, embedded_until)"
            " SELECT id, 'hand-made', owner_id, last_at - CASE WHEN id LIKE '%500' THEN 1 ELSE 0 END * interval '1 s'"
            " FROM conversations WHERE kind = 'group' AND id <> 'c000010'"
        )
        await connection.execute("VACUUM ANALYZE conversations, embedding_progress")
        explained = Explained(connection, mode)
        behind = await chat_index.MessageVectors(explained.as_connection).list_behind("hand-made", limit=1_000)
    assert behind[:2] == ["c000010", "c000500"]
    assert len(behind) == 21
    assert {node.get("Relation Name") for node in explained.nodes()} <= {None, "conversations", "embedding_progress"}
    assert explained.walked("conversations") <= 2_000
