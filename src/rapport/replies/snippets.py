"""What is kept and shown of a source: its id, and the beginning of what was found in it (RAG-7)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rapport.domain.note import Passage
from rapport.replies.defusing import defuse

LONGEST = 160


def snippets(passages: Sequence[Passage], ids: Collection[str]) -> list[dict[str, str]]:
    """For each of these ids, in their order, the best passage found of it."""
    best: dict[str, Passage] = {}
    for passage in passages:
        best.setdefault(passage.note_id, passage)
    return [{"id": id_, "text": _shortened(best[id_].text)} for id_ in ids if id_ in best]


def _shortened(text: str) -> str:
    line = defuse(" ".join(text.split()))  # on one line there may be a tag that was none on several
    if len(line) <= LONGEST:
        return line
    cut = line[: LONGEST - 1]
    at_word = cut.rsplit(" ", 1)[0]
    return f"{at_word if len(at_word) > LONGEST // 2 else cut}…"
