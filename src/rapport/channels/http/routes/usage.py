"""Serve `/api/usage`: what model calls cost, and the budgets of owners."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import Body, StrictRoute
from rapport.core.core import Core
from rapport.domain.caller import Caller, check_owner_id
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text
from rapport.domain.usage import DIMENSIONS, MAX_BUDGET, BudgetState, Dimension, UsageSum, first_of_month

EVERYBODY = "*"
MAX_ROWS = 1_000
MAX_OWNER_CHARACTERS = 200


class CountsView(BaseModel):
    """Calls of models and their tokens. `estimated` is true if the tokens of any of these calls are estimated."""

    calls: int
    tokens_in: int
    tokens_out: int
    estimated_calls: int
    estimated: bool


class UsageRowView(CountsView):
    """One sum. Only the fields that `by` names are set; `conversation` is null for requests that are not stored."""

    day: str | None = None
    owner: str | None = None
    agent: str | None = None
    conversation: str | None = None
    purpose: str | None = None
    model: str | None = None


class BudgetView(BaseModel):
    """A monthly budget of tokens of an owner or an agent. `restarts_on` is the first day of the next month (UTC)."""

    kind: str
    id: str
    limit: int
    used: int
    share: float
    spent: bool
    restarts_on: date


class UsageView(BaseModel):
    """The sums of a period: by day, or the largest first. `more` is true if there are more than `limit`.

    `budgets` has your own; the operator gets all.
    """

    since: Annotated[date, Field(serialization_alias="from")]
    until: Annotated[date, Field(serialization_alias="to")]
    by: list[str]
    rows: list[UsageRowView]
    total: CountsView
    more: bool
    budgets: list[BudgetView]


class BudgetBody(Body):
    """`monthly_tokens` is the number of tokens that the owner may use in a month (UTC); null removes the budget."""

    monthly_tokens: Annotated[int | None, Field(ge=0, le=MAX_BUDGET)]


class OwnerBudgetView(BaseModel):
    owner: str
    monthly_tokens: int | None
    owner_is_known: Annotated[bool, Field(description="False if the owner has neither a key nor data yet")]


def usage_routes(core: Core, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/usage", tags=["usage"], route_class=StrictRoute)
    caller = Depends(auth.authenticate)
    operator = Depends(auth.authenticate_operator)

    @router.get("", response_model=UsageView, summary="Get the number of model calls and their tokens")
    async def get_usage(
        since: Annotated[date | None, Query(alias="from", description="The first day (UTC); the default is the first of this month")] = None,
        until: Annotated[date | None, Query(alias="to", description="The last day (UTC); the default is today")] = None,
        by: Annotated[str, Query(max_length=100, description="One or several of day, owner, agent, conversation, purpose and model, with commas")] = "day",
        owner: Annotated[str | None, Query(max_length=MAX_OWNER_CHARACTERS, description="Another owner, or `*` for all: only for the operator")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = MAX_ROWS,
        by_whom: Caller = caller,
    ) -> Response:  # fmt: skip
        me = by_whom.owner_id
        if owner is not None and owner != me and not by_whom.is_operator:
            raise HTTPException(403, "`owner`: only an operator may see the usage of others.")
        dimensions = _parse_dimensions(by)
        until = until or core.usage.today
        since = since or first_of_month(until)
        if since > until:
            raise InvalidInput(f"`from` ({since}) is after `to` ({until}).")
        subject = me if owner is None else check_text(owner, what="owner", limit=MAX_OWNER_CHARACTERS)
        report = await core.usage.report(
            None if subject == EVERYBODY else subject, dimensions, since=since, until=until, limit=limit
        )
        budgets = await core.usage.list_budgets(None if by_whom.is_operator else me)
        return json_response(
            {
                "from": since,
                "to": until,
                "by": dimensions,
                "rows": [_row_view(row) for row in report.rows],
                "total": _counts_view(report.total),
                "more": report.is_cut,
                "budgets": [budget_view(budget) for budget in budgets],
            }
        )

    @router.put(
        "/budgets/{owner}", response_model=OwnerBudgetView, summary="Set the monthly budget of tokens of an owner"
    )
    async def set_budget(owner: str, body: BudgetBody, _operator: Caller = operator) -> Response:
        """Requires a key with the role `operator`."""
        is_known = await core.usage.set_budget(check_owner_id(owner), body.monthly_tokens)
        return json_response({"owner": owner, "monthly_tokens": body.monthly_tokens, "owner_is_known": is_known})

    return router


def budget_view(budget: BudgetState) -> dict[str, Any]:
    return {
        "kind": budget.kind,
        "id": budget.id,
        "limit": budget.limit,
        "used": budget.used,
        "share": round(budget.share, 4),
        "spent": budget.is_spent,
        "restarts_on": budget.restarts_on,
    }


def _parse_dimensions(by: str) -> Sequence[Dimension]:
    """Return the dimensions that a query names; raise InvalidInput for any other word."""
    names = list(dict.fromkeys(part.strip() for part in by.split(",")))
    if unknown := [name for name in names if name not in DIMENSIONS]:
        raise InvalidInput(f"`by` can't be {unknown[0]!r}: it is one or several of {', '.join(DIMENSIONS)}.")
    return cast("list[Dimension]", names)


def _counts_view(counts: UsageSum) -> dict[str, Any]:
    return {
        "calls": counts.calls,
        "tokens_in": counts.tokens_in,
        "tokens_out": counts.tokens_out,
        "estimated_calls": counts.estimated_calls,
        "estimated": counts.estimated_calls > 0,
    }


def _row_view(row: UsageSum) -> dict[str, Any]:
    key = {name: value or None if name == "conversation" else value for name, value in row.key.items()}
    return {**key, **_counts_view(row)}
