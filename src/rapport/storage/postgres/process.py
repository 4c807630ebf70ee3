"""Check from outside whether the Postgres of a directory runs, and where its Unix socket can be."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
MAX_SOCKET_PATH_BYTES = 100  # the kernel's limit is 108 on Linux and 104 on macOS


def is_postgres_of(pid: int, pgdata: Path) -> bool:
    """Return True if `pid` is a live Postgres of that directory, not a zombie nor another process with a reused pid."""
    if not Path("/proc/self").exists():  # macOS
        ps = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
        command = subprocess.run(ps, capture_output=True, check=False).stdout
        return b"/postgres " in command and os.fsencode(f" -D {pgdata} ") in command
    process = Path("/proc") / str(pid)
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    try:
        is_same_directory = os.path.samefile(process / "cwd", pgdata)  # compares directories, not paths
    except PermissionError:  # root without CAP_SYS_PTRACE, as in most containers
        is_same_directory = os.fsencode(pgdata) in arguments
    except OSError:
        return False
    return is_same_directory and os.path.basename(arguments[0]) == b"postgres"


def fits_socket(directory: Path) -> bool:
    path = os.fsencode(directory / SOCKET)
    return len(path) <= MAX_SOCKET_PATH_BYTES and b"," not in path  # libpq takes a comma for a list of hosts


def is_listening(socket_dir: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
        probe.settimeout(1)
        probe.connect(str(socket_dir / SOCKET))
        return True
    return False
