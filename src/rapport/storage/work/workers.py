"""Workers: which processes are there to run turns, and what the dead ones left behind."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from rapport.storage.database import Connection

LEASE_SECONDS = 15
GRACE_SECONDS = 2
"""How long a worker that has lost its session may take to come back before others take over its turns."""

_PRESENCE = 0x7072_6573  # "pres": the class of the advisory locks that workers hold on their numbers
_WATCH = 0x7761_7463  # "watc": that of the locks on what one process at a time does for all
_PARAMETERS = {"class": _PRESENCE, "lease": LEASE_SECONDS, "grace": GRACE_SECONDS}

# A worker lives while it renews its lease; and it is known to be gone much sooner when the session that held its
# advisory lock has ended, which the kernel sees to even on kill -9.
_ALIVE = """
    w.lease_until > clock_timestamp() AND (
        w.lease_until BETWEEN clock_timestamp() + (%(lease)s - %(grace)s) * interval '1 second'
                          AND clock_timestamp() + %(lease)s * interval '1 second'  -- beyond that the clock went back
        OR EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.classid = %(class)s::int::oid AND l.objid = w.number::oid AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())))
"""


@dataclass(frozen=True, slots=True)
class Workers:
    connection: Connection

    async def join(self, worker_id: str) -> None:
        """Make this connection the worker's presence: the worker counts as alive while it stays open."""
        found = await self.connection.execute(
            "INSERT INTO workers (id, host, pid, lease_until) VALUES (%s, %s, %s, clock_timestamp() + %s * interval '1 second')"
            # After a lost connection the same worker joins again; its number stays.
            " ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until RETURNING number",
            (worker_id, socket.gethostname(), os.getpid(), LEASE_SECONDS),
        )
        row = await found.fetchone()
        assert row is not None
        await self.connection.execute("SELECT pg_advisory_lock(%s, %s)", (_PRESENCE, row[0]))

    async def renew(self, worker_id: str) -> bool:
        """Extend the lease; False when others have already declared this worker gone."""
        found = await self.connection.execute(
            "UPDATE workers SET lease_until = clock_timestamp() + %s * interval '1 second' WHERE id = %s",
            (LEASE_SECONDS, worker_id),
        )
        return found.rowcount == 1

    async def has_others(self, worker_id: str) -> bool:
        """Whether any other worker has joined, or has died without anybody noticing yet."""
        found = await self.connection.execute("SELECT EXISTS (SELECT FROM workers WHERE id <> %s)", (worker_id,))
        row = await found.fetchone()
        return row is not None and row[0]

    async def leave(self, worker_id: str) -> None:
        """Say goodbye; what this worker still had is given back by `bury` as if it had died."""
        await self.connection.execute("DELETE FROM workers WHERE id = %s", (worker_id,))

    async def reap_dead_workers(self, *, except_for: str) -> int:
        """Put back what workers that are gone were running; returns how many turns that were."""
        # Asked of each row's own worker, so that a row whose worker is unknown counts as left behind too.
        parameters = {**_PARAMETERS, "me": except_for}
        orphaned = f"worker_id <> %(me)s AND NOT EXISTS (SELECT FROM workers w WHERE w.id = worker_id AND {_ALIVE})"
        found = await self.connection.execute(
            "UPDATE events SET state = 'queued', worker_id = NULL, due_at = clock_timestamp()"
            f" WHERE state = 'running' AND {orphaned}".encode(),
            parameters,
        )
        # Whether a send that was under way has arrived is not known: it is not repeated blindly.
        await self.connection.execute(
            f"UPDATE outbox SET state = 'unconfirmed' WHERE state = 'sending' AND {orphaned}".encode(), parameters
        )
        await self.connection.execute(
            f"DELETE FROM workers w WHERE w.id <> %(me)s AND NOT ({_ALIVE})".encode(), parameters
        )
        return found.rowcount


async def try_leader_lock(connection: Connection, name: str) -> bool:
    """Whether this connection has the watch of that name now: until it is closed, and nobody else meanwhile."""
    found = await connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_WATCH, name))
    row = await found.fetchone()
    return row is not None and row[0]
