"""Find what is remembered of what people say about themselves, and everything that is not (MEM)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rapport.domain.conversation import Content, Message, Role
from rapport.domain.memory import MemoryCandidate
from rapport.memory.extraction import MAX_CHARACTERS, MAX_FACTS, extract_facts
from tests.memory import said, said_fresh
from tests.support.cases import every_case


def message(content: Content, role: Role = "user", **metadata: Any) -> Message:
    return Message("m1", "c1", role, content, datetime.now(UTC), metadata=metadata)


def contents(text: str) -> list[str]:
    return [remark.content for remark in extract_facts(message(text))]


def keys(text: str) -> list[str | None]:
    return [remark.key for remark in extract_facts(message(text))]


IN_OTHER_WORDS = {
    "Keep in mind that I need large print.",
    "I speak Finnish, Swedish and a little Estonian.",
    "I have three sons and a daughter.",
    "please note that I'm on holiday from 1 to 14 July",
    "Don't forget I'm a beginner.",
}
"""Of these something true is kept in other words than the set says."""


@every_case(("text", "expected"), [*said.KEPT, *said_fresh.KEPT])
def test_nothing_else_is_kept_than_what_somebody_says_of_themselves(text: str, expected: list[str]) -> None:
    assert text in IN_OTHER_WORDS or set(contents(text)) <= set(expected)


@every_case("text", [*said.NOTHING, *said_fresh.NOTHING])
def test_nothing_is_made_of_what_is_not_meant_so(text: str) -> None:
    assert contents(text) == []


def test_explicit_statements_are_kept() -> None:
    """The figures that are told in docs/followups-measured.md: they may become more, never less."""
    assert (len(said.KEPT), len(said_fresh.KEPT)) == (169, 42)
    assert sum(contents(text) == expected for text, expected in said.KEPT) >= 117
    assert sum(contents(text) == expected for text, expected in said_fresh.KEPT) >= 23


def test_a_remark_says_where_it_comes_from() -> None:
    assert extract_facts(message("I'm vegan.")) == [
        MemoryCandidate("The user is vegan.", key="diet", origin="extracted", conversation_id="c1", message_id="m1")
    ]


@every_case(
    ("earlier", "later", "key"),
    [
        ("My name is Anna.", "Please call me Ann", "name"),
        ("I live in Rome.", "We just moved to Oslo!", "home"),
        ("I live in Rome.", "I moved to Porto last week", "home"),
        ("I live in Rome.", "We relocated to Porto, two months ago.", "home"),
        ("I moved to Rome in 2019.", "I live in Porto now", "home"),
        ("I'm vegetarian.", "Actually I eat meat again", "diet"),
        ("I'm a strict vegan", "I'm not vegan any more.", "diet"),
        ("I'm vegan.", "I am no longer a vegan", "diet"),
        ("I'm pescatarian.", "I've stopped being pescatarian.", "diet"),
        ("I don't eat gluten.", "I'm eating gluten again", "eat:gluten"),
        ("I work at a bakery.", "I'm a nurse at Siemens", "work"),
        ("I'm 33 years old", "I just turned 34", "age"),
        ("I love olives.", "I can't stand olives!", "taste:olives"),
        ("I'm allergic to nuts", "I'm severely allergic to nuts", "allergy:nuts"),
        ("My wife is called Ines.", "My wife's name is Ana", "wife"),
        ("My favourite colour is green", "my favorite colour is blue now", "favourite colour"),
        ("My birthday is on 3 May", "I was born on 4 May 1990", "birthday"),
    ],
)
def test_what_there_is_one_of_has_a_key_by_which_the_newer_replaces_the_older(
    earlier: str, later: str, key: str
) -> None:
    assert keys(earlier) == keys(later) == [key]


@every_case(
    "text", ["I have two sisters.", "My sister is called Ana.", "We have a cat called Mimi.", "I love jazz and hiking."]
)
def test_what_there_may_be_several_of_has_none(text: str) -> None:
    assert keys(text) == [None]


def test_only_real_messages_of_people_are_listened_to() -> None:
    assert extract_facts(message("I'm vegan.")) != []
    assert extract_facts(message("I'm vegan.", "assistant")) == []
    assert extract_facts(message("I'm vegan.", "system-summary")) == []
    assert extract_facts(message("I'm vegan.", synthetic=True, trigger_type="check_in")) == []


def test_of_a_picture_with_words_the_words_count() -> None:
    blocks = [{"type": "image", "url": "a.png"}, {"type": "text", "text": "This is Rex. I have a dog called Rex."}]
    assert [one.content for one in extract_facts(message(blocks))] == ["The user has a dog called Rex."]


def test_no_more_than_five_and_each_once() -> None:
    text = "I love tea. I love jazz. I hate olives. I love cats. I love cats! I like rice. I like dogs. I like maps."
    assert len(contents(text)) == MAX_FACTS
    assert contents("I love cats. I LOVE cats!! I hate cats.") == ["The user hates cats."]


def test_a_pasted_page_is_not_listened_to() -> None:
    assert contents("I live in Rome. " + "Lorem ipsum dolor sit amet. " * 100) == []


FACTS = st.sampled_from([text for text, _ in said.KEPT] + said.NOTHING)
GLUE = st.sampled_from([" ", "\n", ". ", ", ", " and ", " but ", ": ", "\n> ", ' "', "' ", " (", "? ", " if ", "```"])


@given(parts=st.lists(st.tuples(FACTS, GLUE), min_size=1, max_size=6))
def test_whatever_people_write_remarks_are_short_sentences_that_address_nobody(parts: list[tuple[str, str]]) -> None:
    remarks = extract_facts(message("".join(text + glue for text, glue in parts)))
    assert len(remarks) <= MAX_FACTS
    for remark in remarks:
        assert remark.content.startswith("The user")
        assert len(remark.content) <= MAX_CHARACTERS
        assert "\n" not in remark.content
        assert not {"you", "your", "password", "ignore", "rules"} & set(remark.content.lower().split())


@given(text=st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    assert len(extract_facts(message(text))) <= MAX_FACTS


@every_case(
    "piece",
    ["a", "I ", "I love ", "'a ", '"', ", ", "\n", "\n,", "- ", "(", "[a ", " and my", "please ", "Rome, in ", ":"],
)
def test_no_text_takes_long(piece: str) -> None:
    """Turns wait for it. Milliseconds at worst; the bound leaves room for a machine that is busy with other things."""
    text = (piece * 2_500)[:2_500]
    begun = time.process_time()
    extract_facts(message(text))
    assert time.process_time() - begun < 10
