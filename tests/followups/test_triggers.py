"""The message that starts a follow-up: a plain prompt, with what it is in its metadata alone (AUTO-3, AUTO-5)."""

from __future__ import annotations

from structlog.testing import capture_logs

from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES, TriggerType
from rapport.domain.synthetic import is_synthetic
from rapport.followups.triggers import make_synthetic_message, parse_trigger_type
from tests.support.cases import every_case


@every_case("trigger_type", TRIGGER_TYPES)
def test_content_is_the_prompt_and_metadata_says_the_rest(trigger_type: TriggerType) -> None:
    message = make_synthetic_message(trigger_type, prompt=PROMPTS[trigger_type], reason=None, id="01J")
    assert message.content == PROMPTS[trigger_type]
    assert message.id == "01J"
    assert message.additional_kwargs == {"synthetic": True, "trigger_type": trigger_type, "lc_source": "autonomy"}
    assert is_synthetic(message)


def test_a_reason_is_metadata_and_never_prompt_text() -> None:
    message = make_synthetic_message("check_in", prompt="Say hello.", reason="You said you would call.", id="01J")
    assert message.content == "Say hello."
    assert message.additional_kwargs["trigger_reason"] == "You said you would call."
    assert set(message.additional_kwargs) == {"synthetic", "trigger_type", "lc_source", "trigger_reason"}


def test_the_log_tells_of_it_without_its_words() -> None:
    with capture_logs() as logs:
        make_synthetic_message("check_in", prompt="A secret prompt.", reason="A secret reason.", id="01J")
    (entry,) = logs
    assert entry["event"] == "autonomy.synthetic_created"
    assert entry["log_level"] == "debug"
    assert (entry["trigger_type"], entry["has_reason"], entry["messageId"]) == ("check_in", True, "01J")
    assert "secret" not in str(entry)


@every_case("trigger_type", TRIGGER_TYPES)
def test_a_known_type_is_taken_quietly(trigger_type: TriggerType) -> None:
    with capture_logs() as logs:
        assert parse_trigger_type(trigger_type) == trigger_type
    assert not logs


@every_case("name", ["", "poke", "CHECK_IN", "check_in ", "x" * 1_000])
def test_an_unknown_type_is_a_check_in_with_one_warning(name: str) -> None:
    with capture_logs() as logs:
        assert parse_trigger_type(name) == "check_in"
    (entry,) = logs
    assert entry["event"] == "autonomy.unknown_trigger"
    assert entry["log_level"] == "warning"
    assert entry["trigger_type"] == name[:40]
