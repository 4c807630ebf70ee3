"""Install what some tests need beside Python, where possible: Chromium, and the packages of package-lock.json files.

`make test` runs this first, since an installation may take longer than a test; a test that finds something missing installs it
too. Where that can't be done the test is skipped, and fails in CI: there it must not go unnoticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WITH_PACKAGES = (
    TESTS / "agents" / "mcp" / "peers",
    TESTS / "browser",
    TESTS / "channels" / "http" / "mcp" / "inspector",
    TESTS / "e2e" / "bot_api",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 600


class CannotInstallError(Exception):
    """The reason why something can't be installed."""


@contextlib.contextmanager
def only_one(path: Path) -> Generator[None]:
    """Hold a lock: a second process waits until the first has finished."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def chromium() -> str:
    """Return the path of a Chromium; install it if it is missing."""
    with _or_the_test_ends(), only_one(Path(tempfile.gettempdir()) / "rapport-chromium.lock"):
        return _chromium()


def packages(folder: Path) -> Path:
    """Return the folder of the npm packages of this folder; install them if they are missing."""
    with _or_the_test_ends(), only_one(folder / "node_modules.lock"):
        return _packages(folder)


def _chromium() -> str:
    if (found := _browser()) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _run("apt-get", "update")
        _run("apt-get", "install", "-y", "--no-install-recommends", "chromium")
        found = _browser()
    if found is None:
        message = "Chromium is needed for the tests of the page: install the package `chromium`"
        raise CannotInstallError(message)
    return found


def _browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _packages(folder: Path) -> Path:
    if not (shutil.which("npm") and shutil.which("node")):
        message = f"node and npm are needed for {folder / 'package.json'}"
        raise CannotInstallError(message)
    modules = folder / "node_modules"
    # npm writes this file last.
    done = modules / ".package-lock.json"
    if not done.exists() or done.stat().st_mtime < (folder / "package-lock.json").stat().st_mtime:
        _run("npm", "ci", cwd=folder)
    return modules


def _run(*command: str, cwd: Path = TESTS) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        message = f"`{' '.join(command)}` failed in {cwd}: {done.stderr[-500:]}"
        raise CannotInstallError(message)


@contextlib.contextmanager
def _or_the_test_ends() -> Generator[None]:
    try:
        yield
    except CannotInstallError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def main() -> None:
    """Install everything; print what can't be installed. The tests report the same."""
    for install in (_chromium, *(lambda folder=folder: _packages(folder) for folder in WITH_PACKAGES)):
        try:
            sys.stdout.write(f"{install()}\n")
        except CannotInstallError as error:
            sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main()
