"""What the run does inside our server's embedded Postgres: seed long threads, read how much was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo
from ulid import ULID

if TYPE_CHECKING:
    from pathlib import Path

# Columns not named here may be null or have a default.
COPY = "COPY messages (conversation_id, id, owner_id, role, content, created_at) FROM STDIN"


def conninfo(pg_data: Path) -> str:
    """Where the database with our tables is, from what Postgres itself wrote into its data directory."""
    lines = (pg_data / "postmaster.pid").read_text().splitlines()
    port, folder, address = (line.strip() for line in lines[3:6])
    server = make_conninfo(host=folder or address, port=port, user="postgres")
    names = "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname"
    with psycopg.connect(server, dbname="postgres") as connection:
        databases = [str(name) for (name,) in connection.execute(names)]
    for name in databases:
        with psycopg.connect(server, dbname=name) as connection:
            found = connection.execute("SELECT to_regclass('messages') IS NOT NULL").fetchone()
        if found == (True,):
            return make_conninfo(server, dbname=name)
    raise RuntimeError(f"no database of {pg_data} has a table messages")


def seed(server: str, conversation_id: str, contents: list[str]) -> None:
    """Writes these messages into a thread as if one was said every second until now.

    User and assistant take turns. The table is analysed, and not vacuumed from here on: that would run into a
    measurement. Seed contents as long as real ones: where a new message is shorter than the gap at the end of
    a seeded page, it goes there, and the first touch of each such page writes it whole to the log.
    """
    with psycopg.connect(server, autocommit=True) as connection:
        row = connection.execute("SELECT owner_id FROM conversations WHERE id = %s", [conversation_id]).fetchone()
        if row is None:
            raise RuntimeError(f"no conversation {conversation_id} to seed")
        first = datetime.now(UTC) - timedelta(seconds=len(contents))
        times = [first + timedelta(seconds=n) for n in range(len(contents))]
        connection.execute("ALTER TABLE messages SET (autovacuum_enabled = off)")
        with connection.transaction(), connection.cursor() as cursor:
            with cursor.copy(COPY) as copy:
                for n, (at, content) in enumerate(zip(times, contents, strict=True)):
                    role = ("user", "assistant")[n % 2]
                    copy.write_row((conversation_id, str(ULID.from_datetime(at)), row[0], role, content, at))
            # Message times of a conversation only rise, and the server takes the last one from here.
            newest = "UPDATE conversations SET last_at = greatest(last_at, %s) WHERE id = %s"
            cursor.execute(newest, [times[-1], conversation_id])
        connection.execute("ANALYZE messages")


class WriteAheadLog:
    """Reads the log's end over one connection, so that reading it leaves nothing to be counted."""

    def __init__(self, server: str) -> None:
        self._connection = psycopg.connect(server, autocommit=True)

    def checkpoint(self) -> None:
        """From here on the first touch of each page writes it whole, and no later one does."""
        self._connection.execute("CHECKPOINT")

    def bytes_so_far(self) -> int:
        position = self._connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert position is not None
        return int(position[0])

    def close(self) -> None:
        self._connection.close()
