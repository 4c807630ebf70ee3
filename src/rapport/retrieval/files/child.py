"""Read one file in a process of its own: bytes in, JSON out, with limits that are set before the first byte is read.

Run as `python -I -m rapport.retrieval.files.child <parser module> <folder> <memory in MB> <seconds> <characters>`, where
`folder` is the one that the parser's top package is in. The answer is `{"title": …, "text": …}` or `{"fault": …}`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import resource
import sys
from importlib import import_module
from typing import Protocol, cast

from rapport.domain.text_checks import has_visible_text
from rapport.retrieval.files.plain import clean_text
from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile

_MAX_OPEN_FILES = 16
_MAX_TITLE_CHARACTERS = 10_000


class Parser(Protocol):
    """A module that reads one file format. It may raise UnreadableFile; any other error means a damaged file."""

    def read(self, data: bytes, *, limit: int) -> tuple[str, str]:
        """Return the title, which may be empty, and the text; raise UnreadableFile if that exceeds `limit` characters."""
        ...


def main(parser_module: str, folder: str, memory_mb: int, seconds: float, characters: int) -> None:
    """Read the file from stdin and write the answer to stdout."""
    if folder not in sys.path:
        sys.path.append(folder)
    # Import before the limits, while only our own code runs: the interpreter may then write its compiled files.
    parser = cast(Parser, import_module(parser_module))
    logging.disable()
    try:
        limit_resources(memory_mb, seconds)
        title, text = _read(parser, sys.stdin.buffer.read(), characters)
        answer = json.dumps({"title": title, "text": text}, ensure_ascii=False).encode()
    except UnreadableFile as unreadable:
        answer = _encode_fault(unreadable.fault)
    except MemoryError:
        answer = _encode_fault(ReadFault.MEMORY)
    except Exception:  # noqa: BLE001 - a parser may fail in any way on a file that is not what it should be
        answer = _encode_fault(ReadFault.DAMAGED)
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _read(parser: Parser, data: bytes, characters: int) -> tuple[str, str]:
    title, text = parser.read(data, limit=characters)
    text = clean_text(text).strip()
    if len(text) > characters:
        raise UnreadableFile(ReadFault.TOO_MUCH_TEXT)
    if not has_visible_text(text):
        raise UnreadableFile(ReadFault.NO_TEXT)
    return clean_text(title[:_MAX_TITLE_CHARACTERS]), text


def limit_resources(memory_mb: int, seconds: float) -> None:
    """Limit memory, CPU time and open files; forbid new processes, written files and core dumps."""
    cpu_seconds = math.ceil(seconds) + 1
    for resource_id, amount in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _lower_limit(resource_id, amount)
    with contextlib.suppress(OSError, ValueError) if sys.platform == "darwin" else contextlib.nullcontext():
        # macOS has the constant for this limit but refuses to set it.
        _lower_limit(resource.RLIMIT_AS, memory_mb * 1_000_000)


def _lower_limit(resource_id: int, amount: int) -> None:
    _, hard_limit = resource.getrlimit(resource_id)
    amount = amount if hard_limit == resource.RLIM_INFINITY else min(amount, hard_limit)
    resource.setrlimit(resource_id, (amount, amount))


def _encode_fault(fault: ReadFault) -> bytes:
    return json.dumps({"fault": fault}).encode()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
