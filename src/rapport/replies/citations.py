"""Check the citations of a reply against the retrieved notes, while the reply is being written (RAG-6, RAG-8).

`citation_grammar.py` defines the forms of citations. This module reads the text once, from left to right, and decides at the
end of each bracket and line, based on the kept text before it. Text that a removal joins is checked like text that was written
together, and the result does not depend on how the reply is cut into pieces. A bracket that may become a citation, and a line
that may become a citation line, are held back until they are decided. `_Bracket` and `_Line` store the state to restore when
one is removed; each points to the one around it, so that restoring is one step at any depth.

A tag becomes `[source: id]`, and so do known ids alone in brackets, but not in code or in front of a link's `(`. A citation
line (`Sources: a, b`, also after the last sentence, or `Sources:` and a list below it) is removed, and its ids count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from rapport.replies import citation_grammar as grammar
from rapport.replies.citation_grammar import LIST, NAMED, NOT, START, Inside, KnownIds

REMOVED: Final = "(Removed invalid citation)"

_WORD = re.compile(r"[^\s\[【［`]++|[^\S\n]++")
_KEPT_TAG = re.compile(r"\[source: ([A-Za-z0-9_, -]++)\]")
_FENCE = re.compile(r"[ \t]{0,3}(?:```|~~~)")
_FENCE_CHARACTERS: Final = 6

_AFTER_REMOVAL: Final = frozenset(".,;:!?…)]}*\"'”’»。，、；：！？）】」』")
_GOES_ON: Final = frozenset(",;:，；：、-–—/&([{<")
"""A sentence does not end with one of these, nor with a letter or digit."""
_BEGINS_SOURCES: Final = frozenset("sSſ*_")


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A reply that cites only retrieved notes; each id is listed once."""

    text: str
    generated: tuple[str, ...]
    """Ids that the model named, in the order of first appearance."""
    valid: tuple[str, ...]
    """Those of them that were retrieved: first the ids of tags in their order, then those that only citation lines have."""
    removed: tuple[str, ...]
    """Ids that were removed, including those of unfinished tags; an empty tag counts as an empty string."""


def check_citations(text: str, retrieved: Collection[str]) -> CheckedText:
    """Return the reply without citations of notes that are not in `retrieved`. Checking the result again changes nothing."""
    if not grammar.MAY_CITE.search(text):
        return CheckedText(text.rstrip(), (), (), ())
    citation_filter = CitationFilter(retrieved)
    citation_filter.feed(text)
    citation_filter.finish()
    return citation_filter.checked


class _Code(NamedTuple):
    """True if the text is in a code block, and in code between backticks on this line."""

    is_block: bool = False
    is_inline: bool = False


class _Line(NamedTuple):
    """The start of a line, or of a citation line after a sentence, and the state to restore if it is removed."""

    start: int
    row: int
    """The position where the whole line begins."""
    solid: int
    floor: int
    """Nothing from this position on is shown while the line may be removed."""
    open: _Bracket | None
    inside: Inside
    code: _Code
    header: _Line | None
    """The first line that is removed with this one: `Sources:` alone on a line, or a blank line in the list below it."""
    is_listed: bool
    """True if this may be an item of the list below a `Sources:` line that was removed already."""


class _Bracket(NamedTuple):
    """The position of a bracket that may begin a citation, and the state to restore if it is removed."""

    start: int
    solid: int
    floor: int
    outer: _Bracket | None
    outer_inside: Inside
    code: _Code
    line: _Line
    line_state: int
    is_item: bool


_NOTHING: Final = Inside(NOT, is_known=False, is_list=False)


class CitationFilter:
    """Checks a reply that arrives in pieces. Shown text is never withdrawn, and no part of an undecided citation or citation
    line is shown."""

    checked: CheckedText
    """The whole reply; set by `finish`."""

    def __init__(self, retrieved: Collection[str]) -> None:
        self._retrieved = {*retrieved}
        self._known = KnownIds(self._retrieved)
        self._generated: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._has_removed_tag = False
        self._kept: list[str] = []
        self._shown = 0
        self._solid = 0  # the end of the kept text without trailing whitespace
        self._open: _Bracket | None = None
        self._inside = _NOTHING
        self._is_closed = (
            False  # True if the open bracket has ended and holds only ids: a citation, unless it is the text of a link
        )
        self._code = _Code()
        self._after_removal = False
        self._begin_line()

    def allow(self, ids: Iterable[str]) -> None:
        """Count citations of these ids as valid, too, from here on."""
        self._retrieved.update(ids)
        self._known = KnownIds(self._retrieved)

    def feed(self, piece: str) -> str:
        """Read the next piece of the reply and return the text that may be shown now."""
        position = 0
        while position < len(piece):
            by_character = self._after_removal or self._open or self._may_cite() or self._may_begin(piece[position])
            if not by_character and (plain := _WORD.match(piece, position)):
                self._keep(plain.group())
                position = plain.end()
            else:
                self._take(piece[position])
                position += 1
        return self._show()

    def finish(self) -> str:
        """Return the rest of the reply with the remark about removals and the `Sources:` line. Call it once, at the end."""
        while self._settle():
            pass
        del self._kept[self._solid :]
        if not self._kept and not self._has_removed_tag:  # only citation lines
            self.checked = CheckedText("", (), (), ())
            return ""
        ending = ""
        if self._removed and "".join(self._kept[-len(REMOVED) :]) != REMOVED:
            ending = f" {REMOVED}" if self._kept else REMOVED
        valid = self._valid_ids()
        if valid:
            ending += f"\n\nSources: {', '.join(valid)}"
        text = "".join(self._kept) + ending
        self.checked = CheckedText(text, tuple(self._generated), valid, tuple(self._removed))
        return "".join(self._kept[self._shown :]) + ending

    def _valid_ids(self) -> tuple[str, ...]:
        tags = _KEPT_TAG.findall("".join(self._kept))
        in_text = [cited_id for content in tags for cited_id in content.split(", ")]
        return tuple(note_id for note_id in dict.fromkeys([*in_text, *self._generated]) if note_id in self._known)

    def _may_cite(self) -> bool:
        """Return True if the line may be a citation line, as far as it is read."""
        return self._is_item or self._line_state != NOT

    def _may_begin(self, char: str) -> bool:
        """Return True if a citation line may begin with this character, after a sentence."""
        if char not in _BEGINS_SOURCES or not self._kept or len(self._kept) == self._solid:
            return False
        last = self._kept[self._solid - 1] if self._solid > self._line.row else "\n"
        return not (last.isalnum() or last.isspace() or last in _GOES_ON)

    def _count_decided(self) -> int:
        """Return the end of the kept text that can't be removed any more."""
        end = self._open.floor if self._open else self._solid
        return min(end, self._line.floor) if self._may_cite() else end

    def _show(self) -> str:
        start, self._shown = self._shown, self._count_decided()
        return "".join(self._kept[start : self._shown])

    def _take(self, char: str) -> None:
        if self._is_closed and self._open:
            self._decide_closed(self._open, is_link=char == "(")
        if self._after_removal:
            self._close_gap(char)
        if char in grammar.OPENING:
            self._open_bracket(char)
        elif char in grammar.CLOSING and self._open and self._inside.tag >= LIST:
            self._close_tag(self._open)
        elif char in grammar.CLOSING and self._open and self._inside.is_list:
            self._close_list(self._open, char)
        elif char == "\n":
            self._end_line()
        else:
            self._read(char)

    def _keep(self, text: str) -> None:
        self._kept.extend(text)
        if solid := len(text.rstrip()):
            self._solid = len(self._kept) - len(text) + solid

    def _close_gap(self, char: str) -> None:
        """Remove the space before removed text, unless it now separates two words."""
        self._after_removal = False
        if char.isspace() or char in _AFTER_REMOVAL:
            while self._kept and self._kept[-1] in " \t":
                self._kept.pop()

    def _read(self, char: str) -> None:
        if self._open:
            self._lead_on(self._open, char)
        if not self._open and not self._may_cite() and self._may_begin(char):
            self._begin_line(row=self._line.row)
        if not self._in_own_bracket():
            self._line_state = grammar.line_state(self._line_state, char)
            self._is_item = self._is_item and (char in grammar.ITEM_CHARACTERS or char.isspace())
        if char == "`" and self._kept[-1:] != ["`"]:
            self._code = self._code._replace(is_inline=not self._code.is_inline)
        self._kept.append(char)
        if not char.isspace():
            self._solid = len(self._kept)

    def _in_own_bracket(self) -> bool:
        """Return True if a bracket of this line is undecided, and so the line too."""
        return self._open is not None and self._open.line is self._line

    def _open_bracket(self, char: str) -> None:
        state = (self._open, self._inside, self._code, self._line, self._line_state, self._is_item)
        self._open = _Bracket(len(self._kept), self._solid, self._count_decided(), *state)
        self._inside = Inside(is_known=not any(self._code))
        self._keep(char)

    def _lead_on(self, bracket: _Bracket, char: str) -> None:
        self._inside = inside = self._inside.read(char, self._known)
        if inside.tag == NOT and not inside.is_known and not (inside.is_list and _lists(bracket)):
            self._let_stand(bracket)

    def _let_stand(self, bracket: _Bracket) -> None:
        """Keep this bracket as it is: no bracket around it begins a tag, and its line is no citation line."""
        if bracket.line is self._line:
            self._line_state, self._is_item = NOT, False
        self._open, self._inside, self._is_closed = None, _NOTHING, False

    def _close_list(self, bracket: _Bracket, char: str) -> None:
        """End a bracket that holds only ids: a citation if they are known, and in a citation line a part of the line."""
        if self._inside.cites(self._known):
            self._is_closed = True
        elif _lists(bracket) and self._inside.is_list and not bracket.outer:
            self._open, self._inside = None, _NOTHING
        else:
            self._let_stand(bracket)
        self._keep(char)

    def _decide_closed(self, bracket: _Bracket, *, is_link: bool) -> None:
        """Decide about known ids alone in brackets: with `is_link` they are the text of a link."""
        self._is_closed = False
        if is_link:
            self._let_stand(bracket)
            return
        ids = grammar.ids_in_brackets("".join(self._kept[bracket.start + 1 : -1]))
        if bracket.outer and bracket.outer_inside.tag >= LIST:  # [source: [a], [b]]
            self._take_out(bracket)
            self._after_removal = False
            for char in ", ".join(ids):
                self._read(char)
            return
        self._replace_bracket(bracket, self._check_ids(ids))

    def _close_tag(self, bracket: _Bracket) -> None:
        ids = grammar.ids_in_tag("".join(self._kept[bracket.start + 1 :]))
        valid = self._check_ids(ids or [""])
        self._has_removed_tag |= not valid or len(valid) < len(ids)
        self._replace_bracket(bracket, valid)

    def _replace_bracket(self, bracket: _Bracket, valid: Sequence[str]) -> None:
        """Replace the bracket by a tag of these ids; without ids, remove it."""
        self._take_out(bracket)
        if not valid:
            return
        if self._open:
            self._let_stand(self._open)
        if self._line_state < LIST:
            self._line_state = NOT
        self._after_removal = False
        self._keep(f"[source: {', '.join(valid)}]")

    def _check_ids(self, ids: Sequence[str]) -> list[str]:
        """Return the exact ids of those that were retrieved, each once."""
        valid: dict[str, None] = {}
        for cited in ids:
            note_id = self._known.find(cited)
            if cited:
                self._generated[note_id or cited] = None
            if note_id:
                valid[note_id] = None
            else:
                self._removed[cited] = None
        return list(valid)

    def _take_out(self, bracket: _Bracket) -> None:
        del self._kept[bracket.start :]
        self._solid, self._code = bracket.solid, bracket.code
        self._open, self._inside = bracket.outer, bracket.outer_inside
        self._line, self._line_state, self._is_item = bracket.line, bracket.line_state, bracket.is_item
        self._after_removal = True

    def _begin_line(self, header: _Line | None = None, *, is_listed: bool = False, row: int | None = None) -> None:
        start = len(self._kept)
        floor = header.floor if header else self._open.floor if self._open else self._solid
        state = (self._open, self._inside, self._code, header, is_listed)
        self._line = _Line(start, start if row is None else row, self._solid, floor, *state)
        self._line_state, self._is_item = START, header is not None or is_listed

    def _end_line(self) -> None:
        line, (kind, ids) = self._line, self._kind_of_line()
        if kind == "citations":
            self._replace_line(ids)
            return
        if self._open:
            self._lead_on(self._open, "\n")
        self._end_row(line.row)
        if kind == "text":
            self._begin_line()
        else:
            header = line if kind == "header" or line.is_listed else None
            self._begin_line(line.header or header, is_listed=line.is_listed)

    def _end_row(self, row: int) -> None:
        is_fence = _FENCE.match("".join(self._kept[row : row + _FENCE_CHARACTERS])) is not None
        self._code = _Code(self._code.is_block != is_fence)
        self._kept.append("\n")

    def _kind_of_line(self) -> tuple[Literal["text", "blank", "header", "citations"], Sequence[str]]:
        """Return the kind of the line, and its ids outside of tags."""
        if self._in_own_bracket() or not self._may_cite():
            return "text", ()
        line = self._line
        text = "".join(self._kept[line.start :])
        if not text.strip():
            return "blank", ()
        if self._line_state >= LIST:
            items = grammar.after_colon(text)
            max_words = grammar.MAX_WORDS_ON_A_LINE if line.start == line.row else grammar.MOST_WORDS_AFTER_A_SENTENCE
            ids = grammar.ids_in_line(items, self._known, max_words)
            if ids is not None:
                return ("citations" if grammar.names_ids(items) else "header"), ids
        ids = grammar.ids_in_list_item(text, self._known) if self._is_item else None
        return ("text", ()) if ids is None else ("citations", ids)

    def _replace_line(self, ids: Sequence[str]) -> None:
        """Remove a citation line with its header."""
        line = self._line
        self._check_ids(ids)
        first = line.header or line
        self._forget(first)
        if first.start > first.row:
            self._end_row(first.row)
        self._begin_line(is_listed=line.is_listed or line.header is not None)

    def _forget(self, line: _Line) -> None:
        del self._kept[line.start :]
        if line.start > line.row:
            del self._kept[line.solid :]
        self._solid, self._open, self._inside, self._code = line.solid, line.open, line.inside, line.code

    def _settle(self) -> bool:
        """Decide about undecided text at the end; return True if something was removed: then call it again for the new end."""
        if self._is_closed and self._open:
            self._decide_closed(self._open, is_link=False)
            return True
        line, (kind, ids) = self._line, self._kind_of_line()
        if kind == "citations":
            self._replace_line(ids)
            return True
        if kind == "header" or (kind == "blank" and line.header):
            self._forget(line.header or line)
            self._begin_line()
            return True
        # A part of the word `source` may be ordinary text. With the whole word it is an unfinished citation.
        if self._open and self._inside.tag >= NAMED:
            content = "".join(self._kept[self._open.start + 1 :])
            ids = grammar.ids_in_tag(content) if self._inside.tag >= LIST else []
            self._removed.update(dict.fromkeys(ids or [""]))
            self._has_removed_tag = True
            self._take_out(self._open)
            return True
        return False


def _lists(bracket: _Bracket) -> bool:
    """Return True if this bracket is among the ids of a citation line."""
    return bracket.line_state >= LIST or bracket.is_item
