"""Open the database for commands that need nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rapport.agents.directory import AgentDirectory
from rapport.app import open_database
from rapport.core.agents import AgentLibrary, AgentStore, store_shipped_agents
from rapport.settings import Settings
from rapport.storage.database import Database
from rapport.storage.migrate import migrate, schema_lock


@asynccontextmanager
async def open_migrated_database(settings: Settings) -> AsyncGenerator[Database]:
    """Open the database and bring its schema up to date."""
    async with open_database(settings) as database:
        async with schema_lock(database):
            await migrate(database)
            await store_shipped_agents(database)
        yield database


def open_agents(database: Database) -> AgentLibrary:
    """Return the agents of the database."""
    return AgentLibrary(database, AgentDirectory(AgentStore(database)))
