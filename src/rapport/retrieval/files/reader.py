"""Uploaded files as documents: checked by name and by content, then read where they can't hurt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Any, Final

from rapport.domain.errors import InvalidInput, Permanent, TooLarge, Transient
from rapport.domain.text_checks import visible
from rapport.retrieval.files.document import Document, FileName, Kind, Limits, one_line
from rapport.retrieval.files.plain import decoded, markdown_title
from rapport.retrieval.files.read_errors import FORMAT, Fault, Unreadable, complaint

_CHILD = "rapport.retrieval.files.child"
_PIECE = 262_144
_INLINE = 65_536
"""Text up to this many bytes is decoded at once; more of it in a thread, while others go on."""

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
_PDF_WITHIN = 1024
_HTML = re.compile(rb"\s*(<!doctype\s+html|<html|<head|<body|<!--)", re.IGNORECASE)
_OFFICE_CIPHER = "EncryptedPackage".encode("utf-16-le")
_HARD_TO_READ = {"html", "pdf", "docx"}


class FileReader:
    """Reads files for one server process, at most `at_once` in processes of their own; the others wait their turn."""

    def __init__(self, limits: Limits | None = None, *, at_once: int = 2) -> None:
        self.limits = limits or Limits()
        self._turns = asyncio.Semaphore(at_once)

    async def read(self, name: str, data: bytes) -> Document:
        """The file as text.

        Raises InvalidInput or TooLarge with a sentence for the sender; Transient when no process can be started now.
        """
        file = FileName.of(name)
        kind = self._checked(file, data)
        try:
            if kind in _HARD_TO_READ:
                title, text = await self._read_apart(kind, data)
            elif len(data) > _INLINE:
                title, text = await asyncio.to_thread(self._decode, kind, data)
            else:
                title, text = self._decode(kind, data)
        except Unreadable as unreadable:
            raise complaint(unreadable.fault, file.shown, kind, self.limits) from unreadable
        return Document(title=one_line(title) or file.stem or "Untitled", text=text, kind=kind)

    def _checked(self, file: FileName, data: bytes) -> Kind:
        """The kind of file it says it is, and by its first bytes may be."""
        if file.kind is None:
            raise InvalidInput(
                f"“{file.shown}” is of a kind that can't be read here. Files named .txt, .md, .html, .pdf and .docx can."
            )
        if len(data) > self.limits.max_bytes:
            raise TooLarge(
                f"“{file.shown}” has {len(data):,} bytes; at most {self.limits.max_bytes:,} are accepted. "
                "Split it or leave out its pictures."
            )
        if not data:
            raise InvalidInput(f"“{file.shown}” is empty. Check that it was saved, and upload it again.")
        if (found := _mistaken(file.kind, data)) is not None:
            if file.kind == "docx" and _OFFICE_CIPHER in data:
                raise complaint(Fault.PASSWORD, file.shown, file.kind, self.limits)
            raise InvalidInput(
                f"“{file.shown}” is named like {FORMAT[file.kind]}, but it is {found}. "
                "Give it the name that fits, or save it in the format that its name says."
            )
        return file.kind

    def _decode(self, kind: Kind, data: bytes) -> tuple[str, str]:
        text = decoded(data)
        if len(text) > self.limits.max_characters:
            raise Unreadable(Fault.TOO_MUCH_TEXT)
        if not visible(text):
            raise Unreadable(Fault.NO_TEXT)
        return markdown_title(text) if kind == "md" else "", text

    async def _read_apart(self, kind: Kind, data: bytes) -> tuple[str, str]:
        """Title and text from a child process, which is gone when this returns or raises."""
        async with self._turns:
            try:
                async with asyncio.timeout(self.limits.seconds):
                    answer, status = await self._ask_child(kind, data)
            except TimeoutError as error:
                raise Unreadable(Fault.TIME) from error
            except OSError as error:
                raise Transient("Files can't be read at the moment. Try again in a minute.", retry_after=30) from error
        return _understood(answer, status)

    async def _ask_child(self, kind: Kind, data: bytes) -> tuple[bytes, int]:
        limits = self.limits
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", _CHILD),
            *(kind, str(limits.memory_mb), str(limits.seconds), str(limits.max_characters)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # Ctrl-C at the server's terminal is for the server, which ends its children itself
        )
        try:
            await _give(process, data)
            # A character takes at most 6 bytes of JSON.
            answer = await _take(process, limits.max_characters * 6 + 100_000)
            return answer, await process.wait()
        finally:
            await _end(process)


def _mistaken(kind: Kind, data: bytes) -> str | None:
    """What the file is, if it can't be what its name says."""
    if kind == "pdf" and b"%PDF-" in data[:_PDF_WITHIN]:
        return None
    found = next((what for signature, what in _SIGNATURES if data.startswith(signature)), None)
    if kind == "docx" and found == "a ZIP archive":
        return None
    if found or kind not in ("pdf", "docx"):
        return found
    return "a web page" if _HTML.match(data[:_PDF_WITHIN]) else "something else"


async def _give(process: Process, data: bytes) -> None:
    """All of `data`, or as much as the child wants: it may have found its fault already."""
    stdin = process.stdin
    assert stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for start in range(0, len(data), _PIECE):
            stdin.write(data[start : start + _PIECE])
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _take(process: Process, limit: int) -> bytes:
    """What the child answers, unless it is more than any honest answer."""
    stdout = process.stdout
    assert stdout is not None
    answer = bytearray()
    while piece := await stdout.read(_PIECE):
        answer += piece
        if len(answer) > limit:
            raise Unreadable(Fault.DAMAGED)
    return bytes(answer)


async def _end(process: Process) -> None:
    """The child is dead and buried, whatever it was doing."""
    stdout = process.stdout
    assert stdout is not None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Its end is only noticed when its pipe has been read to the end.
        while await stdout.read(_PIECE):
            pass
        await process.wait()


def _understood(answer: bytes, status: int) -> tuple[str, str]:
    try:
        told: dict[str, Any] = json.loads(answer)
        if "fault" in told:
            raise Unreadable(Fault(told["fault"]))
        return str(told["title"]), str(told["text"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _died(status) from error


def _died(status: int) -> Exception:
    """A child that left no answer was ended by a limit, by the system for want of memory, or by the file."""
    if status == -signal.SIGXCPU:
        return Unreadable(Fault.TIME)
    if status == -signal.SIGKILL:
        return Unreadable(Fault.MEMORY)
    if status > 0:
        return Permanent(f"The process that reads files ends with status {status} before it reads anything.")
    return Unreadable(Fault.DAMAGED)
