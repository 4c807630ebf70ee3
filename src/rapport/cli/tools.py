"""`rapport tools`: list the tools that agents may use, and call one of an MCP server. No database is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rapport.domain.errors import InvalidInput, Permanent
from rapport.settings import Settings

if TYPE_CHECKING:
    from rapport.agents.mcp.config import McpServer
    from rapport.domain.tool import ToolResult, ToolSpec

app = typer.Typer(help="Tools of agents: list them, call one of an MCP server.", no_args_is_help=True)

_MAX_DESCRIPTION_CHARACTERS = 100
_MAX_SHOWN_ARGUMENT_CHARACTERS = 1_000


@app.command("list")
def list_() -> None:
    """List the built-in tools, and connect with each MCP server to list its tools.

    Exit code 1 if a server can't be used.
    """
    from rapport.cli.main import start

    problems = start(_list, level="error")
    for problem in problems:
        typer.secho(f"rapport: {problem}", fg="red", err=True)
    if problems:
        raise typer.Exit(1)


@app.command()
def call(
    name: Annotated[str, typer.Argument(help="The tool as `list` shows it: `server__tool`.")],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments, each as JSON or as plain text.")
    ] = None,
    arguments: Annotated[str | None, typer.Option(help="Its arguments as a JSON object, instead of pairs.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a tool changes something.")] = False,
) -> None:
    """Call one tool of an MCP server and print its result.

    It asks first if the tool may change something. Exit code 1 if the tool reports an error.
    """
    from rapport.cli.main import fail, start

    async def job(settings: Settings) -> ToolResult:
        from rapport.app import read_mcp_servers

        server = _find_server(name, read_mcp_servers(settings))
        return await _call(server, name, _read_object(arguments, pairs or ()), pairs or (), yes=yes)

    result = start(job, level="error")
    if result.is_error:
        fail(f"{name} reports an error: {result.text}")
    typer.echo(result.text)


async def _list(settings: Settings) -> Sequence[str]:
    """Print the tools, and return a sentence about each server that can't be used."""
    from rapport.agents.tools.registry import BUILT_IN
    from rapport.app import read_mcp_servers
    from rapport.cli.mcp_servers import connect, describe_failure

    servers = read_mcp_servers(settings)
    _print_section("Built-in tools", [*BUILT_IN.values()])
    typer.echo("  (keeps: Rapport stores something of its own, and never asks)")
    problems: list[str] = []
    async with connect(servers) as tools:
        listed = tools.list_tools()
        for server in servers:
            if (problem := tools.find_problem(server.name)) is not None:
                problems.append(describe_failure(server, problem))
                continue
            specs = [spec for spec in listed if spec.server == server.name]
            _print_section(f"MCP server {server.name} ({server.transport})", specs)
    if not servers:
        typer.echo("\nNo MCP server is configured: docs/tools.md says how to add one.")
    return problems


def _print_section(title: str, specs: Sequence[ToolSpec]) -> None:
    from rapport.cli.output import make_plain_line

    if title.startswith("MCP"):
        typer.echo("")
    typer.echo(f"{title}: {len(specs)}")
    width = max((len(spec.name) for spec in specs), default=0)
    for spec in specs:
        effect = "reads" if spec.only_reads else "changes" if spec.has_outside_effect else "keeps"
        description = make_plain_line(spec.description, limit=_MAX_DESCRIPTION_CHARACTERS)
        typer.echo(f"  {spec.name:<{width}}  {effect:<7}  {description}".rstrip())


def _find_server(name: str, servers: Sequence[McpServer]) -> McpServer:
    """Return the server of a tool; raise InvalidInput that says what to write instead."""
    from rapport.agents.tools.registry import BUILT_IN
    from rapport.domain.tool import SERVER_SEPARATOR

    if name in BUILT_IN:
        raise InvalidInput(f"{name} is a built-in tool, which needs a conversation: only an agent can call it.")
    wanted, separator, _ = name.partition(SERVER_SEPARATOR)
    if not separator:
        raise InvalidInput(f"{name[:80]!r} is no tool of an MCP server: its name is `server__tool`.")
    found = next((server for server in servers if server.name == wanted), None)
    if found is None:
        known = ", ".join(server.name for server in servers) or "none"
        raise InvalidInput(f"there is no MCP server {wanted[:40]!r}. Configured: {known}.")
    return found


async def _call(
    server: McpServer, name: str, arguments: Mapping[str, Any], pairs: Sequence[str], *, yes: bool
) -> ToolResult:
    from rapport.agents.mcp.arguments import find_argument_problem
    from rapport.cli.mcp_servers import connect, describe_failure
    from rapport.domain.tool import ToolOutcomeUnknown

    async with connect([server]) as tools:
        if (problem := tools.find_problem(server.name)) is not None:
            raise Permanent(describe_failure(server, problem))
        spec = next((each for each in tools.list_tools() if each.name == name), None)
        if spec is None:
            raise InvalidInput(f"the MCP server {server.name} has no tool {name!r}: `rapport tools list` shows them.")
        given = {**arguments, **_read_pairs(pairs, spec)}
        if (problem := find_argument_problem(spec.parameters, given)) is not None:
            raise InvalidInput(problem)
        if spec.has_outside_effect and not yes:
            _confirm(spec, given)
        try:
            return await tools.call(name, given)
        except ToolOutcomeUnknown as error:
            outcome = (
                "Nothing is known of its result." if spec.only_reads else "It may have been done: check that first."
            )
            raise Permanent(f"{error} {outcome}") from None


def _confirm(spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
    """Ask whether a tool may be called; abort the command otherwise."""
    from rapport.cli.output import make_plain_line

    shown = make_plain_line(json.dumps(arguments, ensure_ascii=False), limit=_MAX_SHOWN_ARGUMENT_CHARACTERS)
    typer.confirm(f"{spec.name} may change something. Call it with {shown}?", abort=True, err=True)


def _read_object(text: str | None, pairs: Sequence[str]) -> Mapping[str, Any]:
    """Return the arguments that --arguments gives; none without it."""
    if text is None:
        return {}
    if pairs:
        raise InvalidInput("give the arguments either as --arguments or as KEY=VALUE.")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInput(f"--arguments is not valid JSON{place}.") from None
    if not isinstance(value, dict):
        raise InvalidInput('--arguments must be a JSON object, such as {"path": "notes.txt"}.')
    return cast("dict[str, Any]", value)


def _read_pairs(pairs: Sequence[str], spec: ToolSpec) -> dict[str, Any]:
    """Return the arguments that KEY=VALUE pairs give. A value is text if the tool wants text, else JSON, else text."""
    properties = cast("Mapping[str, Any]", spec.parameters.get("properties", {}))
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InvalidInput(f"{pair[:80]!r} is no argument: write KEY=VALUE.")
        if key in arguments:
            raise InvalidInput(f"the argument {key[:80]!r} is given twice.")
        schema = properties.get(key)
        wants_text = isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "string"
        arguments[key] = value if wants_text else _read_value(value)
    return arguments


def _read_value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
