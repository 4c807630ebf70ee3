"""Define tools: what a model may call, what a call may touch, and what it returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Protocol, TypeAlias

ToolScope: TypeAlias = Literal["memory", "follow_ups", "reminders", "chat", "notes", "clock", "outside"]
"""The data that a tool may touch. `memory` and `follow_ups` belong to one person; `outside` is another program."""

SERVER_SEPARATOR: Final = "__"
"""Stands between the name of a server and the name of its tool: `files__read_file`."""
MAX_TOOL_NAME_CHARACTERS: Final = 64
"""The longest name that providers of models accept."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model and its agent's owner see it."""

    name: str
    """Unique on the server: letters, digits, `_` and `-`."""
    description: str
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments: an object."""
    scope: ToolScope
    only_reads: bool
    """False if a call changes something; outside Rapport such a call runs at most once, and asks a person first."""
    time_limit_seconds: float = 10.0
    needs_result: bool = True
    """False if the model can finish its answer without the result."""
    server: str = ""
    """The MCP server that runs it; empty for a tool of Rapport."""

    @property
    def is_outside(self) -> bool:
        return self.scope == "outside"

    @property
    def has_outside_effect(self) -> bool:
        """Return True if a call may change something outside Rapport."""
        return self.is_outside and not self.only_reads

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the tool in the form of the OpenAI API."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call, as text for the model."""

    text: str
    is_error: bool = False
    """True if the tool answered that it could not do it: the call has had no effect that the model may rely on."""


class ToolOutcomeUnknown(Exception):
    """Raised when a call was sent and no answer came: it may have had its effect."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Another program whose tools agents may use, and whether it can be reached."""

    name: str
    state: Literal["connecting", "connected", "failed"]
    """`failed` is tried again."""
    problem: str = ""
    """Why it is not connected; empty if it is."""


class ToolSource(Protocol):
    """Other programs whose tools agents may use."""

    def list_tools(self) -> Sequence[ToolSpec]:
        """Return the tools that can be called now."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call one of these tools within its time limit.

        Raise Transient if the call was not sent, ToolOutcomeUnknown if it was sent and not answered.
        """
        ...

    async def wait_for(self, names: Collection[str]) -> None:
        """Wait for the programs of these tools, which are named as in an agent's profile: until each is connected or has failed.

        Half a minute at most, and only after the start of the process.
        """
        ...


class NoToolSource:
    """A server without foreign tools."""

    def list_tools(self) -> Sequence[ToolSpec]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult("There is no such tool.", is_error=True)

    async def wait_for(self, names: Collection[str]) -> None:
        pass


NO_TOOL_SOURCE: Final = NoToolSource()
