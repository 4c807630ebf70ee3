"""Test that citations in all forms that models write are read, and stored in the exact form (RAG-6)."""

from __future__ import annotations

from rapport.replies.citations import REMOVED, CheckedText, CitationFilter, check_citations
from rapport.replies.defusing import defuse_ids
from tests.support.cases import every_case

RETRIEVED = frozenset({"my-dal", "tea", "Doc_2", "i", "1"})


@every_case(
    ("written", "kept"),
    [
        ("Twenty minutes. Sources: my-dal", "Twenty minutes.\n\nSources: my-dal"),
        ("Twenty minutes! Source: my-dal.", "Twenty minutes!\n\nSources: my-dal"),
        ("Twenty minutes 😊 **Sources:** my-dal, tea", "Twenty minutes 😊\n\nSources: my-dal, tea"),
        ("Twenty minutes.  Sources:\n- my-dal\n- tea\n", "Twenty minutes.\n\nSources: my-dal, tea"),
        ("Twenty. Sources: my-dal\nMore.", "Twenty.\nMore.\n\nSources: my-dal"),
        ("Twenty.\nSources: [my-dal], [tea]", "Twenty.\n\nSources: my-dal, tea"),
        ("Twenty.\n\nSources: <my-dal>; 'tea'", "Twenty.\n\nSources: my-dal, tea"),
        ("Twenty.\nSOURCES: My-Dal", "Twenty.\n\nSources: my-dal"),
        ("Twenty.\n_Sources: my-dal_", "Twenty.\n\nSources: my-dal"),
        ("Twenty.\n\nSources:\n1. [my-dal]\n2. [source: tea]", "Twenty.\n\nSources: my-dal, tea"),
        ("Twenty.\n\nSource： my\u2011dal", "Twenty.\n\nSources: my-dal"),
        ("Twenty [my-dal].", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [my-dal, tea].", "Twenty [source: my-dal, tea].\n\nSources: my-dal, tea"),
        ("Twenty [my-dal][tea] ok", "Twenty [source: my-dal][source: tea] ok\n\nSources: my-dal, tea"),
        ("Twenty [my-dal]", "Twenty [source: my-dal]\n\nSources: my-dal"),
        ("[my-dal] says so", "[source: my-dal] says so\n\nSources: my-dal"),
        ("Twenty 【my-dal】", "Twenty [source: my-dal]\n\nSources: my-dal"),
        ("Twenty 【source: my-dal】.", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty ［source: my-dal］.", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [Source: my-dal].", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [source:my-dal;tea].", "Twenty [source: my-dal, tea].\n\nSources: my-dal, tea"),
        ("Twenty [source: my-dal, source: tea].", "Twenty [source: my-dal, tea].\n\nSources: my-dal, tea"),
        ("Twenty [source: my-dal and tea].", "Twenty [source: my-dal, tea].\n\nSources: my-dal, tea"),
        ("Twenty [source: [my-dal], [tea]].", "Twenty [source: my-dal, tea].\n\nSources: my-dal, tea"),
        ("Twenty [source: <my-dal>].", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [source:\xa0my\u2011dal\u200b].", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [so\u200burce: my-dal].", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [source: MY-DAL].", "Twenty [source: my-dal].\n\nSources: my-dal"),
        ("Twenty [1].", "Twenty [source: 1].\n\nSources: 1"),
    ],
)
def test_every_form_becomes_the_exact_one(written: str, kept: str) -> None:
    checked = check_citations(written, RETRIEVED)
    assert checked.text == kept
    assert checked.removed == ()
    assert checked.valid == tuple(kept.rpartition("Sources: ")[2].split(", "))


@every_case(
    ("written", "kept"),
    [
        ("Twenty. Sources: nope", f"Twenty. {REMOVED}"),
        ("Twenty.\n\nSources: nope, nada", f"Twenty. {REMOVED}"),
        ("Twenty.\n\nSources: id1, my-dal", f"Twenty. {REMOVED}\n\nSources: my-dal"),
        ("Twenty.\nSources: [my-dal], [nope]", f"Twenty. {REMOVED}\n\nSources: my-dal"),
        ("Twenty.\nSources:\n- nope\n- my-dal", f"Twenty. {REMOVED}\n\nSources: my-dal"),
        ("Twenty 【source: nope】.", f"Twenty. {REMOVED}"),
        ("Twenty ［Sources：nope］.", f"Twenty. {REMOVED}"),
        ("Twenty [source: no\u200bpe].", f"Twenty. {REMOVED}"),
        ("Twenty 【source: no", f"Twenty {REMOVED}"),
        ("Twenty [source: my-dal and nope].", f"Twenty [source: my-dal]. {REMOVED}\n\nSources: my-dal"),
        ("Twenty `[source: nope]`.", f"Twenty ``. {REMOVED}"),
    ],
)
def test_what_was_not_retrieved_is_removed_in_every_form(written: str, kept: str) -> None:
    assert check_citations(written, RETRIEVED).text == kept


@every_case(
    "text",
    [
        "[2] and [sic] and [My-Dal], [nope], [tea, milk] and [my dal]",
        "See [tea](https://example.org/tea).",
        "![tea](tea.png)",
        "- [ ] brew\n- [x] pour",
        "Use `array[i]` or `[tea]`.",
        "```\nfor i in x: print(x[i], [tea])\n```\nDone.",
        "~~~\n[tea]\n~~~",
        "The best sources: my-dal, tea",
        "Ask: sources: tea",
        "It is good. Sources say that it simmers.",
        "It is good. Source: I asked the cook about it",
        "(source: my-dal) is what you wrote.",
        "[my-dal",
        "[]",
        "[,]",
    ],
)
def test_what_is_no_citation_stays_as_it_is(text: str) -> None:
    assert check_citations(text, RETRIEVED) == CheckedText(text, (), (), ())


def test_code_ends_where_it_ends() -> None:
    assert check_citations("`[tea]` and [tea]", RETRIEVED).text == "`[tea]` and [source: tea]\n\nSources: tea"
    assert check_citations("```\n[tea]\n```\n[tea]", RETRIEVED).text == "```\n[tea]\n```\n[source: tea]\n\nSources: tea"
    assert check_citations("One `tick\n[tea]", RETRIEVED).text == "One `tick\n[source: tea]\n\nSources: tea"


def test_a_line_that_says_there_are_no_sources_is_removed() -> None:
    assert check_citations("I can't say.\n\nSources: none", RETRIEVED) == CheckedText("I can't say.", (), (), ())


def test_an_id_in_another_case_counts_if_it_is_unambiguous() -> None:
    assert check_citations("[source: NOTE]", {"Note", "note"}).text == REMOVED
    assert check_citations("Yes [source: note].", {"Note", "note"}).valid == ("note",)
    assert check_citations("Yes [source: NOTE].", {"Note"}).valid == ("Note",)


def test_ids_in_brackets_are_held_back_until_they_are_decided_and_no_longer() -> None:
    filtering = CitationFilter(RETRIEVED)
    assert filtering.feed("Twenty [my-") == "Twenty"
    assert filtering.feed("dal") == ""
    assert filtering.feed("]") == ""
    assert filtering.feed(" or [t") == " [source: my-dal] or"
    assert filtering.feed("ea](") == " [tea]("
    assert filtering.feed("u) [m") == "u)"
    assert filtering.feed("ilk") == " [milk"
    assert filtering.feed("]. Sour") == "]."
    assert filtering.feed("ces") == ""
    assert filtering.feed(" say") == " Sources say"
    assert filtering.feed(". Sources: t") == "."
    assert filtering.finish() == f" {REMOVED}\n\nSources: my-dal"


@every_case(
    ("typed", "quoted"),
    [
        ("[my-dal] and [tea, 1] and x[i]", "(my-dal) and (tea, 1) and x(i)"),
        ("Sources: my-dal", "Sources, my-dal"),
        ("So. **Source**：tea", "So. **Source**,tea"),
        ("Sources:\n- my-dal", "Sources,\n- my-dal"),
        ("[nope] [2] Sources: nope", "[nope] [2] Sources: nope"),
    ],
)
def test_what_a_person_typed_in_these_forms_cites_nothing(typed: str, quoted: str) -> None:
    assert defuse_ids(typed, RETRIEVED) == quoted
    assert check_citations(defuse_ids(typed, RETRIEVED), RETRIEVED).valid == ()
    assert defuse_ids(typed, ()) == typed
