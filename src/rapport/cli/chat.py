"""`rapport chat`: the agent in a terminal, with the same core as the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.spinner import Spinner
from rich.text import Text

from rapport.app import App, open_app
from rapport.channels.ports import Ticket
from rapport.domain.agents import AGENTS, AgentProfile
from rapport.domain.conversation import LOCAL_USER, Conversation, Incoming, Message
from rapport.domain.errors import InvalidInput, RapportError
from rapport.ingest.content import checked_content
from rapport.settings import Settings
from rapport.storage.conversations import Conversations
from rapport.storage.messages import Messages

HELP = """[bold]/new[/bold] begin a new conversation   [bold]/history[/bold] what was said   [bold]/help[/bold] this
[bold]/quit[/bold] (or Ctrl-D) leave   [bold]Ctrl-C[/bold] stop an answer
A line that ends with \\ goes on in the next one."""


async def chat(settings: Settings, *, agent: str, resume: bool) -> None:
    """Talk until the person leaves."""
    profile = AGENTS.get(agent)
    if profile is None:
        raise InvalidInput(f"there is no agent {agent!r}; there are {', '.join(sorted(AGENTS))}.")
    console = Console(highlight=False)
    with console.status("starting…"):
        opened = open_app(settings)
        app = await opened.__aenter__()
    try:
        await Terminal(app, profile, console).run(resume=resume)
    finally:
        await opened.__aexit__(None, None, None)


class Terminal:
    """One person at one terminal."""

    def __init__(self, app: App, profile: AgentProfile, console: Console) -> None:
        self._app = app
        self._profile = profile
        self._console = console
        self._conversation: Conversation | None = None
        self._lines = Lines()

    async def run(self, *, resume: bool) -> None:
        self._greet()
        if resume:
            self._conversation = await self._latest()
            await self._show_history(limit=6)
        while (line := await self._ask()) is not None:
            if line.startswith("/"):
                if not await self._command(line):
                    return
            elif line.strip():
                await self._say(line)

    def _greet(self) -> None:
        self._console.print(f"[bold]{self._profile.name}[/bold] [dim]· {self._app.settings.model} · /help[/dim]")
        if self._app.settings.model == "builtin":
            self._console.print(
                "[dim]The built-in model needs no key and knows little; `rapport doctor` says how to use a real one.[/dim]"
            )

    async def _ask(self) -> str | None:
        """What the person types; None when they leave."""
        lines: list[str] = []
        while True:
            prompt = "[bold cyan]you[/bold cyan] " if not lines else "[dim]…[/dim]   "
            self._console.print(prompt, end="")
            line = await self._lines.next()
            if line is None:
                self._console.print()
                return None
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    async def _command(self, line: str) -> bool:
        """Do what a /command says; False to leave."""
        command = line.split()[0].lower()
        if command in {"/quit", "/exit", "/q"}:
            return False
        if command == "/new":
            self._conversation = None
            self._console.print("[dim]a new conversation[/dim]")
        elif command == "/history":
            await self._show_history(limit=50)
        else:
            self._console.print(HELP)
        return True

    async def _say(self, text: str) -> None:
        try:
            if self._conversation is None:
                self._conversation = await self._begin()
            content = checked_content(text, limit=self._app.settings.max_message_characters)
            incoming = Incoming(LOCAL_USER, self._conversation.id, content)
            ticket = await self._app.runtime.accept(incoming, listen=True)
            reply = await self._watch(ticket)
        except RapportError as error:
            self._console.print(str(error), style="red", markup=False)
            return
        if reply.metadata.get("cancelled") is True:
            self._console.print("[dim](stopped)[/dim]")
        self._console.print()

    async def _watch(self, ticket: Ticket) -> Message:
        """Show the answer as it comes; Ctrl-C stops it."""
        loop = asyncio.get_running_loop()
        assert self._conversation is not None
        conversation = self._conversation
        stopping: set[asyncio.Future[bool]] = set()

        def stop() -> None:
            stopping.add(asyncio.ensure_future(self._app.runtime.cancel(LOCAL_USER, conversation.id)))

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            with Live(Spinner("dots", style="dim"), console=self._console, refresh_per_second=15) as live:
                text = ""
                async for token in _visible(ticket.tokens()):
                    text += token
                    live.update(Markdown(text))
                reply = await ticket.reply()
                # What was stored is what counts.
                live.update(Markdown(reply.text) if reply.text else Text("…", style="dim"))
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return reply

    async def _begin(self) -> Conversation:
        async with self._app.database.statement() as connection:
            return await Conversations(connection).create(LOCAL_USER, agent_id=self._profile.id)

    async def _latest(self) -> Conversation | None:
        async with self._app.database.statement() as connection:
            found = await Conversations(connection).recent(LOCAL_USER, limit=20)
        return next((one for one in found if one.agent_id == self._profile.id and one.kind == "direct"), None)

    async def _show_history(self, *, limit: int) -> None:
        if self._conversation is None:
            self._console.print("[dim]nothing was said yet[/dim]")
            return
        async with self._app.database.statement() as connection:
            messages = await Messages(connection).before(LOCAL_USER, self._conversation.id, limit=limit)
        for message in messages:
            who = {"user": "you", "system-summary": "summary"}.get(message.role, self._profile.name)
            self._console.print(f"[dim]{message.created_at.astimezone():%d %b %H:%M}[/dim] [bold]{who}[/bold]")
            self._console.print(Markdown(message.text))


async def _visible(tokens: AsyncIterator[str]) -> AsyncIterator[str]:
    async for token in tokens:
        if token:
            yield token


class Lines:
    """Lines of standard input, without holding up the turns that run meanwhile."""

    def __init__(self) -> None:
        self._read = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line; None at the end of the input or on Ctrl-C."""
        while b"\n" not in self._read and not self._ended:
            piece = await self._piece()
            if piece is None:
                return None
            self._ended = not piece
            self._read += piece
        if not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="surrogateescape")  # what is not text is refused, not changed

    async def _piece(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        piece: asyncio.Future[bytes | None] = loop.create_future()

        def settle(value: bytes | None) -> None:
            if not piece.done():
                piece.set_result(value)

        def read() -> None:
            value = os.read(sys.stdin.fileno(), 65536)
            with contextlib.suppress(RuntimeError):  # the loop is gone: so is whoever waited
                loop.call_soon_threadsafe(settle, value)

        # A thread that nobody waits for, on the bare descriptor: leaving must not depend on one more press of Enter.
        loop.add_signal_handler(signal.SIGINT, settle, None)
        threading.Thread(target=read, daemon=True).start()
        try:
            return await piece
        finally:
            loop.remove_signal_handler(signal.SIGINT)
