"""Test cutting notes into passages: along their structure, within the limit, without losing a word (RAG-1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rapport.domain.note import Chunk
from rapport.retrieval.chunking import (
    MAX_TOKENS,
    MIN_SENTENCE_TOKENS,
    OVERLAP,
    estimate_size,
    make_embedding_text,
    split_chunks,
    split_sentences,
)
from tests.support.cases import every_case
from tests.support.growth import assert_in_proportion

HANDBOOK = """Who to ask: the office.

# Handbook

Welcome.

## Leave

### Sick leave

Send a note from your doctor after the third day.

You are paid for six weeks.

### Parental leave

- Mothers: 14 weeks
- Fathers: 4 weeks
  and more on request

Office hours
============

We open at nine.
"""

WORDS = st.text("abcdefgh", min_size=1, max_size=9)
SENTENCES = st.lists(WORDS, min_size=1, max_size=30).map(lambda words: " ".join(words).capitalize() + ".")
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=12).map(" ".join)
HEADINGS = st.tuples(st.integers(1, 6), st.lists(WORDS, min_size=1, max_size=25)).map(
    lambda heading: f"{'#' * heading[0]} {' '.join(heading[1])}"
)
UNDERLINED = st.tuples(st.lists(WORDS, min_size=1, max_size=5), st.sampled_from(["====", "---"])).map(
    lambda heading: f"{' '.join(heading[0])}\n{heading[1]}"
)
ITEMS = st.lists(SENTENCES, min_size=1, max_size=9).map(lambda items: "\n".join(f"- {item}" for item in items))
FENCES = st.lists(SENTENCES, max_size=20).map(lambda lines: "\n".join(["```", "# code", *lines, "```"]))
TABLES = st.lists(st.tuples(WORDS, SENTENCES), max_size=20).map(
    lambda rows: "\n".join(["| name | what |", "|---|---|", *(f"| {name} | {what} |" for name, what in rows)])
)
NOTES = st.lists(st.one_of(PARAGRAPHS, HEADINGS, UNDERLINED, ITEMS, FENCES, TABLES), max_size=12).map("\n\n".join)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def said_by(chunks: Iterable[Chunk]) -> str:
    return "\n".join(f"{chunk.heading}\n{chunk.text}" for chunk in chunks)


def missing_from(found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return what of `wanted` is not found in this order; what is found besides, such as repetitions, does not matter."""
    remaining = iter(found)
    for number, word in enumerate(wanted):
        if word not in remaining:
            return list(wanted[number : number + 5])
    return []


def sentences(count: int, *, length: int = 60) -> list[str]:
    return [f"Sentence {number} {'goes on ' * (length // 8)}to its end." for number in range(count)]


# ---- structure


def test_a_passage_knows_the_headings_it_stands_under() -> None:
    assert [(chunk.heading, chunk.text) for chunk in split_chunks(HANDBOOK)] == [
        ("", "Who to ask: the office."),
        ("Handbook", "Welcome."),
        (
            "Handbook > Leave > Sick leave",
            "Send a note from your doctor after the third day.\n\nYou are paid for six weeks.",
        ),
        (
            "Handbook > Leave > Parental leave",
            "- Mothers: 14 weeks\n- Fathers: 4 weeks\n  and more on request",
        ),
        ("Office hours", "We open at nine."),
    ]


def test_a_first_heading_that_repeats_the_title_is_not_in_the_paths() -> None:
    chunks = split_chunks("# The Handbook\n\nHello.\n\n## Leave\n\nThirty days.", title="the handbook")
    assert chunks == [Chunk("", "Hello."), Chunk("Leave", "Thirty days.")]
    assert split_chunks("# Parking", title="Parking") == [Chunk("", "Parking")]


def test_a_heading_over_nothing_can_still_be_found() -> None:
    assert split_chunks("# Leave\n\n## Sick leave\n\n## Unpaid leave ##\n\n# Parking") == [
        Chunk("Leave", "Sick leave"),
        Chunk("Leave", "Unpaid leave"),
        Chunk("", "Parking"),
    ]


def test_a_long_heading_is_clipped_in_the_path_and_whole_in_the_text() -> None:
    name = "A very long heading " * 6 + "to the last word"
    (chunk,) = split_chunks(f"# {name}\n\nAnd its text.")
    assert len(chunk.heading) <= 80
    assert chunk.heading.startswith("A very long heading")
    assert chunk.text == f"{name}\n\nAnd its text."


@every_case(
    "text",
    [
        "```\n# a comment\n```",
        "~~~sh\n# a comment\n\n# another\n~~~\n",
        "```\n# the fence is never closed",
        "#hashtag",
        "    # set in like code",
        "####### seven marks",
        "#",
        "# ---",
        "one line\nand another\n---\n",
        "---\n\ntext",
    ],
)
def test_what_only_looks_like_a_heading_is_text(text: str) -> None:
    chunks = split_chunks(text)
    assert {chunk.heading for chunk in chunks} == {""}
    assert missing_from("".join(chunk.text for chunk in chunks), "".join(text.split())) == []


def test_small_neighbours_are_joined_but_never_across_a_heading() -> None:
    lines = [f"Rule {number} is short." for number in range(60)]
    chunks = split_chunks("# One\n\n" + "\n\n".join(lines) + "\n\n# Two\n\nAlone.")
    assert chunks[-1] == Chunk("Two", "Alone.")
    assert all(250 <= len(chunk.text) <= 500 for chunk in chunks[:-1])
    assert "\n\n".join(chunk.text for chunk in chunks[:-1]) == "\n\n".join(lines)


def test_an_introduction_stays_with_what_it_introduces() -> None:
    code = "```\n" + "\n".join(f"step {number} of the procedure" for number in range(20)) + "\n```"
    (chunk,) = split_chunks(f"Run these steps:\n\n{code}")
    assert chunk.text == f"Run these steps:\n\n{code}"


def test_code_stays_whole_when_it_fits_and_is_cut_between_lines_when_not() -> None:
    code = "```\n" + "\n".join(f"line {number}" for number in range(50)) + "\n```"
    assert code in [
        chunk.text for chunk in split_chunks(f"{' '.join(sentences(4))}\n\n{code}\n\n{' '.join(sentences(4))}")
    ]
    long = "```\n" + "\n".join(f"line number {number}" for number in range(200)) + "\n```"
    chunks = split_chunks(long)
    assert len(chunks) > 1
    assert "\n".join(chunk.text for chunk in chunks) == long


def test_rows_that_are_cut_off_from_a_tables_head_get_it_again() -> None:
    rows = [f"| person {number} | {number} days |" for number in range(80)]
    chunks = split_chunks("| Name | Leave |\n|---|---|\n" + "\n".join(rows))
    assert len(chunks) > 2
    assert all(chunk.text.startswith("| Name | Leave |\n|---|---|\n| person") for chunk in chunks)
    assert [row for chunk in chunks for row in chunk.text.splitlines()[2:]] == rows


# ---- cutting


def test_a_long_paragraph_is_cut_between_sentences_and_the_border_is_in_both_parts() -> None:
    told = sentences(30)
    chunks = split_chunks(" ".join(told))
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        last = next(sentence for sentence in reversed(told) if before.text.endswith(sentence))
        assert len(last) <= OVERLAP
        assert after.text.startswith(last)
    assert {sentence for chunk in chunks for sentence in re.findall(r"Sentence .*?\.", chunk.text)} == set(told)


def test_a_long_last_sentence_is_not_repeated() -> None:
    told = sentences(12, length=200)
    chunks = split_chunks(" ".join(told))
    assert " ".join(chunk.text for chunk in chunks) == " ".join(told)


def test_a_sentence_is_whole_unless_it_alone_is_too_long() -> None:
    fits = "It " + "really " * 90 + "fits."
    around = " ".join(sentences(5))
    assert any(fits in chunk.text for chunk in split_chunks(f"{around} {fits} {around}"))
    too_long = "It " + "really " * 400 + "does not."
    parts = split_chunks(too_long)
    assert len(parts) > 1
    assert " ".join(part.text for part in parts) == too_long


def test_abbreviations_end_no_sentence() -> None:
    told = [
        f"Ask Dr. Smith or J. Doe, e.g. about No. {number} of the many rules that we have here." for number in range(30)
    ]
    for chunk in split_chunks(" ".join(told)):
        assert chunk.text.startswith("Ask Dr. Smith")
        assert chunk.text.endswith("have here.")


def test_an_unbroken_string_is_cut_hard() -> None:
    parts = split_chunks("x" * 5_000)
    assert "".join(part.text for part in parts) == "x" * 5_000
    assert all(len(part.text) <= 800 for part in parts)


@every_case(
    ("text", "most"),
    [
        ("If you are ill, please send a note to the office before noon. " * 60, 800),
        ("如果您生病超过三天，请在中午之前将医生证明寄给人事部门。" * 60, 240),
        ("三日以上病気の場合は正午までに医師の診断書を人事部に送ってください" * 60, 240),
        ("사흘 이상 아프면 정오 전에 의사의 진단서를 인사부에 보내 주세요. " * 60, 240),
    ],
)
def test_the_limit_is_one_of_tokens(text: str, most: int) -> None:
    chunks = split_chunks(text)
    assert len(chunks) > 3
    assert all(most / 8 <= len(chunk.text) <= most for chunk in chunks)


def test_other_line_ends_and_a_mark_of_byte_order_change_nothing() -> None:
    assert split_chunks("\ufeff" + HANDBOOK.replace("\n", "\r\n")) == split_chunks(HANDBOOK)


@every_case("text", ["", " \n\t\n ", "\r\n\r\n", "\x0c"])
def test_nothing_gives_nothing(text: str) -> None:
    assert split_chunks(text, title="Empty") == []


# ---- any text


@given(st.text(max_size=3_000))
@example("#")
@example("a\n=")
@example("|")
@example("|\n-|")
@example("```")
@example("...")
@example("x" * 2_000 + "。" * 900)
@settings(max_examples=300)
def test_any_text_is_cut_within_the_limit_and_always_in_the_same_way(text: str) -> None:
    chunks = split_chunks(text)
    assert chunks == split_chunks(text)
    assert bool(chunks) == bool(text.removeprefix("\ufeff").strip())
    for chunk in chunks:
        assert chunk.text.strip()
        assert estimate_size(chunk.text) <= MAX_TOKENS
        assert len(chunk.text) <= 800


@given(st.text(st.characters(exclude_characters="#=-\ufeff", exclude_categories=["Cs"]), max_size=3_000))
@settings(max_examples=200)
def test_without_headings_every_character_is_kept_in_order(text: str) -> None:
    kept = "".join(chunk.text for chunk in split_chunks(text))
    assert missing_from(kept, "".join(text.split())) == []


@given(NOTES)
@settings(max_examples=200)
def test_every_word_of_a_note_is_kept_in_order(note: str) -> None:
    chunks = split_chunks(note)
    assert missing_from(words_of(said_by(chunks)), words_of(note)) == []
    assert all(estimate_size(chunk.text) <= MAX_TOKENS for chunk in chunks)
    assert all(len(name) <= 80 for chunk in chunks for name in chunk.heading.split(" > "))


@every_case(
    "text",
    [
        "The quick brown fox jumps over the lazy dog. " * 22_000,
        HANDBOOK * 2_500,
        "如果您生病超过三天。" * 100_000,
        "." * 1_000_000,
        "x" + " " * 1_000_000 + "y",
        "```\n" + " " * 1_000_000 + "\n```",
        "# a" + " #" * 500_000,
        "word " * 200_000,
    ],
)
def test_a_million_characters_are_cut_in_linear_time(text: str) -> None:
    assert_in_proportion(split_chunks, text[: len(text) // 50], text, times=50)


# ---- what is embedded


def test_what_is_embedded_says_where_the_text_stands() -> None:
    assert make_embedding_text("Handbook", Chunk("Leave > Sick leave", ""), "Six weeks.") == (
        "Handbook > Leave > Sick leave\nSix weeks."
    )
    assert (
        make_embedding_text("Sick Leave", Chunk("Leave > Sick leave", ""), "Six weeks.")
        == "Leave > Sick leave\nSix weeks."
    )
    assert make_embedding_text("Handbook", Chunk("", ""), "Hello.") == "Handbook\nHello."
    assert make_embedding_text("", Chunk("", ""), "Hello.") == "Hello."


def test_of_a_long_path_the_innermost_headings_stay() -> None:
    path = " > ".join(f"Chapter {number} with quite a long name" for number in range(6))
    lead, text = make_embedding_text("T" * 500, Chunk(path, ""), "Six weeks.").split("\n")
    assert text == "Six weeks."
    assert lead.endswith("Chapter 5 with quite a long name")
    assert len(lead) < 160


@given(NOTES, st.text(max_size=200))
@settings(max_examples=50)
def test_what_is_embedded_always_ends_with_the_text_and_stays_short(note: str, title: str) -> None:
    for chunk in split_chunks(note, title=title):
        embedded = make_embedding_text(title, chunk, chunk.text)
        assert embedded.endswith(chunk.text)
        assert estimate_size(embedded.removesuffix(chunk.text)) <= 85


# ---- the points of a passage


def test_each_sentence_is_a_point_and_short_ones_go_together() -> None:
    passage = Chunk(
        "",
        "Everybody has 28 days of leave a year. Ask your team lead early. Yes. Unused days expire in March.\n- green tea\n- oat milk, two bottles",
    )
    assert split_sentences(passage) == [
        "Everybody has 28 days of leave a year.",
        "Ask your team lead early.",
        "Yes. Unused days expire in March.",
        "- green tea - oat milk, two bottles",
    ]


@given(st.text())
def test_every_word_of_a_passage_is_in_one_of_its_points(text: str) -> None:
    for chunk in split_chunks(text):
        points = split_sentences(chunk)
        assert points
        assert " ".join(points).split() == chunk.text.split()
        assert len(points) == 1 or all(estimate_size(point) >= MIN_SENTENCE_TOKENS for point in points)
