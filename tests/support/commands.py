"""Run the real command as a separate process, for tests of its output: to a pipe, to a terminal, in a real terminal."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tests.support.fork_server import fork_server
from tests.support.waiting import LIMIT_SECONDS

COMMAND = Path(sys.executable).with_name("rapport")
KEPT = ("PATH", "TMPDIR", "TZ")


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class Home:
    """A data directory, and an environment without other settings."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return {**kept, "LANG": "C.UTF-8", "RAPPORT_DATA_DIR": str(self.path / "data"), "COLUMNS": "200", **more}

    def run(self, *arguments: str, stdin: str | bytes = "", **environment: str) -> Ran:
        """Run `rapport` to its end; fail if it prints a traceback."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        values = self.environment(**environment)
        if "PYTHONPATH" in values:  # imports other modules than the process that forks has
            ended = subprocess.run(
                [COMMAND, *arguments],
                input=given,
                capture_output=True,
                env=values,
                cwd=self.path,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            code, out, err = ended.returncode, ended.stdout, ended.stderr
        else:
            code, out, err = fork_server().run(list(arguments), stdin=given, environment=values, folder=self.path)
        ran = Ran(code, out.decode(), err.decode())
        assert "Traceback" not in ran.out + ran.err, ran.out + ran.err
        return ran

    def fails(self, *arguments: str, **environment: str) -> str:
        """Run `rapport`, expect it to fail with one line, and return that line."""
        ran = self.run(*arguments, **{"LOG_LEVEL": "warning", **environment})
        assert ran.code == 1, ran
        assert ran.out == ""
        assert ran.err.startswith("rapport: ")
        assert len(ran.err.strip().splitlines()) == 1, ran.err
        return ran.err

    def postmaster(self) -> Path:
        return self.path / "data" / "postgres" / "postmaster.pid"


Run: TypeAlias = Callable[..., Ran]


def on_a_terminal(home: Home, database_url: str, *arguments: str) -> str:
    """Return what the command shows on a terminal; it must succeed."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [COMMAND, *arguments],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        cwd=home.path,
        env=home.environment(DATABASE_URL=database_url, TERM="xterm-256color", COLUMNS="120"),
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:  # a terminal reports so that the other side has closed
        pass
    finally:
        os.close(ours)
    assert running.wait(LIMIT_SECONDS) == 0, shown.decode()
    return shown.decode()


class Terminal:
    """A real terminal, in a tmux server of its own."""

    def __init__(self, home: Home, command: str) -> None:
        # A separate socket with a short path: an ending tmux server still accepts a new session, and loses it.
        self._folder = tempfile.mkdtemp(prefix="tmux-")
        self._socket = f"{self._folder}/socket"
        self._tmux("new-session", "-d", "-x", "120", "-y", "40", command, env=home.environment(TERM="xterm-256color"))

    def _tmux(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )
        assert done.returncode == 0, f"tmux {arguments}: {done.stderr}"
        return done.stdout

    def types(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def pastes(self, text: str) -> None:
        """Paste as a terminal emulator does, with the marks of bracketed paste."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-S", "-200")

    def shows(self, pattern: str, *, seconds: float = LIMIT_SECONDS) -> str:
        """Wait until the screen shows a pattern."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, screen := self.screen, re.DOTALL):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{screen}"
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        self._tmux("kill-server")
        shutil.rmtree(self._folder)
