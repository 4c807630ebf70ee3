"""Seed long conversations in the embedded Postgres of the measured server, and read how much it has written."""

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
    """Return the connection string of the database with Rapport's tables, from the files in Postgres's data directory."""
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
    """Insert these messages into a conversation, one per second until now, alternately from user and assistant.

    The table is analysed, and autovacuum is off from here on: it would disturb a measurement. Seed contents as long as real
    ones: a new message that is shorter than the free space of a seeded page is stored there, and the first change of each such
    page writes the whole page to the log.
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
            # Message times of a conversation only increase, and the server reads the last one from this column.
            newest = "UPDATE conversations SET last_at = greatest(last_at, %s) WHERE id = %s"
            cursor.execute(newest, [times[-1], conversation_id])
        connection.execute("ANALYZE messages")


class WriteAheadLog:
    """Read the end of the write-ahead log over one connection, so that reading it writes nothing to the log."""

    def __init__(self, server: str) -> None:
        self._connection = psycopg.connect(server, autocommit=True)

    def checkpoint(self) -> None:
        """Start a checkpoint: after it, only the first change of each page writes the whole page to the log."""
        self._connection.execute("CHECKPOINT")

    def bytes_so_far(self) -> int:
        position = self._connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert position is not None
        return int(position[0])

    def close(self) -> None:
        self._connection.close()
