"""Name the optional packages, and the command that installs a missing one (ADR 46).

Import an optional package in the function that uses it, and call `require_extra` before.
"""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from rapport.domain.errors import Permanent


class Extra(NamedTuple):
    """An optional package: the module that it provides, its name on the package index and the extra that installs it."""

    module: str
    package: str
    name: str

    @property
    def is_installed(self) -> bool:
        """Return True if the module can be found. The module is not imported."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def remedy(self) -> str:
        """Return the command that installs it."""
        return f"pip install 'rapport[{self.name}]'"


PLOT = Extra("matplotlib", "matplotlib", "plot")
REDIS = Extra("redis", "redis", "redis")
ANTHROPIC = Extra("langchain_anthropic", "langchain-anthropic", "anthropic")
OLLAMA = Extra("langchain_ollama", "langchain-ollama", "ollama")
WORDLLAMA = Extra("wordllama", "wordllama", "wordllama")
TELEGRAM = Extra("telegram", "python-telegram-bot", "telegram")
MCP = Extra("mcp", "mcp", "mcp")


def require_extra(extra: Extra, reason: str) -> None:
    """Raise Permanent with the reason and the command to run, unless the extra's package is installed."""
    if not extra.is_installed:
        raise missing_extra(extra, reason)


def missing_extra(extra: Extra, reason: str) -> Permanent:
    """Return the error that says what needs the extra and what to run."""
    return Permanent(f"{reason}, but {extra.package} is not installed. Run: {extra.remedy}")
