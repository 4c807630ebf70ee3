"""Decide whether a budget of tokens is used up, without a query for most turns (ADR 87)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import structlog

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.usage import BudgetKind, BudgetState, Usage, count_tokens, first_of_month, next_month
from rapport.storage.database import Database
from rapport.storage.usage import ModelUsage, UsageBudgets

log = structlog.get_logger()

REFRESH_SECONDS = 3.0
"""After this time a sum is read again, because other processes add to it too."""


@dataclass(slots=True)
class _Sum:
    """The tokens of a month that this process knows of."""

    month: date
    open_from: date
    """The days before this one are over: their sum is not read again."""
    closed: int
    open: int
    read_at: float


class Budgets:
    """The sums of this month for the owners and agents that have a budget."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now
        self._sums: dict[tuple[BudgetKind, str], _Sum] = {}
        self._warned: set[tuple[BudgetKind, str, date]] = set()
        self._levels: dict[tuple[BudgetKind, str], tuple[date, int, bool, bool]] = {}
        self.crossings = 0
        """The number of times that turns of this process have found a budget nearly used up, used up, or not any more."""

    async def find_spent(self, owner_id: str, agent: AgentProfile, *, owner_limit: int | None) -> BudgetState | None:
        """Return the budget that is used up, if any; None is no limit. Warn the operator once a month from 80 % on."""
        budgets: tuple[tuple[BudgetKind, str, int | None], ...] = (
            ("owner", owner_id, owner_limit),
            ("agent", agent.budget_id, agent.monthly_token_budget),
        )
        spent = None
        for kind, id_, limit in budgets:
            if limit is None:
                continue
            month, used = await self._sum_month(kind, id_)
            state = BudgetState(kind, id_, limit, used, month)
            level = (month, limit, state.is_nearly_spent, state.is_spent)
            if self._levels.get((kind, id_)) != level:
                self._levels[kind, id_] = level
                self.crossings += 1
            if state.is_nearly_spent:
                await self._warn(state)
            if state.is_spent and spent is None:
                spent = state
        return spent

    async def find_spent_of_job(self, owner_id: str, agent: AgentProfile) -> BudgetState | None:
        """Return the budget that is used up, if any, for a job that has not loaded the owner's budget."""
        async with self._database.statement() as connection:
            limits = await UsageBudgets(connection).list(owner_id)
        return await self.find_spent(owner_id, agent, owner_limit=limits.get(owner_id))

    def add(self, owner_id: str, agent_id: str, usage: tuple[Usage, ...]) -> None:
        """Add usage of this process to the known sums."""
        tokens = count_tokens(usage)
        keys: tuple[tuple[BudgetKind, str], ...] = (
            ("owner", owner_id),
            ("agent", agent_id),
            ("agent", f"{owner_id}/{agent_id}"),
        )
        for key in keys:
            if (known := self._sums.get(key)) is not None:
                known.open += tokens

    async def _sum_month(self, kind: BudgetKind, id_: str) -> tuple[date, int]:
        """Return the first day of this month and the tokens used since, read at most REFRESH_SECONDS ago."""
        today = self._now().astimezone(UTC).date()
        month = first_of_month(today)
        # A turn may end just after midnight in a transaction that began before it.
        open_from = max(month, today - timedelta(days=1))
        known = self._sums.get((kind, id_))
        if known is not None and known.month == month:
            if time.monotonic() < known.read_at + REFRESH_SECONDS:
                return month, known.closed + known.open
            known.read_at = time.monotonic()  # turns that come meanwhile use what is known
        is_closed_known = known is not None and known.open_from == open_from and known.month == month
        async with self._database.statement() as connection:
            closed, open_ = await ModelUsage(connection).sum_tokens(
                kind,
                id_,
                since=open_from if is_closed_known else month,
                before=next_month(month),
                open_from=open_from,
            )
        if known is not None and is_closed_known:
            closed = known.closed
        self._sums[kind, id_] = _Sum(month, open_from, closed, open_, time.monotonic())
        return month, closed + open_

    async def _warn(self, state: BudgetState) -> None:
        """Log a warning, once a month for all processes."""
        key = (state.kind, state.id, state.month)
        if key in self._warned:
            return
        self._warned.add(key)
        ids = {f"{state.kind}_id": state.id}
        async with self._database.statement() as connection:
            is_first = await UsageBudgets(connection).warn_once(**ids, month=state.month)
        if is_first:
            log.warning(
                "usage.budget_nearly_spent",
                kind=state.kind,
                id=state.id,
                used=state.used,
                limit=state.limit,
                restarts_on=state.restarts_on.isoformat(),
            )
