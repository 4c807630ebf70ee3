"""Find whether a memory or a matter is made of what the person wrote themselves (ADR 36)."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from rapport.domain.conversation import Author, Message
from rapport.followups.own_words import find_own_messages, is_founded, keep_own_text
from tests.memory import founded_fresh, said, said_fresh
from tests.memory.founded import ATTACKS, FOUNDED
from tests.support.cases import every_case

AT = datetime(2025, 3, 1, tzinfo=UTC)


@every_case(("own", "memory"), FOUNDED)
def test_what_a_person_wrote_may_be_kept_in_other_words(own: list[str], memory: str) -> None:
    assert is_founded(memory, own)


@every_case(("own", "memory"), ATTACKS)
def test_what_they_did_not_write_may_not(own: list[str], memory: str) -> None:
    assert not is_founded(memory, own)


def test_the_sets_are_as_large_as_they_should_be() -> None:
    assert len(FOUNDED) >= 30
    assert len(ATTACKS) >= 30


def test_what_the_rule_was_not_written_on_does_as_well_as_when_it_was_first_read() -> None:
    kept = [is_founded(memory, own, is_matter=memory == "finish tax return") for own, memory in founded_fresh.FOUNDED]
    stored = [memory for own, memory in founded_fresh.ATTACKS if is_founded(memory, own)]
    assert (len(kept), len(founded_fresh.ATTACKS)) == (35, 30)
    assert sum(kept) >= 32
    assert stored == []


@every_case(
    ("own", "memory"),
    [
        ("I do not eat meat.", "The user eats meat."),
        ("I never smoke.", "The user smokes."),
        ("I don't have a dog, I have a cat.", "The user has a dog."),
        ("I hope I never live in Rome.", "The user hopes to live in Rome."),
        ("Paula is my boss. The weather is not good.", "The user hates Paula."),
        ("Don't worry. My wife Maria called.", "The user hates Maria."),
        ("Ich esse kein Fleisch.", "Der Nutzer isst Fleisch."),
    ],
)
def test_a_memory_denies_just_what_the_person_denied(own: str, memory: str) -> None:
    assert not is_founded(memory, [own])


def test_what_somebody_has_not_done_yet_is_a_matter() -> None:
    assert is_founded("finish the tax return", ["I haven't finished the tax return yet"], is_matter=True)


def test_nearly_everything_that_the_rules_remember_is_founded() -> None:
    """The rate that is told in docs/memory.md: it may become more, never less."""
    pairs = [(text, memory) for text, kept in (*said.KEPT, *said_fresh.KEPT) for memory in kept]
    founded = [is_founded(memory, [text]) for text, memory in pairs]
    assert len(pairs) >= 150
    assert sum(founded) >= 0.95 * len(pairs)


def test_nothing_is_founded_on_another_message() -> None:
    """Memories of one message beside the words of the next: a measure of what an attacker can place by chance."""
    pairs = [(text, memory) for text, kept in said.KEPT for memory in kept]
    shifted = [(pairs[(number + 7) % len(pairs)][0], memory) for number, (_, memory) in enumerate(pairs)]
    assert sum(is_founded(memory, [text]) for text, memory in shifted) <= 0.05 * len(pairs)


def message(text: str, **more: object) -> Message:
    return Message("m", "c", "user", text, AT, **more)  # pyright: ignore[reportArgumentType]


def test_the_person_is_who_wrote_last_and_nobody_else() -> None:
    ana, bob = Author("ana", "Ana"), Author("bob", "Bob")
    mixed = [message("a", author=ana), message("b", author=bob), message("c", author=ana), message("d", is_bot=True)]
    assert [one.text for one in find_own_messages(mixed)] == ["a", "c"]
    assert [one.text for one in find_own_messages(mixed, of=mixed[1])] == ["b"]
    assert find_own_messages(mixed, of=mixed[3]) == []
    assert (
        find_own_messages([message("x", client_message_id="import:1"), message("y", metadata={"synthetic": True})])
        == []
    )


def test_in_the_owners_chat_another_author_is_not_the_owner() -> None:
    bob = Author("bob", "Bob")
    here = [message("a"), message("b", author=bob)]
    assert find_own_messages(here, of=here[1], owner_id="local") == []
    assert [one.text for one in find_own_messages(here, of=here[0], owner_id="local")] == ["a"]
    assert [one.text for one in find_own_messages(here[1:], owner_id="local")] == ["b"]  # the only one there


@every_case(
    ("text", "own"),
    [
        ("> no\nyes", "yes"),
        ("  > no\n>> no\nyes", "yes"),
        ("a ```no``` b", "a \n b"),
        ("read “Dune” yet?", "read “Dune” yet?"),
        ('she said "I will always pay every invoice you send" ok', "she said   ok"),
        ("[forwarded from Eve]\nno", ""),
    ],
)
def test_quoted_text_is_not_their_own(text: str, own: str) -> None:
    assert keep_own_text(text) == own


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_can_be_looked_at(claim: str, own: str) -> None:
    is_founded(claim, [own])
    assert len(keep_own_text(own)) <= len(own) + own.count("```") + own.count("~~~") + own.lower().count("<")


@every_case("text", ['"' * 32_000, "`" * 32_000, "~~~" * 10_000, "> " * 16_000, "<pre" * 8_000, "from: " * 5_000, "on " * 10_000, "-" * 32_000, "“" * 32_000, "«„" * 16_000, "on wrote " * 3_000, "aaaa b" * 5_000, " " * 32_000])  # fmt: skip
def test_a_long_monotonous_message_takes_no_time(text: str) -> None:
    began = time.process_time()
    keep_own_text(text)
    is_founded("The user likes tea and 5 cats.", [text] * 12)
    is_founded(text[:8_192], [text])
    assert time.process_time() - began < 10
