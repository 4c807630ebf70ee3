"""Store what model calls cost, and add it up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from psycopg.types.json import Jsonb

from rapport.domain.conversation import LOCAL_USER
from rapport.domain.event import ClaimedEvent
from rapport.domain.ids import is_ephemeral_id
from rapport.domain.usage import (
    BudgetKind,
    BudgetState,
    Dimension,
    Usage,
    UsageReport,
    UsageSum,
    first_of_month,
    next_month,
)
from rapport.storage.database import Connection

_SLOTS = 32
"""The number of rows over which the ephemeral conversations of an owner are spread: a multiple of the digits of an id."""

# `{source}` names a CTE with one row if the turn is ours, so that nothing is stored otherwise. The rows belong to one
# conversation, whose turns run one at a time: no turn of another conversation waits for them.
_ADD = """
    INSERT INTO model_usage AS stored (owner_id, day, agent_id, conversation_id, slot, purpose, model, calls, tokens_in,
                                       tokens_out, estimated_calls)
    SELECT %(owner)s, (clock_timestamp() AT TIME ZONE 'UTC')::date, %(usage_agent)s, %(usage_conversation)s, %(usage_slot)s,
           part.purpose, part.model, part.calls, part.tokens_in, part.tokens_out, part.estimated_calls
    FROM {source}jsonb_to_recordset(%(usage)s) AS part (
        purpose text, model text, calls bigint, tokens_in bigint, tokens_out bigint, estimated_calls bigint)
    ON CONFLICT (owner_id, day, agent_id, conversation_id, slot, purpose, model) DO UPDATE
    SET calls = stored.calls + excluded.calls, tokens_in = stored.tokens_in + excluded.tokens_in,
        tokens_out = stored.tokens_out + excluded.tokens_out,
        estimated_calls = stored.estimated_calls + excluded.estimated_calls
"""
ADD_USAGE_WITH_REPLY = f""", used AS ({_ADD.format(source="line, ")})"""
"""A part of the statement that ends a turn; `usage_parameters` are its parameters."""
_ADD_USAGE = _ADD.format(source="").encode()

_COLUMNS: Mapping[Dimension, str] = {
    "day": "day",
    "owner": "owner_id",
    "agent": "agent_id",
    "conversation": "conversation_id",
    "purpose": "purpose",
    "model": "model",
}
_SUMS = (
    "coalesce(sum(calls), 0)::bigint AS calls, coalesce(sum(tokens_in), 0)::bigint AS tokens_in,"
    " coalesce(sum(tokens_out), 0)::bigint AS tokens_out, coalesce(sum(estimated_calls), 0)::bigint AS estimated_calls"
)

# A range of the primary key, or of model_usage_by_agent. Two sums, because days that are over are added up only once.
_TOKENS = """
SELECT coalesce(sum(tokens_in + tokens_out) FILTER (WHERE day < %(open_from)s), 0)::bigint AS closed,
       coalesce(sum(tokens_in + tokens_out) FILTER (WHERE day >= %(open_from)s), 0)::bigint AS open
FROM model_usage WHERE {column} = %(id)s AND day >= %(since)s AND day < %(before)s
"""
_TOKENS_OF: Mapping[str, bytes] = {
    "owner": _TOKENS.format(column="owner_id").encode(),
    "agent": _TOKENS.format(column="agent_id").encode(),
    "private agent": _TOKENS.format(column="owner_id = %(owner)s AND agent_id").encode(),
}


def usage_parameters(event: ClaimedEvent, usage: Sequence[Usage]) -> dict[str, Any]:
    """Return the parameters that store the usage of a turn or job of this event's conversation."""
    is_ephemeral = is_ephemeral_id(event.conversation_id)
    rows = [
        {
            "purpose": part.purpose,
            "model": part.model,
            "calls": part.calls,
            "tokens_in": part.tokens_in,
            "tokens_out": part.tokens_out,
            "estimated_calls": part.estimated_calls,
        }
        for part in sorted(usage, key=lambda part: (part.purpose, part.model))  # one order of locks in all statements
    ]
    return {
        "usage_agent": event.agent_id,
        "usage_conversation": "" if is_ephemeral else event.conversation_id,
        "usage_slot": ord(event.conversation_id[-1]) % _SLOTS if is_ephemeral else 0,
        "usage": Jsonb(rows),
    }


@dataclass(frozen=True, slots=True)
class ModelUsage:
    connection: Connection

    async def add(self, event: ClaimedEvent, usage: Sequence[Usage]) -> None:
        """Add usage that no reply is stored with: of a summary, a reflection or a turn without a reply."""
        await self.connection.execute(_ADD_USAGE, {"owner": event.owner_id, **usage_parameters(event, usage)})

    async def sum_tokens(self, kind: str, id_: str, *, since: date, before: date, open_from: date) -> tuple[int, int]:
        """Return the tokens of an owner or an agent in a period: until `open_from`, and from then on.

        The id of an agent that is not for everyone begins with its owner's and a slash.
        """
        owner_id, _, agent_id = id_.rpartition("/")
        is_private = kind == "agent" and bool(owner_id)
        cursor = await self.connection.execute(
            _TOKENS_OF["private agent" if is_private else kind],
            {
                "id": agent_id if is_private else id_,
                "owner": owner_id,
                "since": since,
                "before": before,
                "open_from": open_from,
            },
        )
        row = await cursor.fetchone()
        assert row is not None
        return row.closed, row.open

    async def report(
        self, owner_id: str | None, by: Collection[Dimension], *, since: date, until: date, limit: int
    ) -> UsageReport:
        """Return the sums from `since` to `until`, both included: by day, or the largest first. None: of all owners."""
        columns = [_COLUMNS[dimension] for dimension in by]
        shown = [f"{column}::text AS {column}" for column in columns]
        order = "day, tokens DESC" if "day" in by else "tokens DESC"
        cursor = await self.connection.execute(
            f"SELECT {', '.join([*shown, _SUMS])}, GROUPING({columns[0]}) = 1 AS is_total,"
            " coalesce(sum(tokens_in + tokens_out), 0)::bigint AS tokens"
            " FROM model_usage WHERE (%(owner)s::text IS NULL OR owner_id = %(owner)s) AND day BETWEEN %(since)s AND %(until)s"
            f" GROUP BY GROUPING SETS (({', '.join(columns)}), ())"
            f" ORDER BY is_total DESC, {order}, {', '.join(columns)} LIMIT %(limit)s".encode(),
            {"owner": owner_id, "since": since, "until": until, "limit": limit + 2},
        )
        total, *rows = [_to_sum(row, by) for row in await cursor.fetchall()]
        return UsageReport(rows[:limit], total, is_cut=len(rows) > limit)


def _to_sum(row: Any, by: Collection[Dimension]) -> UsageSum:
    key: dict[Dimension, str] = {} if row.is_total else {name: getattr(row, _COLUMNS[name]) for name in by}
    return UsageSum(key, row.calls, row.tokens_in, row.tokens_out, row.estimated_calls)


@dataclass(frozen=True, slots=True)
class UsageBudgets:
    """The budgets of owners, and the warnings about all budgets."""

    connection: Connection

    async def set(self, owner_id: str, monthly_tokens: int | None) -> None:
        """Set an owner's monthly budget; None removes it."""
        if monthly_tokens is None:
            await self.connection.execute("DELETE FROM usage_budgets WHERE owner_id = %s", (owner_id,))
            return
        await self.connection.execute(
            "INSERT INTO usage_budgets (owner_id, monthly_tokens) VALUES (%s, %s)"
            " ON CONFLICT (owner_id) DO UPDATE SET monthly_tokens = excluded.monthly_tokens",
            (owner_id, monthly_tokens),
        )

    async def is_known_owner(self, owner_id: str) -> bool:
        """Return True if the owner has a key, a conversation or usage, or is the user of a server without keys."""
        cursor = await self.connection.execute(
            "SELECT %(owner)s = %(local)s OR EXISTS (SELECT FROM api_keys WHERE owner_id = %(owner)s)"
            " OR EXISTS (SELECT FROM conversations WHERE owner_id = %(owner)s)"
            " OR EXISTS (SELECT FROM model_usage WHERE owner_id = %(owner)s) AS is_known",
            {"owner": owner_id, "local": LOCAL_USER},
        )
        row = await cursor.fetchone()
        return row is not None and row.is_known

    async def list(self, owner_id: str | None = None) -> Mapping[str, int]:
        """Return the budgets by owner: of one owner, or of all."""
        cursor = await self.connection.execute(
            "SELECT owner_id, monthly_tokens FROM usage_budgets WHERE %(owner)s::text IS NULL OR owner_id = %(owner)s"
            " ORDER BY owner_id",
            {"owner": owner_id},
        )
        return {row.owner_id: row.monthly_tokens for row in await cursor.fetchall()}

    async def list_states(
        self, owner_id: str | None, agent_limits: Mapping[str, int], *, today: date
    ) -> Sequence[BudgetState]:
        """Return the budgets and how much of each is used this month: of one owner, or of all owners and of these agents."""
        month = first_of_month(today)
        states: list[BudgetState] = []
        limits: dict[BudgetKind, Mapping[str, int]] = {
            "owner": await self.list(owner_id),
            "agent": agent_limits if owner_id is None else {},
        }
        for kind, limits_by_id in limits.items():
            for id_, limit in limits_by_id.items():
                closed, open_ = await ModelUsage(self.connection).sum_tokens(
                    kind, id_, since=month, before=next_month(month), open_from=today
                )
                states.append(BudgetState(kind, id_, limit, closed + open_, month))
        return states

    async def warn_once(self, *, owner_id: str = "", agent_id: str = "", month: date) -> bool:
        """Return True once a month for this owner or agent, on any process."""
        cursor = await self.connection.execute(
            "INSERT INTO budget_warnings (owner_id, agent_id, month) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (owner_id, agent_id, month),
        )
        return cursor.rowcount == 1
