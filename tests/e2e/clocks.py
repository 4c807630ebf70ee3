"""Move the clock of `rapport serve` and its Postgres while they run, with libfaketime."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rapport.storage.postgres.embedded import EmbeddedPostgres

from .harness import Home
from .silences import run


def faketime_library() -> Path:
    """Return the library of the package `libfaketime`, without importing the package, which would restart Python."""
    if sys.platform != "linux":
        pytest.skip("libfaketime moves the clock by LD_PRELOAD, which only Linux has")
    found = [
        path for place in sys.path for path in Path(place).glob("libfaketime/vendor/libfaketime/src/libfaketime.so.1")
    ]
    assert found, "the package libfaketime is not installed: it is one of the development tools"
    return found[0]


class MovedClock:
    """The clock of every process that is started on a home with it: the real time and an offset that can be changed at any time.

    The monotonic clock stays real, as when somebody sets a computer's clock.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        # As root, Postgres runs under another account, which has to read both.
        home.path.chmod(0o755)
        self._library = Path(shutil.copy(faketime_library(), home.path / "libfaketime.so"))
        self._library.chmod(0o755)
        self._offset = home.path / "offset"
        self._postgres: subprocess.Popen[bytes] | None = None
        self.move(timedelta())
        home.env |= self._environment()

    def _environment(self) -> dict[str, str]:
        names = ("DONT_FAKE_MONOTONIC", "FAKETIME_DONT_FAKE_MONOTONIC", "FAKETIME_NO_CACHE")
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            **dict.fromkeys(names, "1"),
        }

    def move(self, by: timedelta) -> None:
        """Set the offset to the real time."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{by.total_seconds():+.3f}\n")
        new.chmod(0o644)
        new.replace(self._offset)

    def move_to(self, moment: datetime) -> None:
        """Set the clock to this time; it continues from there."""
        self.move(moment - datetime.now(UTC))

    async def start_postgres(self) -> None:
        """Start the home's Postgres under this clock; a server joins it and, when it stops, stops it too.

        A Postgres that the server starts gets almost nothing of its environment, and so not this clock.
        """
        pgdata = self._home.data / "postgres"
        await asyncio.to_thread(lambda: EmbeddedPostgres.start(self._home.data).stop())
        self._postgres = self._launched(pgdata)

    def _launched(self, pgdata: Path) -> subprocess.Popen[bytes]:
        owner = pgdata.stat()
        return subprocess.Popen(
            shlex.split((pgdata / "postmaster.opts").read_text()),  # as it was started before
            env={"LC_ALL": "C", "PATH": os.environ["PATH"], **self._environment()},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=owner.st_uid,
            group=owner.st_gid,
            extra_groups=[] if os.geteuid() == 0 else None,
            start_new_session=True,
        )

    async def postgres_ended(self) -> None:
        """Wait until Postgres is shut down."""
        assert self._postgres is not None
        await asyncio.to_thread(self._postgres.wait, 60)

    async def shown(self) -> datetime:
        """Return the time of Postgres."""
        found: datetime = (await run(self._home.database_url, "SELECT clock_timestamp()"))[0][0]
        return found
