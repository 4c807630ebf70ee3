"""Run `rapport` in forks of one process that has imported it already.

A command imports for a third of a second and then works for some hundredths; a server imports for more than a second. A
fork is a process of its own, with its own arguments, environment, folder, session and standard streams, but it does not
import again. Tests of the console script itself, of terminals and of what is imported start the script.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.waiting import LIMIT_SECONDS

_LARGEST_REQUEST = 100_000


class ForkedProcess:
    """A command that runs in a fork; it is used like `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self._read_line())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._read_code(0)

    def wait(self, timeout: float) -> int:
        code = self._read_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("rapport", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_code(self, seconds: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = int(self._read_line())
            self._status.close()
        return self.returncode

    def _read_line(self) -> bytes:
        line = self._status.readline()
        assert line, "the process that forks has ended"
        return line


class ForkServer:
    """The process that forks; one for each process of the test run."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
            root = Path(__file__).parents[2]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=root)
        atexit.register(self._stop)

    def run(
        self, arguments: list[str], *, stdin: bytes, environment: dict[str, str], folder: Path
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its exit code, its output and its error output."""
        (input_end, feed), (out, out_end), (err, err_end) = (os.pipe() for _ in range(3))
        process = self.start(arguments, (input_end, out_end, err_end), environment=environment, folder=folder)
        for end in (input_end, out_end, err_end):
            os.close(end)
        collected: dict[int, bytes] = {}
        threads = [threading.Thread(target=_feed, args=(feed, stdin))]
        threads += [threading.Thread(target=_collect, args=(end, collected)) for end in (out, err)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive(), f"rapport {arguments} did not end: {collected}"
        return process.wait(LIMIT_SECONDS), collected[out], collected[err]

    def start(
        self, arguments: list[str], streams: tuple[int, int, int], *, environment: dict[str, str], folder: Path
    ) -> ForkedProcess:
        """Start a command with these file descriptors as its input, output and error output."""
        request = json.dumps({"arguments": arguments, "environment": environment, "folder": str(folder)}).encode()
        assert len(request) <= _LARGEST_REQUEST
        status, status_end = os.pipe()
        socket.send_fds(self._socket, [request], [*streams, status_end])
        os.close(status_end)
        return ForkedProcess(status)

    def _stop(self) -> None:
        self._socket.close()
        self._process.wait(LIMIT_SECONDS)


def _feed(end: int, content: bytes) -> None:
    try:
        with os.fdopen(end, "wb") as pipe:
            pipe.write(content)
    except BrokenPipeError:  # the command did not read to the end
        pass


def _collect(end: int, into: dict[int, bytes]) -> None:
    with os.fdopen(end, "rb") as pipe:
        into[end] = pipe.read()


@cache
def fork_server() -> ForkServer:
    return ForkServer()


def serve(requests: socket.socket) -> None:
    """Fork for each request until the other side closes the socket; tell the request's last pipe the pid and the exit code."""
    _import_everything()
    gc.freeze()
    statuses: dict[int, int] = {}
    child_ended, wake = os.pipe()
    os.set_blocking(child_ended, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, _do_nothing)  # a signal without a handler wakes nobody
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        _report_ends(statuses)
        readable, _, _ = select.select([requests, child_ended], [], [])
        if child_ended in readable:
            os.read(child_ended, 4_096)
        if requests not in readable:
            continue
        content, ends, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 4)
        if not content:
            return
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            for end in [child_ended, wake, ends[3], *statuses.values()]:
                os.close(end)
            _become(json.loads(content), ends[:3])
        for end in ends[:3]:
            os.close(end)
        os.write(ends[3], f"{pid}\n".encode())
        statuses[pid] = ends[3]


def _do_nothing(_number: int, _frame: object) -> None:
    pass


def _report_ends(statuses: dict[int, int]) -> None:
    for pid in list(statuses):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with os.fdopen(statuses.pop(pid), "wb") as pipe, suppress(BrokenPipeError):
                pipe.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _import_everything() -> None:
    package = importlib.import_module("rapport")
    for module in pkgutil.walk_packages(package.__path__, "rapport."):
        if not module.name.endswith("__main__") and not module.name.startswith("rapport.channels.telegram"):
            importlib.import_module(module.name)


def _become(request: dict[str, Any], ends: list[int]) -> None:
    """Be the command: take its streams, folder and environment, run it, and end."""
    code = 70
    try:
        os.setsid()
        for place, end in enumerate(ends):
            os.dup2(end, place)
            os.close(end)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the streams of the process
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the streams of the process
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115 - the streams of the process
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["rapport", *request["arguments"]]
        code = _run_command()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - as the interpreter does it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run_command() -> int:
    from rapport.cli.main import run

    try:
        run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
