"""Keep one running model for each choice of model that agents make."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rapport.agents.client_tools import ClientToolModel
from rapport.agents.failures import ModelFailed
from rapport.agents.graph import LangGraphAgent
from rapport.domain.agent_profile import ModelChoice
from rapport.domain.errors import Permanent

MAX_MODELS = 100
"""Models that are kept ready. Above this number the one that was idle for longest is closed."""


@dataclass(frozen=True, slots=True)
class PooledModel:
    """One model, as turns use it and as clients with tools of their own do."""

    agent: LangGraphAgent
    client_tools: ClientToolModel

    @property
    def is_idle(self) -> bool:
        return self.agent.is_idle and self.client_tools.is_idle


class ModelPool:
    """Makes models at their first use. The server's model is always ready."""

    def __init__(self, servers: PooledModel, make: Callable[[ModelChoice], Awaitable[PooledModel]]) -> None:
        self.servers = servers.agent
        """The model that the server's settings name."""
        self._make = make
        self._runners: OrderedDict[ModelChoice, PooledModel] = OrderedDict({ModelChoice(): servers})

    async def get(self, choice: ModelChoice) -> LangGraphAgent:
        """Return the model of an agent; raise ModelFailed if it can't be made, for example without its key."""
        return (await self._get(choice)).agent

    async def get_for_client_tools(self, choice: ModelChoice) -> ClientToolModel:
        """Return the model of an agent for requests with a client's tools; raise ModelFailed if it can't be made."""
        return (await self._get(choice)).client_tools

    async def _get(self, choice: ModelChoice) -> PooledModel:
        if (runner := self._runners.get(choice)) is None:
            try:
                runner = await self._make(choice)
            except Permanent as error:
                text = str(error)
                raise ModelFailed("setup", text, problem="not_set_up", detail=text, missing=text) from None
            runner = self._runners.setdefault(choice, runner)
            await self._close_idle()
        if not choice.is_servers:
            self._runners.move_to_end(choice)
        return runner

    def find(self, choice: ModelChoice) -> LangGraphAgent | None:
        """Return the model of an agent if it has been used."""
        runner = self._runners.get(choice)
        return None if runner is None else runner.agent

    def take_changed_records(self) -> Sequence[LangGraphAgent]:
        """Return the models whose record has changed since the last call."""
        return [runner.agent for runner in self._runners.values() if runner.agent.record.has_news()]

    async def _close_idle(self) -> None:
        while len(self._runners) > MAX_MODELS:
            idle = next(
                (key for key, one in self._runners.items() if one.agent is not self.servers and one.is_idle), None
            )
            if idle is None:
                return
            await self._runners.pop(idle).agent.close()

    async def close(self) -> None:
        """Close every model."""
        for runner in self._runners.values():
            await runner.agent.close()
