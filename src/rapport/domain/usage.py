"""Define what model calls cost: counts of calls and tokens by purpose, and budgets of tokens (AGT-4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, TypeAlias, get_args

Purpose: TypeAlias = Literal["answer", "follow_up", "summary", "reflection", "leak_retry", "try"]
"""Why a model was called. `leak_retry` is the second draft of a follow-up; `try` is an answer that is not stored."""
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)

Dimension: TypeAlias = Literal["day", "owner", "agent", "conversation", "purpose", "model"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

MAX_TOKENS_PER_CALL = 1_000_000_000
"""A higher count of a provider is cut: it is an error, and it must not break the statement that stores the reply."""
MAX_BUDGET = 10**15
"""The largest monthly budget, in tokens."""
WARNING_SHARE = 0.8
"""The share of a budget from which on the operator is warned."""


@dataclass(frozen=True, slots=True)
class CallUsage:
    """One model call that has reached the model's server. Of a failed call, tokens are zero unless the provider said more."""

    model: str
    tokens_in: int = 0
    tokens_out: int = 0
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """The calls of one purpose with one model, and their tokens."""

    purpose: Purpose
    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    estimated_calls: int
    """The calls whose tokens are estimated."""

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


class UsageMeter:
    """Adds up the model calls of one turn or job: also those that fail or are cancelled, which return nothing."""

    def __init__(self) -> None:
        self._usage: dict[tuple[Purpose, str], Usage] = {}

    def count(self, purpose: Purpose, call: CallUsage) -> None:
        before = self._usage.get((purpose, call.model), Usage(purpose, call.model, 0, 0, 0, 0))
        self._usage[purpose, call.model] = Usage(
            purpose,
            call.model,
            before.calls + 1,
            before.tokens_in + call.tokens_in,
            before.tokens_out + call.tokens_out,
            before.estimated_calls + call.is_estimated,
        )

    @property
    def usage(self) -> tuple[Usage, ...]:
        """Return the sums so far."""
        return tuple(self._usage.values())

    def take(self) -> tuple[Usage, ...]:
        """Return the sums so far and begin anew, so that nothing is stored twice."""
        usage = self.usage
        self._usage.clear()
        return usage


def count_tokens(usage: Iterable[Usage]) -> int:
    return sum(part.tokens for part in usage)


def describe_usage(usage: Sequence[Usage]) -> dict[str, Any]:
    """Return the receipt of a reply: its calls and tokens, whether any are estimated, and the models."""
    return {
        "calls": sum(part.calls for part in usage),
        "tokens_in": sum(part.tokens_in for part in usage),
        "tokens_out": sum(part.tokens_out for part in usage),
        "estimated": any(part.estimated_calls for part in usage),
        "model": ", ".join(dict.fromkeys(part.model for part in usage)),
    }


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Calls and tokens of a group of stored rows; `key` has the group's values, such as `{"agent": "companion"}`."""

    key: Mapping[Dimension, str]
    calls: int
    tokens_in: int
    tokens_out: int
    estimated_calls: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The sums of a period, and their total. `is_cut` is True if there are more sums than asked for."""

    rows: Sequence[UsageSum]
    total: UsageSum
    is_cut: bool


BudgetKind: TypeAlias = Literal["owner", "agent"]


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A monthly budget of tokens of an owner or of an agent, and how much of it is used."""

    kind: BudgetKind
    id: str
    limit: int
    used: int
    month: date
    """The first day of the month, in UTC."""

    @property
    def share(self) -> float:
        """Return the used part of the budget; 1 for a budget of no tokens."""
        return self.used / self.limit if self.limit else 1.0

    @property
    def is_spent(self) -> bool:
        return self.used >= self.limit

    @property
    def is_nearly_spent(self) -> bool:
        """Return True from 80 % on."""
        return self.share >= WARNING_SHARE

    @property
    def restarts_on(self) -> date:
        """Return the first day of the next month."""
        return next_month(self.month)

    @property
    def sentence(self) -> str:
        """Return the sentence for whoever waits for an answer."""
        day = self.restarts_on
        return f"This month's budget of tokens is used up; it starts again on {day.day} {day:%B %Y} (UTC)."


def first_of_month(day: date) -> date:
    return date(day.year, day.month, 1)


def next_month(day: date) -> date:
    """Return the first day of the month after this day."""
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)
