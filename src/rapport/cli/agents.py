"""`rapport agents`: make, change, copy, export and import agents. Every refusal is one sentence and exit code 2."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rapport.cli.owner_option import owner_option
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import Conflict, InvalidFields, InvalidInput, NotFound
from rapport.settings import Settings

if TYPE_CHECKING:
    from rapport.agents.document import AgentDocument
    from rapport.core.agents import AgentLibrary, ListedAgent, VersionChange
    from rapport.domain.caller import Caller

T = TypeVar("T")

REFUSED = 2
"""The exit code of a mistake in the command, the file or the document; nothing is stored then."""
_MAX_SHOWN_CHARACTERS = 100
_QUOTES = """A text that looks like a number or like true needs quotes of its own: --set 'name="123"'."""

app = typer.Typer(
    help="Agents: list, show, create, edit, copy, delete, export, import, versions.", no_args_is_help=True
)

User = Annotated[str, owner_option("The owner; `local` is the user of a server without keys, and an operator.")]
Which = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")]
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="A YAML file, as `export` writes it.")]


@app.command("list")
def list_(user: User = LOCAL_USER) -> None:
    """List the agents that the user may use."""
    from rich.console import Console

    from rapport.cli.follow_up_output import render_records
    from rapport.cli.output import make_plain_line

    listed = _run(user, lambda agents, editor: agents.list_visible(editor))
    Console(highlight=False).print(
        render_records(
            [
                each.profile.id,
                f"{make_plain_line(each.profile.name)}, {_describe(each)}",
                make_plain_line(each.profile.description),
            ]
            for each in listed
        )
    )


@app.command()
def show(agent: Which, user: User = LOCAL_USER) -> None:
    """Show an agent: its version and, if the user may read them, its settings."""
    listed = _run(user, lambda agents, editor: agents.get(editor, agent))
    typer.echo(f"# {agent}: {_describe(listed)}, changed {listed.updated_at.astimezone():%Y-%m-%d %H:%M}")
    typer.echo(_write(listed) if listed.may_read_text else "# Only an operator may read its instructions.\n", nl=False)


@app.command()
def create(
    file: File = None,
    name: Annotated[str | None, typer.Option(help="Its name.")] = None,
    persona: Annotated[str | None, typer.Option(help="Who it is and how it answers, in a few sentences.")] = None,
    model: Annotated[str, typer.Option(help="`provider:model`; the server's without it.")] = "",
    handle: Annotated[list[str] | None, typer.Option(help="A name that addresses it in groups; repeatable.")] = None,
    agent_id: Annotated[
        str | None, typer.Option("--id", help="Its id in addresses and commands; made from the name without it.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Everybody on the server may use it.")] = False,
    user: User = LOCAL_USER,
) -> None:
    """Create an agent: from a file, or from --name and --persona."""
    from rapport.agents.document import read_document

    async def job(agents: AgentLibrary, editor: Caller) -> ListedAgent:
        options = {"id": agent_id, "name": name, "persona": persona, "model": model, "handles": handle}
        given = {field: value for field, value in options.items() if value}
        if (file is None) == (not given):
            raise InvalidInput("Give either a file, or --name and --persona.")
        document = _read(file) if file is not None else read_document(given)
        return await agents.create(editor, document.model_copy(update={"for_everyone": True} if everyone else {}))

    made = _run(user, job)
    who = "" if user == LOCAL_USER else f" --user {shlex.quote(user)}"
    typer.echo(f"Created {made.profile.id}: `rapport chat --agent {made.profile.id}{who}` talks with it.")


@app.command()
def edit(
    agent: Which,
    file: File = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Change one field, such as autonomy.enabled=true; repeatable."
        ),
    ] = None,
    user: User = LOCAL_USER,
) -> None:
    """Change an agent: in $EDITOR, or without a terminal by a file or --set."""
    from rapport.agents.agent_file import read_setting

    async def job(agents: AgentLibrary, editor: Caller) -> ListedAgent:
        if file is not None:
            if changes:
                raise InvalidInput("Give either a file or --set.")
            return await agents.replace(editor, agent, _read(file))
        merged: dict[str, Any] = {}
        for change in changes or ():
            merged = _join(merged, read_setting(change))
        try:
            return await agents.change(editor, agent, merged)
        except InvalidFields as error:
            hint = f" {_QUOTES}" if "must be a text" in str(error) else ""
            raise InvalidInput(f"{error}{hint}") from error

    if file is None and not changes:
        _edit_by_hand(agent, user)
        return
    typer.echo(_describe_stored(_run(user, job)))


def _edit_by_hand(agent: str, user: str) -> None:
    """Open the agent in the person's editor and store what they made of it. A text that is refused is kept in a file."""
    from rapport.agents.agent_file import read_agent_file
    from rapport.cli.main import fail
    from rapport.core.agents import describe_refused_edit

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(
            f"There is no terminal: `rapport agents edit {agent} FILE.yaml` or `--set field=value` changes it.", REFUSED
        )
    listed = _run(user, lambda agents, editor: agents.get(editor, agent))
    if not listed.may_edit:
        fail(describe_refused_edit(listed), REFUSED)
    before = _write(listed)
    with tempfile.NamedTemporaryFile("w", prefix=f"{agent}-", suffix=".yaml", encoding="utf-8", delete=False) as draft:
        draft.write(before)
    path = Path(draft.name)
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        code = subprocess.call([*command, str(path)])
    except OSError as error:
        path.unlink()
        fail(f"The editor {command[0]!r} can't be started ({error.strerror}): set EDITOR.", REFUSED)
    after = path.read_bytes()
    if code or after == before.encode():
        path.unlink()
        typer.echo("Nothing was changed.")
        return

    async def store(agents: AgentLibrary, editor: Caller) -> ListedAgent:
        try:
            return await agents.replace(editor, agent, read_agent_file(after), version=listed.profile.version)
        except (InvalidInput, NotFound, Conflict) as error:
            raise InvalidInput(f"{error} Your text is kept in {path}.") from error

    stored = _run(user, store)
    path.unlink()
    typer.echo(_describe_stored(stored))


@app.command()
def copy(
    agent: Which,
    new_id: Annotated[str | None, typer.Argument(metavar="NEW_ID", help="The id of the copy.")] = None,
    name: Annotated[str | None, typer.Option(help="The name of the copy.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """Copy an agent; the copy is the user's own and has handles of its own."""
    made = _run(user, lambda agents, editor: agents.copy(editor, agent, new_id=new_id, name=name))
    typer.echo(f"Created {made.profile.id}.")


@app.command()
def delete(
    agent: Which,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    user: User = LOCAL_USER,
) -> None:
    """Delete an agent with its versions and what it remembers. Its conversations go on with the default agent."""
    from rapport.cli.main import fail

    if not yes:
        if not sys.stdin.isatty():
            fail(f"`rapport agents delete {agent} --yes` deletes it without asking.", REFUSED)
        typer.confirm(f"Delete {agent} with all its versions and what it remembers?", abort=True)
    _run(user, lambda agents, editor: agents.delete(editor, agent))
    typer.echo(f"Deleted {agent}.")


@app.command()
def export(
    agent: Which,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; standard output without it.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """Write an agent as YAML: its id, name and persona, and the fields that differ from the defaults."""

    async def job(agents: AgentLibrary, editor: Caller) -> str:
        listed = await agents.get(editor, agent)
        if not listed.may_read_text:
            raise InvalidInput(f"The agent {agent!r} can't be exported: only an operator may read its instructions.")
        text = _write(listed)
        if output is not None:
            try:
                output.write_text(text, encoding="utf-8")
            except OSError as error:
                raise InvalidInput(f"{output} can't be written: {error.strerror}.") from None
        return text

    text = _run(user, job)
    if output is None:
        typer.echo(text, nl=False)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file, as `export` writes it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the differences, and store nothing.")] = False,
    user: User = LOCAL_USER,
) -> None:
    """Create the agent of a file, or make a new version of the one with its id."""
    from rapport.agents.document import make_id, write_document

    async def job(agents: AgentLibrary, editor: Caller) -> str:
        document = _read(file)
        agent_id = document.id or make_id(document.name)
        try:
            before = await agents.get(editor, agent_id)
        except NotFound:
            if dry_run:
                agents.check_rights(document, editor)
                return f"{agent_id} would be created."
            return f"Created {(await agents.create(editor, document)).profile.id}."
        changes = _list_changes(before.document, write_document(document))
        if not changes:
            return f"{agent_id} is the same already."
        if not dry_run:
            return _describe_stored(await agents.replace(editor, agent_id, document))
        agents.check_rights(document, editor, before=before.document)
        if not before.may_read_text:
            return f"{agent_id} would be changed."
        return "\n".join([f"{agent_id} would be changed:", *changes])

    typer.echo(_run(user, job))


@app.command()
def versions(agent: Which, user: User = LOCAL_USER) -> None:
    """List the versions of an agent with what each changed, the newest first."""
    for change in _run(user, lambda agents, editor: agents.list_versions(editor, agent)):
        typer.echo(_describe_version(change))


@app.command()
def restore(
    agent: Which,
    version: Annotated[int, typer.Argument(min=1, help="The number that `versions` shows.")],
    user: User = LOCAL_USER,
) -> None:
    """Store the settings of an earlier version as a new one."""
    typer.echo(_describe_stored(_run(user, lambda agents, editor: agents.restore(editor, agent, version))))


@app.command()
def reset(agent: Which, user: User = LOCAL_USER) -> None:
    """Restore an agent that ships with Rapport, as a new version."""
    typer.echo(_describe_stored(_run(user, lambda agents, editor: agents.reset(editor, agent))))


def _run(user: str, job: Callable[[AgentLibrary, Caller], Coroutine[Any, Any, T]]) -> T:
    """Run a job on the agents of the database; end with exit code 2 if it refuses what was asked."""
    from rapport.cli.main import fail, start

    async def on_database(settings: Settings) -> T | InvalidInput | NotFound | Conflict:
        from rapport.cli.database import open_agents, open_migrated_database
        from rapport.domain.caller import Caller
        from rapport.storage.access.api_keys import ApiKeys

        try:
            async with open_migrated_database(settings) as database:
                async with database.statement() as connection:
                    role = await ApiKeys(connection).find_role(user)
                return await job(open_agents(database), Caller(user, role))
        except (InvalidInput, NotFound, Conflict) as error:
            return error

    result = start(on_database, level="warning")
    if isinstance(result, (InvalidInput, NotFound, Conflict)):
        fail(str(result), REFUSED)
    return result


def _read(file: Path) -> AgentDocument:
    from rapport.agents.agent_file import MAX_FILE_BYTES, read_agent_file

    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}.") from None
    return read_agent_file(content)


def _write(listed: ListedAgent) -> str:
    from rapport.agents.agent_file import write_agent_file
    from rapport.agents.document import read_document

    profile = listed.profile
    return write_agent_file(
        read_document(dict(listed.document)), agent_id=profile.id, for_everyone=profile.is_for_everyone
    )


def _join(left: dict[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return both changes as one; the right one wins."""
    joined = dict(left)
    for name, value in right.items():
        before = joined.get(name)
        is_part = isinstance(before, dict) and isinstance(value, dict)
        joined[name] = _join(before, value) if is_part else value  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
    return joined


def _describe(listed: ListedAgent) -> str:
    profile = listed.profile
    whose = "for everyone" if profile.is_for_everyone else "your own"
    return ", ".join(filter(None, (f"version {profile.version}", whose, profile.model.name)))


def _describe_stored(stored: ListedAgent) -> str:
    return f"{stored.profile.id} is version {stored.profile.version} now."


def _describe_version(change: VersionChange) -> str:
    version = change.version
    changed = ", ".join(change.changes) or ("nothing" if version.version > 1 else "made")
    return f"{version.version}  {version.created_at.astimezone():%Y-%m-%d %H:%M}  {version.author_id}  {changed}"


def _list_changes(before: Mapping[str, Any], after: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """Return a line for each field that differs, with its values before and after."""
    from rapport.cli.output import make_plain_line

    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and (old or new):
            lines += _list_changes(old, new, prefix=f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif old != new:
            values: tuple[object, object] = (before.get(name), after.get(name))
            shown = (make_plain_line(repr(value), limit=_MAX_SHOWN_CHARACTERS) for value in values)
            lines.append(f"{prefix}{name}: {' → '.join(shown)}")
    return lines
