"""The fallback: the same words for the same passages, whatever stands in them (RES-4)."""

from __future__ import annotations

import pytest

from rapport.domain.notes import Passage
from rapport.reply.quoting import quoted_passage
from rapport.reply.replies import FALLBACK, fallback


@pytest.mark.parametrize("text", ["see [source: the\nbook]", "see [source: the\nbook, other]", "see [source:"])
def test_a_passage_that_reads_as_a_tag_on_one_line_is_still_a_quotation(text: str) -> None:
    passages = [
        quoted_passage(Passage(id_, 0, "", "", said, 0.9)) for id_, said in (("hostile", text), ("other", "Fine."))
    ]
    reply = fallback(passages, "timeout", "no answer")
    quoted = " ".join(text.split()).replace("]", ")")
    quoted = quoted.replace("[", "(") if ")" in quoted else quoted
    assert reply.content == f"{FALLBACK}{quoted} [source: hostile] Fine. [source: other]\n\nSources: hostile, other"
    assert reply.sources == [{"id": "hostile", "text": quoted}, {"id": "other", "text": "Fine."}]
