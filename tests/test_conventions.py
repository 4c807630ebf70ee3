"""Check the conventions that a program can check: names, docstrings, size, errors, tasks, settings, and required files."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support import slow

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rapport"
MIN_LINES, MAX_LINES = 10, 400
SHORT = {"__main__.py"}
"""Modules that may be shorter than MIN_LINES, besides `__init__.py`."""
LONG: set[str] = set()
"""Modules that may be longer than MAX_LINES."""

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

NO_BEGINNING = re.compile(r"(What|So)\b")
"""Words that no docstring begins with: it says what is done or what a thing is, in a sentence with a verb."""
_IRREGULAR = """
asked begun born bought bound broken brought built caught chosen done drawn fed felt fought found given gone grown heard held
hidden kept known lain led left lent lost made meant met paid risen said seen sent shown slept sold spoken stood struck stuck
swept taken thought thrown told torn understood undone unknown won worn wound written
"""
PARTICIPLES = frozenset(_IRREGULAR.split())
"""Past participles that do not end in -ed; those that are also a verb in the present (read, set, put, run) may begin a name."""
ENDS_IN_ED = {
    "bleed",
    "breed",
    "embed",
    "exceed",
    "feed",
    "need",
    "proceed",
    "seed",
    "shed",
    "speed",
    "succeed",
    "unembed",
}
"""Verbs in the present that end like a participle."""


@dataclass(frozen=True)
class Module:
    """One module of the source, read and parsed once."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    def find(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def get_line(self, number: int) -> str:
        return self.text.splitlines()[number - 1]


@cache
def load_modules() -> tuple[Module, ...]:
    paths = sorted(SOURCE.rglob("*.py"))
    texts = [path.read_text() for path in paths]
    return tuple(
        Module(path, path.relative_to(SOURCE).as_posix(), text, ast.parse(text, str(path)))
        for path, text in zip(paths, texts, strict=True)
    )


def expect_none(check: Callable[[Module], Iterator[int | str]]) -> None:
    """Fail with every place where a module breaks a rule."""
    places = [f"{module.name}:{place}" for module in load_modules() for place in check(module)]
    assert not places, "\n".join([f"{len(places)} places", *places])


def test_a_module_has_neither_too_few_nor_too_many_lines() -> None:
    def check(module: Module) -> Iterator[str]:
        lines = len(module.text.splitlines())
        is_short = lines < MIN_LINES and module.path.name != "__init__.py" and module.name not in SHORT
        if is_short or (lines > MAX_LINES and module.name not in LONG):
            yield f" {lines} lines"

    expect_none(check)


def test_a_module_says_what_it_is_for() -> None:
    def check(module: Module) -> Iterator[str]:
        docstring = ast.get_docstring(module.tree)
        if not docstring or len(docstring.splitlines()[0]) <= 10:
            yield " no docstring"

    expect_none(check)


def test_a_docstring_is_a_sentence_with_a_verb() -> None:
    def check(module: Module) -> Iterator[str]:
        for node in module.find(ast.Expr):
            assert isinstance(node, ast.Expr)
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and NO_BEGINNING.match(value.value):
                yield f"{node.lineno} {value.value[:60]}"

    expect_none(check)


def test_a_function_is_called_by_a_verb_in_the_present() -> None:
    def check(module: Module) -> Iterator[str]:
        for node in module.find(ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if begins_with_participle(node.name):
                yield f"{node.lineno} {node.name}"

    expect_none(check)


def begins_with_participle(name: str) -> bool:
    word = name.lstrip("_").split("_")[0]
    return word in PARTICIPLES or (word.endswith("ed") and word not in ENDS_IN_ED)


def test_a_participle_is_recognized() -> None:
    assert [name for name in ("asked", "_found", "checked_text", "named") if not begins_with_participle(name)] == []
    assert [name for name in ("embed", "read", "set_timer", "find", "feed") if begins_with_participle(name)] == []


def test_a_handler_of_every_exception_says_why() -> None:
    """Translating an error (`raise … from error`) and the worker's loop, which logs it completely, need no reason."""

    def check(module: Module) -> Iterator[int]:
        for node in module.find(ast.ExceptHandler):
            assert isinstance(node, ast.ExceptHandler)
            is_excused = re.search(r"# noqa: BLE001 - \S+", module.get_line(node.lineno))
            if catches_everything(node) and not goes_on(module, node) and not is_excused:
                yield node.lineno

    expect_none(check)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Recognize `except:`, `except Exception` and `except BaseException`, alone or among others."""
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def goes_on(module: Module, handler: ast.ExceptHandler) -> bool:
    """Recognize a handler that raises the error, or another one with it as its cause; the runtime may log it instead."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise):
        return last.exc is None or (isinstance(last.cause, ast.Name) and last.cause.id == handler.name)
    logged = any(isinstance(node, ast.Attribute) and node.attr == "exception" for node in ast.walk(handler))
    return logged and module.name.startswith("runtime/")


def list_calls(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.find(ast.Call):
        assert isinstance(node, ast.Call)
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        yield name, node.lineno


def test_tasks_begin_in_the_runtime_and_in_commands_only() -> None:
    """Work that must happen is a row; a task that nobody awaits can be lost."""

    def check(module: Module) -> Iterator[int]:
        if not module.name.startswith(("runtime/", "cli/")):
            yield from (line for name, line in list_calls(module) if name in CREATES_TASKS)

    expect_none(check)


def test_nothing_is_printed() -> None:
    def check(module: Module) -> Iterator[int]:
        for node in module.find(ast.Call):
            assert isinstance(node, ast.Call)
            if isinstance(node.func, ast.Name) and node.func.id in {"print", "pprint"}:
                yield node.lineno

    expect_none(check)


def test_the_environment_is_read_where_settings_are() -> None:
    def check(module: Module) -> Iterator[int]:
        if module.name in READS_ENVIRONMENT or module.name.startswith("cli/"):
            return
        for node in module.find(ast.Attribute, ast.ImportFrom):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "putenv"}:
                yield node.lineno
            if isinstance(node, ast.ImportFrom) and node.module == "os" and any("env" in at.name for at in node.names):
                yield node.lineno

    expect_none(check)


def test_names_say_something() -> None:
    def check(module: Module) -> Iterator[str]:
        for node in module.find(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if NAMES_NOTHING.search(node.name):
                yield f"{node.lineno} {node.name}"

    expect_none(check)


def test_nothing_waits_for_real_time_by_blocking() -> None:
    """A blocking sleep in the event loop stops every conversation; only the start of Postgres may block, in a thread."""

    def check(module: Module) -> Iterator[int]:
        if module.name == "storage/postgres/embedded.py":
            return
        for node in module.find(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if node.attr == "sleep" and isinstance(node.value, ast.Name) and node.value.id == "time":
                yield node.lineno

    expect_none(check)


def test_the_files_that_the_fast_tests_leave_out_exist() -> None:
    assert [name for name in (*slow.FILES, *slow.FOLDERS) if not (ROOT / "tests" / name).exists()] == []


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry() -> None:
    """The package index is the installer's choice."""
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


GUIDES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/*.md", "docs/extending/*.md")
"""The pages that send a reader to files. An ADR says what was true when it was written."""
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_CODE = re.compile(r"`([^`\s]+)`")
_FILE_NAME = re.compile(r"\w[\w.-]*\.(py|js|css|html|sql|toml|lock|md)")
_PLACEHOLDER = re.compile(r"[A-Z]{4,}(?![\w.]*\.md)|<\w+>")
NAMES_IN_EXAMPLES = {"docs/notes.md": {"README.md", "guide/README.md"}}
"""Names of files that a reader may have, and the project has not."""


def test_every_path_in_the_guides_exists() -> None:
    """A page may leave out the beginning of a path that the text before it says."""
    files = [path.relative_to(ROOT) for path in tracked_files()]
    known = {path for file in files for path in (file, *file.parents)}
    tails = {"/".join(path.parts[start:]) for path in known for start in range(len(path.parts))}
    tops = {path.parts[0] for path in known if path.parts} | {path.name for path in SOURCE.iterdir() if path.is_dir()}
    missing: list[str] = []
    for guide in sorted(path for pattern in GUIDES for path in ROOT.glob(pattern)):
        name, text = guide.relative_to(ROOT).as_posix(), guide.read_text()
        others = tails | NAMES_IN_EXAMPLES.get(name, set())
        missing += [f"{name}: {path}" for path in list_paths(text, tops) if path not in others]
        links = [link for link in _LINK.findall(text) if "://" not in link]
        missing += [f"{name}: {link}" for link in links if not (guide.parent / link).exists()]
    assert not missing, "\n".join(missing)


def list_paths(text: str, tops: set[str]) -> Iterator[str]:
    """Yield the paths of a page: file names, folders, and what begins with a folder; of a placeholder, the folder it is in."""
    prose = "".join(part for number, part in enumerate(text.split("```")) if number % 2 == 0)
    for code in _CODE.findall(prose):
        path = code.partition("::")[0]
        if placeholder := _PLACEHOLDER.search(path):
            path = path[: placeholder.start()].rpartition("/")[0]
        parts = path.split("/")
        if parts[0] in tops or _FILE_NAME.fullmatch(parts[-1]) or re.fullmatch(r"\w+/", path):
            yield path.removesuffix("/")


def test_a_path_is_recognized() -> None:
    text = "See `turns/ask.py`, `page/NAME.js`, `bot.py`, `auth/`, `a.b`, `/api/notes`, `channels/<name>/`.\n```\n`x.py`\n```\n"
    assert list(list_paths(text, {"turns", "page", "channels"})) == [
        "turns/ask.py",
        "page",
        "bot.py",
        "auth",
        "channels",
    ]


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
