"""`rapport`: every command of the command line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, cast

import typer

from rapport.cli import agents, context, keys, memory, note_settings, reminders, timers, tools, usage
from rapport.cli import import_export as transfer
from rapport.cli.owner_option import owner_option
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import RapportError
from rapport.settings import Settings, read_settings

T = TypeVar("T")

app = typer.Typer(
    name="rapport",
    help="A self-hosted chat agent server: group context, checked citations, follow-ups.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(agents.app, name="agents")
app.add_typer(context.app, name="context")
app.add_typer(keys.app, name="keys")
app.add_typer(note_settings.app, name="notes")  # it has the commands of notes.py too
app.command("import")(transfer.import_)
app.command("export")(transfer.export)
app.add_typer(memory.app, name="memory")
app.add_typer(reminders.app, name="reminders")
app.add_typer(timers.app, name="timers")
app.add_typer(tools.app, name="tools")
app.add_typer(usage.app, name="usage")


@app.command()
def serve() -> None:
    """Start the server at HOST and PORT (127.0.0.1:8000 by default)."""
    from rapport.cli.serve import serve as run_server

    start(run_server, default_style="auto")


@app.command()
def worker() -> None:
    """Run turns without an HTTP server, beside `serve` processes on the same database."""
    from rapport.cli.serve import work

    start(work, default_style="auto")


@app.command()
def chat(
    agent: Annotated[str, typer.Option(help="The agent to chat with.")] = "companion",
    resume: Annotated[bool, typer.Option("--continue", help="Continue the latest conversation.")] = False,
    user: Annotated[str, owner_option("Who talks; `local` is the user of a server without keys.")] = LOCAL_USER,
) -> None:
    """Chat in the terminal."""
    from rapport.cli.chat import chat as run_chat

    # Not uvloop: it makes standard input non-blocking, also for the shell's next command.
    start(lambda settings: run_chat(settings, agent=agent, resume=resume, user=user), level="error", use_uvloop=False)


@app.command()
def mcp(
    url: Annotated[
        str | None,
        typer.Option(help="The address of a running server, which is asked with the key in RAPPORT_KEY."),
    ] = None,
    user: Annotated[
        str | None,
        owner_option("Without --url and RAPPORT_KEY: the owner of the data. [default: local]", show_default=False),
    ] = None,
) -> None:
    """Serve the Model Context Protocol on standard input and output, for a program that starts this command.

    With a key in RAPPORT_KEY it reaches the things of the key's owner.
    """
    from rapport.cli.mcp import serve_stdio

    # Not uvloop: it makes standard input non-blocking.
    start(lambda settings: serve_stdio(settings, url=url, user=user), level="warning", use_uvloop=False)


@app.command()
def doctor() -> None:
    """Check the model, the database and the other parts, and print whether each works."""
    from rapport.cli.doctor import examine

    if not start(examine, level="error"):
        raise typer.Exit(1)


@app.command()
def reindex() -> None:
    """Move every note and memory to the embedder that RAPPORT_EMBEDDINGS names."""
    from rapport.cli.reindex import reindex as run_reindex

    notes, memories = start(run_reindex, level="warning")
    if notes or not memories:
        typer.echo(
            f"Indexed {notes} note{'' if notes == 1 else 's'} anew." if notes else "Every note is indexed already."
        )
    if memories:
        typer.echo(f"Indexed {memories} {'memory' if memories == 1 else 'memories'} anew.")


@app.command()
def calibrate(
    user: Annotated[
        str, owner_option("The owner of the notes; `local` is the user of a server without keys.")
    ] = "local",
    png: Annotated[Path, typer.Option(help="The file for the curve.")] = Path("calibration.png"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure and show, but do not change the threshold.")
    ] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Restore the embedder's own threshold.")] = False,
) -> None:
    """Measure on your notes when a strict agent should refuse, and store that threshold."""
    from rapport.cli import calibrate as command

    if reset:
        start(lambda settings: command.reset(settings, user=user), level="warning")
    else:
        start(lambda settings: command.run(settings, user=user, png=png, keep=not dry_run), level="warning")


@app.command()
def migrate(
    to: Annotated[int | None, typer.Option(help="The target version, up or down; the newest by default.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before data is deleted.")] = False,
) -> None:
    """Update the database's schema (the server does this when it starts)."""
    from rapport.cli.migrate import migrate as run_migrations

    start(lambda settings: run_migrations(settings, to=to, yes=yes), level="warning")


def start(
    job: Callable[[Settings], Coroutine[Any, Any, T]],
    *,
    level: str | None = None,
    default_style: Literal["auto", "console"] = "console",
    use_uvloop: bool = True,
) -> T:
    """Read the settings, configure logging, and run a command; an expected failure is one line, not a traceback."""
    import uvloop

    from rapport.logs import configure_logging

    try:
        settings = read_settings()
        style = settings.log_format if settings.log_format != "auto" else default_style
        configure_logging(level or settings.log_level, style, secrets=secrets_in(os.environ), cache=True)
        return uvloop.run(job(settings)) if use_uvloop else asyncio.run(job(settings))
    except RapportError as error:
        fail(str(error))
    except ValueError as error:  # invalid settings
        fail(_in_words(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(130) from None


def fail(message: str, code: int = 1) -> NoReturn:
    typer.secho(f"rapport: {message}", fg="red", err=True)
    raise typer.Exit(code)


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return the values of the environment that must never be logged."""
    return [
        value
        for name, value in environment.items()
        if name.upper().endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")) and len(value) >= 8
    ]


def _in_words(error: ValueError) -> str:
    problems = getattr(error, "errors", None)
    if not callable(problems):
        return str(error)
    problems_found = cast("list[dict[str, Any]]", problems())
    return " ".join(f"{_variable(str(item['loc'][0]))}: {item['msg']}." for item in problems_found)


def _variable(field: str) -> str:
    """Return the environment variable of a field; an alias is already its name."""
    return field if field.isupper() else f"RAPPORT_{field.upper()}"


def run() -> None:
    """Run the `rapport` command."""
    app()


if __name__ == "__main__":
    sys.exit(run())
