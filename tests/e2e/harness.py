"""Run real processes for tests: `rapport serve`, its Postgres, and a client that retries."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from rapport.storage.postgres.embedded import EmbeddedPostgres
from tests.support.fork_server import fork_server
from tests.support.waiting import LIMIT_SECONDS

from .scripted import ScriptedModel

COMMAND = Path(sys.executable).with_name("rapport")
KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH")
READY_SECONDS = LIMIT_SECONDS
_CHANGE_WHAT_IS_LOADED = frozenset({"LD_PRELOAD", "PYTHONPATH"})
"""With one of these in its environment a server is started by the console script; a fork has loaded everything before."""
_LISTENING = re.compile(r"listening: open (http://\S+)")

Json = dict[str, Any]


def environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return these values and a few basic variables, so that no key, proxy or setting of the caller reaches the server."""
    return {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ} | dict(values)


@dataclass(slots=True)
class Home:
    """A separate data directory, and all processes that were started on it."""

    path: Path
    model: ScriptedModel
    env: dict[str, str] = field(default_factory=dict[str, str])
    open_files: int | None = None
    """The limit of open files of each server; None for that of this process."""
    servers: list[Server] = field(default_factory=list["Server"])

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def database_url(self) -> str:
        """Return the URL of the embedded Postgres of this home."""
        return f"postgresql://postgres@/rapport?host={self.data / 'postgres'}&port=5432"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return environment(
            {
                "RAPPORT_DATA_DIR": str(self.data),
                "RAPPORT_MODEL": "openai:mock",
                "OPENAI_BASE_URL": self.model.url,
                "OPENAI_API_KEY": "mock",
                "HOST": "127.0.0.1",
                "PORT": "0",  # the kernel chooses the port: no other process can take it in between
                "LOG_LEVEL": "info",
                "RAPPORT_LOG_FORMAT": "json",
                **self.env,
                **(more or {}),
            }
        )

    def spawn(self, **env: str) -> Server:
        """Start `rapport serve` without waiting until it is ready."""
        server = Server(self, len(self.servers), env)
        self.servers.append(server)
        return server

    async def serve(self, **env: str) -> Server:
        """Start `rapport serve` and wait until it accepts messages."""
        server = self.spawn(**env)
        await server.until_ready()
        return server

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run another `rapport` command to its end; return its exit code, output and error output."""
        code, out, err = await asyncio.to_thread(
            fork_server().run, list(arguments), stdin=b"", environment=self.environment(), folder=self.path
        )
        return code, out.decode(), err.decode()

    def postmaster(self) -> psutil.Process | None:
        """Return the Postgres of this home; None if it does not run."""
        return postmaster(self.data / "postgres")

    def kill_postgres(self) -> None:
        """Kill postmaster and backends at once, as a power cut would."""
        kill_postgres(self.data / "postgres")

    def clean(self) -> None:
        """Kill the remaining processes, and remove the directory (unless RAPPORT_E2E_KEEP is set)."""
        for server in self.servers:
            server.kill()
        for pgdata in self.path.glob("*/postgres"):
            kill_postgres(pgdata)
        if "RAPPORT_E2E_KEEP" not in os.environ:
            shutil.rmtree(self.path, ignore_errors=True)


def make_home(model: ScriptedModel, new_data: Path | None = None) -> Home:
    """Make a home with a copy of this data directory; without it, the first server makes one."""
    made = Home(Path(tempfile.mkdtemp(prefix="rapport-e2e-")), model)
    if new_data is not None:
        subprocess.run(
            ["cp", "-a", str(new_data), str(made.data)], check=True
        )  # with owners, which Postgres insists on
    return made


def postmaster(pgdata: Path) -> psutil.Process | None:
    try:
        process = psutil.Process(int((pgdata / "postmaster.pid").read_text().split("\n", 1)[0]))
        # A stale file may name a reused pid; the working directory of Postgres is its data directory.
        return process if Path(process.cwd()).samefile(pgdata) else None
    except (OSError, ValueError, psutil.Error):
        return None


def kill_postgres(pgdata: Path) -> None:
    main = postmaster(pgdata)
    if main is None:
        return
    with suppress(psutil.Error):
        main.suspend()  # so that it starts nothing new while its children are counted
        doomed = [main, *main.children(recursive=True)]
        for process in doomed:
            with suppress(psutil.Error):
                process.kill()
        deadline = time.monotonic() + LIMIT_SECONDS
        while any(map(_lives, doomed)) and time.monotonic() < deadline:
            time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    """Wait until the process is gone, including its zombie, which its new parent may reap late."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class Cluster:
    """A separate Postgres for servers with a DATABASE_URL, which a test can stop while they run."""

    def __init__(self, home: Home) -> None:
        self._path = home.path / "cluster"
        self._user: EmbeddedPostgres | None = None

    async def start(self) -> str:
        """Start it and return its URL when it answers."""
        self._user = await asyncio.to_thread(EmbeddedPostgres.start, self._path)
        return self._user.url

    async def stop(self, *, suddenly: bool) -> None:
        """Stop it without notice: by a fast shutdown, or by kill -9 of every process."""
        main = postmaster(self._path / "postgres")
        assert main is not None
        if suddenly:
            await asyncio.to_thread(kill_postgres, self._path / "postgres")
        else:
            main.send_signal(signal.SIGINT)
        async with asyncio.timeout(LIMIT_SECONDS):
            while _lives(main):
                await asyncio.sleep(0.02)
        await asyncio.to_thread(self.leave)

    def leave(self) -> None:
        if self._user is not None:
            self._user.stop()
            self._user = None


class Server:
    """One `rapport serve`."""

    def __init__(self, home: Home, number: int, env: Mapping[str, str]) -> None:
        self.out = home.path / f"server-{number}.out"
        self.log = home.path / f"server-{number}.log"
        self.url = ""
        self.started = time.monotonic()
        values = home.environment(env)
        with Path(os.devnull).open("rb") as nothing, self.out.open("wb") as out, self.log.open("wb") as log:
            if home.open_files is None and not _CHANGE_WHAT_IS_LOADED & values.keys():
                streams = (nothing.fileno(), out.fileno(), log.fileno())
                self._process = fork_server().start(["serve"], streams, environment=values, folder=home.path)
                return
            command = [str(COMMAND), "serve"]
            if home.open_files is not None:
                command = ["/bin/sh", "-c", f'ulimit -n {home.open_files} && exec "$0" "$@"', *command]
            self._process = subprocess.Popen(
                command, env=values, cwd=home.path, stdin=nothing, stdout=out, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def until_ready(self, *, seconds: float = READY_SECONDS) -> None:
        """Wait until it listens; before that its database has answered and it has registered as a worker."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.alive:
            if found := _LISTENING.search(self.out.read_text()):
                self.url = found[1].replace("0.0.0.0", "127.0.0.1")
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"the server did not become ready; its log ends with:\n{self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        if self.alive:
            self._process.kill()
        self._process.wait(LIMIT_SECONDS)

    async def exit_code(self, *, seconds: float = LIMIT_SECONDS) -> int:
        """Return its exit code. Raise AssertionError if it does not end within `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                return code
            await asyncio.sleep(0.02)
        raise AssertionError(f"the server did not exit within {seconds} s; its log ends with:\n{self.tail()}")

    def lines(self) -> list[Json]:
        """Return its log lines."""
        found: list[Json] = []
        for line in self.log.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def errors(self) -> list[Json]:
        """Return its logged errors, and its output outside of the log (a traceback)."""
        raw = [line for line in self.log.read_text(errors="replace").splitlines() if not line.startswith("{")]
        return [line for line in self.lines() if line.get("level") in {"error", "critical"}] + [
            {"raw": line} for line in raw
        ]

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])


@dataclass(slots=True)
class Sent:
    """A message as its sender knows it."""

    conversation: str
    sender: str
    number: int
    text: str
    acknowledged: bool = False
    reply: Json | None = None
    """The answer, if the sender has waited for it."""
    tries: int = 0

    @property
    def client_id(self) -> str:
        return f"{self.sender}-{self.number}"

    @property
    def body(self) -> Json:
        return {"content": self.text, "client_message_id": self.client_id}


class Refused(AssertionError):
    """The server gave an answer that must not be retried."""


class Client:
    """An HTTP client that knows the server's current address, and sends again until its message is acknowledged."""

    def __init__(self, session: aiohttp.ClientSession, url: Callable[[], str]) -> None:
        self._session = session
        self._url = url

    async def create(self, **body: Any) -> str:
        """Create a conversation with an agent that needs no notes."""
        async with self._session.post(
            f"{self._url()}/chat/conversations", json={"agent": "companion", **body}
        ) as response:
            assert response.status == 201, await response.text()
            return (await response.json())["id"]

    async def say(self, sent: Sent, *, seconds: float = 120.0) -> Json:
        """Send until it is answered."""
        return await self._insist(sent, self._post, seconds)

    async def drop(self, sent: Sent, *, seconds: float = 120.0) -> None:
        """Send until it is acknowledged, and disconnect without waiting for the answer."""
        await self._insist(sent, self._open_stream, seconds)

    async def _insist(self, sent: Sent, attempt: Callable[[Sent], Any], seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        trouble = "no try"
        while time.monotonic() < deadline:
            sent.tries += 1
            try:
                return await attempt(sent)
            except Unavailable as error:
                trouble = str(error)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                trouble = repr(error)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{sent.text!r} was not acknowledged within {seconds} s ({trouble})")

    async def _post(self, sent: Sent) -> Json:
        async with self._session.post(self._address(sent), json=sent.body) as response:
            await _check(response)
            reply: Json = await response.json()
            sent.reply, sent.acknowledged = reply, True
            return reply

    async def _open_stream(self, sent: Sent) -> None:
        headers = {"Accept": "text/event-stream"}
        async with self._session.post(self._address(sent), json=sent.body, headers=headers) as response:
            await _check(response)
            assert response.headers["X-Message-Id"]
            sent.acknowledged = True
            response.close()

    def _address(self, sent: Sent) -> str:
        return f"{self._url()}/chat/conversations/{sent.conversation}/messages"

    async def history(self, conversation: str, *, limit: int = 100) -> list[Json]:
        """Return the whole history, by paging from the end to the beginning."""
        pages: list[Json] = []
        before: str | None = None
        for _ in range(1000):
            query = {"limit": str(limit)} | ({"before": before} if before else {})
            address = f"{self._url()}/api/threads/{conversation}/history"
            async with self._session.get(address, params=query) as response:
                assert response.status == 200, await response.text()
                page = await response.json()
            pages = page["messages"] + pages
            before = page["next"]
            if before is None:
                return pages
        raise AssertionError("the history has no beginning")


class Unavailable(Exception):
    """Check the form of a 503: a problem with Retry-After."""


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        return
    text = await response.text()
    if response.status == 503 and "Retry-After" in response.headers:
        raise Unavailable(text)
    raise Refused(f"{response.status}: {text}")
