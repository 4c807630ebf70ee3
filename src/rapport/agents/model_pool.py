"""Keep one running model for each choice of model that agents make."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from rapport.agents.failures import ModelFailed
from rapport.agents.graph import LangGraphAgent
from rapport.domain.agent_profile import ModelChoice
from rapport.domain.errors import Permanent

MAX_MODELS = 100
"""Models that are kept ready. Above this number the one that was idle for longest is closed."""


class ModelPool:
    """Makes models at their first use. The server's model is always ready."""

    def __init__(self, servers: LangGraphAgent, make: Callable[[ModelChoice], Awaitable[LangGraphAgent]]) -> None:
        self.servers = servers
        """The model that the server's settings name."""
        self._make = make
        self._runners: OrderedDict[ModelChoice, LangGraphAgent] = OrderedDict({ModelChoice(): servers})

    async def get(self, choice: ModelChoice) -> LangGraphAgent:
        """Return the model of an agent; raise ModelFailed if it can't be made, for example without its key."""
        if (runner := self._runners.get(choice)) is None:
            try:
                runner = await self._make(choice)
            except Permanent as error:
                raise ModelFailed(
                    "setup", "the agent's model is not set up", problem="not_set_up", detail=str(error)
                ) from None
            runner = self._runners.setdefault(choice, runner)
            await self._close_idle()
        if not choice.is_servers:
            self._runners.move_to_end(choice)
        return runner

    def find(self, choice: ModelChoice) -> LangGraphAgent | None:
        """Return the model of an agent if it has been used."""
        return self._runners.get(choice)

    def take_changed_records(self) -> Sequence[LangGraphAgent]:
        """Return the models whose record has changed since the last call."""
        return [runner for runner in self._runners.values() if runner.record.has_news()]

    async def _close_idle(self) -> None:
        while len(self._runners) > MAX_MODELS:
            idle = next((key for key, one in self._runners.items() if one is not self.servers and one.is_idle), None)
            if idle is None:
                return
            await self._runners.pop(idle).close()

    async def close(self) -> None:
        """Close every model."""
        for runner in self._runners.values():
            await runner.close()
