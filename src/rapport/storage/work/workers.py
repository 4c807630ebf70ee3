"""Register the processes that run turns, and requeue the work of dead ones."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from rapport.storage.database import Connection

LEASE_SECONDS = 15
"""A worker counts as dead when it has not renewed its lease for this long."""
GRACE_SECONDS = 2
"""Time for a worker that has lost its session to reconnect before others take over its turns."""

_WORKER_LOCK_CLASS = 0x7072_6573  # "pres": the class of the advisory locks on worker numbers
_LEADER_LOCK_CLASS = 0x7761_7463  # "watc": the class of the leader locks
_PARAMETERS = {"class": _WORKER_LOCK_CLASS, "lease": LEASE_SECONDS, "grace": GRACE_SECONDS}

# A worker is alive while it renews its lease. Its death is detected sooner when the session that held its advisory lock has
# ended, which the kernel ensures even on kill -9.
_ALIVE = """
    w.lease_until > clock_timestamp() AND (
        w.lease_until BETWEEN clock_timestamp() + (%(lease)s - %(grace)s) * interval '1 second'
                          AND clock_timestamp() + %(lease)s * interval '1 second'  -- later: the clock went back
        OR EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.classid = %(class)s::int::oid AND l.objid = w.number::oid AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())))
"""


@dataclass(frozen=True, slots=True)
class Workers:
    """Register workers, renew their leases, and reap dead ones."""

    connection: Connection

    async def join(self, worker_id: str) -> None:
        """Register the worker on this connection: it counts as alive while the connection stays open."""
        cursor = await self.connection.execute(
            "INSERT INTO workers (id, host, pid, lease_until) VALUES (%s, %s, %s, clock_timestamp() + %s * interval '1 second')"
            # After a lost connection the same worker joins again and keeps its number.
            " ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until RETURNING number",
            (worker_id, socket.gethostname(), os.getpid(), LEASE_SECONDS),
        )
        row = await cursor.fetchone()
        assert row is not None
        await self.connection.execute("SELECT pg_advisory_lock(%s, %s)", (_WORKER_LOCK_CLASS, row.number))

    async def renew(self, worker_id: str) -> bool:
        """Extend the lease; return False if others have already removed this worker."""
        cursor = await self.connection.execute(
            "UPDATE workers SET lease_until = clock_timestamp() + %s * interval '1 second' WHERE id = %s",
            (LEASE_SECONDS, worker_id),
        )
        return cursor.rowcount == 1

    async def has_others(self, worker_id: str) -> bool:
        """Return True if another worker is registered, alive or dead but not yet reaped."""
        cursor = await self.connection.execute(
            "SELECT EXISTS (SELECT FROM workers WHERE id <> %s) AS has_others", (worker_id,)
        )
        row = await cursor.fetchone()
        return row is not None and row.has_others

    async def leave(self, worker_id: str) -> None:
        """Unregister the worker; `reap_dead_workers` requeues its work as if it had died."""
        await self.connection.execute("DELETE FROM workers WHERE id = %s", (worker_id,))

    async def reap_dead_workers(self, *, except_for: str) -> int:
        """Requeue the events of dead workers and remove those workers; return how many events."""
        # NOT EXISTS per row, so that a row whose worker is unknown counts as orphaned too.
        parameters = {**_PARAMETERS, "me": except_for}
        orphaned = f"worker_id <> %(me)s AND NOT EXISTS (SELECT FROM workers w WHERE w.id = worker_id AND {_ALIVE})"
        cursor = await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, due_at = clock_timestamp()"
            f" WHERE state = 'running' AND {orphaned}".encode(),
            parameters,
        )
        # A send in progress may have arrived: it is confirmed before it is repeated.
        await self.connection.execute(
            f"UPDATE outbox SET state = 'unconfirmed' WHERE state = 'sending' AND {orphaned}".encode(), parameters
        )
        await self.connection.execute(
            f"DELETE FROM workers w WHERE w.id <> %(me)s AND NOT ({_ALIVE})".encode(), parameters
        )
        return cursor.rowcount


async def try_leader_lock(connection: Connection, name: str) -> bool:
    """Try to take the leader lock of that name; return True if this connection holds it, until it is closed."""
    cursor = await connection.execute(
        "SELECT pg_try_advisory_lock(%s, hashtext(%s)) AS is_held", (_LEADER_LOCK_CLASS, name)
    )
    row = await cursor.fetchone()
    return row is not None and row.is_held
