"""Fill in the variables of the MCP configuration, and find the secrets in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_NO_SECRET_HEADERS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
MIN_SECRET_CHARACTERS: Final = 8
"""Shorter values are words such as `true`: to remove them would damage texts."""


class UnsetVariable(Exception):
    """A variable that the environment does not have."""

    def __init__(self, variable: str, place: str) -> None:
        super().__init__(variable)
        self.variable = variable
        self.place = place


def fill_in(text: str, environment: Mapping[str, str], filled: set[str], place: str) -> str:
    """Return the text with the values of `${NAME}`, `${env:NAME}` and `${NAME:-default}`, and add the values to `filled`."""

    def replace(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = environment.get(name)
        if value is None and default is None:
            raise UnsetVariable(name, place)
        if value is not None:
            filled.add(value)
        return value if value is not None else default

    return _VARIABLE.sub(replace, text)


def find_secrets(*, env: Mapping[str, str], headers: Mapping[str, str], url: str, filled: set[str]) -> list[str]:
    """Return the values that nobody may see: what variables had, headers, passwords in the address, and `env` but paths."""
    values = {*filled, *(value for value in env.values() if not value.startswith(("/", "./", "../", "~")))}
    for name, value in headers.items():
        if name.lower() not in _NO_SECRET_HEADERS:
            values |= {value, value.rpartition(" ")[2]}  # `Bearer abc`, and `abc` alone
    parts = urlsplit(url)
    values |= {unquote(part) for part in (parts.password, parts.username) if part}
    values |= {value for _, value in parse_qsl(parts.query)}
    return [value for value in values if len(value) >= MIN_SECRET_CHARACTERS]
