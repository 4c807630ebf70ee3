"""Test which names a user can have, and the role of a key whose creator names none."""

from __future__ import annotations

import pytest

from rapport.domain.caller import LOCAL_CALLER, Caller, check_owner_id, choose_default_role
from rapport.domain.errors import InvalidInput


def test_a_name_that_can_be_shown_is_a_users_name() -> None:
    for name in ("ana", "telegram:-100123", "ana@example.org", "Zoë Müller", "علی‌رضا", "李", "**", "a" * 200):
        assert check_owner_id(name) == name


def test_names_that_are_empty_too_long_or_hold_control_characters_are_refused() -> None:
    for name in (
        "*",
        "",
        " ",
        "\u200b",
        "a" * 201,
        "a\nb",
        "a\x00",
        "a\x7f",
        "a\x1b[0m",
        "a\x85b",
        "a\u2028b",
        "a\u202eb",
        "a\udcff",
    ):
        with pytest.raises(InvalidInput):
            check_owner_id(name)


def test_only_the_local_user_is_an_operator_by_default() -> None:
    assert [choose_default_role(name) for name in ("local", "Local", "ana")] == ["operator", "user", "user"]
    assert LOCAL_CALLER.is_operator
    assert not Caller("local", "user").is_operator
    assert Caller("ana", "operator").is_operator
