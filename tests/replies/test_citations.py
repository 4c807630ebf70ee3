"""Test that citations are checked against the retrieved passages, as a whole and while streaming (RAG-6, RAG-8)."""

from __future__ import annotations

import re
import time
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rapport.replies.citations import REMOVED, CheckedText, CitationFilter, check_citations
from rapport.replies.defusing import defuse, defuse_ids
from tests.support.cases import every_case

RETRIEVED = frozenset({"a", "b-1", "Doc_2", "and", "-"})
SPEC_TAG = re.compile(r"\[source:\s*([A-Za-z0-9_-]+)\]")
WIDE_TAG = re.compile(r"\[\s*sources?\s*:\s*([^\[\]\n]*)\s*\]", re.IGNORECASE)
ANY_TAG = re.compile(r"[\[【［]\s*sources?\s*[:：]\s*([^\[\]【】［］\n]*?)\s*[\]】］]", re.IGNORECASE)
KEPT_TAG = re.compile(r"\[source: ([A-Za-z0-9_-]+(?:, [A-Za-z0-9_-]+)*)\]")
CITATION_LINE = re.compile(
    r"[ \t>#*_-]*sources?[*_ ]*:[*_ ]*[a-z0-9]+(?:[,;] *[a-z0-9]+)*\.?[ \r]*", re.IGNORECASE | re.ASCII
)

PIECES = [
    *["[", "]", "[[", "]]", "[source:", "[ Source :", "[sources:", "[source", "[sour", "ce: y]", "source", "s", ":"],
    *["[source: a]", "[source: b-1]", "[source: a, nope]", "[source: nope]", "[source: ../x]", "[source: ]"],
    *["[Source:\n Doc_2]", "[source: a\n]", "[source: a,\nb-1]", "[ſource: x]", "[source: nope]"],
    *["a", "b-1", "Doc_2", "nope", "A", "and", "-", "doc 1", ",", ";", ".", " ", "  ", "\t", "\n", "\n\n", "\r\n"],
    *[
        "Sources:",
        "Source: ",
        "\nSources: a, b-1\n",
        "\n**Sources:** ",
        "\nSources:\n",
        "\n- a\n",
        "\n- ",
        "\n1. a",
        "> ",
    ],
    *[
        "\nSources: [source: a]\n",
        "Sources: the internet is full of them",
        "Sour",
        "ces: ",
        "## ",
        "**",
        "*",
        "_",
        "```",
    ],
    *[
        "【source: a】",
        "［sources：b-1；nope］",
        "[a]",
        "[Doc_2]",
        "[a, b-1]",
        "【a】",
        "[a](x)",
        "[nope]",
        "(",
        "`",
        "x[a]",
    ],
    *[
        "Yes. Sources: a",
        ". ",
        "! Source: nope",
        "Sources: [a], [nope]",
        "[x]",
        "~~~",
        "\u200b",
        "b\u20111",
        "<a>",
        "[source: <a>]",
    ],
    *["[source: a and b-1]", "[source: a, source: b-1]", "[A]", "[source: A]", "Sources: none", "- [ ] ", "？ "],
    *["text", "é", "漢。", "\u2028", "\xa0", "\x1c", "😀", "(", ")", REMOVED, f" {REMOVED}", "…"],
]
nasty = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=14).map("".join)
cuts = st.lists(st.integers(0, 120), max_size=8)
retrievals = st.frozensets(st.sampled_from([*RETRIEVED, "nope", "doc 1", "../x", ""])) | st.just(RETRIEVED)


def streamed(pieces: list[str], retrieved: frozenset[str]) -> tuple[list[str], CheckedText]:
    filtering = CitationFilter(retrieved)
    shown = [filtering.feed(piece) for piece in pieces]
    return [*shown, filtering.finish()], filtering.checked


def parts_of(tag_content: str) -> list[str]:
    return [part.strip() for part in re.split("[,;]", tag_content)]


@every_case(
    ("written", "kept"),
    [
        ("Yes [source: a].", "Yes [source: a].\n\nSources: a"),
        ("Yes [source:a] and [source:\n b-1].", "Yes [source: a] and [source: b-1].\n\nSources: a, b-1"),
        ("Yes [ Source : a ] [SOURCES: b-1; a].", "Yes [source: a] [source: b-1, a].\n\nSources: a, b-1"),
        (
            "Yes [source: b-1] [source: a] [source: b-1]",
            "Yes [source: b-1] [source: a] [source: b-1]\n\nSources: b-1, a",
        ),
        ("Yes [source: a,\n  b-1\n]", "Yes [source: a, b-1]\n\nSources: a, b-1"),
    ],
)
def test_what_was_retrieved_stays_in_its_place_and_is_listed_once(written: str, kept: str) -> None:
    assert check_citations(written, RETRIEVED).text == kept
    assert check_citations(written, RETRIEVED).removed == ()


@every_case(
    "tag",
    [
        *["[source: nope]", "[Source: nope]", "[sources: nope; nada]", "[ source : nope ]", "[source:\n\n nope]"],
        *[
            "[source: doc 1]",
            "[source: ../x]",
            "[source: c]",
            "[source: ]",
            "[source:]",
            "[source: ,]",
            "[source: nope\n]",
        ],
    ],
)
def test_what_was_not_retrieved_is_removed_and_said_to_be(tag: str) -> None:
    assert check_citations(f"Yes {tag}.", RETRIEVED).text == f"Yes. {REMOVED}"
    assert check_citations(f"Yes {tag}.", RETRIEVED).valid == ()


def test_a_list_keeps_what_is_valid_in_it() -> None:
    checked = check_citations("Yes [source: nope, a; doc 1].", RETRIEVED)
    assert checked == CheckedText(
        f"Yes [source: a]. {REMOVED}\n\nSources: a", ("nope", "a", "doc 1"), ("a",), ("nope", "doc 1")
    )


def test_an_id_is_named_once_however_often_it_appears() -> None:
    checked = check_citations("[source: b-1] [source: x] [source: a, b-1] [source: x]", RETRIEVED)
    assert checked.generated == ("b-1", "x", "a")
    assert checked.valid == ("b-1", "a")
    assert checked.removed == ("x",)


@every_case(
    "text",
    [
        "",
        "No tags.",
        "[1] and [link](x) and a[0]",
        "[resource: a]",
        "[source a]",
        "[s",
        "see [sour",
        "] source: a [",
        "[source]",
    ],
)
def test_what_is_no_tag_is_not_touched(text: str) -> None:
    assert check_citations(text, RETRIEVED) == CheckedText(text, (), (), ())


@every_case(
    ("written", "kept"),
    [
        ("[sour[source: x]ce: y]", REMOVED),
        ("[sour[so[source: x]urce: y]ce: z] end", f" end {REMOVED}"),
        ("[source: [source: [source: x] y] z]", REMOVED),
        ("[source:[source: x] a]", f"[source: a] {REMOVED}\n\nSources: a"),
        ("Sour[source: x]ces: nope\nend", f"end {REMOVED}"),
        ("[source:\nSources: x\n y]", REMOVED),
        ("[source: q\nSources: x\n]!", f"! {REMOVED}"),
        ("[source:\nSources:\n- x\nnope]!", f"! {REMOVED}"),
    ],
)
def test_no_removal_makes_a_tag_of_what_was_around_it(written: str, kept: str) -> None:
    assert check_citations(written, RETRIEVED).text == kept


@every_case(
    ("written", "kept"),
    [
        ("Foo [source: x].", "Foo."),
        ("Foo \t[source: x] bar", "Foo bar"),
        ("Foo [source: x][source: y], bar", "Foo, bar"),
        ("Foo [source: x]bar", "Foo bar"),
        ("Foo [source: x][1]", "Foo [1]"),
        ("**Foo [source: x]**  bar", "**Foo**  bar"),
        ("Foo  bar [source: x]\n\n  baz", "Foo  bar\n\n  baz"),
        ("Foo [source: x]  \n\n", "Foo"),
    ],
)
def test_a_removed_tag_leaves_no_hole(written: str, kept: str) -> None:
    assert check_citations(written, RETRIEVED).text == f"{kept} {REMOVED}"


@every_case("half", ["[source: han", "[source: a", "[Source", "[sources :", "[source:\n", "[source: x [source: y"])
def test_a_half_written_tag_at_the_end_is_removed(half: str) -> None:
    checked = check_citations(f"Foo {half}", RETRIEVED)
    assert checked.text == f"Foo {REMOVED}"
    assert checked.valid == checked.generated == ()
    assert checked.removed


@every_case(
    "line",
    [
        *[
            "Sources: a, b-1",
            "source: a",
            "SOURCES: a; b-1 & nope",
            "**Sources:** a",
            "**Sources**: a",
            "## Sources: nope",
        ],
        *[
            "- Sources: a",
            "> Sources: a b-1",
            "Sources: [source: a]",
            "Sources: [source: a], b-1.",
            "*Sources: `a`, `b-1`*",
        ],
        *[
            "Sources:\n- a\n- [source: a]",
            "**Sources:**\n\n* a\n\n* nope",
            "Sources:\n1. a\n2. b-1",
        ],
        *["Sources:\n[source: a]\n[source: a]", "Sources: a\nSources: b-1"],
    ],
)
def test_the_models_own_citation_lines_give_way_to_one(line: str) -> None:
    mark = f" {REMOVED}" if "nope" in line else ""
    sources = "Sources: a, b-1" if "b-1" in line else "Sources: a"
    assert check_citations(f"Yes [source: a].\n\n{line}", RETRIEVED).text == f"Yes [source: a].{mark}\n\n{sources}"
    assert check_citations(f"Yes [source: a].\n{line}\nMore.", RETRIEVED).text == (
        f"Yes [source: a].\nMore.{mark}\n\n{sources}"
    )


@every_case(
    "text",
    [
        "Sources: the internet is full of them, said Tom.",
        "Sources: the internet is full of them, said Tom",
        "Sources:\nThe river rises in the hills.",
        "Sources:\n\n- The handbook, page 3 (revised)",
        "The sources: a, b-1",
        "Sources a, b-1",
        "Sources: see [1]",
        "- a\n- b-1",
        "Resources: a",
    ],
)
def test_prose_about_sources_stays(text: str) -> None:
    assert check_citations(text, RETRIEVED).text == text
    assert check_citations(f"{text}\nMore.", RETRIEVED).text == f"{text}\nMore."


def test_a_header_without_a_list_goes_only_from_the_end() -> None:
    assert check_citations("Yes.\n\n**Sources:** \r\n", RETRIEVED).text == "Yes."
    assert check_citations("Yes.\n\nSources: [source: x]", RETRIEVED).text == f"Yes. {REMOVED}"
    assert check_citations("Yes.\n\nSources:\nMany.", RETRIEVED).text == "Yes.\n\nSources:\nMany."


def test_ids_that_only_a_citation_line_names_are_citations() -> None:
    assert check_citations("Yes.\n\nSources: a, b-1", RETRIEVED) == CheckedText(
        "Yes.\n\nSources: a, b-1", ("a", "b-1"), ("a", "b-1"), ()
    )
    checked = check_citations("Yes [source: b-1].\n\nSources: [source: a], [source: x], Doc_2", RETRIEVED)
    assert checked.text == f"Yes [source: b-1]. {REMOVED}\n\nSources: b-1, a, Doc_2"
    assert checked.removed == ("x",)


@every_case("text", ["Sources: a", "Sources:\n- [source: a]\n- b-1", "Sources: nope", "Sources:"])
def test_a_reply_that_is_nothing_but_citation_lines_says_nothing(text: str) -> None:
    assert check_citations(text, RETRIEVED) == CheckedText("", (), (), ())


def test_the_removal_is_said_once() -> None:
    assert check_citations(f"Yes [source: x]. {REMOVED}", RETRIEVED).text == f"Yes. {REMOVED}"
    assert check_citations("[source: x]", RETRIEVED).text == REMOVED
    assert check_citations("[source: x] [source: y]", RETRIEVED).text == REMOVED


def test_an_id_that_no_tag_can_hold_is_never_valid() -> None:
    assert check_citations("Yes [source: ../x].", {"../x"}).text == f"Yes. {REMOVED}"


def test_ordinary_text_is_passed_on_as_it_comes() -> None:
    text = "Hello, dear reader!\nIt costs 3 € (or so). Ünïcödé too, 漢字。"
    filtering = CitationFilter(RETRIEVED)
    waiting = ""
    for char in text:
        waiting += char
        shown = filtering.feed(char)
        assert shown == ("" if char.isspace() else waiting)
        waiting = waiting[len(shown) :]
    assert filtering.finish() == ""


def test_a_tag_is_held_back_until_it_is_decided_and_no_longer() -> None:
    filtering = CitationFilter(RETRIEVED)
    assert filtering.feed("Yes [sour") == "Yes"
    assert filtering.feed("ce: a") == ""
    assert filtering.feed("] and [sou") == " [source: a] and"
    assert filtering.feed("th] or [source: x") == " [south] or"
    assert filtering.feed("].") == "."
    assert filtering.feed("\nSour") == ""
    assert filtering.feed("ces: a") == ""
    assert filtering.feed("\nThe") == "\nThe"
    assert filtering.finish() == f" {REMOVED}\n\nSources: a"


@settings(max_examples=500)
@given(nasty, retrievals)
@example("[source:\nSources: x\n y]", RETRIEVED)
@example("[\n\nSources: a", RETRIEVED)
def test_no_invalid_tag_survives(text: str, retrieved: frozenset[str]) -> None:
    checked = check_citations(text, retrieved)
    assert set(SPEC_TAG.findall(checked.text)) <= retrieved
    for content in WIDE_TAG.findall(checked.text):
        assert set(parts_of(content)) <= retrieved
    assert set(checked.valid) <= set(checked.generated) & retrieved
    assert bool(checked.removed) <= (REMOVED in checked.text)
    assert not set(checked.generated) - set(checked.valid) - set(checked.removed)
    for content in ANY_TAG.findall(checked.text):
        assert f"[source: {content}]" in checked.text  # the exact form, whatever the model wrote


@settings(max_examples=500)
@given(nasty, retrievals)
@example("[source: a] [", RETRIEVED)
@example("Foo.\nSources: [source: a]", RETRIEVED)
@example("Sources:\n- [source: x]\nSources:\n[source: a] and", RETRIEVED)
def test_checking_twice_changes_nothing(text: str, retrieved: frozenset[str]) -> None:
    once = check_citations(text, retrieved)
    twice = check_citations(once.text, retrieved)
    assert twice.text == once.text
    assert twice.valid == once.valid
    assert twice.removed == ()


@settings(max_examples=500)
@given(nasty, retrievals, cuts)
def test_every_way_of_cutting_gives_the_same_reply(text: str, retrieved: frozenset[str], at: list[int]) -> None:
    whole = check_citations(text, retrieved)
    edges = sorted({0, len(text), *(cut for cut in at if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    two_ways = [[text[:cut], text[cut:]] for cut in range(len(text) + 1)]
    for chunking in [pieces, list(text), ["", *text, ""], *two_ways]:
        shown, checked = streamed(chunking, retrieved)
        assert checked == whole
        for count in range(len(shown) + 1):
            assert whole.text.startswith("".join(shown[:count]))
        assert "".join(shown) == whole.text


@settings(max_examples=400)
@given(nasty, nasty, retrievals)
def test_what_is_shown_does_not_depend_on_what_comes(text: str, rest: str, retrieved: frozenset[str]) -> None:
    """The shown text is always a prefix of the final reply, whatever follows."""
    shown = CitationFilter(retrieved).feed(text)
    assert check_citations(text + rest, retrieved).text.startswith(shown)
    assert check_citations(text, retrieved).text.startswith(shown)


@settings(max_examples=400)
@given(nasty, retrievals)
def test_valid_tags_keep_their_order_and_are_listed_in_it(text: str, retrieved: frozenset[str]) -> None:
    checked = check_citations(text, retrieved)
    found = [one for content in KEPT_TAG.findall(checked.text) for one in parts_of(content)]
    in_text = tuple(dict.fromkeys(found))
    assert checked.valid[: len(in_text)] == in_text
    ending = f"\n\nSources: {', '.join(checked.valid)}" if checked.valid else ""
    assert checked.text.endswith(ending)
    body = checked.text.removesuffix(ending)
    assert not [line for line in body.split("\n") if CITATION_LINE.fullmatch(line)]
    assert body == body.rstrip()


@settings(max_examples=300)
@given(st.text(alphabet=st.characters(exclude_characters="[:")))
def test_a_text_without_brackets_and_colons_loses_nothing_but_its_last_whitespace(text: str) -> None:
    assert check_citations(text, RETRIEVED) == CheckedText(text.rstrip(), (), (), ())


@every_case(
    ("typed", "quoted"),
    [
        ("[source: admin]", "(source: admin)"),
        ("Say [ Sources:\n a; b ] twice", "Say ( Sources:\n a; b ) twice"),
        ("[source: [source: x]]", "(source: (source: x))"),
        ("[sour[source: x]ce: y]", "[sour(source: x)ce: y]"),
        ("[1] [link](x) [source] [source: a", "[1] [link](x) [source] [source: a"),
        ("Sources: a", "Sources: a"),
        ("【source: a】 ［Sources：a］ 【1】", "(source: a) (Sources：a) 【1】"),
        ("[so\u200burce: a]", "(so\u200burce: a)"),
    ],
)
def test_a_tag_that_somebody_typed_is_quoted_in_round_brackets(typed: str, quoted: str) -> None:
    assert defuse(typed) == quoted


@settings(max_examples=500)
@given(nasty)
def test_no_quoted_text_cites(text: str) -> None:
    quoted = defuse(text)
    assert not SPEC_TAG.search(quoted)
    assert not WIDE_TAG.search(quoted)
    assert defuse(quoted) == quoted
    round_brackets = str.maketrans("[]【】［］", "()()()")
    assert quoted.translate(round_brackets) == text.translate(round_brackets)
    complete = defuse(text[: max(map(text.rfind, "]】］")) + 1])
    assert check_citations(defuse_ids(complete, RETRIEVED), RETRIEVED).valid == ()


@every_case(
    "text",
    [
        *["[" * 40_000, "[source:" * 8_000, "[source: " + "x" * 40_000, "[source:\n" * 8_000, "[ " * 20_000],
        *[
            "Sources: a [source:\n" * 4_000,
            "Sources:\n" * 6_000,
            "Sources: " + "a [source:\nx]" * 4_000,
            "- " * 20_000,
        ],
        *["[a, " * 8_000, "[" + "a," * 16_000, "[a]" * 10_000, "[a](" * 8_000, "`[a] " * 8_000, ". Sources: a" * 3_000],
        *[
            "【source: " * 4_000,
            ". S" * 12_000,
            "Sources: [a" * 4_000,
            "Sources: a " + "[nope] " * 5_000,
            "Sources:\n- [a]\n" * 2_000,
        ],
        *["[sour" * 8_000 + "ce: x]" * 8_000, " " * 40_000 + "x", "x [source: x]" * 4_000, "\n" * 40_000],
    ],
)
def test_a_long_text_takes_no_longer_than_its_length(text: str) -> None:
    """The bound is far above what it takes, and far below what anything quadratic would."""
    started = time.process_time()
    filtering = CitationFilter(RETRIEVED)
    shown = "".join([filtering.feed(char) for char in text]) + filtering.finish()
    assert shown == check_citations(text, RETRIEVED).text
    assert defuse(defuse(text)) == defuse(text)
    assert time.process_time() - started < 5
