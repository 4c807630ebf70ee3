"""Test that the embedded Postgres survives killed processes, copied directories and other accidents."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from rapport.storage.postgres.embedded import EmbeddedPostgres, EmbeddedPostgresError
from tests.support.waiting import LIMIT_SECONDS

# Another process that uses the server: says where it is, waits for a line, leaves. It becomes its user only
# after its imports, because the interpreter may lie in a home directory that this user cannot enter.
USER = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    import psycopg
    from rapport.storage.postgres.embedded import EmbeddedPostgres
    if uid := int(sys.argv[2]):
        os.setgroups([]), os.setgid(int(sys.argv[3])), os.setuid(uid)
    server = EmbeddedPostgres.start(Path(sys.argv[1]))
    print(server.url, flush=True)
    sys.stdin.readline()
    server.stop()
    print("left", flush=True)
""")


class Process:
    """A real Rapport process that uses the server of a directory."""

    def __init__(self, data_dir: Path, *, uid: int = 0, gid: int = 0, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-c", USER, str(data_dir), str(uid), str(gid)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)

    def url(self) -> str:
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        return url or pytest.fail(self.complaint())

    def complaint(self) -> str:
        return self._process.communicate(timeout=LIMIT_SECONDS)[1]

    def leave(self) -> None:
        # communicate() reads until the pipe closes: it would hang if Postgres had inherited our output.
        out, err = self._process.communicate("\n", timeout=LIMIT_SECONDS)
        assert (out, err, self._process.returncode) == ("left\n", "", 0)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def one_value(url: str, sql: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(sql.encode()).fetchone()
        assert row is not None
        return row[0]


def remember(url: str, word: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table if not exists words (word text)")
        connection.execute("insert into words values (%s)", [word])


def postmaster(data_dir: Path) -> psutil.Process:
    return psutil.Process(int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0]))


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def new_dir() -> Generator[Callable[[], Path]]:
    """Directories as `mktemp -d` makes them, whose servers never outlive the test."""
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="rapport-test-")))
        return made[-1]

    yield make
    for directory in made:
        for pid_file in directory.rglob("postmaster.pid"):
            pid = int(pid_file.read_text().split()[0])
            if psutil.pid_exists(pid) and psutil.Process(pid).name() == "postgres":
                os.kill(pid, signal.SIGQUIT)
                psutil.wait_procs([psutil.Process(pid)], timeout=LIMIT_SECONDS)
        shutil.rmtree(directory)


@pytest.fixture
def data_dir(new_dir: Callable[[], Path]) -> Path:
    return new_dir()


@pytest.fixture(scope="module")
def template() -> Generator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="rapport-test-"))
    EmbeddedPostgres.start(directory).stop()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def used_dir(data_dir: Path, template: Path) -> Path:
    """A directory that already has its cluster, to save the second that it takes to make one."""
    subprocess.run(["cp", "-a", f"{template}/postgres", data_dir], check=True)
    return data_dir


def test_the_first_start_makes_a_usable_database(data_dir: Path) -> None:
    server = EmbeddedPostgres.start(data_dir)
    assert int(str(one_value(server.url, "show server_version_num"))) >= 180000
    assert one_value(server.url, "select current_database()") == "rapport"
    assert one_value(server.url_for("postgres"), "select current_database()") == "postgres"
    for name, value in {
        "max_connections": "200",
        "fsync": "on",
        "listen_addresses": "",
        "port": "5432",
    }.items():
        assert one_value(server.url, f"show {name}") == value
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create extension vector")
    assert one_value(server.url, "select '[1,2]'::vector <-> '[1,4]'::vector") == 2
    assert one_value(server.url, "select to_tsvector('simple', '“Été” …')::text") == "'été':1"
    server.stop()


def test_the_server_gets_neither_our_keys_nor_our_open_files(used_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server = EmbeddedPostgres.start(used_dir)
    process = postmaster(used_dir)
    assert "OPENAI_API_KEY" not in process.environ()
    fds = {os.readlink(fd) for fd in Path(f"/proc/{process.pid}/fd").iterdir()}
    assert not fds & {str(used_dir / "postgres.lock"), str(used_dir / "postgres.users")}
    assert os.getsid(process.pid) == process.pid  # Ctrl-C in our terminal does not reach it
    server.stop()


def test_stopping_twice_and_starting_again_keeps_the_data(used_dir: Path) -> None:
    server = EmbeddedPostgres.start(used_dir)
    remember(server.url, "kept")
    process = postmaster(used_dir)
    server.stop()
    server.stop()
    assert not is_alive(process)
    server = EmbeddedPostgres.start(used_dir)
    assert one_value(server.url, "select word from words") == "kept"
    server.stop()


def test_processes_share_one_server_until_the_last_one_leaves(used_dir: Path) -> None:
    server = EmbeddedPostgres.start(used_dir)
    other = Process(used_dir)
    assert other.url() == server.url
    process = postmaster(used_dir)
    server.stop()
    assert is_alive(process)
    other.leave()
    assert not is_alive(process)


def test_two_users_in_one_process_count_as_two(used_dir: Path) -> None:
    first, second = EmbeddedPostgres.start(used_dir), EmbeddedPostgres.start(used_dir)
    first.stop()
    assert one_value(second.url, "select 1") == 1
    process = postmaster(used_dir)
    second.stop()
    assert not is_alive(process)


def test_processes_that_start_at_the_same_moment_all_succeed(data_dir: Path) -> None:
    processes = [Process(data_dir) for _ in range(3)]
    assert len({process.url() for process in processes}) == 1
    running = postmaster(data_dir)
    for process in processes:
        assert is_alive(running)
        process.leave()
    assert not is_alive(running)


def test_a_server_left_behind_by_a_killed_process_is_joined_and_stopped(used_dir: Path) -> None:
    killed = Process(used_dir)
    remember(killed.url(), "kept")
    process = postmaster(used_dir)
    killed.kill()
    assert is_alive(process)
    server = EmbeddedPostgres.start(used_dir)
    assert postmaster(used_dir) == process
    assert one_value(server.url, "select word from words") == "kept"
    server.stop()
    assert not is_alive(process)


@pytest.mark.parametrize("children_too", [True, False], ids=["whole server", "only the postmaster"])
def test_a_killed_server_is_recovered(used_dir: Path, children_too: bool) -> None:
    server = EmbeddedPostgres.start(used_dir)
    remember(server.url, "kept")
    process = postmaster(used_dir)
    children = process.children(recursive=True) if children_too else []
    process.kill()
    for child in children:
        with suppress(psutil.NoSuchProcess):  # it may have noticed the postmaster's end
            child.kill()
    # The process that lost its server is still there and still holds its lock, as a live Rapport would.
    again = EmbeddedPostgres.start(used_dir)
    assert one_value(again.url, "select word from words") == "kept"
    server.stop()
    again.stop()


def test_a_stale_or_half_written_pid_file_does_not_count_as_a_server(used_dir: Path) -> None:
    pgdata = used_dir / "postgres"
    # A live process that is no Postgres has the number now, as happens after a reboot or in a new container.
    with subprocess.Popen(["sleep", "60"], user=pgdata.stat().st_uid) as bystander:
        foreign = f"{bystander.pid}\n{pgdata}\n1\n5432\n{pgdata}\n"
        for content in ("", "12", "garbage\n", "99999999999999999999\n", str(bystander.pid), foreign):
            (pgdata / "postmaster.pid").write_text(content)
            (pgdata / ".s.PGSQL.5432.lock").write_text(content)
            server = EmbeddedPostgres.start(used_dir)
            assert one_value(server.url, "select 1") == 1
            server.stop()
        assert bystander.poll() is None
        bystander.kill()


def test_a_copy_of_a_running_directory_does_not_join_the_original(new_dir: Callable[[], Path]) -> None:
    original, copied = new_dir(), new_dir()
    server = EmbeddedPostgres.start(original)
    subprocess.run(["cp", "-a", f"{original}/postgres", copied], check=True)
    other = EmbeddedPostgres.start(copied)
    assert other.url != server.url
    other.stop()
    assert one_value(server.url, "select 1") == 1
    server.stop()


def test_what_a_killed_initdb_left_is_made_anew(data_dir: Path) -> None:
    process = Process(data_dir)
    while not (data_dir / "postgres.new" / "postgresql.conf").exists():
        time.sleep(0.001)
    process.kill()  # only our process: its initdb goes on, and must not meet the next one in the same folder
    server = EmbeddedPostgres.start(data_dir)
    assert one_value(server.url, "select 1") == 1
    assert not (data_dir / "postgres.new").exists()
    server.stop()


@pytest.mark.parametrize("name", ["long " + "x" * 130, "with space, comma and é'%"])
def test_any_ordinary_path_will_do(data_dir: Path, name: str) -> None:
    server = EmbeddedPostgres.start(data_dir / name)
    joined = EmbeddedPostgres.start(data_dir / name)
    assert one_value(joined.url, "select 1") == 1
    assert joined.url == server.url
    joined.stop()
    socket_dir = Path(str(one_value(server.url, "show unix_socket_directories")))
    assert socket_dir.is_dir()
    server.stop()
    assert socket_dir.is_dir() == (data_dir in socket_dir.parents)


def test_a_path_that_a_shell_would_change_is_refused(data_dir: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="Choose a data directory without"):
        EmbeddedPostgres.start(data_dir / "a$HOME")


def test_the_environment_does_not_matter(data_dir: Path) -> None:
    strange = {
        "LC_ALL": "xx_YY.UTF-8",
        "PGPORT": "1",
        "PGDATA": "/nowhere",
        "PGUSER": "me",
        "PGDATABASE": "mine",
    }
    for env in ({}, strange):
        process = Process(data_dir, env=env)
        assert one_value(process.url(), "show server_encoding") == "UTF8"
        process.leave()


def test_a_failed_start_says_why_and_what_to_do(used_dir: Path) -> None:
    with (used_dir / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("shared_buffers = 'plenty'\n")
    with pytest.raises(EmbeddedPostgresError, match=r"(?s)could not be started.*plenty.*DATABASE_URL"):
        EmbeddedPostgres.start(used_dir)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@as_root
def test_an_ordinary_user_can_use_it_before_and_after_root_does(data_dir: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(data_dir, nobody.pw_uid, nobody.pw_gid)
    root = EmbeddedPostgres.start(data_dir)  # runs Postgres as the directory's owner
    remember(root.url, "kept")
    assert postmaster(data_dir).uids().real == nobody.pw_uid
    user = Process(data_dir, uid=nobody.pw_uid, gid=nobody.pw_gid)
    assert user.url() == root.url
    root.stop()
    user.leave()
    user = Process(data_dir, uid=nobody.pw_uid, gid=nobody.pw_gid)
    assert one_value(user.url(), "select word from words") == "kept"
    user.leave()
    assert {path.stat().st_uid for path in data_dir.iterdir()} == {nobody.pw_uid}


@as_root
def test_an_ordinary_user_makes_his_own_after_root_made_another(new_dir: Callable[[], Path]) -> None:
    nobody = pwd.getpwnam("nobody")
    roots, users = new_dir(), new_dir()
    os.chown(users, nobody.pw_uid, nobody.pw_gid)
    root = EmbeddedPostgres.start(roots)
    user = Process(users, uid=nobody.pw_uid, gid=nobody.pw_gid)
    assert user.url() != root.url
    assert stat.S_IMODE(users.stat().st_mode) == 0o700
    user.leave()
    root.stop()


@as_root
@pytest.mark.parametrize("name", ["short", "long" * 40])
def test_other_local_users_cannot_connect_to_roots_server(data_dir: Path, name: str) -> None:
    server = EmbeddedPostgres.start(data_dir / name)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o701  # opened just enough for the account of Postgres
    nobody = pwd.getpwnam("nobody")
    intruder = textwrap.dedent(f"""
        import os, psycopg
        os.setgroups([]), os.setgid({nobody.pw_gid}), os.setuid({nobody.pw_uid})
        psycopg.connect({server.url!r})
    """)
    result = subprocess.run([sys.executable, "-c", intruder], capture_output=True, text=True, check=False)
    assert "Permission denied" in result.stderr
    user = Process(data_dir / name, uid=nobody.pw_uid, gid=nobody.pw_gid)
    assert "Give that directory to this user (uid 65534)" in user.complaint()
    server.stop()
