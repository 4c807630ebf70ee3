"""`rapport chat`: the agent in a terminal, with the same core as the server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from rapport.agents.advice import advise_about_reply
from rapport.agents.models import BUILTIN
from rapport.app import App, open_app
from rapport.cli import follow_up_output as followups
from rapport.cli.approvals import ApprovalPrompts, RestOfReply
from rapport.cli.line_input import open_input
from rapport.cli.markdown import render_markdown
from rapport.cli.output import escape_line
from rapport.cli.reminders import render_reminders
from rapport.core.turn_runner import Ticket
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Conversation, Incoming, Message
from rapport.domain.conversation_kind import DIRECT
from rapport.domain.errors import RapportError
from rapport.ingest.content import check_content
from rapport.settings import Settings
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.conversations.listing import ConversationListing
from rapport.storage.followups.timers import Timers
from rapport.storage.messages.messages import Messages

CONNECT_SECONDS = 15.0
"""The time that the chat waits at its start until the MCP servers are connected or have failed."""
FOLLOWUP_SECONDS = 0.5
"""Seconds between two polls for new follow-ups."""

HELP = """[bold]/new[/bold] begin a new conversation   [bold]/history[/bold] what was said   [bold]/help[/bold] this
[bold]/followups[/bold] what the agent will come back to   [bold]/mute 1h[/bold] not for now   [bold]/unmute[/bold] again
[bold]/reminders[/bold] what you asked to be told   [bold]/approvals[/bold] decide about tool calls that wait
[bold]/quit[/bold] (or Ctrl-D) leave   [bold]Ctrl-C[/bold] stop an answer
A line that ends with \\ goes on in the next one."""


async def chat(settings: Settings, *, agent: str, resume: bool, user: str) -> None:
    """Run the chat until the person leaves."""
    console = Console(highlight=False)
    with console.status("starting…"):
        opened = open_app(settings)
        app = await opened.__aenter__()
    try:
        if app.tool_source.connections:
            with console.status("connecting tools…"):
                await app.tool_source.wait_until_tried(CONNECT_SECONDS)
        profile = await app.core.agents.require(user, agent)
        await Terminal(app, profile, console, user).run(resume=resume)
    finally:
        await opened.__aexit__(None, None, None)


class Terminal:
    """The chat of one person in one terminal."""

    def __init__(self, app: App, profile: AgentProfile, console: Console, user: str) -> None:
        self._app = app
        self._profile = profile
        self._console = console
        self._user = user
        self._conversation: Conversation | None = None
        self._seen: datetime | None = None
        """The time of the latest follow-up or reminder that was shown."""
        self._input = open_input(console)
        self._approvals = ApprovalPrompts(app, console, self._input, user)
        self._asked: dict[str, datetime] = {}
        """The messages whose reply waits for decisions, with the time of the question."""

    async def run(self, *, resume: bool) -> None:
        self._greet()
        if resume:
            self._take_up(await self._find_latest())
            await self._show_history(limit=6)
            await self._note_open_questions()
        if self._conversation is None:
            self._show_greeting()
        with self._input.reading():
            while (line := await self._ask()) is not None:
                if line.startswith("/"):
                    if not await self._command(line):
                        return
                elif line.strip():
                    await self._say(line)

    def _take_up(self, conversation: Conversation | None) -> None:
        """Use this conversation from now on. Its earlier follow-ups count as shown."""
        self._conversation = conversation
        self._seen = conversation and conversation.last_at

    def _greet(self) -> None:
        model = self._profile.model.name or self._app.settings.model
        name = escape_line(self._profile.name)
        self._console.print(f"[bold]{name}[/bold] [dim]· {escape_line(model)} · /help[/dim]")
        if model == BUILTIN:
            self._console.print(
                "[dim]The built-in model needs no key and knows little; `rapport doctor` says how to use a real one.[/dim]"
            )

    def _show_greeting(self) -> None:
        """Show the agent's greeting, which is not a message of the conversation."""
        if self._profile.greeting:
            self._console.print(render_markdown(self._profile.greeting))

    async def _ask(self) -> str | None:
        """Return the person's input, None when they leave. Follow-ups that arrive meanwhile are shown."""
        has_answered = asyncio.Event()
        watch_task = asyncio.create_task(self._show_followups(has_answered), name="follow-ups")
        try:
            return await self._read_message()
        finally:
            has_answered.set()
            await watch_task

    async def _read_message(self) -> str | None:
        lines: list[str] = []
        while True:
            line = await self._input.read("[bold cyan]you[/bold cyan] " if not lines else "[dim]…[/dim]   ")
            if line is None:
                self._console.print()
                return None
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    async def _show_followups(self, has_answered: asyncio.Event) -> None:
        """Show new follow-ups until the person has entered a message."""
        while not has_answered.is_set():
            follow_ups = await self._new_followups()
            if follow_ups and not has_answered.is_set():
                async with self._input.above_line():
                    for message in follow_ups:
                        self._console.print(f"[dim]{message.created_at.astimezone():%H:%M}[/dim]")
                        self._console.print(render_markdown(message.text))
                        if message.metadata.get("approvals"):
                            self._console.print("[dim]/approvals decides about it[/dim]")
                        self._note_shown(message)
                    self._console.print()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(has_answered.wait(), FOLLOWUP_SECONDS)

    async def _new_followups(self) -> list[Message]:
        if self._conversation is None or self._seen is None:
            return []
        try:
            async with self._app.database.statement() as connection:
                latest = await Messages(connection).list_before(self._user, self._conversation.id, limit=4)
        except RapportError:  # the next poll may succeed
            return []
        return [
            message
            for message in latest
            if (_is_unasked(message) and message.created_at > self._seen)
            or message.created_at > self._asked.get(message.reply_to_id or "", message.created_at)
        ]

    async def _command(self, line: str) -> bool:
        """Run a /command; return False to leave the chat."""
        command, *words = line.lower().split()
        if command in {"/quit", "/exit", "/q"}:
            return False
        if command == "/new":
            self._take_up(None)
            self._console.print("[dim]a new conversation[/dim]")
            self._show_greeting()
        elif command == "/history":
            await self._show_history(limit=50)
        elif command in {"/mute", "/unmute", "/followups"}:
            await self._run_follow_up_command(command, words)
        elif command == "/reminders":
            await self._show_reminders()
        elif command == "/approvals":
            await self._decide_open()
        else:
            if command not in {"/help", "/h", "/?"}:
                self._console.print(f"there is no {command[:40]}", style="red", markup=False)
            self._console.print(HELP)
            if self._conversation is not None:
                self._console.print(f"[dim]this conversation is {self._conversation.id}[/dim]")
        return True

    async def _run_follow_up_command(self, command: str, words: list[str]) -> None:
        """List, mute or unmute the follow-ups of this conversation."""
        if self._conversation is None:
            self._console.print("[dim]nothing was said yet[/dim]")
            return
        ids = (self._user, self._conversation.id)
        try:
            async with self._app.database.statement() as connection:
                conversations = Conversations(connection)
                if command == "/mute":
                    permission = await followups.mute(connection, *ids, "".join(words) or None)
                elif command == "/unmute":
                    permission = await conversations.mute(*ids, until=None)
                else:
                    permission = await conversations.get_permission(*ids)
                timers = await Timers(connection).list_pending(*ids) if command == "/followups" else []
        except RapportError as error:
            self._console.print(str(error), style="red", markup=False)
            return
        if command == "/followups":
            lines = followups.render_pending_lines(timers, with_conversation=False)
            self._console.print(lines if timers else "[dim]no follow-up waits[/dim]")
        if command != "/followups" or permission.muted_until is not None:
            self._console.print(f"[dim]{followups.describe_mute(permission)}[/dim]")

    async def _show_reminders(self) -> None:
        """List the reminders of this conversation that wait."""
        if self._conversation is None:
            self._console.print("[dim]nothing was said yet[/dim]")
            return
        try:
            found, preference = await self._app.core.reminders.list(self._user, conversation_id=self._conversation.id)
        except RapportError as error:
            self._console.print(str(error), style="red", markup=False)
            return
        listed = render_reminders(found, preference, with_conversation=False)
        self._console.print(listed if found else "[dim]no reminder waits[/dim]")

    async def _say(self, text: str) -> None:
        try:
            if self._conversation is None:
                self._take_up(await self._begin())
            assert self._conversation is not None
            content = check_content(text, limit=self._app.settings.max_message_characters)
            incoming = Incoming(self._user, self._conversation.id, content)
            ticket = await self._app.worker.accept(incoming, listen=True)
            reply = await self._watch(ticket)
            self._show_end(reply)
            await self._decide(reply)
        except RapportError as error:
            self._console.print(str(error), style="red", markup=False)

    def _show_end(self, reply: Message) -> None:
        if reply.metadata.get("cancelled") is True:
            self._console.print("[dim](stopped)[/dim]")
        if problem := reply.metadata.get("problem"):
            self._console.print(advise_about_reply(problem), style="red", markup=False)
        self._console.print()

    async def _decide(self, reply: Message) -> None:
        """Ask about the tool calls of a reply, and show how the agent goes on; it may ask again."""
        if reply.metadata.get("approvals") and reply.reply_to_id is not None:
            self._asked[reply.reply_to_id] = reply.created_at
            await self._ask_about(reply.conversation_id, reply.reply_to_id)

    async def _ask_about(self, conversation_id: str, message_id: str) -> None:
        while (rest := await self._approvals.ask(conversation_id, message_id)) is not None:
            reply = await self._watch(rest)
            self._note_shown(reply)
            self._show_end(reply)
            if not reply.metadata.get("approvals"):
                return

    async def _decide_open(self) -> None:
        """Ask about the questions that wait in this conversation."""
        conversation = self._conversation
        try:
            waiting = await self._approvals.list_open(conversation.id) if conversation is not None else ()
            if not waiting:
                self._console.print("[dim]no question waits[/dim]")
            for call in {call.message_id: call for call in waiting}.values():
                await self._ask_about(call.conversation_id, call.message_id)
        except RapportError as error:
            self._console.print(str(error), style="red", markup=False)

    async def _note_open_questions(self) -> None:
        """Say that questions of an earlier chat wait."""
        conversation = self._conversation
        if conversation is None or not (waiting := await self._approvals.list_open(conversation.id)):
            return
        self._asked |= {call.message_id: call.created_at for call in waiting if call.created_at is not None}
        self._approvals.tell_open(waiting)

    def _note_shown(self, message: Message) -> None:
        """Show this message only once, above the line."""
        if _is_unasked(message):
            self._seen = message.created_at
        elif message.reply_to_id is not None:
            self._asked.pop(message.reply_to_id, None)
            if message.metadata.get("approvals"):
                self._asked[message.reply_to_id] = message.created_at

    async def _watch(self, ticket: Ticket | RestOfReply) -> Message:
        """Show the answer while it is generated; Ctrl-C stops it."""
        loop = asyncio.get_running_loop()
        assert self._conversation is not None
        conversation = self._conversation
        stopping: set[asyncio.Future[bool]] = set()

        def stop() -> None:
            stopping.add(asyncio.ensure_future(self._app.worker.cancel(self._user, conversation.id)))

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            with Live(Spinner("dots", style="dim"), console=self._console, refresh_per_second=15) as live:
                text = ""
                async for token in _visible(ticket.tokens()):
                    text += token
                    live.update(render_markdown(text))
                reply = await ticket.reply()
                # The stored reply counts, not the streamed text.
                live.update(render_markdown(reply.text) if reply.text else Text("…", style="dim"))
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return reply

    async def _begin(self) -> Conversation:
        async with self._app.database.statement() as connection:
            return await Conversations(connection).create(self._user, agent_id=self._profile.id)

    async def _find_latest(self) -> Conversation | None:
        async with self._app.database.statement() as connection:
            conversations = [
                listed.conversation
                for listed in await ConversationListing(connection).list_recent(self._user, limit=20)
            ]
        return next(
            (chat for chat in conversations if chat.agent_id == self._profile.id and chat.traits is DIRECT), None
        )

    async def _show_history(self, *, limit: int) -> None:
        if self._conversation is None:
            self._console.print("[dim]nothing was said yet[/dim]")
            return
        async with self._app.database.statement() as connection:
            messages = await Messages(connection).list_before(self._user, self._conversation.id, limit=limit)
        for message in messages:
            speaker = {"user": "you", "system-summary": "summary"}.get(message.role, self._profile.name)
            self._console.print(
                f"[dim]{message.created_at.astimezone():%d %b %H:%M}[/dim] [bold]{escape_line(speaker)}[/bold]"
            )
            self._console.print(render_markdown(message.text))


def _is_unasked(message: Message) -> bool:
    """Return True for a follow-up or a reminder, which answers no message."""
    return message.metadata.get("autonomous") is True or "reminder" in message.metadata


async def _visible(tokens: AsyncIterator[str]) -> AsyncIterator[str]:
    async for token in tokens:
        if token:
            yield token
