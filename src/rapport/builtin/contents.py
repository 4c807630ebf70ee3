"""Answers about the notes themselves: which there are, and how one begins. The prompt says when its sources are that."""

import re

from rapport.builtin.grounding import passages_of
from rapport.builtin.phrasing import finish_sentence, join_list, quotable
from rapport.builtin.rules import asks_to_break_rules
from rapport.builtin.source_reader import Source

_LISTED = re.compile(r"The person has (\d{1,9}) notes?; these are the beginnings of")
_WHOLE = re.compile(r"The note was asked for as a whole;")
_TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)
_MOST_LISTED = 12
_MOST_SENTENCES = 5
_TITLE_LIMIT, _SENTENCE_LIMIT = 60, 250


def overview(instructions: str, sources: list[Source]) -> str | None:
    """Return the list of notes or the gist of one, each with its source; None if the prompt offers neither."""
    cited = [source for source in sources if source.id]
    if not cited:
        return None
    if found := _LISTED.search(instructions):
        return _list_notes(cited, int(found.group(1)))
    return _gist(cited) if _WHOLE.search(instructions) else None


def _list_notes(sources: list[Source], count: int) -> str:
    shown = sources[:_MOST_LISTED]
    titles = [f"{quotable(_title(source), _TITLE_LIMIT)} [source: {source.id}]" for source in shown]
    more = [f"{count - len(shown)} more"] if count > len(shown) else []
    text = f"I have {count} {'note' if count == 1 else 'notes'}: {join_list([*titles, *more])}."
    return _with_sources(text, shown)


def _title(source: Source) -> str:
    found = _TITLE.search(source.text)
    return found.group(1) if found else str(source.id)


def _gist(sources: list[Source]) -> str:
    """Return the first sentence under each heading, in the order of the note."""
    parts: list[str] = []
    used: list[Source] = []
    for source in sources:
        under: dict[str, str] = {}
        for passage in passages_of([source]):
            if not asks_to_break_rules(passage.text):
                under.setdefault(passage.heading, finish_sentence(quotable(passage.text, _SENTENCE_LIMIT)))
        if under:
            parts.append(f"{' '.join(list(under.values())[:_MOST_SENTENCES])} [source: {source.id}]")
            used.append(source)
    return _with_sources(" ".join(parts), used)


def _with_sources(text: str, sources: list[Source]) -> str:
    return f"{text}\n\nSources: {', '.join(str(source.id) for source in sources)}" if sources else text
