"""Test the fallback reply: the same text for the same passages, whatever they contain (RES-4)."""

from __future__ import annotations

from rapport.domain.note import Passage
from rapport.replies.quoting import quote_passages
from rapport.replies.reply_kinds import FALLBACK, make_fallback_reply
from tests.support.cases import every_case


@every_case("text", ["see [source: the\nbook]", "see [source: the\nbook, other]", "see [source:"])
def test_a_passage_that_reads_as_a_tag_on_one_line_is_still_a_quotation(text: str) -> None:
    told = (("hostile", text), ("other", "Fine."))
    passages = quote_passages([Passage(id_, 0, "", "", said, 0.9) for id_, said in told])
    reply = make_fallback_reply(passages, "timeout", "no answer")
    quoted = " ".join(text.split()).replace("]", ")")
    quoted = quoted.replace("[", "(") if ")" in quoted else quoted
    assert reply.content == f"{FALLBACK}{quoted} [source: hostile] Fine. [source: other]\n\nSources: hostile, other"
    assert reply.sources == [{"id": "hostile", "text": quoted}, {"id": "other", "text": "Fine."}]


def test_a_note_that_ends_with_sources_of_its_own_is_told_whole() -> None:
    reply = make_fallback_reply(
        [Passage("tea", 0, "", "", "Tea is hot. Sources: wikipedia", 0.9)], "timeout", "no answer"
    )
    assert reply.content == f"{FALLBACK}Tea is hot. Sources, wikipedia [source: tea]\n\nSources: tea"
