"""Participants whom a question names, and the question without their names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rapport.context.named_participants import find_named_participants
from rapport.domain.conversation import Author
from tests.support.cases import every_case

PEOPLE = [
    Author("c", "Caroline"),
    Author("m", "Melanie Jones"),
    Author("w", "Will"),
    Author("z", "Zoë"),
    Author("i", "Иван"),
]


@every_case(
    ("question", "text", "named"),
    [
        ("When did Caroline go to the support group?", "When did go to the support group?", "c"),
        ("what is caroline's dog called", "what is dog called", "c"),
        ("What do Melanie and Caroline’s kids like?", "What do and kids like?", "cm"),
        ("@caroline: the tent", ": the tent", "c"),
        ("Did Jones call?", "Did call?", "m"),
        ("Will it rain?", "Will it rain?", ""),
        ("how will it end", "how will it end", ""),
        ("What did Will cook?", "What did cook?", "w"),
        ("Zoë's boat", "boat", "z"),
        ("что купил Иван", "что купил", "i"),
        ("Carolines boat", "Carolines boat", ""),
        ("the boat", "the boat", ""),
    ],
)
def test_names_are_taken_out_and_known(question: str, text: str, named: str) -> None:
    found = find_named_participants(question, PEOPLE)
    assert (found.text, found.author_ids) == (text, frozenset(named))


@every_case("question", ["Caroline", "Caroline?", "@Caroline Melanie!", ""])
def test_a_question_of_nothing_but_names_keeps_them(question: str) -> None:
    assert find_named_participants(question, PEOPLE).text == question


def test_two_people_of_one_name_are_both_meant() -> None:
    people = [Author("1", "Ana Lopez"), Author("2", "Ana Silva")]
    assert find_named_participants("what did Ana say?", people).author_ids == {"1", "2"}
    assert find_named_participants("what did Silva say?", people).author_ids == {"2"}


@given(st.text(max_size=300), st.lists(st.text(max_size=30), max_size=5))
def test_whatever_is_asked_nothing_is_added(question: str, names: list[str]) -> None:
    found = find_named_participants(question, [Author(str(number), name) for number, name in enumerate(names)])
    assert len(found.text) <= len(question)
    assert set(found.text.split()) <= set(question.split()) or found.author_ids or "'" in question or "’" in question
