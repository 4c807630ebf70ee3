"""Split the output of a server into lines of bounded length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

END_CHARACTERS: Final = 200
"""The size of the parts at the begin and the end of a message in which the id of its request is looked for."""
_ID_AT_BEGIN = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*,')
_ID_AT_END = re.compile(rb'[,}]\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_ID_BEFORE_VERSION = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*\}\s*\Z')


class Line(NamedTuple):
    """A line; of one that was too long only the request that it seems to answer."""

    data: bytes
    is_too_long: bool = False
    answers: int | None = None


class LineReader:
    """Collects chunks. Keeps at most `limit` bytes: of a longer line the rest is dropped as it comes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._end = b""

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that this chunk completes."""
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._add(part)
            yield self._take()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._size <= self._limit:
            self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit:
            self._parts = [b"".join(self._parts)[:END_CHARACTERS]]
            self._end = (self._end + part)[-END_CHARACTERS:]

    def _take(self) -> Line:
        data, size, end = b"".join(self._parts), self._size, self._end
        self._parts, self._size, self._end = [], 0, b""
        if size <= self._limit:
            return Line(data)
        return Line(b"", is_too_long=True, answers=find_answered_request(data, end))


def find_answered_request(begin: bytes, end: bytes) -> int | None:
    """Return the id of the request that a message answers, by its first and last bytes; None if they do not show it."""
    match = _ID_AT_BEGIN.match(begin) or _ID_AT_END.search(end) or _ID_BEFORE_VERSION.search(end)
    return int(match[1]) if match else None
