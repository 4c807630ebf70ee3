"""Make tools for models of what a server lists: bounded, clean and with names of their own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import structlog

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.texts import clean_text
from rapport.domain.tool import MAX_TOOL_NAME_CHARACTERS, SERVER_SEPARATOR, ToolSpec

log = structlog.get_logger()

MAX_TOOLS: Final = 200
"""Of the tools of a server that lists more, the rest is left out: no model could choose among them."""
MAX_DESCRIPTION_CHARACTERS: Final = 2_000
MAX_SCHEMA_CHARACTERS: Final = 16_000
MAX_SCHEMA_DEPTH: Final = 20
MAX_RAW_NAME_CHARACTERS: Final = 500
MAX_REMEMBERED_TOOLS: Final = 10_000
"""Of a server that has listed more tools that change something, every tool counts as one."""

_HASH_CHARACTERS: Final = 8
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


class _Refused(Exception):
    """A tool that can't be offered. The text says why."""


def name_tool(server: str, raw_name: str) -> str:
    """Return `server__tool`. A name that is too long or has other characters gets a part of its hash."""
    prefix = f"{server}{SERVER_SEPARATOR}"
    space = MAX_TOOL_NAME_CHARACTERS - len(prefix)
    if len(raw_name) <= space and _PLAIN_NAME.fullmatch(raw_name):
        return prefix + raw_name
    digest = hashlib.sha256(raw_name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", raw_name[:MAX_TOOL_NAME_CHARACTERS])
    return f"{prefix}{readable[: space - _HASH_CHARACTERS - 1]}-{digest}"


def make_specs(server: McpServer, listed: Iterable[object]) -> dict[str, tuple[ToolSpec, str]]:
    """Return the tools by their names, each with the server's name for it. Those that can't be offered are logged."""
    tools: dict[str, tuple[ToolSpec, str]] = {}
    refused: list[str] = []
    count = 0
    for each in listed:
        count += 1
        if len(tools) >= MAX_TOOLS:
            continue
        try:
            made = _make_spec(server, each)
            if made is not None and tools.setdefault(made[0].name, made) is not made:
                raise _Refused("has the name of another one")
        except _Refused as error:
            refused.append(f"{_find_name(each)[:80]} {error}")
    if refused:
        log.warning("mcp.tools_refused", server=server.name, count=len(refused), first=server.redact(refused[0]))
    if len(tools) >= MAX_TOOLS and count > len(tools):
        log.warning("mcp.too_many_tools", server=server.name, listed=count, used=len(tools))
    return tools


class ToolEffects:
    """Remembers which tools of a server have changed something: they ask, whatever the server says of them later.

    A person who may decide about a tool's calls would else lose that by a new list of the server.
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._changing: set[str] = set()
        self._withheld: set[str] = set()
        """The tools whose new hint is not believed; they are logged once."""

    def keep(self, tools: Mapping[str, tuple[ToolSpec, str]]) -> Mapping[str, tuple[ToolSpec, str]]:
        """Return the tools of a new list, each that has ever changed something as one that does."""
        if self._server.read_only is not None:  # the operator says which only read
            return tools
        kept = dict(tools)
        withheld: list[str] = []
        is_full = len(self._changing) > MAX_REMEMBERED_TOOLS  # a server that invents names all the time
        for name, (spec, raw_name) in tools.items():
            if not spec.only_reads:
                self._changing.add(name)
            elif name in self._changing or is_full:
                kept[name] = (replace(spec, only_reads=False), raw_name)
                withheld.append(name)
        if not self._withheld.issuperset(withheld):
            log.warning("mcp.tool_hint_changed", server=self._server.name, tools=withheld)
        self._withheld = set(withheld)
        return kept


def find_unknown_names(server: McpServer, listed: Iterable[object]) -> list[str]:
    """Return the names of tools in the server's configuration that no listed tool has: a mistake there frees or hides nothing."""
    named = (server.read_only or frozenset()) | server.disabled_tools
    raw_names = {_find_name(each) for each in listed} if named else set[str]()
    known = raw_names | {name_tool(server.name, each) for each in raw_names}
    return sorted(named - known)


def _find_name(tool: object) -> str:
    name = cast("Mapping[str, Any]", tool).get("name") if isinstance(tool, Mapping) else None
    return clean_text(name[:MAX_RAW_NAME_CHARACTERS]) if isinstance(name, str) else "a tool without a name"


def _make_spec(server: McpServer, tool: object) -> tuple[ToolSpec, str] | None:
    """Return the tool and its raw name; None if the configuration disables it."""
    if not isinstance(tool, Mapping):
        raise _Refused("is no object")
    fields = cast("Mapping[str, Any]", tool)
    raw_name = fields.get("name")
    if not isinstance(raw_name, str) or not 0 < len(raw_name) <= MAX_RAW_NAME_CHARACTERS:
        raise _Refused("has no usable name")
    name = name_tool(server.name, raw_name)
    if {raw_name, name} & server.disabled_tools:
        return None
    description = fields.get("description") or fields.get("title") or ""
    if not isinstance(description, str):
        raise _Refused("has a description that is no text")
    spec = ToolSpec(
        name=name,
        description=server.redact(clean_text(description[: 2 * MAX_DESCRIPTION_CHARACTERS]))[
            :MAX_DESCRIPTION_CHARACTERS
        ].strip(),
        parameters=_check_schema(fields.get("inputSchema")),
        scope="outside",
        only_reads=_only_reads(server, fields, raw_name, name),
        time_limit_seconds=server.timeout_seconds,
        server=server.name,
    )
    return spec, raw_name


def _only_reads(server: McpServer, fields: Mapping[str, Any], raw_name: str, name: str) -> bool:
    if server.read_only is not None:
        return bool({raw_name, name} & server.read_only)
    annotations = fields.get("annotations")
    return isinstance(annotations, Mapping) and cast("Mapping[str, Any]", annotations).get("readOnlyHint") is True


def _check_schema(schema: object) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping) or cast("Mapping[str, Any]", schema).get("type") != "object":
        raise _Refused("has a schema that is no object")
    budget = [MAX_SCHEMA_CHARACTERS]
    cleaned = cast("dict[str, Any]", _clean(cast("object", schema), MAX_SCHEMA_DEPTH, budget))
    if not isinstance(cleaned.setdefault("properties", {}), dict):
        raise _Refused("has a schema whose properties are no object")
    if len(json.dumps(cleaned, ensure_ascii=False)) > MAX_SCHEMA_CHARACTERS:
        raise _Refused(f"has a schema of more than {MAX_SCHEMA_CHARACTERS:,} characters")
    return cleaned


def _clean(value: object, depth: int, budget: list[int]) -> object:
    """Return a copy with clean texts. The budget ends the work on a schema that is too large."""
    budget[0] -= 1
    if budget[0] < 0:
        raise _Refused(f"has a schema of more than {MAX_SCHEMA_CHARACTERS:,} characters")
    if depth == 0:
        raise _Refused(f"has a schema with more than {MAX_SCHEMA_DEPTH} levels")
    if isinstance(value, str):
        budget[0] -= len(value)
        return clean_text(value[: MAX_SCHEMA_CHARACTERS + 1])
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {str(_clean(str(key), depth, budget)): _clean(each, depth - 1, budget) for key, each in pairs}
    if isinstance(value, list):
        return [_clean(each, depth - 1, budget) for each in cast("list[object]", value)]
    return value
