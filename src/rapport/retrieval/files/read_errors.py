"""List the reasons why a file can't be read, each with a sentence that names the problem and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rapport.domain.errors import InvalidInput, TooLarge
from rapport.retrieval.files.document import Limits, NoteFormat


class ReadFault(StrEnum):
    """The reason. The child process sends its name, and the parent turns it into a sentence."""

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


class UnreadableFile(Exception):
    """Raised while a file is read; `FileReader` translates it to InvalidInput or TooLarge."""

    def __init__(self, fault: ReadFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


_TOO_LARGE = {ReadFault.BOMB, ReadFault.TOO_MUCH_TEXT, ReadFault.MEMORY, ReadFault.TIME}

_SENTENCES: Final[dict[ReadFault, str]] = {
    ReadFault.DAMAGED: "is damaged: it can't be read as {format}. Open it, save it again and upload the new file.",
    ReadFault.PASSWORD: "is protected by a password. Save it without one and upload it again.",
    ReadFault.CIPHER: "is encrypted in a way that can't be opened here. Save it without protection and upload it again.",
    ReadFault.NO_TEXT: "{no_text}",
    ReadFault.NUL: "holds NUL bytes, so it isn't text. Save it as UTF-8 text and upload it again.",
    ReadFault.NOT_TEXT: "isn't readable as text. Save it as UTF-8 and upload it again.",
    ReadFault.NOT_WORD: "is a ZIP archive but not a Word document. Save it as .docx in a word processor and upload it again.",
    ReadFault.BOMB: "unpacks to far more than its size and isn't opened. Upload a smaller document.",
    ReadFault.TOO_MUCH_TEXT: "holds more than {characters:,} characters of text. Split it and upload the parts.",
    ReadFault.MEMORY: "needs more than {memory} MB of memory to be read. Split it or save it as plain text.",
    ReadFault.TIME: "took longer than {seconds:g} seconds to read. Split it or save it as plain text.",
}


def make_error(fault: ReadFault, shown: str, note_format: NoteFormat, limits: Limits) -> InvalidInput:
    """Return the error to raise: TooLarge where a smaller file would do, InvalidInput otherwise."""
    sentence = _SENTENCES[fault].format(
        format=note_format.label,
        no_text=note_format.no_text,
        characters=limits.max_characters,
        memory=limits.memory_mb,
        seconds=limits.seconds,
    )
    error = TooLarge if fault in _TOO_LARGE else InvalidInput
    return error(f"“{shown}” {sentence}")
