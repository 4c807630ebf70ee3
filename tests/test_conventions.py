"""The house rules that a machine can see to: shape, errors, tasks, settings, and what a repository must hold."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rapport"
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_LINES = 400

# `__init__.py` sets the number of BLAS threads before numpy is imported.
READS_ENVIRONMENT = {
    "__init__.py",
    "app.py",
    "settings.py",
    "storage/postgres/embedded.py",
    "storage/postgres/system_account.py",
}
CREATES_TASKS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}
# Written in pieces, so that this file does not find itself.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("jfrog", "io"),
    )
]
NAMES_NOTHING = re.compile(r"(Manager|Helper|Service|Utils?)$|_v\d+$|^process_data$")


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def line_of(path: Path, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
    return path.read_text().splitlines()[node.lineno - 1]


each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


@each_module
def test_a_module_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


@each_module
def test_a_module_says_what_it_is_for(path: Path) -> None:
    told = ast.get_docstring(tree_of(path))
    assert told
    assert len(told.splitlines()[0]) > 10


@each_module
def test_whoever_swallows_everything_says_why(path: Path) -> None:
    """Translating an error (`raise … from error`) and the worker's loop, which logs it whole, need no excuse."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler) and catches_everything(node) and not goes_on(path, node):
            assert re.search(r"# noqa: BLE001 - \S+", line_of(path, node)), f"{path}:{node.lineno}"


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Whether it stands for `except:`, `except Exception` or `except BaseException`, alone or among others."""
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def goes_on(path: Path, handler: ast.ExceptHandler) -> bool:
    """Whether the error, or another one with it as its cause, leaves the handler; the runtime's may be logged instead."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise):
        return last.exc is None or (isinstance(last.cause, ast.Name) and last.cause.id == handler.name)
    logged = any(isinstance(node, ast.Attribute) and node.attr == "exception" for node in ast.walk(handler))
    return logged and name_of(path).startswith("runtime/")


def called_names(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            yield name, node.lineno


@each_module
def test_tasks_begin_in_the_runtime_and_in_commands_only(path: Path) -> None:
    """What must happen is a row; a task that nobody awaits is not even a promise."""
    if name_of(path).startswith(("runtime/", "cli/")):
        return
    assert [(name, line) for name, line in called_names(path) if name in CREATES_TASKS] == []


@each_module
def test_nothing_is_printed(path: Path) -> None:
    printed = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "pprint"}
    ]
    assert printed == []


@each_module
def test_the_environment_is_read_where_settings_are(path: Path) -> None:
    if name_of(path) in READS_ENVIRONMENT or name_of(path).startswith("cli/"):
        return
    found = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "putenv"})
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any("env" in one.name for one in node.names))
    ]
    assert found == []


@each_module
def test_names_say_something(path: Path) -> None:
    names = [
        node.name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [name for name in names if NAMES_NOTHING.search(name)] == []


@each_module
def test_nothing_waits_for_real_time_by_blocking(path: Path) -> None:
    """A blocking sleep in the loop stops every conversation; only what starts Postgres may wait so, in a thread."""
    if name_of(path) == "storage/postgres/embedded.py":
        return
    sleeps = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and node.attr == "sleep"
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]
    assert sleeps == []


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the installer's business."""
    found: list[str] = []
    for path in tracked_files():
        text = path.read_bytes().decode(errors="replace")
        found += [f"{path.relative_to(ROOT)}: {host}" for host in REGISTRY_HOSTS if host in text]
    assert found == []


def test_no_secret_is_tracked() -> None:
    shapes = re.compile(r"\b(sk-[A-Za-z0-9_-]{32,}|rapport_[\w-]{43}|\d{8,10}:AA[\w-]{33})\b")
    for path in tracked_files():
        assert path.name != ".env"
        assert shapes.search(path.read_bytes().decode(errors="replace")) is None, path


def test_changes_are_kept() -> None:
    changelog = ROOT / "CHANGELOG.md"
    assert changelog.is_file()
    assert "## [" in changelog.read_text()


def test_decisions_are_written_down() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert len(records) >= 5
    for record in records:
        text = record.read_text()
        for part in ("Status", "Context", "Decision", "Consequences"):
            assert re.search(rf"^(#+ |\*\*|- )?{part}\b", text, re.MULTILINE), f"{record.name}: no {part}"
