"""Make the sources of a reply: the id and the beginning of each cited passage (RAG-7)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rapport.domain.note import Passage
from rapport.replies.defusing import defuse

MAX_SNIPPET_CHARACTERS = 160


def make_snippets(passages: Sequence[Passage], ids: Collection[str]) -> list[dict[str, str]]:
    """Return the beginning of the best passage of each id, in the order of the ids."""
    best: dict[str, Passage] = {}
    for passage in passages:
        best.setdefault(passage.note_id, passage)
    return [{"id": id_, "text": _shorten(best[id_].text)} for id_ in ids if id_ in best]


def _shorten(text: str) -> str:
    line = defuse(" ".join(text.split()))  # joining lines may form a tag
    if len(line) <= MAX_SNIPPET_CHARACTERS:
        return line
    shortened = line[: MAX_SNIPPET_CHARACTERS - 1]
    at_word = shortened.rsplit(" ", 1)[0]
    return f"{at_word if len(at_word) > MAX_SNIPPET_CHARACTERS // 2 else shortened}…"
