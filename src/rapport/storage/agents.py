"""Store agents and their versions. Reading finds an owner's agents and those of everyone; an own agent hides one with its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from rapport.domain.agent_profile import AGENT_ID, EVERYONE
from rapport.domain.errors import Conflict, InvalidInput, NotFound
from rapport.storage.database import Connection
from rapport.storage.work.events import NOTIFY_CHANNEL

MAX_AGENTS = 200
"""Agents that one owner may have."""
MAX_VERSIONS = 500
"""Versions of an agent that are kept: the newest, and the first."""

_MAX_INTEGER = 2**31 - 1
"""The largest version that the tables can hold. A larger number is one that no agent has."""

_COLUMNS = "owner_id, id, version, stamp, document, created_at, updated_at"
_VISIBLE = f"owner_id IN (%(owner)s, '{EVERYONE}')"

AGENT_STAMP = f"""(SELECT stamp FROM agents WHERE id = %(agent)s AND {_VISIBLE}
         ORDER BY owner_id = '{EVERYONE}' LIMIT 1)"""
"""The stamp of the agent that an owner means by an id; NULL if there is none. A turn reads it with everything else."""

# One row per id: an own agent comes before one for everyone.
_LIST = f"""
SELECT {_COLUMNS} FROM (
    SELECT DISTINCT ON (id) {_COLUMNS} FROM agents WHERE {_VISIBLE} AND (%(agent)s::text IS NULL OR id = %(agent)s)
    ORDER BY id, owner_id = '{EVERYONE}') visible
ORDER BY owner_id <> '{EVERYONE}', created_at, id
"""

_INSERT = f"""
INSERT INTO agents (owner_id, id, version, document)
SELECT %(owner)s, %(agent)s, 1, %(document)s WHERE (SELECT count(*) FROM agents WHERE owner_id = %(owner)s) < {MAX_AGENTS}
RETURNING {_COLUMNS}
"""
_UPDATE = f"""
UPDATE agents SET version = version + 1, stamp = nextval('agent_stamps'), document = %(document)s,
    updated_at = clock_timestamp()
WHERE owner_id = %(owner)s AND id = %(agent)s AND (%(version)s::integer IS NULL OR version = %(version)s)
RETURNING {_COLUMNS}
"""
_ADD_VERSION = """
INSERT INTO agent_versions (owner_id, id, version, document, author_id)
VALUES (%(owner)s, %(agent)s, %(version)s, %(document)s, %(author)s)
"""
_DROP_OLD_VERSIONS = f"""
DELETE FROM agent_versions WHERE owner_id = %(owner)s AND id = %(agent)s AND version > 1
  AND version <= %(version)s - {MAX_VERSIONS}
"""


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """The newest version of an agent."""

    owner_id: str
    id: str
    version: int
    stamp: int
    document: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """One version of an agent, and who made it."""

    version: int
    document: Mapping[str, Any]
    author_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Agents:
    """Call the methods that write within a transaction."""

    connection: Connection

    async def find(self, owner_id: str, agent_id: str) -> StoredAgent | None:
        """Return the owner's agent with this id, else the one of everyone, else None."""
        if not AGENT_ID.fullmatch(agent_id):
            return None
        cursor = await self.connection.execute(_LIST.encode(), {"owner": owner_id, "agent": agent_id})
        row = await cursor.fetchone()
        return StoredAgent(**row._asdict()) if row else None

    async def list_visible(self, owner_id: str) -> list[StoredAgent]:
        """Return the agents that the owner may use: those of everyone first, then their own, the oldest first."""
        cursor = await self.connection.execute(_LIST.encode(), {"owner": owner_id, "agent": None})
        return [StoredAgent(**row._asdict()) for row in await cursor.fetchall()]

    async def list_all(self) -> list[StoredAgent]:
        """Return the agents of all owners, for the operator."""
        cursor = await self.connection.execute(f"SELECT {_COLUMNS} FROM agents ORDER BY owner_id, id".encode())
        return [StoredAgent(**row._asdict()) for row in await cursor.fetchall()]

    async def insert(self, owner_id: str, agent_id: str, document: Mapping[str, Any], *, author_id: str) -> StoredAgent:
        """Store a new agent. Raise Conflict if the owner has one with this id, InvalidInput if they have too many."""
        facts = {"owner": owner_id, "agent": agent_id, "document": Jsonb(dict(document))}
        try:
            cursor = await self.connection.execute(_INSERT.encode(), facts)
        except UniqueViolation:
            raise Conflict(f"There is an agent {agent_id!r} already.") from None
        row = await cursor.fetchone()
        if row is None:
            raise InvalidInput(f"There are {MAX_AGENTS} agents already: delete some first.")
        return await self._record_version(StoredAgent(**row._asdict()), author_id)

    async def update(
        self,
        owner_id: str,
        agent_id: str,
        document: Mapping[str, Any],
        *,
        author_id: str,
        version: int | None = None,
    ) -> StoredAgent:
        """Store a new version. With `version` only if that is still the newest: raise Conflict otherwise."""
        facts = {
            "owner": owner_id,
            "agent": agent_id,
            "document": Jsonb(dict(document)),
            "version": None if version is None else _limit(version),
        }
        row = await (await self.connection.execute(_UPDATE.encode(), facts)).fetchone()
        if row is None:
            stored = await self.find(owner_id, agent_id)
            if stored is None or stored.owner_id != owner_id:
                raise no_such_agent(agent_id)
            raise make_outdated_error(stored)
        return await self._record_version(StoredAgent(**row._asdict()), author_id)

    async def _record_version(self, stored: StoredAgent, author_id: str) -> StoredAgent:
        facts = {
            "owner": stored.owner_id,
            "agent": stored.id,
            "version": stored.version,
            "document": Jsonb(dict(stored.document)),
            "author": author_id,
        }
        await self.connection.execute(_ADD_VERSION, facts)
        await self.connection.execute(_DROP_OLD_VERSIONS.encode(), facts)
        await self._notify()
        return stored

    async def delete(self, owner_id: str, agent_id: str) -> None:
        """Delete an agent with its versions; raise NotFound if the owner has none with this id."""
        cursor = await self.connection.execute(
            "DELETE FROM agents WHERE owner_id = %s AND id = %s", (owner_id, agent_id)
        )
        if cursor.rowcount == 0:
            raise no_such_agent(agent_id)
        await self._notify()

    async def list_budgets(self) -> dict[str, int]:
        """Return the monthly budgets of the agents that have one, by the id of the budget."""
        cursor = await self.connection.execute(
            "SELECT owner_id, id, (document ->> 'monthly_token_budget')::bigint AS tokens FROM agents"
            " WHERE document ->> 'monthly_token_budget' IS NOT NULL ORDER BY owner_id, id"
        )
        rows = await cursor.fetchall()
        return {row.id if row.owner_id == EVERYONE else f"{row.owner_id}/{row.id}": row.tokens for row in rows}

    async def list_versions(
        self, owner_id: str, agent_id: str, *, limit: int, before: int | None = None
    ) -> list[AgentVersion]:
        """Return the versions of an agent, the newest first; `before` is the last one of the page before."""
        before = None if before is None else _limit(before)
        cursor = await self.connection.execute(
            "SELECT version, document, author_id, created_at FROM agent_versions"
            " WHERE owner_id = %s AND id = %s AND (%s::integer IS NULL OR version < %s) ORDER BY version DESC LIMIT %s",
            (owner_id, agent_id, before, before, limit),
        )
        return [AgentVersion(**row._asdict()) for row in await cursor.fetchall()]

    async def find_version(self, owner_id: str, agent_id: str, version: int) -> AgentVersion | None:
        """Return one version; None if it is not kept."""
        found = await self.list_versions(owner_id, agent_id, limit=1, before=version + 1)
        return found[0] if found and found[0].version == version else None

    async def _notify(self) -> None:
        """Tell the other processes that agents have changed: a hint at the commit, for the handles that they keep."""
        await self.connection.execute("SELECT pg_notify(%s, 'agents')", (NOTIFY_CHANNEL,))


def _limit(version: int) -> int:
    return max(0, min(version, _MAX_INTEGER))


def make_outdated_error(stored: StoredAgent) -> Conflict:
    """Return the error for a change of a version that is not the newest."""
    return Conflict(
        f"The agent {stored.id!r} was changed meanwhile: its newest version is {stored.version}. Read it and try again."
    )


def no_such_agent(agent_id: str) -> NotFound:
    """Return the error for an agent that is missing or somebody else's."""
    return NotFound(f"There is no agent {agent_id[:64]!r}.")
