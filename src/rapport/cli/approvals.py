"""Let the person at the terminal decide about the tool calls that an agent asks about (TOOL-3)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from rapport.app import App
from rapport.cli.line_input import LineInput
from rapport.core.approvals import Approvals
from rapport.domain.conversation import Message
from rapport.domain.errors import Conflict, NotFound
from rapport.domain.live_updates import MessageStored, TextStreamed
from rapport.domain.tool import SERVER_SEPARATOR
from rapport.domain.tool_call import Decision, ToolCall
from rapport.domain.visible_text import make_visible
from rapport.runtime.subscriptions import Subscription

ANSWERS: Final[Mapping[str, Decision]] = {"yes": "allow", "y": "allow", "no": "deny", "n": "deny"}
LATER: Final = frozenset({"later", "l", ""})
_SILENCE_SECONDS = 15.0


class RestOfReply:
    """Waits for the reply after the decisions about an agent's calls, in whichever process it is made."""

    def __init__(self, subscription: Subscription, message_id: str) -> None:
        """`message_id` is the person's message; the subscription was made before the last decision."""
        self._subscription = subscription
        self._message_id = message_id
        self._reply: Message | None = None

    async def tokens(self) -> AsyncIterator[str]:
        """Yield the text as it is written, until it is stored."""
        async with aclosing(self._subscription.events(silence=_SILENCE_SECONDS)) as events:
            async for event in events:
                if isinstance(event, TextStreamed):
                    yield event.text
                elif isinstance(event, MessageStored) and self._is_rest(event.message):
                    self._reply = event.message
                    return

    def _is_rest(self, message: Message) -> bool:
        return message.role == "assistant" and message.reply_to_id == self._message_id

    async def reply(self) -> Message:
        """Return what is stored; call it after `tokens`. Raise NotFound if the conversation was deleted."""
        if self._reply is None:
            raise NotFound("The conversation has ended before the agent could go on.")
        return self._reply


class ApprovalPrompts:
    """The questions of the conversations of one terminal."""

    def __init__(self, app: App, console: Console, line_input: LineInput, user: str) -> None:
        self._app = app
        self._console = console
        self._input = line_input
        self._user = user

    @property
    def _approvals(self) -> Approvals:
        return self._app.core.approvals

    async def list_open(self, conversation_id: str) -> Sequence[ToolCall]:
        """Return the questions that wait for a decision, the oldest first."""
        asked = await self._approvals.list(self._user, conversation_id)
        return [call for call in reversed(asked) if call.is_undecided]

    async def ask(self, conversation_id: str, message_id: str) -> RestOfReply | None:
        """Ask about the open questions of a message; return the rest of its reply if the agent goes on, else None."""
        subscription = await self._app.worker.live_updates.subscribe(self._user, conversation_id)
        is_stored = False
        for call in await self.list_open(conversation_id):
            if call.message_id != message_id:
                continue
            self._show(call)
            decision = await self._read_decision()
            if decision is not None:
                is_stored = await self._decide(call, decision)
        asked = await self._approvals.list(self._user, conversation_id)
        together = [call for call in asked if call.message_id == message_id]
        if waiting := [call for call in together if call.is_undecided]:
            self.tell_open(waiting)
            return None
        # After an expired question the agent goes on only if it may make another call.
        goes_on = is_stored or any(call.state == "allowed" for call in together)
        return RestOfReply(subscription, message_id) if goes_on else None

    def tell_open(self, waiting: Sequence[ToolCall]) -> None:
        """Say that questions wait, and until when."""
        number = "1 question waits" if len(waiting) == 1 else f"{len(waiting)} questions wait"
        until = min(call.expires_at for call in waiting if call.expires_at is not None)
        self._console.print(f"[dim]{number} until {until.astimezone():%H:%M}: /approvals[/dim]")

    def _show(self, call: ToolCall) -> None:
        tool = call.tool.removeprefix(f"{call.server}{SERVER_SEPARATOR}")
        self._console.print(
            Text.assemble((make_visible(tool), "bold"), " of the server ", (make_visible(call.server), "bold"))
        )
        for name, value in call.arguments.items():
            lines = make_visible(_write(value)).split("\n")
            lead = f"  {make_visible(name)}: "
            for number, line in enumerate(lines):
                self._console.print(Text.assemble((lead if number == 0 else " " * len(lead), "dim"), line))

    async def _read_decision(self) -> Decision | None:
        """Return the person's decision; None if they leave it open."""
        while True:
            line = await self._input.read("[bold yellow]Allow it?[/bold yellow] yes, no or later: ")
            answer = (line or "").strip().lower()
            if answer in LATER:
                return None
            if answer in ANSWERS:
                return ANSWERS[answer]
            self._console.print("Type yes, no or later.")

    async def _decide(self, call: ToolCall, decision: Decision) -> bool:
        """Store a decision; return False and say why if it comes too late."""
        assert call.approval_id is not None
        try:
            await self._approvals.decide(
                self._user, call.conversation_id, call.approval_id, decision, author_id=None, is_admin=True
            )
        except Conflict as error:
            self._console.print(str(error), style="red", markup=False)
            return False
        return True


def _write(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
