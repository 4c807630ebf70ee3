"""Test what is concluded from what a model has been seen to do (ADR 63)."""

from __future__ import annotations

from rapport.agents.model_record import PLAIN_TRIGGERS_BEFORE_RETRY, ModelRecord


def test_nothing_is_known_of_a_new_model() -> None:
    record = ModelRecord()
    assert record.may_have_tools
    assert not record.has_called_tools
    assert not record.needs_plain_trigger
    assert record.takes_pictures
    assert not record.has_news()


def test_tools_are_withheld_while_more_calls_were_written_as_text() -> None:
    record = ModelRecord()
    offered: list[bool] = []
    for name in ("text_calls", "tool_calls", "text_calls"):
        setattr(record, name, getattr(record, name) + 1)
        offered.append(record.may_have_tools)
    assert offered == [False, True, False]
    assert record.has_called_tools


def test_the_trigger_is_plain_if_more_than_every_fourth_was_answered() -> None:
    record = ModelRecord()
    plain: list[bool] = []
    for was_answered in (True, False, False, False, True):
        record.count_trigger(was_answered=was_answered)
        plain.append(record.needs_plain_trigger)
    assert plain == [True, True, True, False, True]
    assert (record.answered_triggers, record.follow_ups) == (2, 3)


def test_the_usual_trigger_is_tried_again_after_some_plain_ones() -> None:
    record = ModelRecord(answered_triggers=5, follow_ups=2)
    plain: list[bool] = []
    for _ in range(PLAIN_TRIGGERS_BEFORE_RETRY):
        plain.append(record.needs_plain_trigger)
        record.count_plain_trigger()
    assert plain == [True] * PLAIN_TRIGGERS_BEFORE_RETRY
    assert not record.needs_plain_trigger
    assert record.has_news()
    record.count_trigger(was_answered=True)
    assert record.needs_plain_trigger


def test_a_model_that_writes_calls_as_text_gets_the_plain_trigger() -> None:
    assert ModelRecord(text_calls=1).needs_plain_trigger
    assert not ModelRecord(tool_calls=1, text_calls=1).needs_plain_trigger


def test_one_refused_picture_is_enough() -> None:
    assert not ModelRecord(refused_pictures=1).takes_pictures


def test_it_has_news_once_after_a_conclusion_has_changed() -> None:
    record = ModelRecord()
    record.tool_calls += 1
    assert (record.has_news(), record.has_news()) == (True, False)
    record.tool_calls += 1
    assert not record.has_news()
    record.count_trigger(was_answered=True)
    assert (record.has_news(), record.has_news()) == (True, False)


def test_facts_are_read_as_they_were_written_and_unknown_ones_left_out() -> None:
    record = ModelRecord(tool_calls=3, text_calls=1, follow_ups=2, answered_triggers=4, refused_pictures=1)
    again = ModelRecord.read({**record.facts, "sings": 7})
    assert again == record
    assert not again.has_news()
    assert ModelRecord.read({}) == ModelRecord()
    assert ModelRecord.read({"tool_calls": 2}).facts == {**ModelRecord().facts, "tool_calls": 2}
