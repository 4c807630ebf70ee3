"""What a person types, line by line, without holding up what runs meanwhile; and room for something to be said in between."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Generator
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_ENTER = "\r\n"
_BACKSPACE = "\x7f\x08"
_END, _ERASE_LINE, _ERASE_WORD, _ESCAPE = "\x04", "\x15", "\x17", "\x1b"


class Lines:
    """Lines of standard input that is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._read = b""
        self._ended = False
        self._prompt: str | None = None

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """For as long as lines are wanted."""
        yield

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """Room to say something while a line is awaited: the prompt, and what was typed after it, stand below it again."""
        if self._prompt is None:
            yield
            return
        self._erase()
        yield
        self._show()

    async def next(self, prompt: str) -> str | None:
        """The next line; None at the end of the input or on Ctrl-C."""
        self._prompt = prompt
        self._show()
        try:
            return await self._line()
        finally:
            self._prompt = None

    async def _line(self) -> str | None:
        while b"\n" not in self._read and not self._ended:
            piece = await self._piece()
            if piece is None:
                return None
            self._ended = not piece
            self._read += piece
        if not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="surrogateescape")  # what is not text is refused, not changed

    def _erase(self) -> None:
        self._console.print()

    def _show(self) -> None:
        self._console.print(self._prompt or "", end="")

    async def _piece(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        piece: asyncio.Future[bytes | None] = loop.create_future()

        def settle(value: bytes | None) -> None:
            if not piece.done():
                piece.set_result(value)

        def read() -> None:
            try:
                value = os.read(sys.stdin.fileno(), 65536)
            except OSError:  # the terminal is gone
                value = b""
            with contextlib.suppress(RuntimeError):  # the loop is gone: so is whoever waited
                loop.call_soon_threadsafe(settle, value)

        # A thread that nobody waits for, on the bare descriptor: leaving must not depend on one more press of Enter.
        loop.add_signal_handler(signal.SIGINT, settle, None)
        threading.Thread(target=read, daemon=True).start()
        try:
            return await piece
        finally:
            loop.remove_signal_handler(signal.SIGINT)


class TypedLines(Lines):
    """Lines that somebody types into a terminal. What they have typed so far is kept here and not by the terminal, so that
    it can be taken away and written again."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._ahead = ""
        """Typed before anybody asked for it."""
        self._typed = ""
        self._in_escape = ""

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """The terminal hands over every key at once and echoes none; afterwards, however it ends, it is as it was."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        loop = asyncio.get_running_loop()

        def take_over() -> None:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, _key_by_key(before))

        def come_back() -> None:
            """After Ctrl-Z and `fg` the terminal is as the shell likes it."""
            take_over()
            if self._prompt is not None:
                self._show()

        task = asyncio.current_task()
        assert task is not None
        handlers = {signal.SIGCONT: come_back, signal.SIGTERM: task.cancel, signal.SIGHUP: task.cancel}
        take_over()
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    async def _line(self) -> str | None:
        while not self._ended:
            while self._ahead:
                key, self._ahead = self._ahead[0], self._ahead[1:]
                if key in _ENTER:
                    self._write("\n")
                    line, self._typed, self._in_escape = self._typed, "", ""
                    return line
                if key == _END and not self._typed:
                    return None
                self._press(key)
            piece = await self._piece()
            if piece is None:
                return None
            self._ended = not piece
            self._ahead += self._decoder.decode(piece)
        return None

    def _press(self, key: str) -> None:
        """One key that ends nothing."""
        if self._in_escape or key == _ESCAPE:
            self._swallow(key)
        elif key in _BACKSPACE:
            self._replace(self._typed[:-1])
        elif key == _ERASE_LINE:
            self._replace("")
        elif key == _ERASE_WORD:
            before, space, _ = self._typed.rstrip().rpartition(" ")
            self._replace(before + space)
        elif key == "\t" or key >= " ":
            added = " " if key == "\t" else key
            self._typed += added
            self._write(added)

    def _swallow(self, key: str) -> None:
        """Arrows and function keys arrive as several characters, of which none is to be typed."""
        self._in_escape += key
        if len(self._in_escape) == 1 or (len(self._in_escape) == 2 and key in "[O"):
            return
        if len(self._in_escape) == 2 or "@" <= key <= "~" or len(self._in_escape) > 16:
            self._in_escape = ""

    def _replace(self, typed: str) -> None:
        self._erase()
        self._typed = typed
        self._show()

    def _erase(self) -> None:
        """Take the prompt and what was typed off the screen, however many rows they have."""
        # How wide it really is: the environment may say otherwise.
        width = os.get_terminal_size(sys.stdin.fileno()).columns or self._console.width
        above = _rows(f"{Text.from_markup(self._prompt or '').plain}{self._typed}", width) - 1
        self._write(f"{f'{_ESCAPE}[{above}A' if above else ''}\r{_ESCAPE}[J")

    def _show(self) -> None:
        super()._show()
        self._write(self._typed)

    def _write(self, text: str) -> None:
        file = self._console.file
        file.write(text.encode(errors="replace").decode())
        file.flush()


def lines_of(console: Console) -> Lines:
    """What reads standard input best, as it is."""
    typed = sys.stdin.isatty() and console.is_terminal and not console.is_dumb_terminal
    return TypedLines(console) if typed else Lines(console)


def _key_by_key(attributes: list[Any]) -> list[Any]:
    """The same terminal, without a line buffer and an echo of its own. Ctrl-C and Ctrl-Z stay what they are."""
    control = [*attributes[6]]
    control[termios.VMIN], control[termios.VTIME] = 1, 0
    local = attributes[3] & ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    return [*attributes[:3], local, *attributes[4:6], control]


def _rows(text: str, width: int) -> int:
    """How many rows of a terminal a text takes; a wide character that doesn't fit begins the next one."""
    rows, column = 1, 0
    for character in text:
        cells = cell_len(character)
        if column + cells > width:
            rows, column = rows + 1, 0
        column += cells
    return rows
