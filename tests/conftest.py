"""Provide one real Postgres for the whole run, and a fresh database for every test from a migrated template."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import ssl
import tempfile
from collections.abc import AsyncGenerator, Generator
from functools import cache
from pathlib import Path

import psutil
import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from rapport.domain.ids import new_id
from rapport.storage.database import Database
from rapport.storage.migrate import migrate, schema_lock
from rapport.storage.postgres.embedded import EmbeddedPostgres
from rapport.storage.work.checkpoints import Checkpoints, checkpoint_pool
from tests.support.commands import Home, Ran, Run
from tests.support.installing import only_one
from tests.support.slow import is_slow
from tests.support.world import World, open_world

TEMPLATE = "rapport_template"
MEMORY = Path("/dev/shm")
ENOUGH = 4_000_000_000
"""Bytes that must be free in memory for temporary files."""


# A client makes a TLS context of its own in 20 ms, and no test uses TLS.
ssl.create_default_context = cache(ssl.create_default_context)

# No deadline: the duration of an example depends on the machine's load.
hypothesis_settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("calm")


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary files into memory, where there is room and TMPDIR is not set: thousands of databases are created and
    dropped, which takes up to thirty times as long on a disk."""
    if hasattr(config, "workerinput") or "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    for left in MEMORY.glob("rapport-tests-*"):  # left by a run that was killed
        if not psutil.pid_exists(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    if min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) < ENOUGH:
        return
    folder = tempfile.mkdtemp(prefix=f"rapport-tests-{os.getpid()}-", dir=MEMORY)
    Path(folder).chmod(0o755)  # some tests run as another user
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and start with the long ones, so that no process runs one at the end while the others are idle."""
    here = Path(__file__).parent

    def begins_late(item: pytest.Item) -> int:
        if item.get_closest_marker("e2e") or item.get_closest_marker("browser"):
            return 0
        return 1 if item.get_closest_marker("slow") else 2

    for item in items:
        if is_slow(item.path.relative_to(here).as_posix()):
            item.add_marker(pytest.mark.slow)
    items.sort(key=begins_late)


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of garbage collection, which takes up to a second with it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Generator[EmbeddedPostgres]:
    """The embedded Postgres, shared by all processes of this run."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with only_one(shared / "template.lock"):
        server = EmbeddedPostgres.start(shared / "postgres")
        if not _has_template(server):
            _change_settings(server)
            server.stop()
            server = EmbeddedPostgres.start(shared / "postgres")
            _make_template(server)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def new_data(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A data directory as the first start of a server leaves it, to be copied: making one takes a second."""
    base = tmp_path_factory.getbasetemp()
    made = (base if worker_id == "master" else base.parent) / "new_data"
    with only_one(made.with_suffix(".lock")):
        if not made.exists():
            server = EmbeddedPostgres.start(made.with_suffix(".part"))
            asyncio.run(_migrate(server.url))
            server.stop()
            made.with_suffix(".part").rename(made)
    return made


@pytest.fixture(scope="session")
def administration(postgres: EmbeddedPostgres) -> Generator[psycopg.Connection]:
    """The connection on which databases are created and dropped."""
    with psycopg.connect(postgres.url_for("postgres"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def empty_database(postgres: EmbeddedPostgres, administration: psycopg.Connection) -> Generator[str]:
    """The URL of a database with nothing in it."""
    yield from _database(postgres, administration, template="template0")


@pytest.fixture
def database_url(postgres: EmbeddedPostgres, administration: psycopg.Connection) -> Generator[str]:
    """The URL of a migrated database that only this test uses."""
    yield from _database(postgres, administration, template=TEMPLATE)


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    database = Database(database_url, max_size=6)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def world(database_url: str) -> AsyncGenerator[World]:
    async with open_world(database_url) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A data directory and an environment without settings."""
    return Home(tmp_path)


@pytest.fixture
def rapport(home: Home, database_url: str) -> Run:
    """Return a function that runs the command on a separate database, in the test's folder."""

    def run(*arguments: str, **environment: str) -> Ran:
        return home.run(*arguments, DATABASE_URL=database_url, **environment)

    return run


def _database(postgres: EmbeddedPostgres, administration: psycopg.Connection, *, template: str) -> Generator[str]:
    name = f"test_{new_id().lower()}"
    # Copying files takes half the time of writing every page to the log, when the files are in memory.
    administration.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY'.encode())
    yield postgres.url_for(name)
    administration.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def _has_template(postgres: EmbeddedPostgres) -> bool:
    with psycopg.connect(postgres.url_for("postgres")) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
    return found is not None


def _change_settings(postgres: EmbeddedPostgres) -> None:
    """Change settings that the next start of the server reads."""
    with psycopg.connect(postgres.url_for("postgres"), autocommit=True) as connection:
        # Tests kill processes, not the machine: waiting for the disk would prove nothing.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET full_page_writes = off")
        # It would analyze a large table in the middle of a test of its plans.
        connection.execute("ALTER SYSTEM SET autovacuum = off")
        # To create and to drop a database reads the headers of all buffers four times.
        connection.execute("ALTER SYSTEM SET shared_buffers = '64MB'")


def _make_template(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url_for("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}_new".encode())
        asyncio.run(_migrate(postgres.url_for(f"{TEMPLATE}_new")))
        # The first connection to a migrated database writes a summary of the catalog, which is copied with the template.
        psycopg.connect(postgres.url_for(f"{TEMPLATE}_new")).close()
        connection.execute(f"ALTER DATABASE {TEMPLATE}_new RENAME TO {TEMPLATE}".encode())


async def _migrate(url: str) -> None:
    database = Database(url, max_size=2)
    await database.open()
    async with checkpoint_pool(url) as pool, schema_lock(database):
        await migrate(database)
        await Checkpoints(pool).setup()
    await database.close()
