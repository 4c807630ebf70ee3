"""Apply migrations: numbered SQL files, up and down, in one transaction, under one lock for all processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources

from psycopg import errors

from rapport.domain.errors import Permanent
from rapport.storage.database import Connection, Database

_LOCK = 0x7261_7070  # "rapp": the advisory lock of every process that migrates
_FILE = re.compile(r"(\d{4})_(\w+)\.up\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    up: str
    down: str


def list_migrations() -> list[Migration]:
    """Return all migrations of this version, oldest first."""
    folder = resources.files("rapport.storage.migrations")
    migrations: list[Migration] = []
    for file in folder.iterdir():
        if match := _FILE.fullmatch(file.name):
            down_file = folder / file.name.replace(".up.sql", ".down.sql")
            migrations.append(Migration(int(match[1]), match[2], file.read_text(), down_file.read_text()))
    return sorted(migrations, key=lambda migration: migration.version)


@asynccontextmanager
async def schema_lock(database: Database) -> AsyncGenerator[None]:
    """Hold the lock for changes of the schema, Rapport's tables and LangGraph's; other processes wait."""
    async with database.statement() as connection:
        # Polled, because LangGraph builds indexes concurrently: such a build waits for every running statement, and would
        # wait for one that waits for this lock.
        while not await _try_lock(connection):
            await asyncio.sleep(0.05)
        try:
            yield
        finally:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


async def _try_lock(connection: Connection) -> bool:
    row = await (await connection.execute("SELECT pg_try_advisory_lock(%s) AS has_lock", (_LOCK,))).fetchone()
    return row is not None and bool(row.has_lock)


async def migrate(database: Database, *, to: int | None = None) -> list[str]:
    """Bring the schema to version `to` (the newest by default); return the steps taken. Call it under `schema_lock`."""
    migrations = list_migrations()
    target = migrations[-1].version if to is None else to
    steps: list[str] = []
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = 0")  # a migration may take as long as it needs
        applied = await load_applied_versions(connection)
        if unknown := applied - {migration.version for migration in migrations}:
            raise Permanent(
                f"The database was migrated to version {max(unknown)} by a newer Rapport; this one knows up to"
                f" {migrations[-1].version}. Upgrade this installation."
            )
        for migration in migrations:
            if migration.version <= target and migration.version not in applied:
                try:
                    await connection.execute(migration.up.encode(), prepare=False)
                except (errors.FeatureNotSupported, errors.UndefinedFile, errors.InsufficientPrivilege) as error:
                    raise Permanent(
                        f"Migration {migration.version} can't be applied: {error.diag.message_primary}. Rapport needs a"
                        " Postgres with pgvector, and either the right to create extensions or `CREATE EXTENSION vector`"
                        " done by somebody who has it."
                    ) from error
                await connection.execute(
                    "INSERT INTO schema_migrations (version, name) VALUES (%s, %s)",
                    (migration.version, migration.name),
                )
                steps.append(f"up {migration.version:04d} {migration.name}")
        for migration in reversed(migrations):
            if migration.version > target and migration.version in applied:
                await connection.execute(migration.down.encode(), prepare=False)
                await connection.execute("DELETE FROM schema_migrations WHERE version = %s", (migration.version,))
                steps.append(f"down {migration.version:04d} {migration.name}")
    return steps


async def load_applied_versions(connection: Connection) -> set[int]:
    """Return the versions that are applied; create the table of versions if there is none."""
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    rows = await (await connection.execute("SELECT version FROM schema_migrations")).fetchall()
    return {int(row.version) for row in rows}
