"""The system account that runs the embedded Postgres when Rapport runs as root, which Postgres refuses."""

import os
import pwd
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rapport.domain.errors import Permanent

_SYSTEM_ACCOUNT = "rapport-pg"


class Account(NamedTuple):
    """The system account that runs Postgres: the current one, unless it is root."""

    uid: int
    gid: int


def ensure_system_account() -> Account:
    """Return Rapport's own system account, creating it if needed, or the best one that exists."""
    shadow = (
        "useradd",
        "--system",
        "--no-create-home",
        "--home-dir=/nonexistent",
        "--shell=/usr/sbin/nologin",
    )
    busybox = ("adduser", "-S", "-D", "-H", "-s", "/sbin/nologin")
    for tool, *options in (shadow, busybox):
        program = shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if program and _SYSTEM_ACCOUNT not in {entry.pw_name for entry in pwd.getpwall()}:
            subprocess.run([program, *options, _SYSTEM_ACCOUNT], stdin=subprocess.DEVNULL, capture_output=True)
    for name in (_SYSTEM_ACCOUNT, "postgres", "nobody"):
        with suppress(KeyError):
            return Account(*pwd.getpwnam(name)[2:4])
    raise Permanent(
        f"Postgres does not run as root, and no account {_SYSTEM_ACCOUNT!r} could be made for it: "
        f"run `useradd --system {_SYSTEM_ACCOUNT}`, start Rapport as an ordinary user, or set DATABASE_URL."
    )


def grant_access(account: Account, wheel: Path, *directories: Path) -> None:
    """Give `account` the minimal permissions to run the wheel's binaries and to enter its directories."""
    for path in (wheel, *directories):
        _grant_passage(account, path)
    postgres = wheel / "bin" / "postgres"
    if postgres.stat().st_mode & 0o005 == 0o005:
        return
    # Installed under a strict umask. The file that is checked above is changed last: if this fails, the next call repeats it.
    libraries = wheel.parent.with_name(f"{wheel.parent.name}.libs")
    paths = [path for folder in (wheel, libraries) for path in (folder, *folder.rglob("*")) if path.exists()]
    for path in sorted(paths, key=postgres.__eq__):
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | (0o005 if mode & stat.S_IXUSR else 0o004))


def _grant_passage(account: Account, path: Path) -> None:
    """Add the missing x bit to each directory above `path` that `account` cannot enter."""
    for directory in path.parents:
        info = directory.stat()
        bit = 0o100 if info.st_uid == account.uid else 0o010 if info.st_gid == account.gid else 0o001
        if not info.st_mode & bit:
            directory.chmod(stat.S_IMODE(info.st_mode) | bit)
