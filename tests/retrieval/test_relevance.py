"""Test the relevance that the guard compares with its threshold, and the recognition of questions about the notes themselves."""

from __future__ import annotations

from bench.questions import load_questions
from hypothesis import given
from hypothesis import strategies as st

from rapport.domain.note import Passage, PassageSearchResult
from rapport.retrieval.overviews import (
    ABOUT_ONE,
    LISTING,
    asks_for_overview,
    asks_which,
    find_note_name,
    hide_name,
)
from rapport.retrieval.relevance import LOWERED_BY, RAISED_BY, compute_relevance
from rapport.retrieval.standalone_question import keep_content_words
from tests.support.cases import every_case

MIN = 0.4


def passage(similarity: float, coverage: float, note: str = "a") -> Passage:
    return Passage(note, 0, "", "", "", similarity, coverage)


def search_result(passages: list[Passage], rival: float | None, words: int) -> PassageSearchResult:
    return PassageSearchResult(max((one.similarity for one in passages), default=0.0), passages, rival, words)


shares = st.floats(0, 1)
found = st.builds(
    search_result,
    st.lists(st.builds(passage, st.floats(-1, 1), shares), max_size=6),
    st.none() | st.floats(-1, 1),
    st.integers(0, 24),
)


@given(found, st.floats(0, 0.95))
def test_the_similarity_is_moved_by_little_and_only_one_way(given_: PassageSearchResult, least: float) -> None:
    moved = compute_relevance(given_, min_similarity=least) - given_.best
    room = 1 - least
    assert -LOWERED_BY * room - 1e-9 <= moved <= RAISED_BY * room + 1e-9
    if moved > 1e-9:
        assert given_.passages[0].coverage > 0
    if moved < -1e-9:
        assert not any(one.coverage for one in given_.passages[:3])


@given(st.floats(-1, 1), shares, shares)
def test_more_words_never_make_it_less_relevant(similarity: float, one: float, other: float) -> None:
    fewer, more = sorted((one, other))

    def of(coverage: float) -> float:
        return compute_relevance(
            PassageSearchResult(similarity, [passage(similarity, coverage)], similarity, 3), min_similarity=MIN
        )

    assert of(fewer) <= of(more)


def test_a_single_word_changes_nothing() -> None:
    assert compute_relevance(PassageSearchResult(0.36, [passage(0.36, 1.0)], None, 1), min_similarity=MIN) == 0.36


def test_words_count_only_in_the_passage_that_is_also_the_nearest() -> None:
    agreed = PassageSearchResult(0.36, [passage(0.36, 0.8), passage(0.3, 0.0, "b")], 0.3, 4)
    assert compute_relevance(agreed, min_similarity=MIN) > MIN
    apart = PassageSearchResult(0.36, [passage(0.35, 0.8), passage(0.36, 0.0, "b")], 0.35, 4)
    assert compute_relevance(apart, min_similarity=MIN) == 0.36


@every_case(
    ("rival", "words", "coverage", "lowered"),
    [(0.43, 3, 0.0, True), (0.40, 3, 0.0, False), (None, 3, 0.0, False), (0.43, 1, 0.0, False), (0.43, 3, 0.1, False)],
)
def test_it_is_lowered_when_nothing_stands_out(rival: float | None, words: int, coverage: float, lowered: bool) -> None:
    result = compute_relevance(PassageSearchResult(0.44, [passage(0.44, coverage)], rival, words), min_similarity=MIN)
    assert (result < MIN) is lowered


@every_case(
    ("question", "left"),
    [
        ("When must I acknowledge a sev 1 incident?", "acknowledge sev 1 incident?"),
        ("How much notice do I have to give if I quit?", "notice quit?"),
        ("Where is room 2.14?", "room 2.14?"),
        ("Don’t you know the People team's lead?", "People team's lead?"),
        ("what is it", ""),
    ],
)
def test_telling_words_are_kept_as_they_are_written(question: str, left: str) -> None:
    assert keep_content_words(question) == left


@given(st.text(max_size=300))
def test_any_text_can_be_asked(text: str) -> None:
    assert asks_which(text) in {True, False}
    assert asks_for_overview(text) in {True, False}
    assert len(hide_name(text)) <= len(text) * len("document") + len("document")


def test_every_phrasing_is_recognised_by_its_own_words() -> None:
    assert all(map(asks_which, LISTING))
    assert not any(map(find_note_name, ABOUT_ONE))


@every_case(
    ("question", "name", "hidden"),
    [
        ("summarise the handbook", "handbook", "summarise the document"),
        ("Summarise sample-travel please", "sample-travel", "Summarise document please"),
        ("What does the travel policy say?", "travel policy", "What does the document say"),
        ("give me an overview of the note on refunds", "refunds", "give me an overview of the document on document"),
    ],
)
def test_a_name_is_what_is_left_of_a_question(question: str, name: str, hidden: str) -> None:
    assert find_note_name(question) == name
    assert hide_name(question) == hidden


@every_case("name", ["household", "company", "harbour", "handbook", "everyday"])
def test_questions_about_anything_else_have_other_words(name: str) -> None:
    questions = load_questions(name)
    asked = [one.text for one in (*questions.answerable, *questions.unanswerable)]
    assert [text for text in asked if asks_which(text)] == []
