"""Read uploaded files as documents: check them by name and by content, then parse them in a limited child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rapport.domain.errors import InvalidInput, Permanent, TooLarge, Transient
from rapport.domain.text_checks import has_visible_text
from rapport.retrieval.files.document import Document, FileName, Limits, NoteFormat, fit_on_one_line
from rapport.retrieval.files.plain import decode_text
from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile, make_error
from rapport.retrieval.files.registry import FORMATS, index_by_suffix

_CHILD = "rapport.retrieval.files.child"
_PIECE_BYTES = 262_144
_MAX_INLINE_BYTES = 65_536
"""Text up to this size is decoded on the event loop; a larger one in a thread."""
_MAX_JSON_BYTES_PER_CHARACTER = 6

_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file"),
    (b"{\\rtf", "an RTF file"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\x00", "a program"),
    (b"\x89PNG\r\n", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF87a", "a picture"),
    (b"GIF89a", "a picture"),
    (b"\x1f\x8b\x08", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!\x1a", "a RAR archive"),
    (b"SQLite format 3\x00", "a database"),
)
"""The first bytes of files that are often renamed by mistake, and their names in errors."""
_HTML = re.compile(rb"\s*(<!doctype\s+html|<html|<head|<body|<!--)", re.IGNORECASE)
_HTML_WITHIN_BYTES = 1024


class FileReader:
    """Reads files for one server process, at most `max_children` in child processes at a time; the others wait."""

    def __init__(
        self, limits: Limits | None = None, *, max_children: int = 2, formats: Iterable[NoteFormat] = FORMATS
    ) -> None:
        self.limits = limits or Limits()
        self._children = asyncio.Semaphore(max_children)
        self._formats = index_by_suffix(formats)

    async def read(self, name: str, data: bytes) -> Document:
        """Return the file as text.

        Raises InvalidInput or TooLarge with a sentence for the sender; Transient when no process can be started now.
        """
        file = FileName.of(name)
        note_format = self._check_format(file, data)
        try:
            if note_format.parser is not None:
                title, text = await self._read_in_child(note_format.parser, data)
            elif len(data) > _MAX_INLINE_BYTES:
                title, text = await asyncio.to_thread(self._decode, note_format, data)
            else:
                title, text = self._decode(note_format, data)
        except UnreadableFile as unreadable:
            raise make_error(unreadable.fault, file.shown, note_format, self.limits) from unreadable
        return Document(fit_on_one_line(title) or file.stem or "Untitled", text, note_format.name)

    def _check_format(self, file: FileName, data: bytes) -> NoteFormat:
        """Return the format by the file's name; raise InvalidInput if the content contradicts it."""
        note_format = self._formats.get(file.suffix)
        if note_format is None:
            raise InvalidInput(
                f"“{file.shown}” is of a kind that can't be read here. Files named {self._list_suffixes()} can."
            )
        if len(data) > self.limits.max_bytes:
            raise TooLarge(
                f"“{file.shown}” has {len(data):,} bytes; at most {self.limits.max_bytes:,} are accepted. "
                "Split it or leave out its pictures."
            )
        if not data:
            raise InvalidInput(f"“{file.shown}” is empty. Check that it was saved, and upload it again.")
        if (actual := _find_other_format(note_format, data)) is not None:
            if note_format.encryption_mark and note_format.encryption_mark in data:
                raise make_error(ReadFault.PASSWORD, file.shown, note_format, self.limits)
            raise InvalidInput(
                f"“{file.shown}” is named like {note_format.label}, but it is {actual}. "
                "Give it the name that fits, or save it in the format that its name says."
            )
        return note_format

    def _list_suffixes(self) -> str:
        *others, last = (f".{name}" for name in dict.fromkeys(known.name for known in self._formats.values()))
        return f"{', '.join(others)} and {last}" if others else last

    def _decode(self, note_format: NoteFormat, data: bytes) -> tuple[str, str]:
        text = decode_text(data)
        if len(text) > self.limits.max_characters:
            raise UnreadableFile(ReadFault.TOO_MUCH_TEXT)
        if not has_visible_text(text):
            raise UnreadableFile(ReadFault.NO_TEXT)
        return note_format.find_title(text) if note_format.find_title is not None else "", text

    async def _read_in_child(self, parser: str, data: bytes) -> tuple[str, str]:
        """Return title and text from a child process, which has ended when this returns or raises."""
        async with self._children:
            try:
                async with asyncio.timeout(self.limits.seconds):
                    answer, status = await self._run_child(parser, data)
            except TimeoutError as error:
                raise UnreadableFile(ReadFault.TIME) from error
            except OSError as error:
                raise Transient("Files can't be read at the moment. Try again in a minute.", retry_after=30) from error
        return _parse_answer(answer, status)

    async def _run_child(self, parser: str, data: bytes) -> tuple[bytes, int]:
        limits = self.limits
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", _CHILD, parser, _find_folder(parser)),
            *(str(limits.memory_mb), str(limits.seconds), str(limits.max_characters)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # Ctrl-C must reach only the server, which ends its children itself
        )
        try:
            await _send(process, data)
            answer = await _receive(process, limits.max_characters * _MAX_JSON_BYTES_PER_CHARACTER + 100_000)
            return answer, await process.wait()
        finally:
            await _end(process)


def _find_folder(parser: str) -> str:
    """Return the folder that the parser's top package is in: the isolated child may not have it on its path."""
    spec = find_spec(parser)
    if spec is None or spec.origin is None:
        raise Permanent(f"The parser module {parser!r} of a note format is not installed.")
    return str(Path(spec.origin).parents[parser.count(".")])


def _find_other_format(note_format: NoteFormat, data: bytes) -> str | None:
    """Return the name of the file's real format, if its content contradicts its name."""
    if note_format.has_signature(data):
        return None
    actual = next((label for signature, label in _SIGNATURES if data.startswith(signature)), None)
    if actual or not note_format.signatures:
        return actual
    return "a web page" if _HTML.match(data[:_HTML_WITHIN_BYTES]) else "something else"


async def _send(process: Process, data: bytes) -> None:
    """Write `data` to the child until it has read everything or has closed its end."""
    stdin = process.stdin
    assert stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for start in range(0, len(data), _PIECE_BYTES):
            stdin.write(data[start : start + _PIECE_BYTES])
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _receive(process: Process, limit: int) -> bytes:
    """Return the child's answer; raise UnreadableFile if it is longer than `limit` bytes."""
    stdout = process.stdout
    assert stdout is not None
    answer = bytearray()
    while piece := await stdout.read(_PIECE_BYTES):
        answer += piece
        if len(answer) > limit:
            raise UnreadableFile(ReadFault.DAMAGED)
    return bytes(answer)


async def _end(process: Process) -> None:
    """Kill the child if it still runs, and wait until the system has released it."""
    stdout = process.stdout
    assert stdout is not None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # asyncio notices the end of the process only when its pipe has been read to the end.
        while await stdout.read(_PIECE_BYTES):
            pass
        await process.wait()


def _parse_answer(answer: bytes, status: int) -> tuple[str, str]:
    try:
        fields: dict[str, Any] = json.loads(answer)
        if "fault" in fields:
            raise UnreadableFile(ReadFault(fields["fault"]))
        return str(fields["title"]), str(fields["text"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _explain_death(status) from error


def _explain_death(status: int) -> Exception:
    """Return the error for a child that gave no answer: a limit, the system's lack of memory, or the file ended it."""
    if status == -signal.SIGXCPU:
        return UnreadableFile(ReadFault.TIME)
    if status == -signal.SIGKILL:
        return UnreadableFile(ReadFault.MEMORY)
    if status > 0:
        return Permanent(f"The process that reads files ends with status {status} before it reads anything.")
    return UnreadableFile(ReadFault.DAMAGED)
