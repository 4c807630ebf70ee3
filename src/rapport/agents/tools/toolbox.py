"""Run the tool calls of one turn: within their limits, and those with effects outside at most once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import structlog
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from rapport.agents.tools.calls import list_call_names
from rapport.domain.tool import ToolSpec
from rapport.replies.written_calls import WrittenCall

log = structlog.get_logger()

MAX_TOOL_ROUNDS = 3
"""The number of rounds of tool calls that a model has before it must answer."""
MAX_OUTSIDE_ROUNDS = 8
"""The same for a turn with tools outside Rapport."""
MAX_CALLS_PER_MESSAGE = 16
"""The number of tool calls that one message may contain; further calls are refused."""
MAX_LOOKUPS = 6
"""The number of calls of Rapport's own reading tools that one turn may make."""
MAX_OUTSIDE_CALLS = 16
"""The number of calls of tools outside Rapport that one turn may make."""

_ENOUGH = "Not done: enough was looked up. Answer with what there is."

SERVER_AWAY = "Not done: its server can't be reached right now."
NO_ANSWER = (
    "That gave no answer in time: nothing is known of its result, and it may have been done. Answer with what there is."
)

RunTool: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool, and the function that runs it in one turn.

    The function returns the text that the model reads, and never raises for a bad argument.
    """

    spec: ToolSpec
    run: RunTool


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call that may change something outside Rapport."""

    key: str
    """Its place in the turn, such as `1.0`: the first call of the model's second message. It is the same after a restart."""
    spec: ToolSpec
    arguments: Mapping[str, Any]

    @property
    def round(self) -> int:
        """Return the number of the model's message."""
        return int(self.key.partition(".")[0])

    def is_same(self, other: OutsideCall) -> bool:
        return self.spec.name == other.spec.name and self.arguments == other.arguments


class OutsideCalls(Protocol):
    """Records the calls with effects outside, so that each runs at most once."""

    @property
    def earlier_tools(self) -> Sequence[ToolSpec]:
        """Return the tools of calls that an earlier run of the turn has made: the turn goes on with them, offered or not."""
        ...

    async def find_undecided(self, calls: Sequence[OutsideCall]) -> Sequence[OutsideCall]:
        """Return the calls that a person must decide about before they may run."""
        ...

    async def run(self, call: OutsideCall) -> str:
        """Run an allowed call if it was never run, and return the text that the model reads."""
        ...


class Toolbox:
    """The tools of one turn."""

    def __init__(
        self,
        tools: Sequence[BoundTool] = (),
        *,
        outside_calls: OutsideCalls | None = None,
        is_away: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Without `outside_calls` no tool with an effect outside is offered. `is_away` says that a tool's server is not connected."""
        self._outside_calls = outside_calls
        self._is_away = is_away
        self._tools = {
            tool.spec.name: tool for tool in tools if outside_calls is not None or not tool.spec.has_outside_effect
        }
        self.schemas = [tool.spec.schema for tool in self._tools.values()]
        """The tools that the model may use in this turn, as providers take them."""
        self._outside = {spec.name: spec for spec in (outside_calls.earlier_tools if outside_calls is not None else ())}
        self._outside |= {name: tool.spec for name, tool in self._tools.items() if tool.spec.has_outside_effect}
        self.has_outside_effects = bool(self._outside)
        self.max_rounds = (
            MAX_OUTSIDE_ROUNDS if any(tool.spec.is_outside for tool in self._tools.values()) else MAX_TOOL_ROUNDS
        )

    @property
    def names_with_results(self) -> Collection[str]:
        """Return the names of the tools whose results the model needs."""
        return [name for name, tool in self._tools.items() if tool.spec.needs_result]

    async def find_undecided(
        self, reply: AIMessage, *, number: int, earlier: Sequence[BaseMessage] = ()
    ) -> Sequence[OutsideCall]:
        """Return the calls of the model's message `number` that a person must decide about first, within the limits."""
        refused = self._refuse_too_many(reply, earlier)
        calls = [call for position, call in self._list_outside_calls(reply, number) if position not in refused]
        if not calls or self._outside_calls is None:
            return ()
        return await self._outside_calls.find_undecided(calls)

    async def use(self, reply: AIMessage, *, number: int = 0, earlier: Sequence[BaseMessage] = ()) -> list[ToolMessage]:
        """Run the calls of the model's message `number` and return their results, in order.

        `earlier` are the messages of earlier rounds, whose calls count. Calls that only read run side by side, before those
        that change something.
        """
        refused = self._refuse_too_many(reply, earlier)
        outside = dict(self._list_outside_calls(reply, number))
        results: dict[int, str] = {}

        async def run_inside(position: int, call: ToolCall) -> None:
            results[position] = refused.get(position) or await self._use_one(call["name"], call["args"])

        calls = list(enumerate(reply.tool_calls))
        await asyncio.gather(*(run_inside(position, call) for position, call in calls if position not in outside))
        for position, call in outside.items():
            assert self._outside_calls is not None
            results[position] = refused.get(position) or await self._outside_calls.run(call)
        answers = [ToolMessage(results[position], tool_call_id=call["id"] or "") for position, call in calls]
        return answers + [
            ToolMessage("Not done: the arguments must be a JSON object.", tool_call_id=call["id"] or "")
            for call in reply.invalid_tool_calls
        ]

    async def use_written(self, calls: Sequence[WrittenCall]) -> None:
        """Run calls that the model wrote as text, as far as it needs no result of them."""
        for call in calls[:MAX_CALLS_PER_MESSAGE]:
            tool = self._tools.get(call.name)
            if tool is not None and not tool.spec.needs_result:
                await self._use_one(call.name, call.arguments)

    async def _use_one(self, name: str, arguments: Mapping[str, Any]) -> str:
        if (tool := self._tools.get(name)) is None:
            return SERVER_AWAY if self._is_away(name) else "There is no such tool."
        try:
            async with asyncio.timeout(tool.spec.time_limit_seconds):
                return await tool.run(arguments)
        except TimeoutError:
            log.warning("agent.tool_timeout", tool=name)
            if tool.spec.is_outside:
                return NO_ANSWER
            return "Not done: that took too long. Answer with what there is."

    def _list_outside_calls(self, reply: AIMessage, number: int) -> list[tuple[int, OutsideCall]]:
        return [
            (position, OutsideCall(f"{number}.{position}", spec, call["args"]))
            for position, call in enumerate(reply.tool_calls)
            if (spec := self._outside.get(call["name"])) is not None
        ]

    def _refuse_too_many(self, reply: AIMessage, earlier: Sequence[BaseMessage]) -> dict[int, str]:
        """Return the refusals of calls beyond the limits, by their position in the message."""
        before = [
            self._count_as(name)
            for message in earlier
            if isinstance(message, AIMessage)
            for name in list_call_names(message)[:MAX_CALLS_PER_MESSAGE]
        ]
        left = {"lookup": MAX_LOOKUPS - before.count("lookup"), "outside": MAX_OUTSIDE_CALLS - before.count("outside")}
        refused: dict[int, str] = {}
        for position, call in enumerate(reply.tool_calls):
            kind = self._count_as(call["name"])
            if position >= MAX_CALLS_PER_MESSAGE:
                refused[position] = "Not done: too many calls."
            elif kind is not None:
                left[kind] -= 1
                if left[kind] < 0:
                    refused[position] = (
                        _ENOUGH if kind == "lookup" else "Not done: too many calls. Answer with what there is."
                    )
        return refused

    def _count_as(self, name: str) -> str | None:
        if name in self._outside:  # it may have lost its server since
            return "outside"
        tool = self._tools.get(name)
        if tool is None or not tool.spec.needs_result:
            return None
        return "outside" if tool.spec.is_outside else "lookup"
