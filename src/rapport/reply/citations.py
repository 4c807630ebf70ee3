"""What the model cites is checked against what was retrieved, while it is being written (RAG-6, RAG-8).

A tag is `[source: id]`, a list is `[source: a, b]`. People also take `[Sources: a; b]`, `[ source : doc 1 ]` and
`[source: ]` for citations, so those are tags too: `[`, `source` or `sources` in any case, `:`, and then anything without
brackets or newlines. Whitespace may cross lines wherever the spec's expression lets it, and after a `,` or `;`.

The text is read once, from left to right, and judged where a bracket or a line ends, always against what is kept of the
text before it. So what a removal brings together is judged as if it had been written together, and every way of cutting
the text into pieces gives the same result. Two things are held back until they are decided: brackets that may still
become a tag, and lines that may still become a citation line of the model's own. A mark says how far back to go when
one of them is taken out; marks point to the marks before them, so that going back is one step however deep they nest.

A citation line (`Sources: a, b`, or `Sources:` and a list below it) is taken out, but an id that was cited nowhere
before it stays in its place as a tag: a reply that is checked again must find its sources again.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Final, Literal, NamedTuple

REMOVED: Final = "(Removed invalid citation)"

_ID = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^\[\n]+")
_ITEMS = re.compile(r"(?:\[[^\]]*+\]|[A-Za-z0-9_,;&*`\s-]++)*+(?:\.[,;&*`_\s-]*+)?")
_TOKEN = re.compile(r"\[[^\]]*\]|[A-Za-z0-9_-]+|[,;&]")
_NAMES = re.compile(r"[A-Za-z0-9\[]")
_BULLET = re.compile(r"[\s>]*(?:[-*+•]|\d+[.)])(?:\s(?P<items>.*))?", re.DOTALL)
_TAGS = re.compile(r"(?:\[[^\]]*+\]|[\s>,;&]++)*+")

_CLOSING: Final = frozenset(".,;:!?…)]}*\"'”’»。，、；：！？）】」』")
_DECORATION: Final = frozenset(">#*_+•`-")
_LISTED: Final = frozenset(ascii_letters + digits + "_-,;&*`")
_BULLETED: Final = _LISTED | frozenset(".)+•>")
_SENTENCE: Final = 3
"""So many words in a row, with nothing between them that separates ids, are prose."""

# How far the text after a `[`, or from the start of a line, has come. Below `_NAMED`: so many letters of "source".
_NOT, _START, _NAMED, _PLURAL, _NAME_END, _LIST, _CONTENT, _TAIL = -1, 0, 6, 7, 8, 9, 10, 11
_LINE_END: Final = 10  # in a citation line: after its full stop


@dataclass(frozen=True, slots=True)
class Checked:
    """A reply that cites nothing but what was retrieved; ids in the order of their first appearance, each once."""

    text: str
    generated: tuple[str, ...]
    """Whatever the model named in a tag."""
    valid: tuple[str, ...]
    """What of it was retrieved: what the reply may be said to rest on."""
    removed: tuple[str, ...]
    """What was taken out of tags, unfinished ones included; a tag without anything in it counts as an empty string."""


def check(text: str, retrieved: Collection[str]) -> Checked:
    """The reply without a tag that is not backed by `retrieved`; checking its text again changes nothing."""
    checking = CitationFilter(retrieved)
    checking.feed(text)
    checking.finish()
    return checking.checked


def defuse(text: str) -> str:
    """The text with round brackets around what would read as a tag, so that quoting it cites nothing."""
    if "[" not in text:
        return text
    kept = list(text)
    opened: list[tuple[int, int]] = []
    position = text.find("[")
    while 0 <= position < len(text):
        char = text[position]
        if char == "[":
            opened.append((position, _START))
        elif char == "]" and opened[-1][1] >= _LIST:
            kept[opened.pop()[0]], kept[position] = "(", ")"
            _follow(opened, "(")  # what is now quoted inside of an outer tag is part of its content
        else:
            _follow(opened, char)
        position = position + 1 if opened else text.find("[", position + 1)
    return "".join(kept)


def _follow(opened: list[tuple[int, int]], char: str) -> None:
    """Lead the innermost bracket on; once it can't be one of a tag, none around it can."""
    if not opened:
        return
    start, state = opened[-1]
    state = _in_tag(state, char)
    if state == _NOT:
        opened.clear()
    else:
        opened[-1] = (start, state)


def _in_tag(state: int, char: str) -> int:
    """How far a tag has come with one more character; `_NOT` if it is none."""
    if char.isspace():
        return _spaced_tag(state, char)
    if char == "]":
        return _NOT
    if state < _LIST:
        return _named(state, char)
    if char in ",;":
        return _LIST
    return _NOT if state == _TAIL else _CONTENT


def _spaced_tag(state: int, char: str) -> int:
    if state == _CONTENT and char == "\n":
        return _TAIL
    if _NAMED <= state < _LIST:
        return _NAME_END
    return _NOT if _START < state < _NAMED else state


def _named(state: int, char: str) -> int:
    """One more character of the name, or the colon after it."""
    if char == ":":
        return _LIST if state >= _NAMED else _NOT
    return state + 1 if state < _PLURAL and char.casefold() == "sources"[state] else _NOT


def _in_line(state: int, char: str) -> int:
    """How far a citation line has come with one more character; `_NOT` if it is none."""
    if state == _NOT:
        return _NOT
    if state == _START and (char in _DECORATION or char.isspace()):
        return _START
    if state < _LIST:
        return _NAME_END if state >= _NAMED and (char in "*_" or char.isspace()) else _named(state, char)
    if char == ".":
        return _LINE_END if state == _LIST else _NOT
    if state == _LINE_END and char.isalnum():
        return _NOT
    return state if char in _LISTED or char.isspace() else _NOT


class _Line(NamedTuple):
    """Where a line begins, and what to go back to if it is taken out."""

    start: int
    solid: int
    floor: int
    """Nothing from here on is shown while it may be taken out."""
    open: _Bracket | None
    tag: int
    cited: int
    """How many ids were cited before it."""
    header: _Line | None
    """Where what goes with this line begins: at `Sources:` alone on a line, or at a blank line in the list below it."""
    listed: bool
    """Whether the list below such a line, already taken out, may go on here."""


class _Bracket(NamedTuple):
    """Where a `[` stands that may begin a tag, and what to go back to if it is taken out."""

    start: int
    solid: int
    floor: int
    outer: _Bracket | None
    outer_tag: int
    line: _Line
    line_state: int
    item: bool


class CitationFilter:
    """The same check for a reply that arrives in pieces: what was shown is never taken back, and no piece of a tag
    or of a citation line is shown before it is decided. An id that the spec's expression can't match is never valid."""

    checked: Checked
    """The whole reply; there after `finish`."""

    def __init__(self, retrieved: Collection[str]) -> None:
        self._retrieved = frozenset(one for one in retrieved if _ID.fullmatch(one))
        self._generated: dict[str, None] = {}
        self._valid: list[str] = []
        self._removed: dict[str, None] = {}
        self._kept: list[str] = []
        self._shown = 0
        self._solid = 0  # the end of what is kept, without the whitespace that may turn out to be trailing
        self._open: _Bracket | None = None
        self._tag = _NOT
        self._after_removal = False
        self._begin_line()

    def feed(self, piece: str) -> str:
        """Take the next piece of the reply; returns what may be shown now."""
        position = 0
        while position < len(piece):
            by_character = self._after_removal or self._open or self._may_cite()
            if not by_character and (plain := _PLAIN.match(piece, position)):
                self._keep(plain.group())
                position = plain.end()
            else:
                self._take(piece[position])
                position += 1
        return self._show()

    def finish(self) -> str:
        """The rest of the reply, with what the check has to say about it. To be called once, at the end."""
        while self._settle():
            pass
        del self._kept[self._solid :]
        ending = ""
        if self._removed and "".join(self._kept[-len(REMOVED) :]) != REMOVED:
            ending = f" {REMOVED}" if self._kept else REMOVED
        if self._valid:
            ending += f"\n\nSources: {', '.join(self._valid)}"
        text = "".join(self._kept) + ending
        self.checked = Checked(text, tuple(self._generated), tuple(self._valid), tuple(self._removed))
        return "".join(self._kept[self._shown :]) + ending

    def _may_cite(self) -> bool:
        """Whether the line, as far as it goes, may be a citation line."""
        return self._item or self._line_state != _NOT

    def _decided(self) -> int:
        """How far nothing that is kept can still be taken out."""
        end = self._open.floor if self._open else self._solid
        return min(end, self._line.floor) if self._may_cite() else end

    def _show(self) -> str:
        start, self._shown = self._shown, self._decided()
        return "".join(self._kept[start : self._shown])

    def _take(self, char: str) -> None:
        if self._after_removal:
            self._close_gap(char)
        if char == "[":
            self._open_bracket()
        elif char == "]" and self._open and self._tag >= _LIST:
            self._close_tag(self._open)
        elif char == "\n":
            self._end_line()
        else:
            self._read(char)

    def _keep(self, text: str) -> None:
        self._kept.extend(text)
        if solid := len(text.rstrip()):
            self._solid = len(self._kept) - len(text) + solid

    def _close_gap(self, char: str) -> None:
        """The space before what was removed goes with it, unless it now parts two words."""
        self._after_removal = False
        if char.isspace() or char in _CLOSING:
            while self._kept and self._kept[-1] in " \t":
                self._kept.pop()

    def _read(self, char: str) -> None:
        if self._open:
            self._lead_on(self._open, char)
        if not self._in_own_bracket():
            self._line_state = _in_line(self._line_state, char)
            self._item = self._item and (char in _BULLETED or char.isspace())
        self._kept.append(char)
        if not char.isspace():
            self._solid = len(self._kept)

    def _in_own_bracket(self) -> bool:
        """Whether a bracket of this line is undecided, and the line with it."""
        return self._open is not None and self._open.line is self._line

    def _open_bracket(self) -> None:
        inside = (self._open, self._tag, self._line, self._line_state, self._item)
        self._open = _Bracket(len(self._kept), self._solid, self._decided(), *inside)
        self._tag = _START
        self._keep("[")

    def _lead_on(self, bracket: _Bracket, char: str) -> None:
        self._tag = _in_tag(self._tag, char)
        if self._tag == _NOT:
            self._let_stand(bracket)

    def _let_stand(self, bracket: _Bracket) -> None:
        """This bracket stays, so no bracket around it begins a tag, and its line is no citation line."""
        if bracket.line is self._line:
            self._line_state, self._item = _NOT, False
        self._open, self._tag = None, _NOT

    def _close_tag(self, bracket: _Bracket) -> None:
        valid = self._judge(self._ids_in(bracket))
        self._take_out(bracket)
        if not valid:
            return
        if self._open:
            self._let_stand(self._open)
        if self._line_state < _LIST:
            self._line_state = _NOT
        self._after_removal = False
        self._keep(_tag_of(valid))

    def _ids_in(self, bracket: _Bracket) -> list[str]:
        content = "".join(self._kept[bracket.start :]).partition(":")[2]
        return [part.strip() for part in re.split("[,;]", content) if part.strip()]

    def _judge(self, ids: list[str]) -> list[str]:
        valid = [one for one in dict.fromkeys(ids) if one in self._retrieved]
        self._valid += [one for one in valid if one not in self._generated]
        self._generated.update(dict.fromkeys(ids))
        self._removed.update(dict.fromkeys(one for one in ids or [""] if one not in self._retrieved))
        return valid

    def _take_out(self, bracket: _Bracket) -> None:
        del self._kept[bracket.start :]
        self._solid = bracket.solid
        self._open, self._tag = bracket.outer, bracket.outer_tag
        self._line, self._line_state, self._item = bracket.line, bracket.line_state, bracket.item
        self._after_removal = True

    def _begin_line(self, header: _Line | None = None, *, listed: bool = False) -> None:
        floor = header.floor if header else self._open.floor if self._open else self._solid
        cited = len(self._valid)
        self._line = _Line(len(self._kept), self._solid, floor, self._open, self._tag, cited, header, listed)
        self._line_state, self._item = _START, header is not None or listed

    def _end_line(self) -> None:
        line, kind = self._line, self._kind_of_line()
        if kind == "citations":
            self._replace_line()
            return
        if self._open:
            self._lead_on(self._open, "\n")
        self._kept.append("\n")
        if kind == "text":
            self._begin_line()
        else:
            header = line if kind == "header" or line.listed else None
            self._begin_line(line.header or header, listed=line.listed)

    def _kind_of_line(self) -> Literal["text", "blank", "header", "citations"]:
        if self._in_own_bracket() or not self._may_cite():
            return "text"
        text = "".join(self._kept[self._line.start :])
        if not text.strip():
            return "blank"
        if self._line_state >= _LIST:
            items = text.partition(":")[2]
            if self._lists_ids(items):
                return "citations" if _NAMES.search(items) else "header"
        return "citations" if self._item and self._is_item(text) else "text"

    def _is_item(self, text: str) -> bool:
        bullet = _BULLET.fullmatch(text)
        return self._lists_ids(bullet["items"] or "") if bullet else _TAGS.fullmatch(text) is not None

    def _lists_ids(self, items: str) -> bool:
        if not _ITEMS.fullmatch(items):
            return False
        words = 0
        for token in _TOKEN.findall(items):
            is_word = token.isalpha() and token.casefold() != "and" and token not in self._retrieved
            words = words + 1 if is_word else 0
            if words == _SENTENCE:
                return False
        return True

    def _replace_line(self) -> None:
        """Take a citation line out, with the header it belongs to; leave the ids that were not cited before it."""
        line = self._line
        fresh = self._valid[line.cited :]
        self._forget(line.header or line)
        if fresh:
            self._open, self._tag = None, _NOT
            self._keep(_tag_of(fresh))
            self._kept.append("\n")
        self._begin_line(listed=line.listed or line.header is not None)

    def _forget(self, line: _Line) -> None:
        del self._kept[line.start :]
        self._solid, self._open, self._tag = line.solid, line.open, line.tag

    def _settle(self) -> bool:
        """Decide what the end of the text leaves open; true if something was taken out, and the rest ends anew."""
        line, kind = self._line, self._kind_of_line()
        if kind == "citations":
            self._replace_line()
            return True
        if kind == "header" or (kind == "blank" and line.header):
            self._forget(line.header or line)
            self._begin_line()
            return True
        # Less than the whole word may be ordinary text; with it, a reader sees a citation that breaks off.
        if self._open and self._tag >= _NAMED:
            self._removed.update(dict.fromkeys(self._ids_in(self._open) or [""]))
            self._take_out(self._open)
            return True
        return False


def _tag_of(ids: list[str]) -> str:
    return f"[source: {', '.join(ids)}]"
