"""Recognize the names of tools of other programs, as an agent's profile may write them."""

from __future__ import annotations

import re
from collections.abc import Collection

from rapport.domain.tool import MAX_TOOL_NAME_CHARACTERS, SERVER_SEPARATOR

ALL_TOOLS = "*"
"""Stands for every tool of a server: `files__*`."""
_OUTSIDE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_))*__(?:\*|[A-Za-z0-9_-]+)")


def is_outside_name(name: str) -> bool:
    """Return True if it has the form of a tool of another program, `server__tool`, or of all of them, `server__*`."""
    return len(name) <= MAX_TOOL_NAME_CHARACTERS and _OUTSIDE_NAME.fullmatch(name) is not None


def is_named(name: str, names: Collection[str]) -> bool:
    """Return True if the tool is among these names: by its own name, or as one of all tools of its server."""
    server, separator, _ = name.partition(SERVER_SEPARATOR)
    return name in names or bool(separator and f"{server}{SERVER_SEPARATOR}{ALL_TOOLS}" in names)
