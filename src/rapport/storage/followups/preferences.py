"""Store the preferences of owners: time zone and quiet hours."""

from __future__ import annotations

from dataclasses import dataclass

from rapport.domain.follow_up_requests import Preference
from rapport.storage.database import Connection


@dataclass(frozen=True, slots=True)
class Preferences:
    connection: Connection

    async def get(self, owner_id: str, *, lock: bool = False) -> Preference:
        """Return the owner's preference, or the default. With `lock` nobody else changes it until the commit."""
        if lock:  # on the owner, not on a row that may not be there yet
            await self.connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('preferences ' || %s, 0))", (owner_id,)
            )
        cursor = await self.connection.execute(
            "SELECT time_zone, quiet_from, quiet_to FROM preferences WHERE owner_id = %s", (owner_id,)
        )
        row = await cursor.fetchone()
        return Preference(row.time_zone, row.quiet_from, row.quiet_to) if row else Preference()

    async def put(self, owner_id: str, preference: Preference) -> None:
        """Store the preference in place of the previous one."""
        await self.connection.execute(
            "INSERT INTO preferences (owner_id, time_zone, quiet_from, quiet_to) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (owner_id) DO UPDATE SET time_zone = excluded.time_zone, quiet_from = excluded.quiet_from,"
            " quiet_to = excluded.quiet_to",
            (owner_id, preference.time_zone, preference.quiet_from, preference.quiet_to),
        )
