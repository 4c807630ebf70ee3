"""The book of memories on a real database: each fact once, nobody else's, never more than fits (MEM-1, MEM-3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rapport.domain.errors import Conflict, InvalidInput, NotFound, TooLarge, Transient
from rapport.domain.memory import CAPACITY, MAX_CHARACTERS, Memory, MemoryCandidate
from rapport.domain.note import Vector
from rapport.memory.memory_store import CapacityReached, Duplicate, MemoryStore
from rapport.memory.same_fact import PIECE, adds_nothing, can_be_same, split_for_embedding
from rapport.retrieval.embedders.minilm import MiniLM
from rapport.storage.database import Database
from rapport.storage.memories import Memories
from tests.memory.vectors import DIMENSIONS, HandMade, direction
from tests.support.cases import every_case

ANA, BEN = "ana", "ben"
AGENT, OTHER_AGENT = "companion", "librarian"
TEA = "The user likes green tea."
TEA_AGAIN = "The user loves green tea from Japan."


@pytest.fixture
def embedder() -> HandMade:
    return HandMade()


@pytest.fixture
def book(database: Database, embedder: HandMade) -> MemoryStore:
    return MemoryStore(database, embedder)


@pytest.fixture
async def reading(database: Database) -> AsyncGenerator[MemoryStore]:
    """Return a book with the bundled embedder."""
    bundled = MiniLM()
    yield MemoryStore(database, bundled)
    await asyncio.to_thread(bundled.close)


async def contents(book: MemoryStore, owner: str = ANA, agent: str = AGENT) -> list[str]:
    return [one.content for one in await book.page(owner, agent, limit=CAPACITY + 1)]


async def fill(database: Database, count: int, *, owner: str = ANA, embedder: str = "hand-made") -> None:
    """So many memories that are unlike anything else: each points into a corner of its own."""
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO memories (owner_id, agent_id, id, content, origin, embedder, embedding)"
            " SELECT %s, %s, '01' || lpad(n::text, 24, '0'), 'fact ' || n, 'user', %s,"
            " (SELECT array_agg(sin(n * 12.9898 + d * 78.233) ORDER BY d) FROM generate_series(1, %s) d)::vector::halfvec"
            " FROM generate_series(1, %s) n",
            (owner, AGENT, embedder, DIMENSIONS, count),
        )


async def test_a_memory_is_kept_with_where_it_comes_from(book: MemoryStore) -> None:
    candidate = MemoryCandidate(f"  {TEA}\n", key=" drink ", origin="agent", conversation_id="C", message_id="M")
    made = await book.create(ANA, AGENT, candidate)
    assert (made.content, made.key, made.origin) == (TEA, "drink", "agent")
    assert (made.conversation_id, made.message_id) == ("C", "M")
    assert made.created_at.tzinfo is not None
    assert await book.page(ANA, AGENT, limit=5) == [made]


@pytest.mark.parametrize(("similarity", "is_same"), [(0.949, False), (0.95, True), (0.951, True), (0.9, False)])
async def test_from_095_on_two_memories_say_the_same(
    book: MemoryStore, embedder: HandMade, similarity: float, is_same: bool
) -> None:
    embedder.alike(TEA, TEA_AGAIN, similarity)
    first = await book.create(ANA, AGENT, MemoryCandidate(TEA))
    if not is_same:
        await book.create(ANA, AGENT, MemoryCandidate(TEA_AGAIN))
        assert await contents(book) == [TEA_AGAIN, TEA]
        return
    with pytest.raises(Duplicate, match=first.id) as refused:
        await book.create(ANA, AGENT, MemoryCandidate(TEA_AGAIN))
    assert isinstance(refused.value, Conflict)
    assert refused.value.memory_id == first.id
    assert await contents(book) == [TEA]


async def test_what_says_more_takes_the_place_of_what_was_there(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike(TEA, TEA_AGAIN, 0.97)
    first = await book.upsert(ANA, AGENT, MemoryCandidate(TEA, message_id="M1"))
    merged = await book.upsert(
        ANA, AGENT, MemoryCandidate(TEA_AGAIN, origin="agent", conversation_id="C2", message_id="M2")
    )
    assert (merged.id, merged.content, merged.created_at) == (first.id, TEA_AGAIN, first.created_at)
    assert (merged.origin, merged.conversation_id, merged.message_id) == ("agent", "C2", "M2")
    assert merged.updated_at > first.updated_at
    assert await contents(book) == [TEA_AGAIN]


async def test_what_says_nothing_new_only_moves_the_time(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike(TEA, "User likes tea", 0.97)
    first = await book.upsert(ANA, AGENT, MemoryCandidate(TEA, message_id="M1"))
    for again in ("User likes tea", TEA):
        kept = await book.upsert(ANA, AGENT, MemoryCandidate(again, message_id="M2"))
        assert (kept.id, kept.content, kept.message_id) == (first.id, TEA, "M1")
        assert kept.updated_at > first.updated_at
    assert await contents(book) == [TEA]


async def test_a_fact_that_changed_is_not_kept_as_it_was(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike("Her daughter is 5.", "Her daughter is 6.", 0.97)
    await book.upsert(ANA, AGENT, MemoryCandidate("Her daughter is 5."))
    await book.upsert(ANA, AGENT, MemoryCandidate("Her daughter is 6."))
    assert await contents(book) == ["Her daughter is 6."]


async def test_a_key_is_replaced_and_never_its_own_duplicate(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike("Lives in Berlin.", "Lives in Berlin now.", 0.99)
    first = await book.upsert(ANA, AGENT, MemoryCandidate("Lives in Berlin.", key="home", message_id="M1"))
    for text in ("Lives in Berlin now.", "Lives in Berlin.", "Has moved to Oslo."):
        now = await book.upsert(ANA, AGENT, MemoryCandidate(text, key="home", message_id=text))
        assert (now.id, now.key, now.content, now.message_id) == (first.id, "home", text, text)
    again = await book.upsert(ANA, AGENT, MemoryCandidate("Has moved to Oslo.", key="home", message_id="M9"))
    assert (again.id, again.message_id) == (first.id, "Has moved to Oslo.")
    assert await contents(book) == ["Has moved to Oslo."]


async def test_a_new_key_merges_with_what_says_the_same(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike(TEA, TEA_AGAIN, 0.97)
    first = await book.upsert(ANA, AGENT, MemoryCandidate(TEA))
    named = await book.upsert(ANA, AGENT, MemoryCandidate(TEA_AGAIN, key="drink"))
    assert (named.id, named.key) == (first.id, "drink")
    renamed = await book.upsert(ANA, AGENT, MemoryCandidate(TEA, key="beverage"))
    assert (renamed.id, renamed.key, renamed.content) == (first.id, "drink", TEA)
    assert len(await contents(book)) == 1


async def test_a_key_that_comes_to_say_what_another_memory_says_takes_it_in(book: MemoryStore) -> None:
    keyed = await book.upsert(ANA, AGENT, MemoryCandidate("Drinks coffee.", key="drink"))
    other = await book.upsert(ANA, AGENT, MemoryCandidate(TEA))
    [write] = await book.prepare([MemoryCandidate(TEA, key="drink")])
    async with book.database.transaction() as connection:
        applied = await book.apply(connection, ANA, AGENT, [write])
    assert [(one.kind, one.memory.id) for one in applied.changes] == [("updated", keyed.id), ("deleted", other.id)]
    assert await contents(book) == [TEA]


async def test_one_that_says_the_same_as_two_leaves_one(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike("new words", "left", 0.96)
    embedder.known["right"] = [
        2 * 0.96 * a - b for a, b in zip(embedder.known["new words"], embedder.known["left"], strict=True)
    ]  # as far on the other side: 0.96 from the new words, 0.84 from each other
    await book.create(ANA, AGENT, MemoryCandidate("left", key="side"))
    await book.create(ANA, AGENT, MemoryCandidate("right"))
    kept = await book.upsert(ANA, AGENT, MemoryCandidate("new words"))
    assert kept.key == "side"
    assert await contents(book) == ["new words"]


async def test_an_edit_is_the_owners_word(book: MemoryStore, embedder: HandMade) -> None:
    embedder.alike(TEA, TEA_AGAIN, 0.99)
    embedder.alike("Has a cat.", "Has two cats.", 0.99)
    tea = await book.create(ANA, AGENT, MemoryCandidate(TEA, key="drink", conversation_id="C", message_id="M"))
    cat = await book.create(ANA, AGENT, MemoryCandidate("Has a cat.", message_id="M"))

    edited = await book.edit(ANA, AGENT, tea.id, content=TEA_AGAIN)
    assert (edited.content, edited.key, edited.origin) == (TEA_AGAIN, "drink", "user")
    assert (edited.conversation_id, edited.message_id) == (None, None)
    with pytest.raises(Duplicate, match=cat.id):
        await book.edit(ANA, AGENT, tea.id, content="Has two cats.")
    with pytest.raises(Duplicate, match=f"{tea.id} has this key"):
        await book.edit(ANA, AGENT, cat.id, key="drink")
    assert (await book.edit(ANA, AGENT, tea.id, key="")).key is None
    renamed = await book.edit(ANA, AGENT, cat.id, key="drink")
    assert (renamed.key, renamed.content, renamed.message_id) == ("drink", "Has a cat.", "M")
    with pytest.raises(InvalidInput, match="nothing to change"):
        await book.edit(ANA, AGENT, cat.id)
    # By its new words, and not by the old ones, it is found from now on.
    [(found, similarity)] = await book.search(ANA, AGENT, TEA_AGAIN, 1)
    assert (found.id, round(similarity, 2)) == (tea.id, 1.0)


async def test_a_key_belongs_to_one_memory(book: MemoryStore) -> None:
    first = await book.create(ANA, AGENT, MemoryCandidate(TEA, key="drink"))
    with pytest.raises(Duplicate, match=first.id):
        await book.create(ANA, AGENT, MemoryCandidate("Something else.", key="drink"))
    await book.create(ANA, AGENT, MemoryCandidate("Something else.", key="  "))
    assert len(await contents(book)) == 2


async def test_owners_and_agents_never_meet(book: MemoryStore) -> None:
    """The same words and keys in four places, and no way from one to another."""
    places = [(owner, agent) for owner in (ANA, BEN) for agent in (AGENT, OTHER_AGENT)]
    made = {place: await book.create(*place, MemoryCandidate(TEA, key="drink")) for place in places}
    assert len({one.id for one in made.values()}) == 4
    for place in places:
        assert await book.page(*place, limit=9) == [made[place]]
        assert [one.id for one, _ in await book.search(*place, TEA, 9)] == [made[place].id]
        assert (await book.stats(*place)).count == 1
        for other in places:
            if other == place:
                continue
            with pytest.raises(NotFound):
                await book.edit(*place, made[other].id, content="Mine now.")
            with pytest.raises(NotFound):
                await book.delete(*place, made[other].id)
    await book.upsert(ANA, AGENT, MemoryCandidate("Prefers coffee.", key="drink"))
    await book.delete(BEN, AGENT, made[BEN, AGENT].id)
    assert await contents(book, ANA, OTHER_AGENT) == await contents(book, BEN, OTHER_AGENT) == [TEA]
    assert (await contents(book), await contents(book, BEN)) == (["Prefers coffee."], [])


@every_case("memory_id", ["", "nonsense", "x" * 10_000, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "a\x00b", "\ud800"])
async def test_what_is_not_there_is_not_found(book: MemoryStore, memory_id: str) -> None:
    with pytest.raises(NotFound):
        await book.delete(ANA, AGENT, memory_id)
    with pytest.raises(NotFound):
        await book.edit(ANA, AGENT, memory_id, content=TEA)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", InvalidInput),
        (" \n\t", InvalidInput),
        ("\n" * MAX_CHARACTERS, InvalidInput),
        ("\u200b\ufeff", InvalidInput),
        ("a\x00b", InvalidInput),
        ("half \ud83d", InvalidInput),
        ("x" * (MAX_CHARACTERS + 1), TooLarge),
    ],
)
async def test_what_cannot_be_stored_is_refused(
    book: MemoryStore, embedder: HandMade, content: str, error: type[Exception]
) -> None:
    kept = await book.create(ANA, AGENT, MemoryCandidate(TEA))
    embedder.asked.clear()
    for attempt in (book.create, book.upsert):
        with pytest.raises(error):
            await attempt(ANA, AGENT, MemoryCandidate(content))
    with pytest.raises(error):
        await book.edit(ANA, AGENT, kept.id, content=content)
    with capture_logs() as logs:
        assert await book.prepare([MemoryCandidate(content)]) == []
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("memory.invalid", "warning")]
    assert embedder.asked == []
    assert await contents(book) == [TEA]


@every_case("key", ["a\x00", "\udfff", "k" * 201])
async def test_a_key_that_cannot_be_stored_is_refused(book: MemoryStore, key: str) -> None:
    with pytest.raises(InvalidInput):
        await book.create(ANA, AGENT, MemoryCandidate(TEA, key=key))
    assert await contents(book) == []


@pytest.mark.parametrize(
    "content",
    [
        "'; DROP TABLE memories; --",
        "%s %(owner)s {vector}",
        "\u202eright to left\u202c שלום مرحبا",
        "👩‍👩‍👧‍👦🏳️‍🌈",
        "line\nline\r\nline",
        "x" * MAX_CHARACTERS,
        "word " * (MAX_CHARACTERS // 5) + "ab",
        "\\x00 \\u0000",
    ],
)
async def test_any_other_text_comes_back_as_it_was(reading: MemoryStore, content: str) -> None:
    made = await reading.create(ANA, AGENT, MemoryCandidate(content, key=content[:50]))
    assert (made.content, made.key) == (content, content[:50].strip())
    [(found, similarity)] = await reading.search(ANA, AGENT, content[:4000], 3)
    assert (found.content, found.id) == (content, made.id)
    assert similarity > 0.5
    with pytest.raises(Duplicate):
        await reading.create(ANA, AGENT, MemoryCandidate(content))


async def test_long_memories_differ_though_they_begin_alike(reading: MemoryStore) -> None:
    """The bundled embedder reads the first 256 tokens: what comes after must count all the same."""
    beginning = "The user keeps a list of the plants in the garden, bed by bed, with the day they were watered. " * 20
    await reading.create(
        ANA, AGENT, MemoryCandidate(beginning + "The dentist moved to Harbour Street 12, second floor. " * 20)
    )
    await reading.create(
        ANA, AGENT, MemoryCandidate(beginning + "Grandmother's funeral is in Lisbon at the end of June. " * 20)
    )
    assert len(await contents(reading)) == 2


async def test_scripts_that_the_embedder_cannot_read_lose_nothing(reading: MemoryStore) -> None:
    """All Thai is one vector to the bundled embedder; the words tell facts apart, and the same again is known."""
    facts = ["ฉันอยู่ที่เบอร์ลิน", "ฉันชอบชาเขียว", "ลูกสาวของฉันอายุห้าขวบ", "😀😀", "🎉", "በርሊን ውስጥ እኖራለሁ", "አረንጓዴ ሻይ እወዳለሁ"]
    for fact in (*facts, *facts):
        await reading.upsert(ANA, AGENT, MemoryCandidate(fact))
    assert sorted(await contents(reading)) == sorted(facts)


async def test_paraphrases_are_merged_by_the_bundled_embedder(reading: MemoryStore) -> None:
    for text in ("The user lives in Berlin.", "User lives in Berlin", "The user is living in Berlin now."):
        await reading.upsert(ANA, AGENT, MemoryCandidate(text))
    await reading.upsert(ANA, AGENT, MemoryCandidate("The user lives in Munich."))
    assert await contents(reading) == ["The user lives in Munich.", "The user is living in Berlin now."]


async def test_search_gives_the_nearest_first(reading: MemoryStore) -> None:
    for text in ("The user is allergic to peanuts.", "The user has a dog called Rex.", "The user works at a bank."):
        await reading.create(ANA, AGENT, MemoryCandidate(text))
    found = await reading.search(ANA, AGENT, "What is my pet's name?", 2)
    assert found[0][0].content == "The user has a dog called Rex."
    assert found[0][1] > found[1][1]
    assert len(found) == 2
    assert await reading.search(ANA, AGENT, " \n", 2) == []
    for query, error in (("a\x00", InvalidInput), ("\ud800", InvalidInput), ("q" * 4001, TooLarge)):
        with pytest.raises(error):
            await reading.search(ANA, AGENT, query, 2)


async def test_an_empty_book_is_searched_without_the_embedder(book: MemoryStore, embedder: HandMade) -> None:
    assert await book.search(ANA, AGENT, "anything", 5) == []
    assert embedder.asked == []


async def test_an_embedder_that_fails_leaves_nothing_behind(book: MemoryStore, embedder: HandMade) -> None:
    kept = await book.create(ANA, AGENT, MemoryCandidate(TEA))
    embedder.fails = Transient("The embedder can't be reached.")
    attempts = (
        book.create(ANA, AGENT, MemoryCandidate("Has a cat.")),
        book.upsert(ANA, AGENT, MemoryCandidate("Has a cat.", key="pet")),
        book.edit(ANA, AGENT, kept.id, content="Has a cat.", key="pet"),
        book.prepare([MemoryCandidate("Has a cat.")]),
        book.search(ANA, AGENT, "cat", 5),
    )
    for attempt in attempts:
        with pytest.raises(Transient):
            await attempt
    assert await book.page(ANA, AGENT, limit=5) == [kept]
    assert (await book.edit(ANA, AGENT, kept.id, key="drink")).key == "drink"  # needs no vector


async def test_nothing_is_embedded_while_a_connection_is_held(database: Database) -> None:
    """The pool has six connections: more writers than that wait in the embedder, and a seventh statement still runs."""
    gate, waiting = asyncio.Event(), asyncio.Semaphore(0)

    class Slow(HandMade):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            waiting.release()
            await gate.wait()
            return await super().embed(texts)

    book = MemoryStore(database, Slow())
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(book.upsert(ANA, AGENT, MemoryCandidate(f"fact {number}")))
        for _ in range(10):
            await waiting.acquire()
        assert (await book.stats(ANA, AGENT)).count == 0
        gate.set()
    assert (await book.stats(ANA, AGENT)).count == 10


async def test_a_turn_that_fails_after_all_remembers_nothing(book: MemoryStore) -> None:
    prepared = await book.prepare([MemoryCandidate(TEA), MemoryCandidate("Has a cat.")])

    async def turn() -> None:
        async with book.database.transaction() as connection:
            applied = await book.apply(connection, ANA, AGENT, prepared)
            assert [one.kind for one in applied.changes] == ["created", "created"]
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        await turn()
    assert await contents(book) == []


async def test_one_turn_may_say_the_same_twice(book: MemoryStore) -> None:
    prepared = await book.prepare([MemoryCandidate(TEA), MemoryCandidate("a\x00"), MemoryCandidate(TEA, key="drink")])
    async with book.database.transaction() as connection:
        applied = await book.apply(connection, ANA, AGENT, prepared)
        assert (await book.apply(connection, ANA, AGENT, [])).changes == ()
    assert [one.kind for one in applied.changes] == ["created", "updated"]
    [kept] = await book.page(ANA, AGENT, limit=5)
    assert (kept.content, kept.key) == (TEA, "drink")


async def test_the_same_fact_at_the_same_moment_is_kept_once(database: Database, database_url: str) -> None:
    """Two processes, each with a pool of its own."""
    embedder = HandMade()
    for number in range(20):
        embedder.alike(TEA, f"{TEA} {number}", 0.99)  # and 0.98 to each other
    elsewhere = Database(database_url, max_size=6)
    await elsewhere.open()
    books = [MemoryStore(database, embedder), MemoryStore(elsewhere, embedder)]
    writes = [books[number % 2].create(ANA, AGENT, MemoryCandidate(TEA, key=f"k{number}")) for number in range(20)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(one).__name__ for one in outcomes) == ["Duplicate"] * 19 + ["Memory"]
    await asyncio.gather(*(books[n % 2].upsert(ANA, AGENT, MemoryCandidate(f"{TEA} {n}")) for n in range(20)))
    await elsewhere.close()
    assert len(await contents(books[0])) == 1


async def test_one_key_at_the_same_moment_is_one_memory(book: MemoryStore) -> None:
    await asyncio.gather(*(book.upsert(ANA, AGENT, MemoryCandidate(f"Value {n}.", key="k")) for n in range(20)))
    [kept] = await book.page(ANA, AGENT, limit=5)
    assert kept.key == "k"


async def test_a_thousand_fit_and_no_more_whoever_writes(book: MemoryStore) -> None:
    await fill(book.database, CAPACITY - 10)
    outcomes = await asyncio.gather(
        *(book.create(ANA, AGENT, MemoryCandidate(f"new fact {number}")) for number in range(20)),
        return_exceptions=True,
    )
    assert [type(one) for one in outcomes].count(Memory) == 10
    refused = [one for one in outcomes if isinstance(one, BaseException)]
    assert all(isinstance(one, CapacityReached) and isinstance(one, Conflict) for one in refused)
    assert "Forget some" in str(refused[0])
    assert (await book.stats(ANA, AGENT)).count == CAPACITY

    # What needs no place is written all the same; what does is only reported to a turn.
    new = next(one for one in outcomes if isinstance(one, Memory))
    await book.upsert(ANA, AGENT, MemoryCandidate(f"{new.content}", key="named"))
    with pytest.raises(CapacityReached):
        await book.upsert(ANA, AGENT, MemoryCandidate("one too many"))
    prepared = await book.prepare([MemoryCandidate("one too many"), MemoryCandidate("Other words.", key="named")])
    with capture_logs() as logs:
        async with book.database.transaction() as connection:
            applied = await book.apply(connection, ANA, AGENT, prepared)
    assert [one.content for one in applied.refused] == ["one too many"]
    assert [(one.kind, one.memory.id) for one in applied.changes] == [("updated", new.id)]
    assert [(entry["event"], entry["refused"]) for entry in logs] == [("memory.full", 1)]
    await book.create(BEN, AGENT, MemoryCandidate("Others have places of their own."))
    await book.delete(ANA, AGENT, new.id)
    await book.upsert(ANA, AGENT, MemoryCandidate("one too many"))
    assert (await book.stats(ANA, AGENT)).count == CAPACITY


async def test_a_book_that_fills_up_says_so(book: MemoryStore) -> None:
    await fill(book.database, 798)
    with capture_logs() as logs:
        await book.create(ANA, AGENT, MemoryCandidate("the 799th"))
        assert (logs, (await book.stats(ANA, AGENT)).warning) == ([], None)
        await book.upsert(ANA, AGENT, MemoryCandidate("the 800th"))
    [entry] = logs
    assert (entry["event"], entry["log_level"], entry["count"]) == ("memory.nearly_full", "warning", 800)
    stats = await book.stats(ANA, AGENT)
    assert (stats.count, stats.capacity, stats.share) == (800, 1000, 0.8)
    assert stats.warning is not None
    assert stats.warning.startswith("800 of 1,000 places are taken: forget")
    assert stats.by_origin == {"user": 798, "agent": 0, "extracted": 2}
    assert stats.oldest is not None
    assert stats.newest is not None
    assert stats.oldest < stats.newest
    with capture_logs() as logs:
        for number in range(801, 853):
            await book.upsert(ANA, AGENT, MemoryCandidate(f"number {number}"))
    assert [(entry["event"], entry["count"]) for entry in logs] == [("memory.nearly_full", 850)]
    empty = await book.stats(BEN, AGENT)
    assert (empty.count, empty.share, empty.warning, empty.oldest, empty.newest) == (0, 0.0, None, None, None)


async def test_pages_have_no_gaps_whatever_happens_between_them(book: MemoryStore) -> None:
    await fill(book.database, 95)
    expected = await book.page(ANA, AGENT, limit=200)
    seen: list[Memory] = []
    cursor: tuple[datetime, str] | None = None
    while some := await book.page(ANA, AGENT, limit=10, before=cursor):
        seen += some
        cursor = (some[-1].created_at, some[-1].id)
        await book.create(ANA, AGENT, MemoryCandidate(f"Something new after {len(seen)}."))
        await book.edit(ANA, AGENT, expected[-1].id, content=f"Edited after {len(seen)}.")
    assert [one.id for one in seen] == [one.id for one in expected]
    assert seen[-1].content == "Edited after 90."


async def test_memories_move_to_another_embedder(book: MemoryStore, embedder: HandMade, database: Database) -> None:
    made = await book.create(ANA, AGENT, MemoryCandidate(TEA))
    await book.create(BEN, OTHER_AGENT, MemoryCandidate("Has a cat."))
    bundled = MiniLM()
    other = MemoryStore(database, bundled)
    assert await other.search(ANA, AGENT, TEA, 5) == []
    with pytest.raises(Duplicate, match=made.id):  # the same words are the same, whoever has read them
        await other.create(ANA, AGENT, MemoryCandidate(TEA))
    await other.create(ANA, AGENT, MemoryCandidate("The user works at a bank."))  # vectors of two lengths in one book
    async with database.statement() as connection:
        assert await Memories(connection).count_totals(bundled.name) == (3, 2)
    assert [await other.reindex_batch(limit=1) for _ in range(3)] == [1, 1, 0]
    async with database.statement() as connection:
        assert await Memories(connection).count_totals(bundled.name) == (3, 0)
    [(found, similarity), _] = await other.search(ANA, AGENT, TEA, 5)
    assert (found, round(similarity, 2)) == (made, 1.0)
    assert await book.search(ANA, AGENT, TEA, 5) == []
    await asyncio.to_thread(bundled.close)


async def test_moving_never_brings_back_old_words(database: Database, embedder: HandMade) -> None:
    old = MemoryStore(database, embedder)
    edited, deleted = [await old.create(ANA, AGENT, MemoryCandidate(text)) for text in (TEA, "Has a cat.")]

    class Meanwhile(HandMade):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            await old.edit(ANA, AGENT, edited.id, content="Drinks coffee.")
            await old.delete(ANA, AGENT, deleted.id)
            return await super().embed(texts)

    await MemoryStore(database, Meanwhile(name="newer")).reindex_batch()
    assert await contents(old) == ["Drinks coffee."]
    assert [one.content for one, _ in await old.search(ANA, AGENT, "Drinks coffee.", 5)] == ["Drinks coffee."]


def test_left_out_words_add_nothing() -> None:
    assert adds_nothing("User likes tea", "The user likes green tea.")
    assert adds_nothing("THE USER LIKES GREEN TEA", "The user likes green tea.")
    assert not adds_nothing("Prefers coffee to tea", "Prefers tea to coffee")
    assert not adds_nothing("Does like coffee", "Does not like coffee")
    assert not adds_nothing("Can eat nuts", "Can’t eat nuts")
    assert not adds_nothing("Her daughter is 6", "Her daughter is 5 years old")


@given(st.text(max_size=200), st.text(max_size=200))
def test_wordings_are_compared_whatever_they_hold(one: str, other: str) -> None:
    assert can_be_same(one, one)
    assert can_be_same(one, other) == can_be_same(other, one)
    assert adds_nothing(one, one)


@given(st.lists(st.tuples(st.sampled_from(["tea", "5", "Ana’s", "茶"]), st.booleans())))
def test_any_words_may_be_left_out(words: list[tuple[str, bool]]) -> None:
    older = " ".join(word for word, _ in words)
    assert adds_nothing(", ".join(word.upper() for word, is_kept in words if is_kept), older)
    assert not adds_nothing(f"{older} too", older)


@given(st.text(alphabet=st.sampled_from("ab \n"), max_size=5_000))
def test_pieces_are_the_text_in_order(text: str) -> None:
    pieces = split_for_embedding(text.strip())
    assert all(0 < len(piece) <= PIECE for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_hand_made_similarities_are_what_they_say() -> None:
    made = HandMade()
    made.alike("a", "b", 0.95)
    assert sum(x * y for x, y in zip(made.known["a"], made.known["b"], strict=True)) == pytest.approx(0.95)
    far = max(abs(sum(x * y for x, y in zip(direction("a"), direction(f"{n}"), strict=True))) for n in range(99))
    assert far < 0.7
