"""Check docs/promises.md: every promise is listed, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "promises.md"

REQUIREMENTS = {"CONV": 9, "CTX": 10, "RAG": 8, "SUM": 4, "AUTO": 13, "MEM": 5, "RES": 5}
"""Number of requirements in each part of the contract."""
PLANNED = {"AGT": 5, "TOOL": 3, "REM": 3, "TRUST": 3}
"""Those that may be listed as not built yet."""
OTHERS = """
CHAN-REST CHAN-STREAM CHAN-OPENAI CHAN-TOOLS CHAN-TELEGRAM CHAN-PAGE CHAN-TERMINAL OBS-LOGS OBS-METRICS OBS-HEALTH SEC-KEYS SEC-ROLES
SEC-ISOLATION SEC-PAGE SEC-UPLOADS SEC-CLIENTS SEC-TEXT DATA-ERASE DATA-OWN-WORDS DATA-SHARING DATA-EXPORT DATA-SCHEMA RUN-STOP RUN-POSTGRES RUN-NO-KEY RUN-COST
AGT-PAGE AGT-VERSIONS AGT-TRY TOOL-OBEDIENT SEC-LINKS TOOL-MCP TOOL-CLI TOOL-TELEGRAM TOOL-APPROVAL TOOL-ALLOWED
"""


@cache
def read_page() -> tuple[dict[str, list[str]], str]:
    """Return the tests of each promise, and the part of the page about what is not built."""
    listed, _, planned = PAGE.read_text().partition("## Not built yet")
    promises: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if begins := re.match(r"- \*\*([A-Z0-9-]+)\*\* \S", line):
            assert begins[1] not in promises, f"{begins[1]} is listed twice"
            promises[begins[1]] = []
        elif names := re.match(r"  - `([^`]+)`$", line):
            promises[next(reversed(promises))].append(names[1])
    return promises, planned


def count_up(parts: dict[str, int]) -> set[str]:
    return {f"{part}-{number}" for part, count in parts.items() for number in range(1, count + 1)}


@cache
def list_tests(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_promise_is_listed() -> None:
    promises, planned = read_page()
    known = count_up(REQUIREMENTS) | set(OTHERS.split())
    assert known - promises.keys() == set()
    assert promises.keys() - known - count_up(PLANNED) == set()
    assert {
        name for name in count_up(PLANNED) if name not in promises and not re.search(rf"\b{name}\b", planned)
    } == set()


def test_every_promise_is_held_by_tests_that_exist() -> None:
    promises, _ = read_page()
    assert [name for name, tests in promises.items() if not tests] == []
    missing: list[str] = []
    for name, tests in promises.items():
        for test in tests:
            path, _, function = test.partition("::")
            if not (ROOT / path).is_file() or function not in list_tests(ROOT / path):
                missing.append(f"{name}: {test}")
    assert not missing, "\n".join(missing)
