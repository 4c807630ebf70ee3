"""The tools that agents may name, and the servers that other tools come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rapport.agents.directory import AgentDirectory
from rapport.agents.tools.registry import BUILT_IN
from rapport.domain.caller import Caller
from rapport.domain.tool import ToolServer, ToolSource, ToolSpec
from rapport.domain.tool_names import is_named

ListServers: TypeAlias = Callable[[], Sequence[ToolServer]]


@dataclass(frozen=True, slots=True)
class ToolCatalog:
    """Rapport's own tools and those of connected servers."""

    agents: AgentDirectory
    source: ToolSource
    servers: ListServers

    async def list_for(self, caller: Caller) -> Sequence[ToolSpec]:
        """Return the tools that the caller may see: Rapport's own, and of the others all for an operator.

        Anybody else sees those that an agent names which they may use.
        """
        outside = self.source.list_tools()
        if outside and not caller.is_operator:
            profiles = await self.agents.list_visible(caller.owner_id)
            named = {name for profile in profiles for name in profile.tools or ()}
            outside = [spec for spec in outside if is_named(spec.name, named)]
        return [*BUILT_IN.values(), *outside]

    def list_servers(self, caller: Caller) -> Sequence[ToolServer]:
        """Return the configured servers and what is wrong with them; none unless the caller is an operator."""
        return self.servers() if caller.is_operator else ()
