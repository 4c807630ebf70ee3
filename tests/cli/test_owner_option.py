"""Test that commands refuse a user that no key can have, before they open anything."""

from __future__ import annotations

from typer.testing import CliRunner

from rapport.cli.main import app
from tests.cli.test_isolation import CALLS

SHOWS_EVERYBODY = {"usage"}
"""Here `*` stands for all users."""


def test_no_command_takes_a_user_that_no_key_can_have() -> None:
    for command in CALLS.keys() - SHOWS_EVERYBODY:
        for user, sentence in (("*", "can't be called"), (" ", "is empty"), ("a\nb", "control character")):
            arguments = [*command.split(), *CALLS[command].arguments, "--user", user]
            result = CliRunner(env={"TERM": "dumb", "COLUMNS": "500"}).invoke(app, arguments)
            assert result.exit_code == 2, (command, result.output)
            assert sentence in result.output + result.stderr, command
