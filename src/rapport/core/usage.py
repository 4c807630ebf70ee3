"""Usage: the sums of model calls and their tokens, and budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime

from rapport.domain.usage import BudgetState, Dimension, UsageReport
from rapport.storage.agents import Agents
from rapport.storage.database import Database
from rapport.storage.usage import ModelUsage, UsageBudgets
from rapport.turns.budgets import Budgets

WARNING_CACHE_SECONDS = 5.0
"""The budgets that are nearly used up are looked for at most this often, because every page asks for them."""


class UsageAccounts:
    """Sums of usage for their owner, and budgets for the operator."""

    def __init__(self, database: Database, now: Callable[[], datetime], budgets: Budgets) -> None:
        self._database = database
        self._now = now
        self._budgets = budgets
        self._known_crossings = 0
        self._nearly_spent: Sequence[BudgetState] = ()
        self._fresh_until = 0.0

    @property
    def today(self) -> date:
        """Return the day in UTC."""
        return self._now().astimezone(UTC).date()

    async def report(
        self, owner_id: str | None, by: Collection[Dimension], *, since: date, until: date, limit: int
    ) -> UsageReport:
        """Return the sums from `since` to `until`, both included, of one owner or of all."""
        async with self._database.statement() as connection:
            return await ModelUsage(connection).report(owner_id, by, since=since, until=until, limit=limit)

    async def list_budgets(self, owner_id: str | None = None) -> Sequence[BudgetState]:
        """Return an owner's budget, if there is one; None: those of all owners and agents."""
        async with self._database.statement() as connection:
            return await UsageBudgets(connection).list_states(
                owner_id, await Agents(connection).list_budgets(), today=self.today
            )

    async def list_nearly_spent(self) -> Sequence[BudgetState]:
        """Return the budgets of which at least 80 % are used.

        They are read at most every few seconds, and at once after a turn of this process has found one to be used up.
        """
        crossings = self._budgets.crossings
        if time.monotonic() >= self._fresh_until or crossings != self._known_crossings:
            self._known_crossings = crossings
            self._nearly_spent = [state for state in await self.list_budgets() if state.is_nearly_spent]
            self._fresh_until = time.monotonic() + WARNING_CACHE_SECONDS
        return self._nearly_spent

    async def set_budget(self, owner_id: str, monthly_tokens: int | None) -> bool:
        """Set an owner's monthly budget; None removes it. Return False for an owner who has neither a key nor data yet."""
        async with self._database.statement() as connection:
            budgets = UsageBudgets(connection)
            await budgets.set(owner_id, monthly_tokens)
            is_known = await budgets.is_known_owner(owner_id)
        self._fresh_until = 0.0
        return is_known
