"""Start processes on chosen cores, measure them with all their children, and always stop them.

A server is counted with its embedded Postgres, which is not its child (`pg_ctl` daemonises it) and is found
through its `postmaster.pid`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.load import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

START_LIMIT_S = 90.0
STOP_LIMIT_S = 15.0
KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
PR_SET_PDEATHSIG = 1


def environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return these values and a few basic variables, so that no key, proxy or setting of the caller reaches a server."""
    return {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ} | dict(values)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cores() -> tuple[set[int], set[int]]:
    """Return the cores for servers, and those for model and load; empty sets if there is only one core."""
    if sys.platform == "linux":
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) > 1:
            return {usable[0]}, {usable[1]}
    return set(), set()


def pin(pid: int, cpus: set[int]) -> None:
    if cpus and sys.platform == "linux":
        os.sched_setaffinity(pid, cpus)


def postmaster(pg_data: Path) -> psutil.Process | None:
    """Return the Postgres that serves this data directory; None if it does not run."""
    try:
        pid = int((pg_data / "postmaster.pid").read_text().split("\n", 1)[0])
        process = psutil.Process(pid)
        # A stale file may name a reused pid; the working directory of Postgres is its data directory.
        return process if Path(process.cwd()).samefile(pg_data) else None
    except (OSError, ValueError, psutil.Error):
        return None


class Server:
    """One process in a new process session, with its children and its embedded Postgres."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path,
        cpus: set[int],
        pg_data: Path | None = None,
    ) -> None:
        self.log = cwd / "server.log"
        self._cpus, self._pg_data = cpus, pg_data
        with self.log.open("ab") as log:
            self.started_at = time.perf_counter()
            self._process = subprocess.Popen(
                argv,
                env=environment(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_preparation(cpus),
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Return the server, its descendants, its Postgres and the Postgres's backends, each once."""
        found: dict[int, psutil.Process] = {}
        for root in (self._root(), self._postgres()):
            found |= {process.pid: process for process in self._with_children(root)}
        return list(found.values())

    def pin(self) -> int:
        """Move processes onto the server's cores; return how many were elsewhere."""
        moved = 0
        for process in self.tree() if self._cpus else []:
            with contextlib.suppress(psutil.Error, OSError):
                if set(process.cpu_affinity() or []) != self._cpus:
                    pin(process.pid, self._cpus)
                    moved += 1
        return moved

    def cpu_seconds(self, *, of_database: bool = False) -> float:
        """Return user and system time so far, including that of reaped children; or only the part of Postgres."""
        total = 0.0
        for process in self._with_children(self._postgres()) if of_database else self.tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def memory_mb(self) -> float:
        """Return the proportional set size, which counts shared memory once; the resident size where it is unknown."""
        total = 0
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                memory = process.memory_full_info()
                total += getattr(memory, "pss", memory.rss)
        return total / 2**20

    async def until_healthy(self, url: str, path: str) -> float:
        """Return the seconds from exec to the first 200. Raise RuntimeError with the end of the log if there is none."""
        while time.perf_counter() - self.started_at < START_LIMIT_S and self.alive:
            client = Client(url, timeout_s=5)
            with contextlib.suppress(OSError, TimeoutError):
                status, _ = await client.request("GET", path)
                if status == 200:
                    client.close()
                    return time.perf_counter() - self.started_at
            client.close()
            await asyncio.sleep(0.01)
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
        raise RuntimeError(f"the server at {url} did not become healthy; its log ends with:\n{tail}")

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to processes that remain after STOP_LIMIT_S. May be called twice."""
        database = self._postgres()
        rest = self.tree()
        if self.alive:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        if database is not None:
            with contextlib.suppress(psutil.Error):
                database.send_signal(signal.SIGINT)  # a fast shutdown, if the server has left it running
        _, left = psutil.wait_procs(rest, timeout=STOP_LIMIT_S)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)

    @staticmethod
    def _with_children(root: psutil.Process | None) -> list[psutil.Process]:
        try:
            return [root, *root.children(recursive=True)] if root is not None else []
        except psutil.Error:
            return []

    def _root(self) -> psutil.Process | None:
        try:
            return psutil.Process(self._process.pid) if self.alive else None
        except psutil.Error:
            return None

    def _postgres(self) -> psutil.Process | None:
        return postmaster(self._pg_data) if self._pg_data else None


def _preparation(cpus: set[int]) -> Callable[[], None] | None:
    """Return the function that the child runs before exec: it sets its cores, and its end when this process ends."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        pin(0, cpus)

    return prepare
