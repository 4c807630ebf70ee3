"""Test what a scope reads: collections, shared notes, one note an id, and only the rows that belong to it (by EXPLAIN)."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from rapport.domain.conversation import Incoming
from rapport.domain.ids import new_id
from rapport.domain.note import Chunk, NoteCounts, PassageSearchResult, Vector
from rapport.domain.note_scope import NoteScope, NoteSettings
from rapport.ingest.accept import accept
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Connection, Database
from rapport.storage.notes.note_index import NoteIndex
from rapport.storage.notes.notes import NewNote, Notes
from rapport.storage.notes.passage_search import EXACT_CHUNKS, PassageSearch
from rapport.storage.notes.visible_notes import VisibleNotes
from rapport.storage.vector_index import ensure_vector_index
from rapport.storage.work.turn_input import load_turn_input
from tests.storage.explained import MODES, Explained, PlanMode

EMBEDDER = "by-hand"
SIZE = 8
MANY, CHUNKS_A_NOTE = 20_000, 10

PATHS = pytest.mark.parametrize("own", [10, EXACT_CHUNKS + 1], ids=["exact", "indexed"])
"""The search compares one by one, or asks the index, by how many chunks it is told that there are."""


def towards(similarity: float) -> Vector:
    return [similarity, (1 - similarity**2) ** 0.5, *[0.0] * (SIZE - 2)]


@pytest.fixture
async def shelf(database: Database) -> Database:
    """A database with an index for vectors of this size."""
    async with database.statement() as connection:
        await ensure_vector_index(connection, "sentence_vectors", SIZE)
    return database


async def store(
    database: Database,
    owner: str,
    note_id: str,
    text: str,
    similarity: float,
    *,
    collections: Sequence[str] = (),
    shared_with: str | None = None,
) -> None:
    note = NewNote(
        owner_id=owner,
        id=note_id,
        title=note_id.title(),
        text=text,
        hash=text.encode(),
        file_name=None,
        embedder=EMBEDDER,
        chunks=[(Chunk("", text), [towards(similarity)])],
        settings=NoteSettings(tuple(collections), shared_with, by_operator=True),
    )
    async with database.transaction() as connection:
        await Notes(connection).put(note, replace=False)


async def make_group(database: Database, owner: str) -> str:
    async with database.statement() as connection:
        return (await Conversations(connection).create(owner, agent_id="librarian", kind="group")).id


async def search(
    database: Database, scope: NoteScope, question: str = "zebra", *, own: int = 10, shared: int = 10
) -> PassageSearchResult:
    return await PassageSearch(database).find_passages(
        scope,
        embedder=EMBEDDER,
        question=question,
        vector=towards(1.0),
        counts=NoteCounts(own, None, shared),
        limit=20,
    )


def texts(found: PassageSearchResult) -> list[str]:
    return sorted(passage.text for passage in found.passages)


@PATHS
async def test_a_person_finds_their_own_notes_and_those_shared_with_them(shelf: Database, own: int) -> None:
    group, foreign = await make_group(shelf, "ana"), await make_group(shelf, "cleo")
    await store(shelf, "ana", "mine", "hers alone", 0.5)
    await store(shelf, "ben", "secret", "the zebra of ben", 0.9)
    await store(shelf, "ben", "public", "a zebra for all", 0.8, shared_with="everyone")
    await store(shelf, "ben", "club", "a zebra for the group", 0.7, shared_with=group)
    await store(shelf, "ben", "other", "a zebra for others", 0.95, shared_with=foreign)

    in_group = await search(shelf, NoteScope("ana", group), own=own)
    assert texts(in_group) == ["a zebra for all", "a zebra for the group", "hers alone"]
    assert {passage.note_id: passage.shared_by for passage in in_group.passages} == {
        "mine": None,
        "public": "ben",
        "club": "ben",
    }
    assert in_group.best == pytest.approx(0.8, abs=2e-3)
    assert texts(await search(shelf, NoteScope("ana", new_id()), own=own)) == ["a zebra for all", "hers alone"]
    assert texts(await search(shelf, NoteScope("ana"), own=own)) == texts(in_group)
    assert texts(await search(shelf, NoteScope("dora"), own=own)) == ["a zebra for all"]
    assert "hers alone" not in texts(await search(shelf, NoteScope("ben"), own=own))


@PATHS
async def test_collections_limit_the_search_to_notes_of_that_name(shelf: Database, own: int) -> None:
    await store(shelf, "ana", "leave", "thirty days of leave", 0.5, collections=["hr", "handbook"])
    await store(shelf, "ana", "beer", "a recipe of beer", 0.9, collections=["kitchen"])
    await store(shelf, "ana", "loose", "in no collection", 0.8)
    await store(shelf, "ben", "travel", "rules of travel", 0.6, collections=["hr"], shared_with="everyone")
    await store(shelf, "ben", "pay", "the pay of ben", 0.7, collections=["hr"])
    both = ["rules of travel", "thirty days of leave"]
    assert texts(await search(shelf, NoteScope("ana", collections=("HR",)), own=own)) == both
    assert texts(await search(shelf, NoteScope("ana", collections=("hr", "handbook")), own=own)) == both
    assert texts(await search(shelf, NoteScope("ana", collections=("handbook",)), own=own)) == both[1:]
    assert await search(shelf, NoteScope("ana", collections=("nothing",)), own=own) == PassageSearchResult(0.0)
    index = NoteIndex(shelf)
    counts = [
        await index.count_passages(NoteScope("ana", collections=names), EMBEDDER)
        for names in (("hr",), ("hr", "handbook"), ("nothing",), ())
    ]
    assert counts == [2, 2, 0, 4]


@PATHS
async def test_an_id_stands_for_one_note(shelf: Database, own: int) -> None:
    """The own one before a shared one, everyone's before a group's, the older before the newer; whatever the collection."""
    group = await make_group(shelf, "ana")
    await store(shelf, "ana", "rules", "the rules of ana", 0.4)
    await store(shelf, "ben", "rules", "the rules of ben", 0.9, shared_with="everyone", collections=["hr"])
    await store(shelf, "cleo", "menu", "the older menu", 0.5, shared_with=group)
    await store(shelf, "ben", "menu", "the menu of all", 0.6, shared_with="everyone")
    await store(shelf, "cleo", "hours", "the older hours", 0.3, shared_with="everyone")
    await store(shelf, "ben", "hours", "the newer hours", 0.7, shared_with="everyone")
    scope = NoteScope("ana", group)
    visible = ["the menu of all", "the older hours", "the rules of ana"]
    assert texts(await search(shelf, scope, own=own)) == visible
    _, listed = await NoteIndex(shelf).list_recent(scope, limit=20, characters=100)
    assert sorted(passage.text for passage in listed) == visible
    async with shelf.statement() as connection:
        read = [await VisibleNotes(connection).read(scope, note_id) for note_id in ("menu", "hours", "rules")]
        assert [text for _, text in read] == visible
        assert [note.owner_id for note, _ in read] == ["ben", "cleo", "ana"]
        assert len(await VisibleNotes(connection).list_page(scope, limit=20)) == 3
    for name, text in (("rules", "the rules of ana"), ("hours", "the older hours"), ("menu", "the menu of all")):
        _, named = await NoteIndex(shelf).find_by_name(scope, name, notes=2, passages=8)
        assert [passage.text for passage in named] == [text]
    # Her own note hides the shared one also where only the shared one is in the collection: its id is not its own.
    assert texts(await search(shelf, NoteScope("ana", collections=("hr",)), own=own)) == []
    assert texts(await search(shelf, NoteScope("dora", collections=("hr",)), own=own)) == ["the rules of ben"]


async def test_a_turn_counts_what_is_shared_with_it(shelf: Database) -> None:
    group = await make_group(shelf, "ana")
    await store(shelf, "ana", "mine", "hers", 0.5, shared_with="everyone")
    await store(shelf, "ben", "secret", "his", 0.5)
    await store(shelf, "ben", "public", "for all", 0.5, shared_with="everyone")
    await store(shelf, "ben", "club", "for the group", 0.5, shared_with=group)
    assert await count_for_turn(shelf, "ana", group, "group") == NoteCounts(1, None, 2)
    assert await count_for_turn(shelf, "ana", None, "direct") == NoteCounts(1, None, 1)
    assert await count_for_turn(shelf, "dora", None, "direct") == NoteCounts(0, None, 2)
    async with shelf.statement() as connection:
        assert await VisibleNotes(connection).get_counts("ana", EMBEDDER) == NoteCounts(1, None, 2)
        assert await VisibleNotes(connection).get_counts("ana", "another") == NoteCounts(0, None, 0)


async def count_for_turn(database: Database, owner: str, conversation: str | None, kind: str) -> NoteCounts:
    if conversation is None:
        async with database.statement() as connection:
            conversation = (await Conversations(connection).create(owner, agent_id="librarian")).id
    asked = Incoming(owner, conversation, "@bot and now?", mentions_agent=True)
    accepted = await accept(database, asked, worker_id="somebody", claim=True)
    assert accepted.claimed is not None
    assert accepted.claimed.kind == kind
    async with database.statement() as connection:
        loaded = await load_turn_input(connection, accepted.claimed, limit=12, embedder=EMBEDDER)
    assert loaded is not None
    return loaded.note_counts


# The plans, among 20,000 passages of one owner


class ExplainedDatabase:
    """A database that runs EXPLAIN for the statements of its one connection."""

    def __init__(self, connection: Connection, mode: PlanMode) -> None:
        self.explained = Explained(connection, mode)

    @asynccontextmanager
    async def statement(self) -> AsyncGenerator[Connection]:
        yield self.explained.as_connection

    @property
    def as_database(self) -> Database:
        return cast("Database", self)

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.explained.nodes() if "Index Name" in node}


FILL = f"""
INSERT INTO notes (owner_id, id, title, text, hash, embedder, chunks)
SELECT owner, 'n' || n, 'Note ' || n, 'words', ''::bytea, '{EMBEDDER}', {CHUNKS_A_NOTE}
FROM unnest(ARRAY['ana', 'ben']) AS owner,
     generate_series(1, CASE owner WHEN 'ana' THEN {MANY // CHUNKS_A_NOTE} ELSE 100 END) AS n;
INSERT INTO chunks (owner_id, note_id, position, embedder, heading, text, words)
SELECT owner_id, id, p, embedder, '', 'word' || p || ' of ' || id, to_tsvector('english', 'word' || p || ' of ' || id)
FROM notes, generate_series(0, {CHUNKS_A_NOTE - 1}) AS p;
INSERT INTO sentence_vectors (owner_id, note_id, position, number, embedder, embedding)
SELECT owner_id, note_id, position, 0, embedder,
       (SELECT array_agg(random() - 0.5) FROM generate_series(1, {SIZE}) WHERE position >= 0)::real[]::vector::halfvec
FROM chunks;
INSERT INTO note_counts (owner_id, embedder, chunks) SELECT owner_id, embedder, sum(chunks) FROM notes GROUP BY 1, 2;
UPDATE notes SET collections = '{{hr}}' WHERE id IN ('n1', 'n2', 'n3');
UPDATE notes SET shared_with = 'everyone' WHERE owner_id = 'ben' AND id = 'n7';
"""


async def test_the_plans_read_what_belongs_to_the_scope(database: Database) -> None:
    shelf = database
    async with shelf.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = 0")
        for statement in FILL.strip().split(";")[:-1]:
            await connection.execute(statement.encode())
    async with shelf.statement() as connection:
        await ensure_vector_index(connection, "sentence_vectors", SIZE)
        await connection.execute("ANALYZE")
    counts = {
        "many": NoteCounts(MANY, None),
        "many and shared": NoteCounts(MANY, None, CHUNKS_A_NOTE),
        "shared": NoteCounts(0, None, CHUNKS_A_NOTE),
        "collections": NoteCounts(3 * CHUNKS_A_NOTE, None),
    }
    chance = random.Random(3)
    question = [chance.uniform(-0.5, 0.5) for _ in range(SIZE)]

    async def explain(scope: NoteScope, name: str, mode: PlanMode) -> tuple[ExplainedDatabase, PassageSearchResult]:
        async with shelf.statement() as connection:
            explained = ExplainedDatabase(connection, mode)
            search = PassageSearch(explained.as_database)
            found = await search.find_passages(
                scope,
                embedder=EMBEDDER,
                question="word3 of n77",
                vector=question,
                counts=counts[name],
                limit=5,
            )
        return explained, found

    for mode in MODES:
        plain, found = await explain(NoteScope("ana", new_id()), "many", mode)
        assert f"sentence_vectors_near_{SIZE}" in plain.indexes
        assert not {"notes_shared", "notes_collections"} & plain.indexes
        assert not {"notes", "chunks", "sentence_vectors"} & set(plain.explained.whole_scans())
        assert len(found.passages) == 5

        shared, found = await explain(NoteScope("ana", new_id()), "many and shared", mode)
        assert f"sentence_vectors_near_{SIZE}" in shared.indexes
        assert not {"notes", "chunks", "sentence_vectors"} & set(shared.explained.whole_scans())
        assert len(found.passages) == 5

        few, found = await explain(NoteScope("dora", new_id()), "shared", mode)
        assert not {"notes", "chunks", "sentence_vectors"} & set(few.explained.whole_scans())
        assert few.explained.walked("sentence_vectors") <= 3 * CHUNKS_A_NOTE
        assert {passage.note_id for passage in found.passages} == {"n7"}
        assert {passage.shared_by for passage in found.passages} == {"ben"}

        named, found = await explain(NoteScope("ana", new_id(), ("hr",)), "collections", mode)
        assert "notes_collections" in named.indexes
        assert not {"notes", "chunks", "sentence_vectors"} & set(named.explained.whole_scans())
        assert named.explained.walked("sentence_vectors") <= 5 * CHUNKS_A_NOTE
        assert {passage.note_id for passage in found.passages} <= {"n1", "n2", "n3"}

    async with shelf.statement() as connection:
        conversation = (await Conversations(connection).create("ana", agent_id="librarian")).id
    accepted = await accept(shelf, Incoming("ana", conversation, "and now?"), worker_id="somebody", claim=True)
    assert accepted.claimed is not None
    for mode in MODES:
        async with shelf.statement() as connection:
            explained = Explained(connection, mode)
            loaded = await load_turn_input(explained.as_connection, accepted.claimed, limit=12, embedder=EMBEDDER)
        assert loaded is not None
        assert loaded.note_counts == NoteCounts(MANY, None, CHUNKS_A_NOTE)
        assert explained.walked("notes") <= 2
        assert explained.pages() <= 60


async def test_a_turn_without_shared_notes_sends_the_statement_it_always_sent(shelf: Database) -> None:
    await store(shelf, "ana", "mine", "hers", 0.5)
    async with shelf.statement() as connection:
        explained = ExplainedDatabase(connection, "force_custom_plan")
        await PassageSearch(explained.as_database).find_passages(
            NoteScope("ana", new_id()),
            embedder=EMBEDDER,
            question="zebra",
            vector=towards(1.0),
            counts=NoteCounts(1, None),
            limit=5,
        )
    scans = {node.get("Relation Name", node.get("CTE Name")) for node in explained.explained.nodes()}
    assert "scope" not in scans
    assert "conversations" not in scans
