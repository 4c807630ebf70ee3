"""Why a file can't be read, each as a sentence that says what is wrong and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rapport.domain.errors import InvalidInput, TooLarge
from rapport.retrieval.files.document import Kind, Limits


class Fault(StrEnum):
    """What was found; the child sends the name, and only the parent makes a sentence of it."""

    DAMAGED = "damaged"
    PASSWORD = "password"  # noqa: S105 - the name of a fault
    CIPHER = "cipher"
    NO_TEXT = "no_text"
    NUL = "nul"
    NOT_TEXT = "not_text"
    NOT_WORD = "not_word"
    BOMB = "bomb"
    TOO_MUCH_TEXT = "too_much_text"
    MEMORY = "memory"
    TIME = "time"


class Unreadable(Exception):
    """Raised wherever a file is being read; leaves this package as InvalidInput or TooLarge only."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


FORMAT: Final[dict[Kind, str]] = {
    "txt": "plain text",
    "md": "Markdown",
    "html": "a web page",
    "pdf": "a PDF",
    "docx": "a Word document",
}

_TOO_LARGE = {Fault.BOMB, Fault.TOO_MUCH_TEXT, Fault.MEMORY, Fault.TIME}

_NO_TEXT: Final[dict[Kind, str]] = {
    "txt": "has no visible text in it.",
    "md": "has no visible text in it.",
    "html": "has no visible text in it. A page that is built by scripts has to be saved after it was shown.",
    "pdf": "has no text in it: its pages may be scanned pictures. Run text recognition (OCR) on it and upload the result.",
    "docx": "has no visible text in it. If its pages are pictures, run text recognition (OCR) on them first.",
}

_SENTENCES: Final[dict[Fault, str]] = {
    Fault.DAMAGED: "is damaged: it can't be read as {format}. Open it, save it again and upload the new file.",
    Fault.PASSWORD: "is protected by a password. Save it without one and upload it again.",
    Fault.CIPHER: "is encrypted in a way that can't be opened here. Save it without protection and upload it again.",
    Fault.NO_TEXT: "{no_text}",
    Fault.NUL: "holds NUL bytes, so it isn't text. Save it as UTF-8 text and upload it again.",
    Fault.NOT_TEXT: "isn't readable as text. Save it as UTF-8 and upload it again.",
    Fault.NOT_WORD: "is a ZIP archive but not a Word document. Save it as .docx in a word processor and upload it again.",
    Fault.BOMB: "unpacks to far more than its size and isn't opened. Upload a smaller document.",
    Fault.TOO_MUCH_TEXT: "holds more than {characters:,} characters of text. Split it and upload the parts.",
    Fault.MEMORY: "needs more than {memory} MB of memory to be read. Split it or save it as plain text.",
    Fault.TIME: "took longer than {seconds:g} seconds to read. Split it or save it as plain text.",
}


def complaint(fault: Fault, shown: str, kind: Kind, limits: Limits) -> InvalidInput:
    """The error to raise: TooLarge where a smaller file would do, InvalidInput otherwise."""
    sentence = _SENTENCES[fault].format(
        format=FORMAT[kind],
        no_text=_NO_TEXT[kind],
        characters=limits.max_characters,
        memory=limits.memory_mb,
        seconds=limits.seconds,
    )
    error = TooLarge if fault in _TOO_LARGE else InvalidInput
    return error(f"“{shown}” {sentence}")
