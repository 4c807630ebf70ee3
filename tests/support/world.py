"""Set up the world of a test: the wired app on a real database, with a scripted model, a recording channel and real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi.dependencies import models as dependency_models
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from rapport.app import App, open_app
from rapport.channels.base import Channel, ChannelServices, OpenChannel
from rapport.channels.http.auth.rate_limits import Limiter
from rapport.channels.http.live.slow_clients import uvicorn_protocols
from rapport.channels.http.requests.connection_limits import Connections
from rapport.channels.registry import CHANNELS
from rapport.cli.serve import rate_limiter, web_app
from rapport.domain.channel import OutcomeUnknown
from rapport.domain.follow_up import Timer, TriggerType
from rapport.domain.ids import new_id
from rapport.domain.outgoing import Outgoing
from rapport.domain.synthetic import is_synthetic
from rapport.domain.tool import ToolSource
from rapport.runtime.worker import Worker
from rapport.settings import Settings
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.followups.timers import Timers
from tests.support.lazy_routes import make_routes_lazily
from tests.support.server_notes import strip_whole_note
from tests.support.waiting import LIMIT_SECONDS

make_routes_lazily()


class Step:
    """One answer of the scripted model."""

    def __init__(self, text: str = "", *, error: Exception | None = None, gate: asyncio.Event | None = None) -> None:
        self.text, self.error, self.gate = text, error, gate
        self.begun = asyncio.Event()

    def go_on(self) -> None:
        """Release the waiting answer."""
        assert self.gate is not None
        self.gate.set()


class ScriptedModel(BaseChatModel):
    """A model that gives the scripted answers in order; without a script "re: " and the last message, or a question as follow-up."""

    _script: deque[Step] = PrivateAttr(default_factory=deque[Step])
    _calls: list[list[BaseMessage]] = PrivateAttr(default_factory=list[list[BaseMessage]])
    _prompts: list[list[BaseMessage]] = PrivateAttr(default_factory=list[list[BaseMessage]])
    _running: list[str] = PrivateAttr(default_factory=list[str])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def calls(self) -> list[list[BaseMessage]]:
        """The messages of each call, without the server note in the newest message."""
        return self._calls

    @property
    def prompts(self) -> list[list[BaseMessage]]:
        """The messages of each call, complete."""
        return self._prompts

    def will_say(self, *texts: str) -> None:
        self._script.extend(Step(text) for text in texts)

    def will_fail(self, *errors: Exception) -> None:
        self._script.extend(Step(error=error) for error in errors)

    def will_wait(self, text: str = "at last") -> Step:
        """Hold the next answer back until `go_on` of the returned step; `begun` is set when the model is called."""
        step = Step(text, gate=asyncio.Event())
        self._script.append(step)
        return step

    async def _next(self, messages: list[BaseMessage]) -> Step:
        if messages[0].text.startswith("Summarize conversation so far"):
            return Step("They talked.")  # not scripted: summaries and reflections run after the turn
        self._prompts.append(messages)
        messages = [*messages[:-1], _unnoted(messages[-1])]
        self._calls.append(messages)
        said = "How is it going?" if is_synthetic(messages[-1]) else f"re: {messages[-1].text}"
        step = self._script.popleft() if self._script else Step(said)
        step.begun.set()
        return step

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        step = await self._next(messages)
        if step.gate is not None:
            await step.gate.wait()
        if step.error is not None:
            raise step.error
        return ChatResult(generations=[ChatGeneration(message=AIMessage(step.text))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        step = await self._next(messages)
        words = step.text.split(" ")
        for number, word in enumerate(words):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word if number == 0 else " " + word))
            await asyncio.sleep(0)
            if number == 0 and step.gate is not None:
                await step.gate.wait()
        if step.error is not None:
            raise step.error

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("the app is asynchronous throughout")


def _unnoted(message: BaseMessage) -> BaseMessage:
    content: Any = message.content  # pyright: ignore[reportUnknownMemberType]
    if isinstance(content, str):
        return message.model_copy(update={"content": strip_whole_note(content)})
    blocks = [block for block in content if block.get("type") != "text" or strip_whole_note(block["text"])]
    return message.model_copy(update={"content": blocks})


@dataclass
class RecordingChannel:
    """A channel that records what is sent through it, and fails on request."""

    sent: list[str] = field(default_factory=list[str])
    failures: deque[Exception] = field(default_factory=deque[Exception])
    typing: list[str] = field(default_factory=list[str])

    async def send(self, outgoing: Outgoing) -> AsyncIterator[str]:
        if self.failures:
            raise self.failures.popleft()
        self.sent.append(outgoing.text)
        yield f"platform-{len(self.sent)}"

    async def find_part(self, outgoing: Outgoing) -> str | None:
        raise OutcomeUnknown("nobody can tell")

    async def show_typing(self, conversation_id: str, message_id: str) -> None:
        self.typing.append(message_id)


@dataclass
class World:
    """The server of a test, and the ways to use it."""

    app: App
    settings: Settings
    model: ScriptedModel
    channel: RecordingChannel
    http: httpx.AsyncClient

    @property
    def database(self) -> Database:
        return self.app.database

    @property
    def worker(self) -> Worker:
        return self.app.worker

    async def conversation(self, owner: str = "local", **settings: Any) -> str:
        """Create a conversation in the database, because HTTP can't set its channel."""
        async with self.database.statement() as connection:
            chosen: dict[str, Any] = {"agent_id": "companion", **settings}
            return (await Conversations(connection).create(owner, **chosen)).id

    async def post(self, conversation_id: str, content: Any, **more: Any) -> httpx.Response:
        return await self.http.post(
            f"/chat/conversations/{conversation_id}/messages", json={"content": content, **more}
        )

    async def says(self, conversation_id: str, content: Any, **more: Any) -> dict[str, Any]:
        """Send a message and return the agent's answer."""
        response = await self.post(conversation_id, content, **more)
        assert response.status_code == 200, response.text
        return response.json()

    async def history(self, conversation_id: str, **query: Any) -> list[dict[str, Any]]:
        response = await self.http.get(f"/api/threads/{conversation_id}/history", params={"limit": 500, **query})
        assert response.status_code == 200, response.text
        return response.json()["messages"]

    async def sql(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        async with self.database.statement() as connection:
            cursor = await connection.execute(query.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def silence(
        self,
        conversation_id: str,
        trigger_type: TriggerType = "check_in",
        *,
        seconds: float = LIMIT_SECONDS,
        **more: Any,
    ) -> Timer:
        """Make a follow-up due now; wait for its outcome, and return it."""
        owner = (await self.sql("SELECT owner_id FROM conversations WHERE id = %s", conversation_id))[0][0]
        name = new_id()
        async with self.database.statement() as connection:
            timers = Timers(connection)
            timer = await timers.set(owner, conversation_id, timer_id=name, trigger_type=trigger_type, delay=0, **more)
        assert timer is not None
        self.worker.timer_loop.wake()

        async def ended() -> Timer | None:
            async with self.database.statement() as connection:
                past = await Timers(connection).list_past(owner, conversation_id, limit=50)
            return next((one for one in past if one.id == timer.id and one.state != "fired"), None)

        await until(ended, seconds=seconds)
        became = await ended()
        assert became is not None
        return became

    async def drain(self) -> None:
        """Wait until every event is done and everything is sent."""

        async def idle() -> bool:
            rows = await self.sql(
                "SELECT (SELECT count(*) FROM events WHERE state <> 'done'),"
                " (SELECT count(*) FROM outbox WHERE state IN ('queued', 'sending') AND due_at < now() + interval '1 s'"
                " OR state = 'unconfirmed')"
            )
            return rows == [(0, 0)]

        await until(idle)


async def until(condition: Callable[[], Any], *, seconds: float = LIMIT_SECONDS) -> None:
    """Wait for a condition (a function, asynchronous or not) to hold."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if asyncio.iscoroutine(holds):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(0.01)


def settings_for(url: str, **changes: Any) -> Settings:
    """Return settings that do not depend on the environment."""
    values: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "log_level": "info",
        "log_format": "json",
        "data_dir": Path("/nonexistent"),
        "database_url": url,
        "database_connections": 4,
        "model": "scripted",
        "embeddings": "bundled",
        "model_timeout": 30.0,
        "turn_deadline": 60.0,
        "max_message_characters": 32_000,
        "max_turns": 64,
        "failpoint": None,
        "autonomy": True,
        "retention_days": 30,
        "approval_minutes": 60.0,
        "rate_limit": False,
        "redis_url": None,
        "trusted_proxies": "",
        "telegram_bot_token": None,
        "telegram_allowed_chats": "",
        "telegram_allowed_users": "",
        "telegram_agent": None,
        "telegram_webhook_url": None,
        "telegram_api_url": "http://127.0.0.1:9",
        **changes,
    }
    return Settings.model_construct(None, **values)


@contextlib.asynccontextmanager
async def open_world(
    url: str,
    *,
    model: BaseChatModel | None = None,
    model_name: str = "scripted",
    limiter: Limiter | None = None,
    connections: Connections | None = None,
    unhealthy_seconds: float = 60.0,
    channels: Sequence[OpenChannel[Settings]] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    tool_source: ToolSource | None = None,
    **changes: Any,
) -> AsyncGenerator[World]:
    """Open a wired app with a server on loopback; several may share one database. Prompts get their time from `now`."""
    settings = settings_for(url, model=model_name, **changes)
    scripted = ScriptedModel()
    channel = RecordingChannel()

    @contextlib.asynccontextmanager
    async def record(_settings: Settings, _services: ChannelServices) -> AsyncGenerator[Channel]:
        yield Channel("recording", channel)

    async with (
        rate_limiter(settings) as configured,
        open_app(
            settings, model=model or scripted, channels=(*CHANNELS, *channels, record), now=now, tool_source=tool_source
        ) as app,
    ):
        web = web_app(app, limiter or configured, unhealthy_seconds=unhealthy_seconds)
        async with (
            serving(web, connections) as address,
            httpx.AsyncClient(base_url=address, timeout=LIMIT_SECONDS) as http,
        ):
            yield World(app, settings, scripted, channel, http)
    _forget_routes()


def _forget_routes() -> None:
    """Free the app: FastAPI keeps the latest 4,096 route functions of a process, and each refers to its whole app.

    Seventy apps that nobody uses make each garbage collection take half a second.
    """
    for cached in vars(dependency_models).values():
        if clear := getattr(cached, "cache_clear", None):
            clear()


class _Server(uvicorn.Server):
    """uvicorn without its polling delay at shutdown: it ends at once when nobody is connected."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for _ in range(20):  # clients have just closed their connections
            if not self.server_state.connections:
                return
            await asyncio.sleep(0.001)
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def serving(web: Any, connections: Connections | None = None) -> AsyncGenerator[str]:
    """Serve the application on a free port of loopback; yield its address."""
    server = _Server(
        uvicorn.Config(
            web,
            port=0,
            log_config=None,
            lifespan="off",
            proxy_headers=False,
            timeout_graceful_shutdown=1,
            **uvicorn_protocols(connections),
        )
    )
    server.capture_signals = contextlib.nullcontext  # pyright: ignore[reportAttributeAccessIssue]
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port: int = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.ended.set()
        await task
