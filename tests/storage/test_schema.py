"""Test the schema: migrations produce the declared one, up and down, also when several processes run them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, TypeAlias

import psycopg
import pytest

from rapport.domain.errors import Permanent
from rapport.domain.note_scope import NoteScope
from rapport.storage.database import Database
from rapport.storage.messages.summaries import Summaries
from rapport.storage.migrate import list_migrations, migrate, schema_lock
from rapport.storage.notes.visible_notes import VisibleNotes
from rapport.storage.postgres.embedded import EmbeddedPostgres
from rapport.storage.vector_index import has_vector_index
from tests.support.waiting import LIMIT_SECONDS

Shape: TypeAlias = dict[str, list[tuple[Any, ...]]]

# Not ours to declare: the migrations' own memory, and what LangGraph makes for itself.
THEIRS = "('schema_migrations', 'checkpoints', 'checkpoint_blobs', 'checkpoint_writes', 'checkpoint_migrations')"

# Everything that makes up a schema, each by names and definitions alone: no object ids, no order of creation.
CATALOGUE = {
    "tables": f"""
        SELECT relname::text, relkind::text, relpersistence::text, relrowsecurity FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
          AND relname NOT IN {THEIRS}""",
    "columns": f"""
        SELECT c.relname::text, a.attnum::int, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity::text, a.attgenerated::text, a.attcollation::regcollation::text,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0
          AND NOT a.attisdropped AND c.relname NOT IN {THEIRS}""",
    "constraints": f"""
        SELECT c.relname::text, n.conname::text, n.contype::text, n.convalidated, n.condeferrable,
               pg_get_constraintdef(n.oid)
        FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
        WHERE n.connamespace = 'public'::regnamespace AND c.relname NOT IN {THEIRS}""",
    "indexes": f"""
        SELECT t.relname::text, pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisunique
        FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
        WHERE t.relnamespace = 'public'::regnamespace AND t.relname NOT IN {THEIRS}""",
    "triggers": "SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": """
        SELECT p.proname::text, pg_get_function_identity_arguments(p.oid), p.prosrc FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')""",
    "types": """
        SELECT t.typname::text, t.typtype::text FROM pg_type t
        WHERE t.typnamespace = 'public'::regnamespace AND t.typtype IN ('e', 'd', 'r')
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = t.oid AND d.deptype = 'e')""",
    "extensions": "SELECT extname::text FROM pg_extension WHERE extname <> 'plpgsql'",
}


def shape(url: str) -> Shape:
    """Return the definitions of all objects of the schema."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {
            name: sorted(connection.execute(query.encode()).fetchall(), key=repr) for name, query in CATALOGUE.items()
        }


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Database]:
    database = Database(url, max_size=4)
    await database.open()
    yield database
    await database.close()


async def run_migrations(url: str, to: int | None = None) -> list[str]:
    async with opened(url) as database, schema_lock(database):
        return await migrate(database, to=to)


def declare(url: str) -> None:
    """Make the schema as it is declared, without any migration."""
    declared = resources.files("rapport.storage").joinpath("schema.sql").read_text()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(declared.encode())


async def test_migrations_lead_to_the_declared_schema(postgres: EmbeddedPostgres, empty_database: str) -> None:
    declare(empty_database)
    declared = shape(empty_database)
    assert len(declared["tables"]) >= 6
    with psycopg.connect(postgres.url_for("postgres"), autocommit=True) as connection:
        connection.execute('CREATE DATABASE "migrated_by_test_schema" TEMPLATE template0')
        try:
            await run_migrations(postgres.url_for("migrated_by_test_schema"))
            migrated = shape(postgres.url_for("migrated_by_test_schema"))
        finally:
            connection.execute('DROP DATABASE "migrated_by_test_schema" WITH (FORCE)')
    for part in CATALOGUE:
        assert migrated[part] == declared[part], part


def test_a_running_servers_database_has_the_declared_schema(database_url: str, empty_database: str) -> None:
    """LangGraph's tables beside ours change nothing of it."""
    declare(empty_database)
    assert shape(database_url) == shape(empty_database)


async def test_keys_of_the_local_user_become_keys_of_an_operator(empty_database: str) -> None:
    await run_migrations(empty_database, to=12)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        for owner in ("local", "ana", "*"):
            connection.execute(
                "INSERT INTO api_keys (id, owner_id, name, hash) VALUES (%s, %s, 'laptop', %s)",
                (owner, owner, owner.encode()),
            )
        await run_migrations(empty_database)
        rows = connection.execute("SELECT id, role, revoked_at IS NULL FROM api_keys ORDER BY id").fetchall()
    assert rows == [("*", "user", False), ("ana", "user", True), ("local", "operator", True)]


async def test_going_down_and_up_again_changes_nothing(empty_database: str) -> None:
    nothing = shape(empty_database)
    newest = list_migrations()[-1].version
    # Each step on its own, so that every down file is proven against the very version before it.
    at: dict[int, Shape] = {0: nothing}
    for version in range(1, newest + 1):
        await run_migrations(empty_database, to=version)
        at[version] = shape(empty_database)
    for version in reversed(range(newest)):
        await run_migrations(empty_database, to=version)
        assert shape(empty_database) == at[version], f"down to {version}"
    assert shape(empty_database) == nothing
    assert await run_migrations(empty_database) == [f"up {one.version:04d} {one.name}" for one in list_migrations()]
    assert shape(empty_database) == at[newest]
    assert await run_migrations(empty_database) == []


@pytest.mark.parametrize("whose", ["somebody else's", "used by somebody else"])
async def test_an_extension_that_is_not_only_ours_stays_when_we_go(empty_database: str, whose: str) -> None:
    """An administrator has often made it, for a role that may not; and others may have vectors in this database too."""
    role = f"plain_{empty_database.partition('?')[0].rpartition('/')[2]}"
    url = empty_database
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        if whose == "somebody else's":
            connection.execute(f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}".encode())
            url = empty_database.replace("//postgres@", f"//{role}@")
            assert url != empty_database
        else:
            connection.execute("CREATE TABLE embeddings (vector vector(3))")
        assert await run_migrations(url) == [f"up {one.version:04d} {one.name}" for one in list_migrations()]
        await run_migrations(url, to=1)
        assert connection.execute("SELECT to_regclass('points'), to_regtype('vector') IS NOT NULL").fetchall() == [
            (None, True)
        ]
        assert await run_migrations(url) == [
            f"up {one.version:04d} {one.name}" for one in list_migrations() if one.version > 1
        ]
        if url != empty_database:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


async def test_a_conversation_of_version_1_survives_migration_up_and_down(empty_database: str) -> None:
    """Messages from before there were summaries stay as they were, up and down; going down drops the summary."""
    await run_migrations(empty_database, to=1)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO conversations (id, owner_id, agent_id, kind, channel) VALUES ('c', 'o', 'a', 'direct', 'api')"
        )
        connection.execute(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
            " SELECT 'c', 'm' || n, 'o', CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, 'line ' || n,"
            " clock_timestamp() FROM generate_series(1, 20) n"
        )
        said = connection.execute("SELECT * FROM messages ORDER BY created_at, id").fetchall()
        await run_migrations(empty_database)
        assert connection.execute(
            "SELECT summary_id, summarized_until = '-infinity', model_failed_at, breaker_open_until FROM conversations"
        ).fetchall() == [(None, True, [], None)]
        async with opened(empty_database) as database, database.statement() as own:
            backlog = await Summaries(own).load_backlog("o", "c", limit=100)
            assert [message.text for message in backlog.messages] == [f"line {n}" for n in range(1, 21)]
            upto = backlog.messages[9]
            summary = await Summaries(own).store("o", "c", text="…", upto=upto, previous=None, source_ids=[])
        assert summary is not None
        assert summary.metadata["replaced"] == 10
        await run_migrations(empty_database, to=1)
        assert connection.execute("SELECT * FROM messages ORDER BY created_at, id").fetchall() == said


async def test_migration_marks_the_agents_earlier_messages_as_a_bots(empty_database: str) -> None:
    """The agent's own messages of version 3 are a bot's; going back loses nothing that was said."""
    await run_migrations(empty_database, to=3)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO conversations (id, owner_id, agent_id, kind, channel) VALUES ('c', 'o', 'a', 'group', 'api')"
        )
        connection.execute(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at) VALUES"
            " ('c', 'm1', 'o', 'user', 'hello', now()), ('c', 'm2', 'o', 'assistant', 'hi', now())"
        )
        said = connection.execute("SELECT * FROM messages ORDER BY id").fetchall()
        await run_migrations(empty_database)
        assert connection.execute("SELECT id, is_bot, mentions, thread_id FROM messages ORDER BY id").fetchall() == [
            ("m1", False, [], None),
            ("m2", True, [], None),
        ]
        connection.execute(
            "INSERT INTO embedding_progress (conversation_id, embedder, owner_id) VALUES ('c', 'e', 'o')"
        )
        connection.execute(
            "INSERT INTO message_vectors (conversation_id, message_id, embedder, owner_id, created_at, embedding)"
            " SELECT conversation_id, id, 'e', owner_id, created_at, '[1, 0]' FROM messages"
        )
        await run_migrations(empty_database, to=3)
        assert connection.execute("SELECT * FROM messages ORDER BY id").fetchall() == said


async def test_a_group_that_had_moved_is_still_known_by_its_first_id(empty_database: str) -> None:
    """Version 8 moves the first id out of the conversation's row; going back restores it."""
    await run_migrations(empty_database, to=7)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO conversations (id, owner_id, agent_id, kind, channel)"
            " SELECT 'c' || n, 'o', 'a', 'group', 'telegram' FROM generate_series(1, 2) n"
        )
        connection.execute("INSERT INTO telegram_chats VALUES (7, -1001, 'c1', 'o', -5), (7, -6, 'c2', 'o', -6)")
        kept = connection.execute("SELECT * FROM telegram_chats ORDER BY chat_id").fetchall()
        await run_migrations(empty_database)
        assert connection.execute("SELECT * FROM telegram_chat_migrations").fetchall() == [(7, -1001, -5)]
        await run_migrations(empty_database, to=7)
        assert connection.execute("SELECT * FROM telegram_chats ORDER BY chat_id").fetchall() == kept


ROWS_OF_VERSION_10 = """
INSERT INTO conversations (id, owner_id, agent_id, kind, channel, spoken, unanswered, followups, autonomy, unreachable_at)
VALUES ('c', 'o', 'a', 'direct', 'telegram', 3, 1, 2, true, now());
INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at, platform_id)
VALUES ('c', 'm', 'o', 'user', 'hello', now(), '5/1');
INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, spoken) VALUES ('c', 'm', 'o', 'queued', 'w', 3);
INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, matter, origin, spoken, due_at, sources)
VALUES ('c', 't', 'follow-up', 'o', 'check_in', 'the exam', 'planner', 3, now(), '{m}');
INSERT INTO outbox (conversation_id, id, owner_id, channel, message_id, state, platform_ids, spoken)
VALUES ('c', 'r', 'o', 'telegram', 'r', 'doubtful', '["5/2"]', 3);
INSERT INTO notes (owner_id, id, title, text, hash, embedder, chunks) VALUES ('o', 'n', 'N', 'text', 'h', 'e', 1);
INSERT INTO chunks (owner_id, note_id, position, embedder, heading, text, words)
VALUES ('o', 'n', 0, 'e', '', 'text', to_tsvector('english', 'text'));
INSERT INTO points (owner_id, note_id, position, number, embedder, embedding) VALUES ('o', 'n', 0, 0, 'e', '[1, 0]');
INSERT INTO shelves (owner_id, embedder, chunks, min_similarity) VALUES ('o', 'e', 1, 0.25);
-- The index of a second vector length, as it is created before an embedder's first note is stored.
CREATE INDEX points_near_2 ON points USING hnsw ((embedding::halfvec(2)) halfvec_cosine_ops) WHERE vector_dims(embedding) = 2;
"""


async def test_rows_of_version_10_keep_their_data_under_the_new_names(empty_database: str) -> None:
    """Version 11 renames tables, columns and one state of the outbox; going back restores every row."""
    await run_migrations(empty_database, to=10)
    tables = ("conversations", "messages", "events", "timers", "outbox", "notes", "chunks", "points", "shelves")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(ROWS_OF_VERSION_10)

        def load_rows() -> dict[str, list[tuple[Any, ...]]]:
            # As text, because no datetime can hold -infinity.
            return {table: connection.execute(f"SELECT r::text FROM {table} r".encode()).fetchall() for table in tables}

        rows, schema = load_rows(), shape(empty_database)
        assert all(len(found) == 1 for found in rows.values())
        await run_migrations(empty_database)
        read = connection.execute
        assert read(
            "SELECT user_message_count, open_event_count, consecutive_followups, autonomy_enabled,"
            " unreachable_since IS NOT NULL FROM conversations"
        ).fetchall() == [(3, 1, 2, True, True)]
        assert read("SELECT content, platform_id FROM messages").fetchall() == [("hello", "5/1")]
        assert read("SELECT state, user_message_count FROM events").fetchall() == [("queued", 3)]
        assert read("SELECT topic, user_message_count, sources FROM timers").fetchall() == [("the exam", 3, ["m"])]
        assert read("SELECT state, platform_ids FROM outbox").fetchall() == [("unconfirmed", ["5/2"])]
        assert read("SELECT chunks, min_similarity FROM note_counts").fetchall() == [(1, 0.25)]
        async with opened(empty_database) as database, database.statement() as own:
            assert await has_vector_index(own, "sentence_vectors", 2)
            assert await has_vector_index(own, "sentence_vectors", 384)
            sample = await VisibleNotes(own).sample_vectors(NoteScope("o"), "e", limit=5)
        assert [(note_id, chunk.text, list(vector)) for note_id, _, chunk, vector in sample] == [("n", "text", [1, 0])]
        await run_migrations(empty_database, to=10)
        assert load_rows() == rows
        assert shape(empty_database) == schema


async def test_several_that_migrate_at_once_do_it_once(empty_database: str) -> None:
    done = await asyncio.gather(*(run_migrations(empty_database) for _ in range(4)))
    assert sorted(map(len, done)) == [0, 0, 0, len(list_migrations())]
    with psycopg.connect(empty_database, autocommit=True) as connection:
        rows = connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
    assert rows == [(one.version,) for one in list_migrations()]


def test_processes_that_migrate_at_once_all_succeed(empty_database: str) -> None:
    script = (
        "import asyncio, sys\n"
        "from rapport.storage.database import Database\n"
        "from rapport.storage.migrate import migrate, schema_lock\n"
        "async def main():\n"
        "    database = Database(sys.argv[1], max_size=2)\n"
        "    await database.open()\n"
        "    sys.stdin.readline()\n"
        "    async with schema_lock(database):\n"
        "        steps = await migrate(database)\n"
        "    await database.close()\n"
        "    sys.stdout.write(str(len(steps)))\n"
        "asyncio.run(main())\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script, empty_database]
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate(timeout=LIMIT_SECONDS) for process in processes]
    assert [err for _, err in results] == ["", ""]
    assert sorted(out for out, _ in results) == ["0", str(len(list_migrations()))]


async def test_a_failed_migration_leaves_the_schema_as_it_was(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE outbox (in_the_way int)")
    before = shape(empty_database)
    with pytest.raises(Permanent):
        await run_migrations(empty_database)
    assert shape(empty_database) == before
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("DROP TABLE outbox")
    assert len(await run_migrations(empty_database)) == len(list_migrations())


@pytest.mark.parametrize("to", [None, 0])
async def test_a_database_of_a_newer_version_is_left_alone(database_url: str, to: int | None) -> None:
    newest = list_migrations()[-1].version
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO schema_migrations (version, name) VALUES (%s, 'later')", (newest + 7,))
    before = shape(database_url)
    with pytest.raises(Permanent, match=rf"version {newest + 7} by a newer Rapport.*up to {newest}\. Upgrade"):
        await run_migrations(database_url, to=to)
    assert shape(database_url) == before


def test_every_migration_has_its_way_back() -> None:
    names = sorted(file.name for file in resources.files("rapport.storage.migrations").iterdir())
    ups = [name for name in names if name.endswith(".up.sql")]
    downs = [name for name in names if name.endswith(".down.sql")]
    assert [name.replace(".up.", ".down.") for name in ups] == downs
    assert {name for name in names if name.endswith(".sql")} == {*ups, *downs}
    versions = [one.version for one in list_migrations()]
    assert versions == sorted(set(versions))
    assert len(versions) == len(ups)
    for one in list_migrations():
        assert one.up.strip()
        assert one.down.strip()
