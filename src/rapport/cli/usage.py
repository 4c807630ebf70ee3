"""`rapport usage`: what model calls cost, and the budgets of owners."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rapport.cli.owner_option import owner_option
from rapport.domain.errors import InvalidInput
from rapport.domain.usage import DIMENSIONS, MAX_BUDGET, BudgetState, Dimension, UsageReport, UsageSum
from rapport.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

MAX_ROWS = 200

app = typer.Typer(
    help="Model calls and their tokens: sums, and monthly budgets of owners.", invoke_without_command=True
)


@app.callback()
def show(
    context: typer.Context,
    user: Annotated[
        str, typer.Option(help="Whose usage; `local` is the user of a server without keys, `*` stands for everybody.")
    ] = "local",
    month: Annotated[str, typer.Option(help="The month, as 2026-11; the current one by default (UTC).")] = "",
    by: Annotated[
        str, typer.Option(help=f"What to add up by, one or several with commas: {', '.join(DIMENSIONS)}.")
    ] = "agent,purpose",
) -> None:
    """Show the model calls of a month and their tokens."""
    if context.invoked_subcommand is not None:
        return
    from rapport.cli.main import start

    async def job(settings: Settings) -> None:
        from rich.console import Console

        from rapport.cli.database import open_migrated_database
        from rapport.storage.agents import Agents
        from rapport.storage.usage import ModelUsage, UsageBudgets

        first, last = _parse_month(month)
        dimensions = _parse_dimensions(by)
        async with open_migrated_database(settings) as database, database.statement() as connection:
            owner = None if user == "*" else user
            report = await ModelUsage(connection).report(owner, dimensions, since=first, until=last, limit=MAX_ROWS)
            budgets = await UsageBudgets(connection).list_states(
                owner, await Agents(connection).list_budgets(), today=_today()
            )
        console = Console(highlight=False)
        _print_report(console, report, dimensions, title=f"{first:%B %Y}")
        for budget in budgets:
            console.print(describe_budget(budget), soft_wrap=True, markup=False)

    start(job, level="warning")


@app.command()
def budget(
    tokens: Annotated[
        int | None, typer.Argument(min=0, max=MAX_BUDGET, help="The tokens that the owner may use in a month.")
    ] = None,
    user: Annotated[str, owner_option("The owner.")] = "local",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the budget.")] = False,
) -> None:
    """Set the monthly budget of an owner; without a number, show it."""
    from rapport.cli.main import fail, start

    if remove and tokens is not None:
        fail("give either a number of tokens or --remove.")

    async def job(settings: Settings) -> tuple[Sequence[BudgetState], bool]:
        from rapport.cli.database import open_migrated_database
        from rapport.storage.usage import UsageBudgets

        async with open_migrated_database(settings) as database, database.statement() as connection:
            budgets = UsageBudgets(connection)
            if remove or tokens is not None:
                await budgets.set(user, tokens)
            return await budgets.list_states(user, {}, today=_today()), await budgets.is_known_owner(user)

    states, is_known = start(job, level="warning")
    for state in states:
        typer.echo(describe_budget(state))
    if not states:
        typer.echo(f"The user {user!r} has no budget.")
    if not is_known:
        typer.echo(f"No key and no data belongs to a user {user!r} yet.")


def describe_budget(state: BudgetState) -> str:
    """Return a line about a budget and how much of it is used."""
    owner = "user" if state.kind == "owner" else "agent"
    text = f"Budget of the {owner} {state.id!r}: {state.used:,} of {state.limit:,} tokens used ({state.share:.0%})"
    if state.is_spent:
        return f"{text}. It is used up; no model is called until {state.restarts_on} (UTC)."
    return f"{text}, until {state.restarts_on} (UTC)."


def _print_report(console: Console, report: UsageReport, by: Sequence[Dimension], *, title: str) -> None:
    from rich.table import Table

    from rapport.cli.output import escape_line

    if not report.total.calls:
        console.print(f"No model was called in {title}.")
        return
    table = Table(*by, title=title)
    for name in ("calls", "tokens in", "tokens out"):
        table.add_column(name, justify="right")
    for row in report.rows:
        names = [escape_line(row.key[name] or "(not stored)", limit=60) for name in by]
        table.add_row(*names, *_format_counts(row))
    table.add_section()
    table.add_row("total", *[""] * (len(by) - 1), *_format_counts(report.total))
    console.print(table)
    if report.is_cut:
        console.print(f"Only the first {MAX_ROWS} rows are shown.")
    if report.total.estimated_calls:
        console.print("≈ The provider did not count all of these tokens; the rest is estimated.")


def _format_counts(counts: UsageSum) -> list[str]:
    mark = "≈ " if counts.estimated_calls else ""
    return [f"{counts.calls:,}", f"{mark}{counts.tokens_in:,}", f"{mark}{counts.tokens_out:,}"]


def _parse_month(month: str) -> tuple[date, date]:
    """Return the first and the last day of a month."""
    today = _today()
    year, number = today.year, today.month
    if month:
        match = re.fullmatch(r"(2\d{3})-(0[1-9]|1[0-2])", month)
        if match is None:
            raise InvalidInput(f"--month is a month such as {today:%Y-%m}, not {month[:40]!r}.")
        year, number = int(match[1]), int(match[2])
    return date(year, number, 1), date(year, number, calendar.monthrange(year, number)[1])


def _parse_dimensions(by: str) -> Sequence[Dimension]:
    names = list(dict.fromkeys(part.strip() for part in by.split(",")))
    if unknown := [name for name in names if name not in DIMENSIONS]:
        raise InvalidInput(f"--by can't be {unknown[0][:40]!r}: it is one or several of {', '.join(DIMENSIONS)}.")
    return cast("list[Dimension]", names)


def _today() -> date:
    return datetime.now(UTC).date()
