"""Test `rapport usage` and its budgets with the real command."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.commands import Run


@pytest.mark.e2e
def test_usage_is_shown_and_a_budget_set_and_removed(rapport: Run, database_url: str) -> None:
    assert "No model was called in " in rapport("usage").out
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO model_usage (owner_id, day, agent_id, conversation_id, slot, purpose, model, calls, tokens_in,"
            " tokens_out, estimated_calls) SELECT owner, (clock_timestamp() AT TIME ZONE 'UTC')::date, 'companion', '', 0,"
            " 'answer', 'openai:gpt', 3, 1234567, 89, estimated FROM (VALUES ('local', 1), ('ana', 0)) AS t (owner, estimated)"
        )
    shown = rapport("usage")
    assert (shown.code, shown.err) == (0, "")
    assert "≈ 1,234,567" in shown.out
    assert "estimated" in shown.out
    of_all = rapport("usage", "--user", "*", "--by", "owner,model")
    assert "2,469,134" in of_all.out
    assert "openai:gpt" in of_all.out
    of_ana = rapport("usage", "--user", "ana")
    assert "≈" not in of_ana.out
    assert "1,234,567" in of_ana.out
    assert "No model was called in March 2024." in rapport("usage", "--month", "2024-03").out

    assert rapport("usage", "budget", "--user", "ana").out == "The user 'ana' has no budget.\n"
    made = rapport("usage", "budget", "--user", "ana", "1500000")
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith("Budget of the user 'ana': 1,234,656 of 1,500,000 tokens used (82%), until ")
    assert "(82%)" in rapport("usage", "--user", "ana").out
    assert "Budgets: Budget of the user 'ana': 1,234,656 of 1,500,000 tokens used" in rapport("doctor").out
    spent = rapport("usage", "budget", "--user", "ana", "10").out
    assert "It is used up; no model is called until " in spent
    assert rapport("usage", "budget", "--user", "ana", "--remove").out == "The user 'ana' has no budget.\n"
    assert rapport("usage", "budget", "--user", "anna", "10").out.endswith(
        "\nNo key and no data belongs to a user 'anna' yet.\n"
    )
    assert rapport("usage", "budget", "--user", "ana", "9" * 20).code == 2


@pytest.mark.e2e
def test_what_makes_no_sense_is_one_line(rapport: Run) -> None:
    for arguments in (
        ("--month", "March"),
        ("--month", "2026-13"),
        ("--by", "colour"),
        ("budget", "5", "--remove"),
        ("budget", "--", "-5"),
    ):
        ended = rapport("usage", *arguments)
        assert ended.code != 0
        assert ended.err
