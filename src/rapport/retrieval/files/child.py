"""The process that reads one file: bytes in, JSON out, and limits that it sets for itself before it reads the first.

Run as `python -I -m rapport.retrieval.files.child <kind> <memory in MB> <seconds> <characters>`. It answers with
`{"title": …, "text": …}` or with `{"fault": …}`.
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

from rapport.domain.text_checks import visible
from rapport.retrieval.files.plain import cleaned
from rapport.retrieval.files.read_errors import Fault, Unreadable

PARSERS = {"html": "webpage", "pdf": "pdf", "docx": "word"}
_OPEN_FILES = 16


class Parser(Protocol):
    """A module that reads one kind of file."""

    def read(self, data: bytes, *, limit: int) -> tuple[str, str]:
        """Title, which may be empty, and text."""
        ...


def main(kind: str, memory_mb: int, seconds: float, characters: int) -> None:
    """Read stdin, answer on stdout."""
    # Imported before the limits, while there is only our own code: so the interpreter may keep what it compiles.
    parser = cast(Parser, import_module(f"rapport.retrieval.files.{PARSERS[kind]}"))
    logging.disable()
    try:
        confine(memory_mb, seconds)
        title, text = _read(parser, sys.stdin.buffer.read(), characters)
        answer = json.dumps({"title": title, "text": text}, ensure_ascii=False).encode()
    except Unreadable as unreadable:
        answer = _fault(unreadable.fault)
    except MemoryError:
        answer = _fault(Fault.MEMORY)
    except Exception:  # noqa: BLE001 - whatever a parser trips over, the file is not what it should be
        answer = _fault(Fault.DAMAGED)
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _read(parser: Parser, data: bytes, characters: int) -> tuple[str, str]:
    title, text = parser.read(data, limit=characters)
    text = cleaned(text).strip()
    if len(text) > characters:
        raise Unreadable(Fault.TOO_MUCH_TEXT)
    if not visible(text):
        raise Unreadable(Fault.NO_TEXT)
    return cleaned(title[:10_000]), text


def confine(memory_mb: int, seconds: float) -> None:
    """No more memory, time and files than allowed, no new process, nothing written, nothing dumped."""
    cpu = math.ceil(seconds) + 1
    for kind, amount in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _lower(kind, amount)
    with contextlib.suppress(OSError, ValueError) if sys.platform == "darwin" else contextlib.nullcontext():
        # macOS knows this limit by name only.
        _lower(resource.RLIMIT_AS, memory_mb * 1_000_000)


def _lower(kind: int, amount: int) -> None:
    _, hard = resource.getrlimit(kind)
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(kind, (amount, amount))


def _fault(fault: Fault) -> bytes:
    return json.dumps({"fault": fault}).encode()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
