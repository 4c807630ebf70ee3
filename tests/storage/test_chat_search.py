"""Test searching a chat by meaning, words and author: only messages of that chat, at a bounded cost (by EXPLAIN)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from rapport.domain.read_models import SearchHit
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.chat_search import EXACT_VECTORS, MAX_EXACT_VECTORS, list_participants, search_chat
from rapport.storage.messages.message_vectors import MessageVectors, Stretch
from rapport.storage.messages.neighbours import load_vector
from tests.storage.explained import MODES, Explained, PlanMode
from tests.storage.test_neighbours import NOON, Chat, chat, long_chat
from tests.support.cases import every_case

__all__ = ["chat"]  # the fixture

# ---- by meaning


def direction(angle: float) -> list[float]:
    """A vector of length 1 in the plane: the cosine between two is that of the angle between them."""
    return [math.cos(math.radians(angle)), math.sin(math.radians(angle))]


async def remember(database: Database, chat: str, vectors: dict[str, list[float]], *, embedder: str = "e") -> None:
    """As the background job stores them."""
    async with database.transaction() as connection:
        stored = MessageVectors(connection)
        assert await stored.load_following(chat, embedder, limit=1, characters=10) is not None
        stretch = Stretch(None, NOON, [], is_last=True)
        await stored.store(chat, embedder, stretch, list(vectors.items()))


async def test_the_closest_of_the_older_messages_come_first(chat: Chat, database: Database) -> None:
    near = await chat.says("near", minutes=1)
    far = await chat.says("far", minutes=2)
    same = await chat.says("the same", minutes=3)
    new = await chat.says("the same, just now", minutes=4)
    plane = {near: direction(20), far: direction(80), same: direction(0), new: direction(0)}
    await remember(database, chat.id, plane)
    async with database.statement() as connection:

        async def found(owner: str = "local", embedder: str = "e", limit: int = 8) -> list[tuple[str, float]]:
            before = NOON + timedelta(minutes=4)
            some = await search_chat(
                connection, owner, chat.id, embedder=embedder, vector=direction(0), before=before, limit=limit
            )
            return [(one.message.text, round(one.similarity or 0, 2)) for one in some]

        assert await found() == [("the same", 1.0), ("near", 0.94), ("far", 0.17)]
        assert await found(limit=1) == [("the same", 1.0)]
        assert await found(owner="eve") == []
        assert await found(embedder="another") == []
        assert await load_vector(connection, "local", chat.id, near, embedder="e") == pytest.approx(
            direction(20), abs=0.001
        )
        assert await load_vector(connection, "eve", chat.id, near, embedder="e") is None
        assert await load_vector(connection, "local", chat.id, "unknown", embedder="e") is None


async def test_messages_without_vectors_are_just_not_found(chat: Chat, database: Database) -> None:
    await chat.says("nobody has embedded this")
    async with database.statement() as connection:
        assert await search_chat(connection, "local", chat.id, embedder="e", vector=direction(0), before=NOON) == []


_VECTORS = """
INSERT INTO message_vectors (conversation_id, message_id, embedder, owner_id, created_at, embedding)
SELECT conversation_id, id, 'e', owner_id, created_at,
       -- Each message is a little off its own direction, of which there are as many as dimensions.
       (ARRAY(SELECT (CASE WHEN d = (number * 31) %% 384 THEN 1 ELSE 0 END) + 0.05 * sin(number * d)
              FROM generate_series(0, 383) d))::vector::halfvec
FROM (SELECT *, substr(id, 2)::int AS number FROM messages WHERE conversation_id = %(chat)s) AS m
"""


async def store_vectors(database: Database, chats: dict[str, int]) -> None:
    """Store a vector for every message of the chats; the index is made afterwards, in a third of the time."""
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = '300s'")
        found = await connection.execute("SELECT pg_get_indexdef('message_vectors_near_384'::regclass) AS statement")
        row = await found.fetchone()
        assert row is not None
        await connection.execute("DROP INDEX message_vectors_near_384")
        for where, count in chats.items():
            await connection.execute(_VECTORS, {"chat": where})
            await connection.execute(
                "INSERT INTO embedding_progress (conversation_id, embedder, owner_id, vectors) VALUES (%s, 'e', 'local', %s)",
                (where, count),
            )
        await connection.execute(row.statement)
        await connection.execute("ANALYZE message_vectors")


async def test_a_large_group_is_searched_by_the_index_unless_it_is_a_small_part_of_all(database: Database) -> None:
    """A small group is compared one by one; so is a large one among two million vectors, where the index would meet four
    hundred of others for each of this group's."""
    count = EXACT_VECTORS + 1_000
    large, small = await long_chat(database, count), await long_chat(database, 50)
    await store_vectors(database, {large: count, small: 50})
    async with database.statement() as connection:
        vector = await load_vector(connection, "local", large, "m000000000013", embedder="e")
        assert vector is not None

        async def search(where: str, mode: PlanMode) -> tuple[Explained, bool]:
            """Return the plan, and whether the index was used."""
            explained = Explained(connection, mode)
            found = await search_chat(
                explained.as_connection, "local", where, embedder="e", vector=vector, before=datetime.now(UTC)
            )
            assert found[0].message.id == "m000000000013"
            assert found[0].similarity == pytest.approx(1.0, abs=0.001)
            near = [one.similarity or 0.0 for one in found]
            assert near == sorted(near, reverse=True)
            assert len(found) == 8
            assert {one.message.conversation_id for one in found} == {where}
            used = {node.get("Index Name") for node in explained.nodes() if node.get("Actual Loops")}
            return explained, "message_vectors_near_384" in used

        # Of the small one all are compared; beside so few others, by whichever way.
        for (where, walked), mode in product(((large, 150), (small, 2 * MAX_EXACT_VECTORS)), MODES):
            explained, uses_index = await search(where, mode)
            assert uses_index is (where == large)
            assert explained.walked("message_vectors") <= walked
            assert explained.walked("messages") <= 2 * 50 + 8
        await connection.execute(
            "SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', 'message_vectors',"
            " 'reltuples', 2000000::real)"
        )
        for mode in MODES:
            assert not (await search(large, mode))[1]


# ---- by words


async def by_words(database: Database, chat: Chat | str, words: str, **more: Any) -> list[SearchHit]:
    where = chat if isinstance(chat, str) else chat.id
    options: dict[str, Any] = {"embedder": "e", "before": datetime.now(UTC), **more}
    async with database.statement() as connection:
        return await search_chat(connection, options.pop("owner", "local"), where, words=words, **options)


def texts(hits: list[SearchHit]) -> list[str]:
    return [one.message.text for one in hits]


async def test_words_are_found_in_any_form_and_rare_ones_count_for_more(chat: Chat, database: Database) -> None:
    for number in range(20):
        await chat.says(f"shall we meet for dinner on day {number}?")
    await chat.says("dinner at the lighthouse was lovely")
    await chat.says("The lighthouses up north are closed.")
    found = await by_words(database, chat, "dinners near a lighthouse", limit=3)
    assert texts(found)[:2] == ["dinner at the lighthouse was lovely", "The lighthouses up north are closed."]
    assert (found[0].matched, found[1].matched) == (2, 1)
    assert 1 > found[0].share > found[1].share > 0
    assert found[0].similarity is None


@every_case(
    ("said", "asked"),
    [
        ("Der Schlüssel liegt unter der Fußmatte", "wo liegt der Schlüssel?"),
        ("Ключ лежит под ковриком", "где ключ"),
        ("O comboio parte às nove", "a que horas parte o comboio?"),
        ("a file called under_score/and-dash.txt", "under_score"),
        ("it's Caroline's idea", "caroline idea"),
        ("50% off (really!)", "50% off"),
    ],
)
async def test_words_of_other_languages_and_with_marks_are_found(
    chat: Chat, database: Database, said: str, asked: str
) -> None:
    await chat.says("something else")
    await chat.says(said)
    assert texts(await by_words(database, chat, asked)) == [said]


@every_case("words", ["", "...", "the and of", "'", "\\", "a' | 'b", "!!(", "a:*", "x " * 200, "😀"])
async def test_no_question_breaks_the_search(chat: Chat, database: Database, words: str) -> None:
    await chat.says("nothing of it")
    assert await by_words(database, chat, words) == []


async def test_only_what_was_said_in_this_chat_to_this_owner_is_found(chat: Chat, database: Database) -> None:
    await chat.says("the password is swordfish", minutes=1)
    await chat.says("password, in a summary", role="system-summary")
    await chat.says("password, said to itself", metadata='{"synthetic": true}')
    await chat.says("password, later", minutes=50)
    async with database.statement() as connection:
        other = await Conversations(connection).create("local", agent_id="companion", kind="group")
    await Chat(database, other.id).says("password of another chat")
    found = await by_words(database, chat, "password", before=NOON + timedelta(minutes=50))
    assert texts(found) == ["the password is swordfish"]
    assert await by_words(database, chat, "password", owner="eve") == []
    assert await by_words(database, "no such chat", "password") == []


async def test_a_change_changes_the_words_that_are_found_and_what_is_deleted_is_not_found(
    chat: Chat, database: Database
) -> None:
    await chat.says("we meet at the aquarium", id_="changed")
    await chat.says("the aquarium is closed", id_="deleted")
    async with database.statement() as connection:
        await connection.execute("UPDATE messages SET content = 'we meet at the museum' WHERE id = 'changed'")
        await connection.execute("DELETE FROM messages WHERE id = 'deleted'")
    assert await by_words(database, chat, "aquarium") == []
    assert texts(await by_words(database, chat, "museum")) == ["we meet at the museum"]


async def test_a_search_can_be_limited_to_a_topic(chat: Chat, database: Database) -> None:
    here = await chat.says("the tent leaks", thread_id="camping")
    there = await chat.says("the tent is blue", thread_id="shopping")
    nowhere = await chat.says("a tent")
    await remember(database, chat.id, {here: direction(40), there: direction(0), nowhere: direction(0)})
    for words, vector in (("tent", None), ("", direction(0)), ("tent", direction(0))):
        found = await by_words(database, chat, words, vector=vector, thread_id="camping")
        assert [one.message.id for one in found] == [here]
        assert len(await by_words(database, chat, words, vector=vector)) == 3


async def test_what_both_ways_find_comes_first_and_a_named_author_before_others(chat: Chat, database: Database) -> None:
    both = await chat.says("the boat sails at nine", author_id="ana", author_name="Ana")
    words = await chat.says("a boat", author_id="ben", author_name="Ben")
    near = await chat.says("the ship leaves early", author_id="ben", author_name="Ben")
    await remember(database, chat.id, {both: direction(10), near: direction(0), words: direction(90)})
    found = await by_words(database, chat, "boat nine", vector=direction(0))
    assert found[0].message.id == both
    assert {one.message.id: round(one.similarity or 0, 2) for one in found} == {both: 0.98, near: 1.0, words: 0.0}
    found = await by_words(database, chat, "boat nine", vector=direction(0), named=["ben"])
    assert [one.message.author and one.message.author.id for one in found] == ["ben", "ben", "ana"]


async def test_participants_are_those_who_wrote_lately(chat: Chat, database: Database) -> None:
    await chat.says("hi", author_id="ana", author_name="Ana")
    await chat.says("hi", author_id="ben", author_name=None)
    await chat.says("hi", role="assistant", author_id=None, author_name=None)
    async with database.statement() as connection:
        found = await list_participants(connection, "local", chat.id, before=datetime.now(UTC))
        assert await list_participants(connection, "eve", chat.id, before=datetime.now(UTC)) == []
    assert {(one.id, one.name) for one in found} == {("ana", "Ana"), ("ben", "ben")}


async def test_words_are_found_by_their_index_alone(database: Database) -> None:
    """Every message has "message", one in forty of each of two chats "User"-like numbers: only what has the word is read."""
    where, _beside = await long_chat(database), await long_chat(database)
    async with database.statement() as connection:
        for mode in MODES:
            explained = Explained(connection, mode)
            found = await search_chat(
                explained.as_connection, "local", where, embedder="e", words="number 777", before=datetime.now(UTC)
            )
            assert [one.message.text.split(" and")[0] for one in found] == ["message 777"]
            by = {node.get("Index Name") for node in explained.nodes() if node.get("Actual Loops")}
            assert "messages_words" in by
            assert explained.walked("messages") <= 10
            assert "messages" not in explained.whole_scans()


async def test_a_word_that_nearly_every_message_has_costs_a_bounded_look(database: Database) -> None:
    where = await long_chat(database)
    async with database.statement() as connection:
        explained = Explained(connection, "force_generic_plan")
        found = await search_chat(
            explained.as_connection, "local", where, embedder="e", words="message 777", before=datetime.now(UTC)
        )
        assert found[0].message.text.startswith("message 777 ")
        assert explained.walked("messages") <= 1_500


async def test_hostile_texts_are_stored_about_as_fast_as_others(database: Database) -> None:
    """Runs of punctuation take Postgres' own parser quadratic time: a text twice as long may take about twice as long."""
    async with database.statement() as connection:

        async def took(text: str) -> float:
            found = await connection.execute(
                "EXPLAIN (ANALYZE, FORMAT JSON) SELECT message_words(content) FROM (SELECT %s || n::text AS content"
                " FROM generate_series(1, 20) n OFFSET 0) AS texts",
                (text,),
            )
            row = await found.fetchone()
            assert row is not None
            return row[0][0]["Execution Time"]

        plain = min([await took("some words like these " * 182) for _ in range(5)])
        for mark in ("a_", "~/", "a-1-", "a.b.", "/a", "a@b.", "<a ", "1.2e5"):
            assert min([await took(mark * (4_000 // len(mark))) for _ in range(5)]) < 20 * plain, mark
