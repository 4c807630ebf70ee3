"""Store what models have been seen to do, by model and server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rapport.storage.database import Connection

MAX_AGE_DAYS = 30
"""An older record is not used: another model may have the same name by now."""


@dataclass(frozen=True, slots=True)
class ModelRecords:
    connection: Connection

    async def load(self, model: str, server: str) -> Mapping[str, int]:
        """Return the facts about this model on this server; none if they are unknown or too old."""
        cursor = await self.connection.execute(
            "SELECT facts FROM model_records WHERE model = %s AND server = %s"
            " AND updated_at > clock_timestamp() - %s * interval '1 day'",
            (model, server, MAX_AGE_DAYS),
        )
        row = await cursor.fetchone()
        return row.facts if row else {}

    async def store(self, model: str, server: str, facts: Mapping[str, int]) -> None:
        """Store the facts in place of the previous ones."""
        await self.connection.execute(
            "INSERT INTO model_records (model, server, facts) VALUES (%s, %s, %s) ON CONFLICT (model, server)"
            " DO UPDATE SET facts = excluded.facts, updated_at = clock_timestamp()",
            (model, server, Jsonb(dict(facts))),
        )
