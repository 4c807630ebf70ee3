"""Read a person's input line by line, while messages may be printed above the line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.formatted_text import ANSI
from rich.console import Console


class LineInput(Protocol):
    """Reads lines from standard input."""

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Prepare standard input for as long as lines are read."""
        ...

    def above_line(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Make room for output while a line is read; the prompt and the text typed so far follow below the output."""
        ...

    async def read(self, prompt: str) -> str | None:
        """Return the next line; None at the end of the input or on Ctrl-C."""
        ...


class PipedInput:
    """Reads standard input that is no terminal, or one that can't move its cursor."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._unread = b""
        self._ended = False
        self._prompt: str | None = None

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        yield

    @contextlib.asynccontextmanager
    async def above_line(self) -> AsyncGenerator[None]:
        if self._prompt is not None:
            self._console.print()
        yield
        if self._prompt is not None:
            self._console.print(self._prompt, end="")

    async def read(self, prompt: str) -> str | None:
        self._prompt = prompt
        self._console.print(prompt, end="")
        try:
            return await self._next_line()
        finally:
            self._prompt = None

    async def _next_line(self) -> str | None:
        while b"\n" not in self._unread and not self._ended:
            piece = await _read_stdin()
            if piece is None:
                return None
            self._ended = not piece
            self._unread += piece
        if not self._unread:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="surrogateescape")  # invalid bytes are refused later, not changed


class TerminalInput:
    """Reads lines with an editor: cursor keys, the history of this chat, and pasted text of several lines as one message."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._session: PromptSession[str] = PromptSession(enable_suspend=True, reserve_space_for_menu=0)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Keep the terminal from echoing keys between two prompts, and restore it however the chat ends."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def disable_echo() -> None:
            """Disable it at first, and again after Ctrl-Z and `fg`: the shell has reset the terminal."""
            if not self._session.app.is_running:
                termios.tcsetattr(descriptor, termios.TCSADRAIN, _remove_echo(before))

        handlers = {signal.SIGCONT: disable_echo, signal.SIGTERM: task.cancel, signal.SIGHUP: task.cancel}
        disable_echo()
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def above_line(self) -> contextlib.AbstractAsyncContextManager[None]:
        return in_terminal()

    async def read(self, prompt: str) -> str | None:
        with self._console.capture() as rendered:
            self._console.print(prompt, end="")
        try:
            return await self._session.prompt_async(ANSI(rendered.get()), set_exception_handler=False)
        except (EOFError, KeyboardInterrupt):
            return None


def open_input(console: Console) -> LineInput:
    """Return an editor for a terminal, and a plain reader for anything else."""
    is_terminal = sys.stdin.isatty() and console.is_terminal and not console.is_dumb_terminal
    return TerminalInput(console) if is_terminal else PipedInput(console)


async def _read_stdin() -> bytes | None:
    """Return the next data of standard input: empty at its end, None on Ctrl-C."""
    loop = asyncio.get_running_loop()
    piece: asyncio.Future[bytes | None] = loop.create_future()

    def settle(value: bytes | None) -> None:
        if not piece.done():
            piece.set_result(value)

    def read() -> None:
        try:
            value = os.read(sys.stdin.fileno(), 65536)
        except OSError:  # the terminal was closed
            value = b""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value)

    # A daemon thread on the bare descriptor: leaving the chat must not wait for one more line.
    loop.add_signal_handler(signal.SIGINT, settle, None)
    threading.Thread(target=read, daemon=True).start()
    try:
        return await piece
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _remove_echo(attributes: list[Any]) -> list[Any]:
    """Return the terminal's attributes without echo and line buffer. Ctrl-C and Ctrl-Z still send signals."""
    local = attributes[3] & ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    return [*attributes[:3], local, *attributes[4:]]
