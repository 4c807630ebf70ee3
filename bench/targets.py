"""Define the two servers that a run compares, with one interface."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import quote

from bench import database, floor
from bench.load import Client, UnexpectedAnswerError
from bench.processes import Server, free_port

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = "mock answers"
PAGE = 100


def words(n: int) -> str:
    return f"Message {n}: please remember that my train leaves at nine and that I like tea with lemon."


class Target(ABC):
    """A server with its own folder, which a restart keeps."""

    health = "/healthz"

    def __init__(self, name: str, folder: Path, model_url: str, cpus: set[int]) -> None:
        self.name, self.folder = name, folder
        self._model_url, self._cpus = model_url, cpus
        self._said = 0
        self.server: Server | None = None
        self.client = Client("http://127.0.0.1")
        folder.mkdir(parents=True)
        folder.chmod(0o755)  # as root, the embedded Postgres runs as another user

    @abstractmethod
    def spawn(self, port: int) -> Server: ...

    @abstractmethod
    def seed(self, conversation: str, contents: list[str]) -> None:
        """Insert these messages into a conversation, alternately from user and assistant."""

    def log(self) -> database.WriteAheadLog | None:
        """Return the log that shows how much this server writes; None if it has none."""
        return None

    async def start(self) -> float:
        """Start the server; return the seconds from exec to the first healthy answer."""
        port = free_port()
        self.server = self.spawn(port)
        self.client = Client(f"http://127.0.0.1:{port}")
        return await self.server.until_healthy(f"http://127.0.0.1:{port}", self.health)

    def stop(self) -> None:
        self.client.close()
        if self.server is not None:
            self.server.stop()

    async def create(self) -> str:
        return str((await self.client.json("POST", "/chat/conversations", {"agent": "companion"}))["id"])

    async def turn(self, conversation: str) -> None:
        self._said += 1
        path = f"/chat/conversations/{conversation}/messages"
        reply = await self.client.json("POST", path, {"content": words(self._said)})
        if EXPECTED not in reply["content"]:
            raise UnexpectedAnswerError(f"{self.name} replied {reply['content']!r:.200}")

    async def page(self, conversation: str, before: str | None = None) -> str | None:
        """Fetch a full page of history; return the cursor of the page before it."""
        cursor = f"&before={quote(before, safe='')}" if before else ""
        path = f"/api/threads/{conversation}/history?limit={PAGE}{cursor}"
        answer = await self.client.json("GET", path)
        if len(answer["messages"]) != PAGE:
            raise UnexpectedAnswerError(f"{self.name}: not {PAGE} messages at {path}")
        return answer["next"]


class Floor(Target):
    """The bare proxy of `bench.floor`."""

    def spawn(self, port: int) -> Server:
        argv = [sys.executable, "-m", "bench.floor", "--port", str(port)]
        argv += ["--model", self._model_url, "--db", str(self._db)]
        env = {"PYTHONPATH": str(ROOT), "HOME": str(self.folder)}
        return Server(argv, env=env, cwd=self.folder, cpus=self._cpus)

    def seed(self, conversation: str, contents: list[str]) -> None:
        floor.seed(self._db, conversation, contents)

    @property
    def _db(self) -> Path:
        return self.folder / "floor.db"


class Ours(Target):
    """`rapport serve` with its embedded Postgres, as a user starts it."""

    health = "/readyz"

    def spawn(self, port: int) -> Server:
        env = {
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "HOME": str(self.folder),
            "RAPPORT_DATA_DIR": str(self.folder / "data"),
            "RAPPORT_MODEL": "openai:mock",
            "OPENAI_BASE_URL": self._model_url,
            "OPENAI_API_KEY": "mock",
            "LOG_LEVEL": "warning",
        }
        argv = [str(Path(sys.executable).parent / "rapport"), "serve"]
        return Server(argv, env=env, cwd=self.folder, cpus=self._cpus, pg_data=self._pg_data)

    def seed(self, conversation: str, contents: list[str]) -> None:
        database.seed(database.conninfo(self._pg_data), conversation, contents)

    def log(self) -> database.WriteAheadLog:
        return database.WriteAheadLog(database.conninfo(self._pg_data))

    @property
    def _pg_data(self) -> Path:
        return self.folder / "data" / "postgres"
