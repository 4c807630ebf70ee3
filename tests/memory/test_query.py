"""Find what memories are looked up by: a person's words, never the system's, and the log says which (MEM-2, AUTO-13)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from structlog.testing import capture_logs

from rapport.domain.conversation import Content, Message, Role
from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES, TriggerType
from rapport.memory.query import NOTHING, Query, asks_for_everything, derive_query
from tests.support.cases import every_case

DETECTED = "Synthetic message detected in memory retrieval"
FELL_BACK = "Memory query used fallback strategy due to synthetic trigger"
EMPTY = "Autonomous message triggered on empty thread - misconfiguration"
PICTURE: Content = [{"type": "image", "url": "https://example.org/a.png"}]


def said(content: Content, role: Role = "user", **metadata: Any) -> Message:
    return Message("m", "c", role, content, datetime.now(UTC), metadata=metadata)


def trigger(trigger_type: TriggerType = "check_in") -> HumanMessage:
    return HumanMessage(PROMPTS[trigger_type], additional_kwargs={"synthetic": True, "trigger_type": trigger_type})


def triggered(trigger_type: TriggerType = "check_in") -> Message:
    """Return a stored row of an earlier follow-up."""
    return said(PROMPTS[trigger_type], synthetic=True, trigger_type=trigger_type)


def levels(logs: list[Any]) -> list[tuple[str, str]]:
    return [(line["log_level"], line["event"]) for line in logs]


def test_a_message_is_looked_up_by_its_own_words_and_nothing_is_logged() -> None:
    with capture_logs() as logs:
        found = derive_query(HumanMessage(" what about pizza? "), [said("earlier")], said("summary", "system-summary"))
    assert found == Query("what about pizza?", "message")
    assert logs == []


def test_a_message_of_several_blocks_is_looked_up_by_its_text() -> None:
    current = HumanMessage(
        [
            {"type": "text", "text": "is this"},
            {"type": "image", "url": "a.png"},
            {"type": "text", "text": "mould?"},
            "!",
        ]
    )
    assert derive_query(current, [], None) == Query("is this\nmould?\n!", "message")


@every_case("wordless", ["", "   ", "👍", "?!", "…"])
def test_without_words_the_last_words_count(wordless: str) -> None:
    history = [said("my tomatoes look odd"), said("Show me.", "assistant")]
    with capture_logs() as logs:
        assert derive_query(HumanMessage(wordless), history, None) == Query("my tomatoes look odd", "last_user_message")
    assert logs == []


def test_a_picture_without_words_is_looked_up_by_the_last_words() -> None:
    current = HumanMessage([{"type": "image", "url": "a.png"}])
    assert derive_query(current, [said("my tomatoes"), said(PICTURE)], None).text == "my tomatoes"
    assert derive_query(current, [], None) == NOTHING


@every_case("trigger_type", TRIGGER_TYPES)
def test_a_follow_up_is_looked_up_by_what_the_person_said_last(trigger_type: TriggerType) -> None:
    history = [
        said("I like hiking"),
        said("Nice.", "assistant"),
        said("where shall we go on holiday?"),
        said("How about Norway?", "assistant"),
        triggered("question_unanswered"),
        said("Have you thought about it?", "assistant", autonomous=True),
        triggered(),
        said("They talked about Norway.", "system-summary"),
    ]
    with capture_logs() as logs:
        found = derive_query(trigger(trigger_type), history, said("Summary.", "system-summary"))
    assert found == Query("where shall we go on holiday?", "last_user_message")
    assert logs == [
        {"event": DETECTED, "trigger_type": trigger_type, "log_level": "debug"},
        {"event": FELL_BACK, "source": "last_user_message", "trigger_type": trigger_type, "log_level": "info"},
    ]


def test_without_anybodys_words_a_follow_up_is_looked_up_by_the_summary() -> None:
    history = [said(PICTURE), triggered(), said("Hello?", "assistant")]
    with capture_logs() as logs:
        found = derive_query(trigger(), history, said("They plan a trip to Norway.", "system-summary"))
    assert found == Query("They plan a trip to Norway.", "summary")
    assert [line["source"] for line in logs if line["event"] == FELL_BACK] == ["summary"]


@every_case(
    "history", [[], [triggered()], [said("Hello, I'm here.", "assistant")], [triggered(), said("Hm?", "assistant")]]
)
def test_a_follow_up_on_an_empty_thread_is_one_error_and_looks_nothing_up(history: list[Message]) -> None:
    with capture_logs() as logs:
        assert derive_query(trigger(), history, None) == NOTHING
    assert levels(logs) == [("debug", DETECTED), ("error", EMPTY)]


def test_a_thread_of_pictures_alone_is_not_an_empty_one() -> None:
    with capture_logs() as logs:
        assert derive_query(trigger(), [said(PICTURE)], None) == NOTHING
    assert levels(logs) == [("debug", DETECTED)]


@every_case("tag", ["true", 1, "True", None, [True]])
def test_only_the_real_tag_makes_a_message_synthetic(tag: object) -> None:
    current = HumanMessage("Continue our conversation naturally.", additional_kwargs={"synthetic": tag})
    assert derive_query(current, [said("pizza")], None) == Query("Continue our conversation naturally.", "message")
    assert derive_query(trigger(), [said("pizza", synthetic=tag)], None).text == "pizza"


def test_a_synthetic_summary_is_not_looked_up_either() -> None:
    assert derive_query(trigger(), [], said("machinery", "system-summary", synthetic=True)) == NOTHING


ROWS = st.builds(
    said,
    st.sampled_from(["", "pizza", "Norway", "👍"]) | st.just(PICTURE),
    st.sampled_from(["user", "assistant", "system-summary"]),
)
MACHINERY = st.sampled_from(TRIGGER_TYPES).map(triggered)


@given(history=st.lists(ROWS | MACHINERY, max_size=12), summary=st.none() | ROWS | MACHINERY, is_trigger=st.booleans())
def test_synthetic_words_are_never_looked_up(history: list[Message], summary: Message | None, is_trigger: bool) -> None:
    current = trigger() if is_trigger else HumanMessage("👍")
    with capture_logs() as logs:
        found = derive_query(current, history, summary)
    assert found.text not in PROMPTS.values()
    assert (found.text == "") == (found.source == "none")
    people = [one for one in history if one.role == "user" and not one.metadata]
    if found.source == "last_user_message":
        assert found.text in [one.text for one in people]
    errors = [line for line in logs if line["log_level"] == "error"]
    assert len(errors) == (1 if is_trigger and found == NOTHING and not people else 0)


@every_case(
    "text",
    [
        "What do you know about me?",
        "what do you remember about me",
        "Hey! What do you still know about us?",
        "What do you remember?",
        "Tell me everything you know about me.",
        "Do you remember anything about me?",
        "What have I told you?",
        "what have I told you so far?",
        "Tell me about myself",
        "Who am I?",
        "Was weißt du über mich?",
        "Was weißt du alles von mir?",
        "Was habe ich dir erzählt?",
        "Erzähl mir etwas über mich",
        "Wer bin ich?",
        "Que sais-tu de moi ?",
        "Qu’est-ce que tu sais sur moi ?",
        "Qui suis-je ?",
        "¿Qué sabes de mí?",
        "¿Qué recuerdas sobre mí?",
        "¿Quién soy?",
    ],
)
def test_who_asks_for_everything_is_understood(text: str) -> None:
    assert asks_for_everything(text)


@every_case(
    "text",
    [
        "thanks",
        "What do you know about bees?",
        "What do you remember about my dog?",
        "What have I told you about my sister?",
        "Who am I supposed to call?",
        "Tell me about Porto",
        "Was weißt du über Bienen?",
        "Que sais-tu de Paris ?",
        "¿Qué sabes de Madrid?",
        "Do you know what I mean?",
        "who are you?",
        "what do you know about me? " * 40,
        "",
    ],
)
def test_who_asks_for_something_is_not_told_everything(text: str) -> None:
    assert not asks_for_everything(text)
