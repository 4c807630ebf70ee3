"""Test the real commands without the optional packages: they start, and an error names what to install."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from rapport.domain import extras
from rapport.domain.extras import Extra
from tests.support.commands import COMMAND, Home

pytestmark = pytest.mark.e2e

EXTRAS = [extra for extra in vars(extras).values() if isinstance(extra, Extra)]
MODULES = ",".join([*(extra.module for extra in EXTRAS), "anthropic", "ollama"])

HIDE = """
import importlib.machinery, os
hidden = set(os.environ["HIDDEN_MODULES"].split(","))
find_spec = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.partition(".")[0] in hidden else find_spec(name, path, target)
)
"""
"""A `sitecustomize` that hides these modules from Python, as if they were not installed."""

IMPORT_ALL = """
import importlib, pkgutil, rapport
for module in pkgutil.walk_packages(rapport.__path__, "rapport."):
    needs_extra = module.name.startswith(
        ("rapport.channels.telegram", "rapport.agents.mcp.wire", "rapport.channels.http.mcp")
    )
    if not needs_extra and module.name not in {"rapport.__main__", "rapport.cli.telegram_doctor"}:
        importlib.import_module(module.name)
"""


@pytest.fixture
def hiding(tmp_path: Path, database_url: str) -> dict[str, str]:
    """Return the environment of a command that finds no optional package."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HIDE)
    return {"PYTHONPATH": str(folder), "HIDDEN_MODULES": MODULES, "DATABASE_URL": database_url}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def install(extra: Extra) -> str:
    return f", but {extra.package} is not installed. Run: pip install 'rapport[{extra.name}]'"


def test_every_module_outside_telegram_imports_without_extras(home: Home, hiding: dict[str, str]) -> None:
    environment = home.environment(**hiding)
    subprocess.run([sys.executable, "-c", IMPORT_ALL], env=environment, check=True, timeout=60)
    # The modules are really hidden: what needs them can't be imported.
    needing = subprocess.run(
        [sys.executable, "-c", "import rapport.channels.telegram.api"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert b"No module named 'telegram'" in needing.stderr


def test_doctor_works_without_extras_and_names_what_wordllama_would_add(home: Home, hiding: dict[str, str]) -> None:
    ran = home.run("doctor", **hiding)
    assert ran.code == 0, ran
    [caution] = [line for line in ran.out.splitlines() if line.startswith("!")]
    assert "Group context: chosen without word vectors" in caution
    assert "pip install 'rapport[wordllama]'" in caution


def test_chat_works_without_extras(home: Home, hiding: dict[str, str]) -> None:
    ran = home.run("chat", stdin="my name is Ana\nwhat is my name?\n", **hiding)
    assert ran.code == 0, ran
    assert ran.err == ""
    assert "Ana" in ran.out


@pytest.fixture
def server(home: Home, hiding: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [COMMAND, "serve"], env=home.environment(PORT="0", **hiding), cwd=home.path, stdout=subprocess.PIPE, text=True
    )
    yield running
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)


def test_serve_starts_without_extras(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    listening = next(line for line in server.stdout if "Rapport is listening" in line)
    address = listening.partition("open ")[2].split()[0]
    refused = httpx.post(f"{address}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (refused.status_code, refused.json()["detail"]) == (501, f"This address speaks MCP{install(extras.MCP)}")


@pytest.mark.parametrize(
    ("command", "environment", "says"),
    [
        (
            ["chat"],
            {"RAPPORT_MODEL": "anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY": "k"},
            f"RAPPORT_MODEL names an Anthropic model{install(extras.ANTHROPIC)}",
        ),
        (
            ["reindex"],
            {"RAPPORT_EMBEDDINGS": "ollama:nomic-embed-text"},
            f"RAPPORT_EMBEDDINGS names an Ollama model{install(extras.OLLAMA)}",
        ),
        (
            ["serve"],
            {"RAPPORT_RATE_LIMIT": "true", "REDIS_URL": "redis://127.0.0.1:1/0", "PORT": "0"},
            f"REDIS_URL is set{install(extras.REDIS)}",
        ),
        (
            ["serve"],
            {"TELEGRAM_BOT_TOKEN": "123:abc", "PORT": "0"},
            f"TELEGRAM_BOT_TOKEN is set{install(extras.TELEGRAM)}",
        ),
        (["mcp"], {}, f"`rapport mcp` speaks MCP{install(extras.MCP)}"),
    ],
    ids=["anthropic", "ollama-embeddings", "redis", "telegram", "mcp"],
)
def test_a_missing_extra_is_one_sentence_that_says_what_to_install(
    home: Home, hiding: dict[str, str], command: list[str], environment: dict[str, str], says: str
) -> None:
    assert home.fails(*command, **hiding, **environment) == f"rapport: {says}\n"


def test_doctor_names_the_missing_extra_of_each_part(home: Home, hiding: dict[str, str]) -> None:
    ran = home.run(
        "doctor", **hiding, RAPPORT_MODEL="ollama:qwen3", RAPPORT_EMBEDDINGS="wordllama", TELEGRAM_BOT_TOKEN="123:abc"
    )
    assert ran.code == 1
    lines = {line[2:].partition(":")[0]: line for line in ran.out.splitlines()}
    for part, extra in (("Model", extras.OLLAMA), ("Embedder", extras.WORDLLAMA), ("Telegram", extras.TELEGRAM)):
        assert lines[part].startswith("✗")
        assert lines[part].endswith(install(extra))
    assert lines["Database"].startswith("✓")


def test_an_mcp_server_without_its_extra_says_what_to_install(
    home: Home, hiding: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {"files": {"command": "node"}}}')
    missing = f"MCP servers are configured{install(extras.MCP)}"
    assert home.fails("serve", PORT="0", RAPPORT_MCP_CONFIG=str(config), **hiding) == f"rapport: {missing}\n"
    listed = home.run("tools", "list", RAPPORT_MCP_CONFIG=str(config), **hiding)
    assert (listed.code, listed.err) == (1, f"rapport: {missing}\n")
    doctor = home.run("doctor", RAPPORT_MCP_CONFIG=str(config), **hiding)
    assert f"✗ MCP servers: {missing}\n" in doctor.out


def test_calibrate_measures_without_matplotlib_and_says_why_it_draws_nothing(
    home: Home, hiding: dict[str, str], tmp_path: Path
) -> None:
    notes = [tmp_path / f"{crop}.md" for crop in ("beans", "carrots", "garlic", "kale", "leeks", "radishes")]
    for note in notes:
        note.write_text(f"# {note.stem}\n\nWe sow {note.stem} in the bed behind the shed and water it on Mondays.")
    assert home.run("notes", "add", *map(str, notes), **hiding).code == 0
    drawn = tmp_path / "curve.png"
    ran = home.run("calibrate", "--dry-run", "--png", str(drawn), **hiding)
    assert ran.code == 0, ran
    assert f"`rapport calibrate` can draw this as a curve{install(extras.PLOT)}" in ran.out
    assert "precision" in ran.out
    assert not drawn.exists()
