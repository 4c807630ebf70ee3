"""A real Chromium: found, or installed where that is possible; and a lock between the processes of one run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
INSTALL_SECONDS = 600


@contextlib.contextmanager
def only_one(path: Path) -> Generator[None]:
    """Whoever comes second waits until the first is done."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def chromium(lock: Path) -> str:
    """Where Chromium is. Without one the tests are skipped, and fail in CI: there it must not go unnoticed."""
    with only_one(lock):
        found = _found()
        if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
            _install()
            found = _found()
    return found or _give_up("Chromium is needed for these tests: install the package `chromium`.")


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    for command in (["apt-get", "update"], install):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if done.returncode:
            _give_up(f"Chromium is not here, and `{' '.join(command)}` failed: {done.stderr[-500:]}")


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
