"""Test the passage search with vectors made by hand: meaning and words together, only the owner's notes, any question."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rapport.domain.note import Chunk, NoteCounts, PassageSearchResult, Vector
from rapport.domain.note_scope import NoteScope
from rapport.storage.database import Database
from rapport.storage.notes.notes import NewNote, Notes
from rapport.storage.notes.passage_search import CANDIDATES, EXACT_CHUNKS, PassageSearch
from rapport.storage.vector_index import ensure_vector_index, has_vector_index

EMBEDDER = "by-hand"

PATHS = pytest.mark.parametrize("chunks", [10, EXACT_CHUNKS + 1], ids=["exact", "indexed"])
"""The search compares one by one, or asks the index, by how many chunks it is told that the owner has."""


def vector(*values: float, size: int = 384) -> Vector:
    """A vector with these values first and nothing after them."""
    return [*values, *[0.0] * (size - len(values))]


def towards(similarity: float, *, size: int = 384) -> Vector:
    """A vector of length 1 that is so similar to `vector(1.0)`."""
    return vector(similarity, (1 - similarity**2) ** 0.5, size=size)


async def store(
    database: Database,
    note_id: str,
    *passages: tuple[str, Vector],
    owner: str = "ana",
    embedder: str = EMBEDDER,
    heading: str = "",
) -> None:
    """A note of passages with the vectors given."""
    note = NewNote(
        owner_id=owner,
        id=note_id,
        title=note_id.title(),
        text="\n".join(text for text, _ in passages),
        hash=note_id.encode(),
        file_name=None,
        embedder=embedder,
        chunks=[(Chunk(heading, text), [of]) for text, of in passages],
    )
    async with database.transaction() as connection:
        await Notes(connection).put(note, replace=False)


async def search(
    database: Database,
    question: str,
    of: Vector | None = None,
    *,
    owner: str = "ana",
    embedder: str = EMBEDDER,
    chunks: int = 10,
    limit: int = 5,
) -> PassageSearchResult:
    return await PassageSearch(database).find_passages(
        NoteScope(owner),
        embedder=embedder,
        question=question,
        vector=of or vector(1.0),
        counts=NoteCounts(chunks, None),
        limit=limit,
    )


async def by_words(database: Database, question: str, *, chunks: int, limit: int) -> Sequence[str]:
    """What is found when meaning counts for nothing."""
    return ids(
        await PassageSearch(database, near_weight=0.0).find_passages(
            NoteScope("ana"),
            embedder=EMBEDDER,
            question=question,
            vector=vector(1.0),
            counts=NoteCounts(chunks, None),
            limit=limit,
        )
    )


def ids(found: PassageSearchResult) -> Sequence[str]:
    return [passage.note_id for passage in found.passages]


@PATHS
async def test_by_meaning_the_nearest_comes_first(database: Database, chunks: int) -> None:
    for note_id, similarity in (("far", 0.1), ("near", 0.9), ("middle", 0.5), ("opposite", -0.8)):
        await store(database, note_id, ("nothing in common", towards(similarity)))
    found = await search(database, "zebra", chunks=chunks)
    assert ids(found) == ["near", "middle", "far", "opposite"]
    assert [passage.similarity for passage in found.passages] == pytest.approx([0.9, 0.5, 0.1, -0.8], abs=2e-3)
    assert found.best == found.passages[0].similarity
    assert ids(await search(database, "zebra", chunks=chunks, limit=2)) == ["near", "middle"]


@PATHS
async def test_words_lift_what_meaning_nearly_found_and_leave_the_best_similarity_alone(
    database: Database, chunks: int
) -> None:
    await store(database, "nearest", ("a page about something else", towards(0.9)))
    await store(database, "named", ("the form is called XK-1020", towards(0.8)))
    await store(database, "further", ("a page about another thing", towards(0.7)))
    assert ids(await search(database, "zebra", chunks=chunks)) == ["nearest", "named", "further"]
    found = await search(database, "where is form XK-1020?", chunks=chunks)
    assert ids(found) == ["named", "nearest", "further"]
    # What the guard looks at is the nearest of all, wherever it stands.
    assert found.best == pytest.approx(0.9, abs=2e-3)
    assert found.passages[0].similarity == pytest.approx(0.8, abs=2e-3)


@PATHS
async def test_a_passage_tells_where_it_stands(database: Database, chunks: int) -> None:
    await store(
        database, "book", ("first", towards(0.2)), ("second words", towards(0.9)), heading="Part one > Chapter two"
    )
    first = (await search(database, "second", chunks=chunks)).passages[0]
    assert (first.note_id, first.position, first.title, first.heading, first.text) == (
        *("book", 1, "Book"),
        *("Part one > Chapter two", "second words"),
    )


async def test_rare_words_count_for_more_than_common_ones(database: Database) -> None:
    for number in range(6):
        await store(database, f"common{number}", ("the report of the meeting, the report of the week", towards(0.5)))
    await store(database, "rare", ("pangolins were seen", towards(0.5)))
    assert await by_words(database, "report about pangolins", chunks=7, limit=1) == ["rare"]
    # A passage with both is the best of all.
    await store(database, "some", ("a report on pangolins", towards(0.5)))
    assert await by_words(database, "report about pangolins", chunks=8, limit=2) == ["some", "rare"]


async def test_headings_are_searched_and_endings_do_not_matter(database: Database) -> None:
    await store(database, "cats", ("they sleep", towards(0.3)), heading="Feeding pangolins")
    await store(database, "dogs", ("they bark", towards(0.4)))
    assert ids(await search(database, "how is a pangolin fed? feed"))[0] == "cats"


QUESTIONS = (
    *("the of and is", "zebra quagga", "?!", "", "   ", "1", "'", "''''", "\\", "\\\\'", "it's \\'quoted\\'"),
    *("a & b | !c", "(((", "cat:*", "cat:ABCD", "<->", "cat <2> dog", "cat <-> dog", "!!", "::", "a:1b c:2"),
    *("% %s %(owner)s %%", "{near} {size}", "'; DROP TABLE chunks; --", "$1 $$ $tag$", "a\tb\nc\r\n"),
    *("https://example.org/a?b=c&d=%20", "ana@example.org", "../../etc/passwd", "<b>bold</b>", "x/y-z_1.2e-3"),
    *(
        "日本語",
        "привет мир",
        "مرحبا",
        "💥 👩‍👩‍👧",
        "\u202e\u200b\ufeff",
        "\x01\x1b[31m",
        "ß İ ﬁ Ω",
        "é" * 50,
        "\uffff",
    ),
    *("x" * 5000, "word " * 2000, " ".join(f"w{number}" for number in range(3000)), "'" * 1000, "a'b" * 500),
)


@PATHS
async def test_no_question_breaks_the_search(database: Database, chunks: int) -> None:
    await store(database, "cat", ("the cat sat", towards(0.9)))
    await store(database, "dog", ("the dog ran", towards(0.5)))
    await store(database, "quote", ("it's a 'quoted' back\\slash & <-> operator:* 100%", towards(0.2)))
    for question in QUESTIONS:
        found = await search(database, question, chunks=chunks)
        # Meaning finds its own, whatever the words are.
        assert found.best == pytest.approx(0.9, abs=2e-3), question
        assert sorted(ids(found)) == ["cat", "dog", "quote"], question


async def test_words_with_quotes_and_backslashes_are_found(database: Database) -> None:
    await store(database, "path", ("the file is /usr/o'brien/back\\slash.txt", towards(0.2)))
    await store(database, "other", ("nothing", towards(0.25)))
    assert ids(await search(database, "where is /usr/o'brien/back\\slash.txt"))[0] == "path"


@pytest.mark.parametrize("word", ["report", "example.org/a,b'c"])
async def test_questions_of_common_words_only_need_all_of_them(database: Database, word: str) -> None:
    """Words that very many passages have are left out of a question, unless it has no others."""
    chance = random.Random(1)
    passages = [
        (word if number % 2 else "meeting", towards(round(chance.uniform(0.1, 0.3), 3))) for number in range(1200)
    ]
    await store(database, "many", *passages)
    await store(database, "both", (f"the meeting {word}", towards(0.2)))
    await store(database, "rare", ("a pangolin", towards(0.2)))
    async with database.statement() as connection:
        await connection.execute("ANALYZE chunks")
    assert await by_words(database, f"meeting {word}", chunks=1202, limit=1) == ["both"]
    assert await by_words(database, f"{word} on a pangolin at the meeting", chunks=1202, limit=1) == ["rare"]


# Owners and embedders


@PATHS
async def test_a_better_match_of_somebody_else_is_never_found(database: Database, chunks: int) -> None:
    for number in range(3 * CANDIDATES):
        await store(database, f"secret{number}", ("the safe opens with 31-41-59", vector(1.0)), owner="ben")
    await store(database, "mine", ("a recipe", towards(0.1)))
    found = await search(database, "what opens the safe? 31-41-59", chunks=chunks, limit=20)
    assert ids(found) == ["mine"]
    assert found.best == pytest.approx(0.1, abs=2e-3)
    assert await search(database, "what opens the safe?", owner="nobody", chunks=chunks) == PassageSearchResult(0.0)


@PATHS
async def test_the_same_id_of_two_owners_is_two_notes(database: Database, chunks: int) -> None:
    await store(database, "safe", ("hers: 31-41-59", towards(0.5)), owner="ana")
    await store(database, "safe", ("his: 27-18-28", towards(0.6)), owner="ben")
    for owner, text in (("ana", "hers: 31-41-59"), ("ben", "his: 27-18-28")):
        [passage] = (await search(database, "safe", owner=owner, chunks=chunks)).passages
        assert passage.text == text


@PATHS
async def test_what_another_embedder_has_indexed_is_not_compared(database: Database, chunks: int) -> None:
    """Neither one with vectors of another length, nor one with vectors of the same length that mean something else."""
    async with database.statement() as connection:
        await ensure_vector_index(connection, "sentence_vectors", 256)
    await store(database, "short", ("the cat", vector(1.0, size=256)), embedder="other-256")
    await store(database, "alike", ("the cat", vector(1.0)), embedder="other-384")
    assert await search(database, "the cat", chunks=chunks) == PassageSearchResult(0.0)
    await store(database, "mine", ("the dog", towards(0.3)))
    assert ids(await search(database, "the cat", chunks=chunks)) == ["mine"]
    assert ids(await search(database, "the cat", chunks=chunks, embedder="other-384")) == ["alike"]
    short = await search(database, "the cat", vector(1.0, size=256), chunks=chunks, embedder="other-256")
    assert ids(short) == ["short"]


@PATHS
async def test_vectors_of_another_length_have_an_index_of_their_own(database: Database, chunks: int) -> None:
    async with database.statement() as connection:
        assert await has_vector_index(connection, "sentence_vectors", 384)
        assert not await has_vector_index(connection, "sentence_vectors", 256)
        for _ in range(2):
            await ensure_vector_index(connection, "sentence_vectors", 256)
        assert await has_vector_index(connection, "sentence_vectors", 256)
    for note_id, similarity in (("far", 0.1), ("near", 0.9), ("middle", 0.5)):
        await store(database, note_id, ("nothing", towards(similarity, size=256)), embedder="small")
    found = await search(database, "zebra", vector(1.0, size=256), chunks=chunks, embedder="small")
    assert ids(found) == ["near", "middle", "far"]


@pytest.mark.parametrize("size", [384, 256])
async def test_the_index_is_asked_for_more_than_a_few_chunks(database: Database, size: int) -> None:
    """The condition and the cast of the query are those of the index: else every search would read every chunk."""
    async with database.statement() as connection:
        await ensure_vector_index(connection, "sentence_vectors", size)
    chance = random.Random(2)
    for owner in ("ana", "ben"):
        passages = [("words", [chance.uniform(-1, 1) for _ in range(size)]) for _ in range(300)]
        await store(database, "many", *passages, owner=owner)
    async with database.statement() as connection:
        await connection.execute("SET enable_seqscan = off")
        await connection.execute("SET enable_bitmapscan = off")
        await connection.execute("SET enable_sort = off")
        plan = await connection.execute(
            f"EXPLAIN SELECT note_id FROM sentence_vectors WHERE vector_dims(embedding) = {size} AND owner_id = 'ana'"
            f" ORDER BY embedding::halfvec({size}) <=> '[{','.join(['1'] * size)}]'::halfvec({size}) LIMIT 20".encode()
        )
        assert f"sentence_vectors_near_{size}" in str(await plan.fetchall())
        for setting in ("seqscan", "bitmapscan", "sort"):
            await connection.execute(f"RESET enable_{setting}".encode())
    question = [chance.uniform(-1, 1) for _ in range(size)]
    exact, indexed = [
        await search(database, "zebra", question, chunks=chunks, limit=20) for chunks in (10, EXACT_CHUNKS + 1)
    ]
    assert len(exact.passages) == 20
    same = {passage.position for passage in exact.passages} & {passage.position for passage in indexed.passages}
    assert len(same) >= 16
    assert indexed.best == pytest.approx(exact.best, abs=1e-3)


@PATHS
async def test_the_guard_is_told_how_much_of_the_question_each_passage_has_and_what_else_is_near(
    database: Database, chunks: int
) -> None:
    await store(database, "level", ("SEV-1 pages the lead", towards(0.6)), ("nothing of it", towards(0.55)))
    await store(database, "other", ("about something else", towards(0.5)))
    found = await PassageSearch(database).find_passages(
        NoteScope("ana"),
        embedder=EMBEDDER,
        question="when does a sev 1 page the zebra?",
        telling="sev 1 page zebra",
        vector=vector(1.0),
        counts=NoteCounts(chunks, None),
        limit=5,
    )
    assert found.words == 4
    assert found.rival == pytest.approx(0.5, abs=2e-3)
    named, *others = found.passages
    assert named.text == "SEV-1 pages the lead"
    assert 0.6 < named.coverage < 0.8
    assert [passage.coverage for passage in others] == [0.0, 0.0]


@PATHS
async def test_a_note_that_is_left_out_is_found_neither_by_meaning_nor_by_words(
    database: Database, chunks: int
) -> None:
    await store(database, "zebra", ("the zebra has stripes", towards(0.9)))
    await store(database, "horse", ("the horse has none", towards(0.3)))
    found = await PassageSearch(database).find_passages(
        NoteScope("ana"),
        embedder=EMBEDDER,
        question="zebra",
        vector=vector(1.0),
        counts=NoteCounts(chunks, None),
        limit=5,
        without="zebra",
    )
    assert ids(found) == ["horse"]
    assert found.best == pytest.approx(0.3, abs=2e-3)
    assert found.rival is None
