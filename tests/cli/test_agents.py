"""Test `rapport agents`, agents in `rapport chat` and in `rapport doctor`, with the real commands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from rapport.agents.agent_file import read_agent_file
from rapport.agents.profiles import COMPANION_DOCUMENT
from tests.support.commands import COMMAND, Home, Run, Terminal

pytestmark = pytest.mark.e2e

CHEF = """\
id: chef
name: Chef
description: Cooks.
persona: |
  You are a chef.

  You answer with recipes.
greeting: Hungry?
autonomy:
  enabled: true
  prompts:
    check_in: Ask how the meal was.
"""


def write(home: Home, text: str = CHEF, name: str = "chef.yaml") -> str:
    (home.path / name).write_text(text)
    return name


def refused(rapport: Run, *arguments: str) -> str:
    """Run a command that must be refused with exit code 2 and one line; return its sentence."""
    ran = rapport("agents", *arguments)
    assert (ran.code, ran.out) == (2, ""), ran
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    return ran.err.removeprefix("rapport: ").strip()


def test_an_agent_is_made_changed_copied_restored_and_deleted(rapport: Run) -> None:
    named = rapport("agents", "create", "--id", "ja", "--name", "日本語", "--persona", "You teach Japanese.")
    assert named.out == "Created ja: `rapport chat --agent ja` talks with it.\n"
    assert rapport("agents", "delete", "ja", "--yes").code == 0
    made = rapport("agents", "create", "--name", "Sea Chef", "--persona", "You are a chef.", "--handle", "cook")
    assert (made.code, made.out) == (0, "Created sea-chef: `rapport chat --agent sea-chef` talks with it.\n")
    shown = rapport("agents", "show", "sea-chef").out
    assert re.match(r"# sea-chef: version 1, your own, changed 20\d\d", shown)
    assert "persona: You are a chef.\nhandles:\n  - cook\n" in shown
    changed = rapport(
        "agents", "edit", "sea-chef", "--set", "autonomy.enabled=true", "--set", "autonomy.max_consecutive=2"
    )
    assert changed.out == "sea-chef is version 2 now.\n"
    assert "autonomy:\n  enabled: true\n  max_consecutive: 2\n" in rapport("agents", "show", "sea-chef").out
    versions = rapport("agents", "versions", "sea-chef").out.splitlines()
    assert re.fullmatch(r"2  20\d\d-\d\d-\d\d \d\d:\d\d  local  autonomy", versions[0])
    assert versions[1].endswith("  local  made")
    assert rapport("agents", "restore", "sea-chef", "1").out == "sea-chef is version 3 now.\n"
    assert "autonomy" not in rapport("agents", "export", "sea-chef").out
    assert rapport("agents", "copy", "sea-chef", "baker", "--name", "Baker").out == "Created baker.\n"
    listed = rapport("agents", "list").out
    assert [line for line in listed.splitlines() if not line.startswith(" ")] == [
        *("companion", "librarian", "sea-chef", "baker")
    ]
    assert "Baker, version 1, your own" in listed
    assert refused(rapport, "delete", "baker") == "`rapport agents delete baker --yes` deletes it without asking."
    assert rapport("agents", "delete", "baker", "--yes").out == "Deleted baker.\n"
    assert refused(rapport, "show", "baker") == "There is no agent 'baker'."


def test_a_file_makes_an_agent_and_a_new_version_of_it(home: Home, rapport: Run) -> None:
    assert rapport("agents", "import", write(home), "--dry-run").out == "chef would be created.\n"
    assert refused(rapport, "show", "chef") == "There is no agent 'chef'."
    assert rapport("agents", "import", write(home)).out == "Created chef.\n"
    exported = rapport("agents", "export", "chef", "-o", "out.yaml")
    assert (exported.code, exported.out) == (0, "")
    text = (home.path / "out.yaml").read_text()
    assert read_agent_file(text) == read_agent_file(CHEF)
    assert text.split("\n", 1)[1] == CHEF
    assert rapport("agents", "import", "out.yaml").out == "chef is the same already.\n"
    newer = write(
        home, CHEF.replace("enabled: true", "enabled: true\n  expiry_seconds: 60").replace("Cooks", "Bakes"), "n.yaml"
    )
    dry = rapport("agents", "import", newer, "--dry-run").out
    assert dry == ("chef would be changed:\nautonomy.expiry_seconds: 3600.0 → 60.0\ndescription: 'Cooks.' → 'Bakes.'\n")
    assert rapport("agents", "show", "chef").out.startswith("# chef: version 1")
    assert rapport("agents", "import", newer).out == "chef is version 2 now.\n"
    assert rapport("agents", "edit", "chef", write(home)).out == "chef is version 3 now.\n"
    other = rapport("agents", "create", write(home, CHEF.replace("id: chef", "id: cook"), "cook.yaml"), "--user", "ana")
    assert other.out.startswith("Created cook:")
    assert "cook" not in rapport("agents", "list").out


def test_the_shipped_agents_are_edited_and_reset_by_an_operator_only(rapport: Run) -> None:
    assert (
        rapport("agents", "edit", "companion", "--set", "persona=You are a parrot.").out
        == "companion is version 2 now.\n"
    )
    sentence = "The agent 'companion' is for everyone: only an operator may change it."
    for command in (["edit", "companion", "--set", "memory=false"], ["reset", "companion"], ["versions", "companion"]):
        assert refused(rapport, *command, "--user", "ana") == sentence
    assert "only an operator may read its instructions" in refused(rapport, "export", "companion", "--user", "ana")
    assert "parrot" not in rapport("agents", "show", "companion", "--user", "ana").out
    assert rapport("agents", "reset", "companion").out == "companion is version 3 now.\n"
    expected = COMPANION_DOCUMENT.model_copy(update={"for_everyone": True})
    assert read_agent_file(rapport("agents", "export", "companion").out) == expected
    assert "ships with Rapport" in refused(rapport, "delete", "companion", "--yes")
    assert "only an operator makes agents" in refused(
        rapport, "create", "--name", "a", "--persona", "b", "--everyone", "--user", "ana"
    )


def test_a_user_with_an_operators_key_is_an_operator(rapport: Run) -> None:
    everyone = ("--name", "Secret", "--persona", "You know things.", "--everyone")
    assert rapport("agents", "create", *everyone).code == 0
    assert "only an operator may read" in refused(rapport, "export", "secret", "--user", "olga")
    assert rapport("keys", "create", "laptop", "--user", "olga", "--role", "operator").code == 0
    assert rapport("keys", "create", "phone", "--user", "ana").code == 0
    assert "You know things." in rapport("agents", "export", "secret", "--user", "olga").out
    assert "only an operator may read" in refused(rapport, "export", "secret", "--user", "ana")
    made = rapport("agents", "create", "--name", "Mine", "--persona", "x", "--user", "ana").out
    assert made == "Created mine: `rapport chat --agent mine --user ana` talks with it.\n"
    assert rapport("chat", "--agent", "mine", "--user", "ana").out.startswith("Mine")
    assert "There is no agent 'mine'" in rapport("chat", "--agent", "mine").err


def test_every_mistake_is_one_sentence_and_stores_nothing(home: Home, rapport: Run) -> None:
    files = {
        "anchor.yaml": ("name: &a x\npersona: *a\n", "Line 1: aliases and anchors (& and *) are not allowed."),
        "unknown.yaml": (CHEF + "colour: red\n", "There is no field `colour`."),
        "handle.yaml": (CHEF + "handles: [librarian]\n", "`handles`: @librarian belongs to the agent 'librarian'."),
    }
    for name, (text, sentence) in files.items():
        assert sentence in refused(rapport, "create", write(home, text, name)), name
    assert refused(rapport, "import", "missing.yaml") == "missing.yaml can't be read: No such file or directory."
    assert refused(rapport, "create") == "Give either a file, or --name and --persona."
    assert refused(rapport, "create", "--name", "x").startswith("`persona` must not be empty")
    assert refused(rapport, "create", write(home), "--name", "x") == "Give either a file, or --name and --persona."
    assert (
        refused(rapport, "create", "--name", "Companion", "--persona", "x")
        == "`id`: there is an agent 'companion' already."
    )
    assert refused(rapport, "edit", "companion", "--set", "colour=red") == "There is no field `colour`."
    assert refused(rapport, "edit", "companion", "--set", "name=123") == (
        "`name` must be a text. A text that looks like a number or like true needs quotes of its own: --set 'name=\"123\"'."
    )
    assert refused(rapport, "edit", "companion", "--set", "memory") == (
        "'memory' is not a change: write field=value, such as `autonomy.enabled=true`."
    )
    assert refused(rapport, "edit", "companion").startswith(
        "There is no terminal: `rapport agents edit companion FILE.yaml`"
    )
    assert refused(rapport, "restore", "companion", "7") == "The agent 'companion' has no version 7."
    assert refused(rapport, "restore", "companion", "9" * 20) == f"The agent 'companion' has no version {'9' * 20}."
    assert "can't be written" in refused(rapport, "export", "companion", "-o", "no/where.yaml")
    listed = rapport("agents", "list").out
    assert [line for line in listed.splitlines() if not line.startswith(" ")] == ["companion", "librarian"]
    assert rapport("agents", "versions", "companion").out.count("\n") == 1


@pytest.mark.slow
def test_an_agent_is_edited_in_the_persons_editor_and_greets_in_the_chat(
    home: Home, rapport: Run, database_url: str
) -> None:
    assert rapport("agents", "import", write(home)).code == 0
    editor = home.path / "editor.py"
    editor.write_text(
        "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\n"
        "path.write_text(path.read_text().replace('Hungry?', 'Thirsty?'))\n"
    )
    setting = f"DATABASE_URL={shlex.quote(database_url)} EDITOR={shlex.quote(f'{sys.executable} {editor}')}"
    terminal = Terminal(home, "sh")
    try:
        terminal.types(f"{setting} {COMMAND} agents edit chef", "Enter")
        terminal.shows(r"chef is version 2 now\.")
        editor.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text('colour: red')\n")
        terminal.types("clear", "Enter")
        terminal.types(f"{setting} {COMMAND} agents edit chef", "Enter")
        screen = terminal.shows(r"Your text is kept in.*?\.yaml\.")
        kept = Path(re.sub(r"\s", "", screen[screen.index("kept in") + 7 :].split(".yaml")[0]) + ".yaml")
        assert kept.read_text() == "colour: red"
        kept.unlink()
        terminal.types("clear", "Enter")
        terminal.types(f"DATABASE_URL={shlex.quote(database_url)} {COMMAND} chat --agent chef", "Enter")
        terminal.shows(r"Chef · builtin · /help.*Thirsty\?.*you")
    finally:
        terminal.close()


def test_an_unknown_agent_of_the_chat_is_refused_with_all_ids(home: Home, rapport: Run) -> None:
    assert rapport("agents", "import", write(home)).code == 0
    ran = rapport("chat", "--agent", "nobody")
    assert (ran.code, ran.err) == (1, "rapport: There is no agent 'nobody'; there are companion, librarian, chef.\n")


def test_the_doctor_names_agents_whose_model_can_not_be_made(rapport: Run) -> None:
    for name, model in (("One", "openai:x"), ("Two", "builtin")):
        made = rapport("agents", "create", "--name", name, "--persona", "x", "--model", model)
        assert made.code == 0, made
    rapport("agents", "edit", "two", "--set", "fallback_model=anthropic:y")
    ran = rapport("doctor")
    assert ran.code == 1
    assert "Agents: 4, 2 of them with a model of their own: `rapport agents list`" in ran.out
    assert (
        "✗ Agent one of local: The agent's model 'openai:x' can't be used: set OPENAI_API_KEY, or OPENAI_BASE_URL"
        in ran.out
    )
    assert "✗ Agent two of local: The agent's model 'anthropic:y' can't be used: set ANTHROPIC_API_KEY." in ran.out
    assert "Agent companion" not in ran.out
