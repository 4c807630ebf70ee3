"""Read the file that names the MCP servers, in the form that people already have: `{"mcpServers": {name: …}}`.

Nothing of its values is repeated in an error: it may hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from rapport.agents.mcp.variables import UnsetVariable, fill_in, find_secrets
from rapport.domain.errors import Permanent
from rapport.domain.tool import SERVER_SEPARATOR
from rapport.domain.validation_errors import describe_problem
from rapport.logs import Redactor

DEFAULT_FILE_NAME: Final = "mcp.json"
MAX_FILE_BYTES: Final = 1_000_000
MAX_SERVERS: Final = 50
MAX_SERVER_NAME_CHARACTERS: Final = 30
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
MAX_TIMEOUT_SECONDS: Final = 120.0

_SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_URL = re.compile(r"https?://[^\s/?#]+(?:/[^\s#]*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^`|~0-9A-Za-z-]+")
_VARIABLE_NAME = re.compile(r"[^=\x00]+")

Text = Annotated[str, Field(max_length=20_000)]
Names = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1_000)]


class _ServerPart(BaseModel):
    """The fields of one server. Those of other programs that change nothing here are accepted and not used."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command: Annotated[str, Field(min_length=1, max_length=4_000)] | None = None
    args: Annotated[list[Text], Field(max_length=200)] = []
    env: dict[str, Text] = {}
    cwd: Annotated[str, Field(min_length=1, max_length=4_000)] | None = None
    url: Annotated[str, Field(max_length=4_000)] | None = None
    headers: dict[str, Text] = {}
    kind: Annotated[str | None, Field(validation_alias=AliasChoices("type", "transport"))] = None
    disabled: bool = False
    timeout_seconds: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_SECONDS, allow_inf_nan=False)] = (
        DEFAULT_TIMEOUT_SECONDS
    )
    read_only: Annotated[Names | None, Field(validation_alias="readOnly")] = None
    disabled_tools: Annotated[Names, Field(validation_alias="disabledTools")] = []
    description: Any = None
    auto_approve: Annotated[Any, Field(validation_alias=AliasChoices("autoApprove", "alwaysAllow"))] = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server to connect with: a command that is started, or an address."""

    name: str
    command: str = field(default="", repr=False)
    args: Sequence[str] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The whole environment of the command."""
    cwd: Path | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    read_only: frozenset[str] | None = None
    """The tools that only read, by the server's names; None: those that the server says."""
    disabled_tools: frozenset[str] = frozenset()
    redact: Redactor = field(default_factory=Redactor, repr=False)
    """Removes the secrets of this server's configuration from a text."""

    @property
    def transport(self) -> Literal["stdio", "http"]:
        return "http" if self.url else "stdio"


INHERITED_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""The only variables that a command gets besides those of its `env`: the others hold secrets of this server."""


def read_servers(named: Path | None, data_dir: Path, environment: Mapping[str, str]) -> list[McpServer]:
    """Return the servers of the named file, or of `mcp.json` in the data directory if there is one.

    Raise Permanent with the file and the field if something is wrong in it.
    """
    path = named or data_dir / DEFAULT_FILE_NAME
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if named is None:
            return []
        raise Permanent(f"RAPPORT_MCP_CONFIG: there is no file {path}.") from None
    except OSError as error:
        raise Permanent(f"The MCP configuration {path} can't be read: {error.strerror}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise Permanent(f"The MCP configuration {path} is larger than {MAX_FILE_BYTES:,} bytes.")
    return [
        server
        for name, value in _parse(path, data).items()
        if (server := _read_server(path, name, value, environment)) is not None
    ]


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(data.decode("utf-8-sig"), object_pairs_hook=partial(_read_object, path))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Permanent(f"The MCP configuration {path} is not valid JSON: {error.msg} ({place}).") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise Permanent(f"The MCP configuration {path} is not valid JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise _fail(path, "mcpServers", 'is missing: the file must be `{"mcpServers": {…}}`')
    whole = cast("dict[str, Any]", value)
    for name in whole:
        if name not in ("mcpServers", "$schema"):
            raise _fail(path, name, "is not a known field: the file has only `mcpServers`")
    servers = whole.get("mcpServers")
    if not isinstance(servers, dict):
        raise _fail(path, "mcpServers", "must be an object with a field for each server")
    if len(cast("dict[str, Any]", servers)) > MAX_SERVERS:
        raise _fail(path, "mcpServers", f"must have at most {MAX_SERVERS} servers")
    return cast("dict[str, Any]", servers)


def _read_object(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of the file. Raise Permanent for a name that stands twice: only the last one would count."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _fail(path, twice[:80], "stands twice in the same object: remove one, or give it another name")
    return fields


def _read_server(path: Path, name: str, value: object, environment: Mapping[str, str]) -> McpServer | None:
    """Return the server; None if it is disabled."""
    place = f"mcpServers.{name[:80]}"
    if len(name) > MAX_SERVER_NAME_CHARACTERS or SERVER_SEPARATOR in name or not _SERVER_NAME.fullmatch(name):
        raise _fail(
            path,
            place,
            "is no name for a server: use letters, digits, `-` and single `_` between them,"
            f" at most {MAX_SERVER_NAME_CHARACTERS} characters",
        )
    try:
        part = _ServerPart.model_validate(value)
    except ValidationError as error:
        raise _fail(path, *_describe(place, cast("Mapping[str, Any]", error.errors(include_input=False)[0]))) from None
    if part.disabled:
        return None
    _check_transport(path, place, part)
    try:
        return _make_server(path, place, name, part, environment)
    except UnsetVariable as error:
        raise _fail(
            path, f"{place}.{error.place}", f"names the variable {error.variable}, which the environment does not have"
        ) from None


def _check_transport(path: Path, place: str, part: _ServerPart) -> None:
    if (part.command is None) == (part.url is None):
        raise _fail(path, place, "must have either `command` (a program to start) or `url` (an address)")
    kinds = ("stdio",) if part.command is not None else ("http", "streamable-http", "streamable_http", "streamableHttp")
    if part.kind is not None and part.kind not in kinds:
        known = " or ".join(f"`{kind}`" for kind in kinds)
        raise _fail(path, f"{place}.type", f"must be {known} here; the older transport `sse` is not supported")
    unused = ("headers",) if part.command is not None else ("args", "env", "cwd")
    for name in unused:
        if getattr(part, name):
            other = "`url`" if part.command is not None else "`command`"
            raise _fail(path, f"{place}.{name}", f"belongs to a server with {other}")


def _make_server(path: Path, place: str, name: str, part: _ServerPart, environment: Mapping[str, str]) -> McpServer:
    filled: set[str] = set()
    env = {key: fill_in(text, environment, filled, f"env.{key}") for key, text in part.env.items()}
    headers = {key: fill_in(text, environment, filled, f"headers.{key}") for key, text in part.headers.items()}
    args = [fill_in(text, environment, filled, f"args.{number}") for number, text in enumerate(part.args)]
    url = fill_in(part.url or "", environment, filled, "url")
    if url and not _URL.fullmatch(url):
        raise _fail(path, f"{place}.url", "must be an address such as `https://tools.example.org/mcp`")
    for key, text in headers.items():
        if not _HEADER_NAME.fullmatch(key) or not text.isprintable() or not text.isascii():
            raise _fail(path, f"{place}.headers.{key[:80]}", "must be the name of a header, with a value of one line")
    for key, text in env.items():
        if not _VARIABLE_NAME.fullmatch(key) or "\x00" in text:
            raise _fail(path, f"{place}.env.{key[:80]}", "must be the name of a variable, with a value without NUL")
    if any("\x00" in text for text in (*args, part.command or "", part.cwd or "")):
        raise _fail(path, place, "holds a NUL character")
    inherited = {key: environment[key] for key in INHERITED_VARIABLES if key in environment}
    return McpServer(
        name=name,
        command=part.command or "",
        args=args,
        env={**inherited, **env} if part.command else {},
        cwd=path.parent / part.cwd if part.cwd else None,
        url=url,
        headers=headers,
        timeout_seconds=part.timeout_seconds,
        read_only=None if part.read_only is None else frozenset(part.read_only),
        disabled_tools=frozenset(part.disabled_tools),
        redact=Redactor(find_secrets(env=env, headers=headers, url=url, filled=filled)),
    )


def _fail(path: Path, place: str, problem: str) -> Permanent:
    readable = "".join(character if character.isprintable() else "?" for character in place)
    return Permanent(f"The MCP configuration {path}: `{readable}` {problem}.")


def _describe(place: str, error: Mapping[str, Any]) -> tuple[str, str]:
    """Return the field of a validation error and what is wrong with it, without its value."""
    location: tuple[str | int, ...] = error["loc"]
    where = ".".join([place, *(str(part)[:80] for part in location)])
    if error["type"] == "extra_forbidden":
        return where, "is not a known field"
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return where, "must be an object"
    return where, describe_problem(error)
