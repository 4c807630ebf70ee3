"""Foreign tools for tests: `files__read` reads, `files__write` changes something, and every call is recorded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rapport.domain.errors import Transient
from rapport.domain.tool import ToolResult, ToolSpec

_PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("files__read", "Read a file.", _PATH, "outside", only_reads=True, server="files")
WRITE = ToolSpec("files__write", "Write a file.", _PATH, "outside", only_reads=False, server="files")


@dataclass
class FileTools:
    """A tool source whose effects are the paths in `written`."""

    specs: Sequence[ToolSpec] = (READ, WRITE)
    written: list[str] = field(default_factory=list[str])
    read: list[str] = field(default_factory=list[str])
    answers: deque[str | Exception] = field(default_factory=deque[str | Exception])
    """What the next calls return or raise, after their effect; then "ok"."""
    gate: asyncio.Event | None = None
    """Holds calls back after their effect."""
    is_away: bool = False
    """Their server is not connected."""
    is_starting: bool = False
    """Their server was not tried yet."""
    awaited: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a turn waits for their server."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def list_tools(self) -> Sequence[ToolSpec]:
        return () if self.is_away else self.specs

    async def wait_for(self, names: Collection[str]) -> None:
        if self.is_starting:
            self.awaited.set()
            await self.arrived.wait()
            self.is_away = self.is_starting = False

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        if self.is_away:
            raise Transient("The server files is not connected: the call was not sent.")
        (self.written if name == WRITE.name else self.read).append(str(arguments.get("path")))
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.popleft() if self.answers else "ok"
        if isinstance(answer, Exception):
            raise answer
        return ToolResult(answer)
