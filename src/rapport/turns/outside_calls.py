"""Run calls with effects outside at most once: store the intent before a call, its result after it, and ask a person first.

A call is identified by its place in its turn. A turn with such tools keeps a checkpoint after each step, so that after a crash it
goes on with the same calls (ADR 90).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import structlog

from rapport.agents.tools.registry import is_chosen
from rapport.agents.tools.toolbox import SERVER_AWAY, OutsideCall
from rapport.domain import failpoints
from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import Reply
from rapport.domain.ids import new_id
from rapport.domain.tool import ToolOutcomeUnknown, ToolSpec
from rapport.domain.tool_call import CallState, ToolCall
from rapport.domain.tool_names import is_named, is_outside_name
from rapport.domain.visible_text import make_visible
from rapport.storage.work.events import Superseded
from rapport.storage.work.tool_calls import ToolCalls
from rapport.turns.findings import Search
from rapport.turns.outside_tools import find_refusal, quote_result, send_call
from rapport.turns.turn import Turn

log = structlog.get_logger()

UNKNOWN = (
    "The outcome of this call is not known: it was started, and gave no answer. It is not repeated. Tell the person so, and that"
    " they should check before they ask for it again."
)
_LEFT_AS: Mapping[CallState, CallState] = {"running": "unknown", "allowed": "failed"}
"""The state of a call that its turn has left behind."""
_DENIED = "Not done: the person did not allow it. Don't ask for it again unless they bring it up."
_EXPIRED = "Not done: nobody allowed it in time."
_NOT_ASKED = "Not done: nobody has allowed this call."
_OPEN = (
    "Not done: that question is open already. The person decides about it by its buttons, not by a message: tell them so, and don't"
    " call it again."
)
_DONE_BEFORE = "Not done again: the same call was done just before, in this answer."
_WITHDRAWN = "Not done: you may not use this tool any more."

Flush: TypeAlias = Callable[[], Awaitable[None]]

CONNECT_SECONDS = 20.0
"""The time that a turn that goes on waits until the servers of its calls are connected, for instance after a restart."""
_CONNECT_POLL_SECONDS = 0.1
MAX_SHOWN_ARGUMENT_CHARACTERS = 300
"""The number of characters that the question shows of each argument; the channels show all of it."""
MAX_TOLD_QUESTIONS = 3
MAX_TOLD_CHARACTERS = 600
"""How many open questions the model is told of, and how much of each."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

DONE_ONCE = " It was done once already, just before."


class TurnCalls:
    """The calls of one turn with effects outside."""

    def __init__(self, turn: Turn, *, flush: Flush) -> None:
        """`flush` makes the turn's checkpoints durable."""
        self.search: Search | None = None
        """The turn's searches, once there are some: results must not cite the notes that they have found."""
        self.earlier_tools: Sequence[ToolSpec] = ()
        """The tools of calls that an earlier run of the turn has made or asked for."""
        self._turn = turn
        self._flush = flush
        self._is_used = turn.event.resumes is not None or turn.event.attempts > 1
        self._told: set[str] = set()
        """The keys of the calls whose outcome the model has read."""
        self._stored: Sequence[ToolCall] = ()
        """The calls of this turn when the latest questions were looked for."""

    async def recover(self) -> None:
        """Load the calls of an earlier run of the turn, and wait for the servers, which may not be connected after a restart."""
        if not self._is_used:
            return
        turn = self._turn
        if names := [name for name in turn.profile.tools or () if is_outside_name(name)]:
            await turn.deps.tool_source.wait_for(names)
        calls = await self.list_stored()
        self.earlier_tools = [
            ToolSpec(call.tool, "", {"type": "object"}, "outside", only_reads=False, server=call.server)
            for call in calls
        ]
        # A server that has failed is waited for only if a person has allowed a call of it.
        allowed = {call.tool for call in calls if call.state == "allowed" and self._may_use(call.tool)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                while not allowed <= {spec.name for spec in turn.deps.tool_source.list_tools()}:
                    await asyncio.sleep(_CONNECT_POLL_SECONDS)

    def _may_use(self, tool: str) -> bool:
        return is_chosen(tool, self._turn.profile.tools or ())

    async def find_undecided(self, calls: Sequence[OutsideCall]) -> Sequence[OutsideCall]:
        """Return the calls that need a person's decision and have none."""
        self._is_used = True
        await self._flush()  # from here on a repeated step makes the same calls
        free = self._turn.profile.tools_without_approval
        self._stored = await self.list_stored()
        decided = {call.key for call in self._stored if not call.is_undecided}
        asked = {call.key: call for call in self._stored if call.is_undecided}
        asked_rounds = {call.place[0] for call in self._stored if call.approval_id is not None}
        known = [call for call in await self.list_open() if call.key not in asked]
        undecided: list[OutsideCall] = []
        for call in calls:
            is_left_out = call.key in decided or (call.key not in asked and call.round in asked_rounds)
            if (
                is_left_out
                or not self._may_use(call.spec.name)
                or is_named(call.spec.name, free)
                or find_refusal(self._turn, call.arguments) is not None  # it is not sent anyway
            ):
                continue
            is_twice = any(call.is_same(other) for other in undecided)
            if call.key in asked or not (
                is_twice or any(open_.is_same(call.spec.name, call.arguments) for open_ in known)
            ):
                undecided.append(call)
        return undecided

    async def list_open(self) -> Sequence[ToolCall]:
        """Return the questions of the conversation that wait for a person, if the agent has tools that may ask any."""
        event = self._turn.event
        if not any(is_outside_name(name) for name in self._turn.profile.tools or ()):
            return ()
        async with self._turn.deps.database.statement() as connection:
            return await ToolCalls(connection).list_open(event.owner_id, event.conversation_id)

    async def run(self, call: OutsideCall) -> str:
        """Run a call that is allowed and was never run; otherwise return what is known of it."""
        turn, event, spec = self._turn, self._turn.event, call.spec
        self._is_used = True
        self._told.add(call.key)
        if (refusal := find_refusal(turn, call.arguments)) is not None:
            return refusal
        stored = next((each for each in await self.list_stored() if each.key == call.key), None)
        if stored is not None and (known := await self._tell_known(stored, call)) is not None:
            return known
        if not self._may_use(spec.name):  # the agent was changed or deleted while a person decided
            return _WITHDRAWN
        if stored is None and not is_named(spec.name, turn.profile.tools_without_approval):
            return await self._explain_unasked(call)
        failpoints.reach("tool.before_intent")
        async with turn.deps.database.statement() as connection:
            may_run = await ToolCalls(connection).begin(
                event, call.key, tool=spec.name, server=spec.server, arguments=call.arguments
            )
        if not may_run:
            raise Superseded("Another worker has taken over this turn.")
        failpoints.reach("tool.after_intent")
        return await self._send(call, was_allowed=stored is not None)

    async def _explain_unasked(self, call: OutsideCall) -> str:
        """Return why nobody was asked about a call: the same question is open, or was answered in this turn."""
        equal = [each for each in await self.list_stored() if each.is_same(call.spec.name, call.arguments)]
        if any(each.state == "done" for each in equal):
            return _DONE_BEFORE
        if equal:
            return self._describe(equal[-1])
        is_open = any(each.is_same(call.spec.name, call.arguments) for each in await self.list_open())
        return _OPEN if is_open else _NOT_ASKED

    async def list_stored(self) -> list[ToolCall]:
        """Return the calls of this turn that were asked for, decided or begun."""
        async with self._turn.deps.database.statement() as connection:
            return await ToolCalls(connection).list_of_turn(self._turn.event)

    def make_request(self, text: str, undecided: Sequence[OutsideCall]) -> Reply:
        """Return the reply that asks a person about these calls, after the model's own text."""
        questions = self._make_questions(undecided)
        done = [call for call in self._stored if call.state == "done"]
        described = [
            f"{describe_question(call)}{DONE_ONCE if any(one.is_same(call.tool, call.arguments) for one in done) else ''}"
            for call in questions
        ]
        if len(described) > 1:  # channels name them by their numbers
            described = [f"{number}. {each}" for number, each in enumerate(described, 1)]
        lines = [text.strip(), *described]
        metadata = {"approvals": [call.approval_id for call in questions]}
        return Reply(
            "\n\n".join(line for line in lines if line), metadata=metadata, model_failed=False, questions=questions
        )

    async def add_outcomes(self, reply: Reply) -> Reply:
        """Return the reply with the turn's calls in its receipt, and what the person must know of them in its text."""
        if not self._is_used:
            return reply
        stored = await self.list_stored()
        if not stored:
            return reply
        ended = stored
        if any(call.state in _LEFT_AS for call in stored):  # for instance stopped by its person
            async with self._turn.deps.database.statement() as connection:
                await ToolCalls(connection).abandon(self._turn.event)
            ended = [replace(call, state=_LEFT_AS.get(call.state, call.state)) for call in stored]
        receipt = [
            {"name": call.tool, "server": call.server, "state": "expired" if call.is_expired else call.state}
            for call in ended
        ]
        notes = [
            f"(It is not known whether `{call.tool}` was done. It is not repeated.)"
            for call in ended
            if call.state == "unknown"
        ]
        notes += [
            f"(`{call.tool}` was not called.)"
            for call in stored
            if call.state == "allowed" and call.key not in self._told
        ]
        if reply.model_failed is not False:  # the reply does not tell it
            notes += [f"(Done before: `{call.tool}`.)" for call in ended if call.state == "done"]
        content = reply.content
        if notes and isinstance(content, str):
            content = "\n\n".join(part for part in (content, *notes) if part)
        tools = [*reply.metadata.get("tools", ()), *receipt]
        return replace(reply, content=content, metadata={**reply.metadata, "tools": tools})

    def _make_questions(self, undecided: Sequence[OutsideCall]) -> list[ToolCall]:
        event, author = self._turn.event, self._turn.input.message.author
        return [
            ToolCall(
                event.conversation_id,
                event.message_id,
                call.key,
                event.owner_id,
                call.spec.name,
                call.spec.server,
                call.arguments,
                "asked",
                approval_id=new_id(),
                asker_id=author.id if author else None,
            )
            for call in undecided
        ]

    async def _send(self, call: OutsideCall, *, was_allowed: bool) -> str:
        """Send a call whose intent is stored, and store its result."""
        spec = call.spec
        try:
            result = await send_call(self._turn, spec, call.arguments)
        except ToolOutcomeUnknown as error:
            log.warning("agent.tool_outcome_unknown", tool=spec.name, reason=str(error))
            await self._end(call, "unknown")
            return UNKNOWN
        except (Transient, Permanent) as error:  # it was not sent
            log.warning("agent.tool_failed", tool=spec.name, reason=str(error))
            await self._end(call, "failed", "It was not sent: the server could not be reached.")
            return SERVER_AWAY
        failpoints.reach("tool.after_call")
        await self._end(call, "failed" if result.is_error else "done", result.text)
        failpoints.reach("tool.after_result")
        return self._quote(call, result.text, is_error=result.is_error)

    async def _end(self, call: OutsideCall, state: CallState, result: str | None = None) -> None:
        async with self._turn.deps.database.statement() as connection:
            await ToolCalls(connection).end(self._turn.event, call.key, state, result)

    async def _tell_known(self, stored: ToolCall, call: OutsideCall) -> str | None:
        """Return what the model reads of a call that must not run now; None if it may run."""
        if not stored.is_same(call.spec.name, call.arguments):
            return f"Not done: before a restart, {stored.tool} was called here instead. {self._describe(stored)}"
        if stored.state == "allowed":
            return None
        if stored.state == "running":  # begun before a crash
            log.warning("agent.tool_outcome_unknown", tool=stored.tool, reason="interrupted")
            await self._end(call, "unknown")
            return UNKNOWN
        return (
            self._quote(call, stored.result or "", is_error=stored.state == "failed")
            if stored.result
            else (self._describe(stored))
        )

    def _describe(self, stored: ToolCall) -> str:
        if stored.state == "denied":
            return _DENIED
        if stored.state == "asked":
            return _EXPIRED
        return "It was done." if stored.state == "done" else UNKNOWN

    def _quote(self, call: OutsideCall, text: str, *, is_error: bool) -> str:
        passages = self.search.findings.passages if self.search is not None else ()
        citable_ids = {passage.note_id for passage in passages}
        return quote_result(call.spec, text, is_error=is_error, citable_ids=citable_ids)


def describe_question(call: ToolCall) -> str:
    """Return the question to a person, as every channel shows it. Nothing in it is hidden, and no made-up name can imitate its words."""
    arguments = ", ".join(f"{_quote_name(name)} = {_quote(_write(value))}" for name, value in call.arguments.items())
    return f"May I use `{call.tool}`{f' with {arguments}' if arguments else ''}? I do it only if you allow it."


def describe_open_questions(calls: Sequence[ToolCall]) -> str:
    """Return the note for the model about the questions that wait for a person; empty if there are none."""
    if not calls:
        return ""
    asked = " ".join(f"“{describe_question(call)[:MAX_TOLD_CHARACTERS]}”" for call in calls[:MAX_TOLD_QUESTIONS])
    return f"Open questions of yours: {asked} The person decides by their buttons, not by a message: don't make these calls again."


def is_shortened(call: ToolCall) -> bool:
    """Return True if the question does not show the whole of each argument."""
    written = [*call.arguments, *(_write(value) for value in call.arguments.values())]
    return any(len(each) > MAX_SHOWN_ARGUMENT_CHARACTERS for each in written)


def _quote_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _quote(_flatten(name))


def _write(value: object) -> str:
    return _flatten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _flatten(text: str) -> str:
    return make_visible(" ".join(text.replace("`", "'").split()))


def _quote(text: str) -> str:
    return f"`{text if len(text) <= MAX_SHOWN_ARGUMENT_CHARACTERS else f'{text[:MAX_SHOWN_ARGUMENT_CHARACTERS]}…'}`"
