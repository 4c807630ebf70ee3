"""Split formatted text into parts that fit one message each, every part valid alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

import regex

ROOM = 32
"""UTF-16 units of a part that tags must leave for its words."""

OUTER, INNER = 0, 1
"""Ranks of places to cut: between the blocks of a text, between the items of a list or a quote."""

_CLUSTER = regex.compile(r"\X")
_INK = regex.compile(r"\S")
_VISIBLE = regex.compile(r"[^\s\p{Cc}\p{Cf}]")
_ENDS_SENTENCE = frozenset(".!?…")
_ENDS_SENTENCE_UNSPACED = frozenset("。！？")
_CLOSES = frozenset("\"')]}»”’*_")


@dataclass(frozen=True, slots=True)
class Part:
    """One message: the same words as Telegram's HTML and without markup."""

    html: str
    plain: str


@dataclass(frozen=True, slots=True)
class Tag:
    """Formatting around words."""

    name: str
    opening: str
    closing: str
    simpler: Tag | None = None
    """The tag to use where this one is too long."""
    cost: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", count_units(self.opening) + count_units(self.closing))


Tags = tuple[Tag, ...]


def count_units(text: str) -> int:
    """Return the length as Telegram counts it: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def escape_html(text: str) -> str:
    """Return the text escaped for Telegram's HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Flow:
    """Hold words in order with the tags around them, outermost first; `split` cuts them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._texts: list[str] = []
        self._tags: list[Tags] = []
        self._starts: list[int] = []
        self._length = 0
        self._cuts: tuple[list[int], list[int]] = ([], [])
        self._joints: set[int] = set()
        self._whole = ""

    def add(self, text: str, tags: Tags = ()) -> None:
        """Add words; tags that would leave no room for them are left out."""
        if not text:
            return
        tags = self._drop_costly_tags(tags)
        if not self._tags or tags != self._tags[-1]:
            self._starts.append(self._length)
            self._tags.append(tags)
        self._texts.append(text)
        self._length += len(text)

    def add_gap(self, text: str, tags: Tags, rank: int | None) -> None:
        """Add white space where a part may end; without a rank, the words on both sides stay together."""
        if rank is not None:
            self._cuts[rank].append(self._length)
        elif "\n" in text:
            self._joints.add(self._length + text.rindex("\n"))
        self.add(text, tags)

    def split(self) -> list[Part]:
        """Return everything added, in parts within the limit, none of them blank."""
        self._whole = "".join(self._texts)
        found: list[Part] = []
        begin = self._find_start(0)
        while begin < self._length:
            reach = self._measure_reach(begin)
            cut = reach if reach == self._length else self._find_cut(begin, reach)
            end = begin + len(self._whole[begin:cut].rstrip())
            if _VISIBLE.search(self._whole, begin, end):
                found.append(Part(self._render(begin, end), self._whole[begin:end]))
            begin = self._find_start(cut)
        return found

    def _drop_costly_tags(self, tags: Tags) -> Tags:
        while tags and sum(tag.cost for tag in tags) > self._limit - ROOM:
            longest = max(tags, key=lambda tag: tag.cost)
            instead = () if longest.simpler is None else (longest.simpler,)
            at = tags.index(longest)
            tags = (*tags[:at], *instead, *tags[at + 1 :])
        return tags

    def _find_run(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _find_run_end(self, run: int) -> int:
        return self._starts[run + 1] if run + 1 < len(self._starts) else self._length

    def _find_start(self, position: int) -> int:
        """Return where a part begins: after white space, but code keeps the indent of its first line."""
        found = _INK.search(self._whole, position)
        if found is None:
            return self._length
        run = self._find_run(found.start())
        if not any(tag.name == "pre" for tag in self._tags[run]):
            return found.start()
        line = self._whole.rfind("\n", position, found.start()) + 1
        return max(position, self._starts[run], line)

    def _measure_reach(self, begin: int) -> int:
        """Return how far a part from `begin` can go. Only its HTML is measured, which is never shorter than its words."""
        position, spent, around = begin, 0, ()
        for run in range(self._find_run(begin), len(self._tags)):
            tags = self._tags[run]
            spent += sum(map(count_units, _switch_tags(around, tags)))
            room = self._limit - spent - sum(count_units(tag.closing) for tag in tags)
            end = self._find_run_end(run)
            count, cost = _fit(self._whole[position : min(end, position + max(room, 0))], room)
            position, spent, around = position + count, spent + cost, tags
            if position < end:
                break
        return max(position, begin + 1)

    def _find_cut(self, begin: int, reach: int) -> int:
        for places in self._cuts:
            at = bisect_right(places, reach) - 1
            if at >= 0 and places[at] > begin:
                return places[at]
        line = self._whole.rfind("\n", begin + 1, reach + 1)
        if line > begin and line not in self._joints:
            return line
        # One character more than fits tells whether the last cluster is whole.
        return max(line, begin + _find_cut_in_line(_split_clusters(self._whole[begin : reach + 1]), reach - begin))

    def _render(self, begin: int, end: int) -> str:
        html: list[str] = []
        around: Tags = ()
        position = begin
        for run in range(self._find_run(begin), len(self._tags)):
            if position >= end:
                break
            stop = min(end, self._find_run_end(run))
            html += _switch_tags(around, self._tags[run])
            html.append(escape_html(self._whole[position:stop]))
            around, position = self._tags[run], stop
        return "".join([*html, *_switch_tags(around, ())])


def _switch_tags(before: Tags, after: Tags) -> Iterable[str]:
    """Return the tags that close and open between two runs of words, inner ones first."""
    shared = 0
    while shared < min(len(before), len(after)) and before[shared] == after[shared]:
        shared += 1
    return [*(tag.closing for tag in reversed(before[shared:])), *(tag.opening for tag in after[shared:])]


def _fit(text: str, room: int) -> tuple[int, int]:
    """Return how many characters of the text fit, and their escaped length."""
    whole = count_units(escape_html(text))
    if whole <= room:
        return len(text), whole
    costs = list(accumulate(_count_escaped(character) for character in text))
    count = bisect_right(costs, room)
    return count, costs[count - 1] if count else 0


def _count_escaped(character: str) -> int:
    if character == "&":
        return len("&amp;")
    if character in "<>":
        return len("&lt;")
    return 2 if character > "\uffff" else 1


def _split_clusters(text: str) -> list[str]:
    """Return the grapheme clusters of the text."""
    return [found.group() for found in _CLUSTER.finditer(text)]


def _find_cut_in_line(clusters: list[str], most: int) -> int:
    """Return where to cut a line: after a sentence, else at a space, else between clusters."""
    ends = list(accumulate(map(len, clusters)))
    space = sentence = 0
    for at in range(1, len(clusters)):
        before = ends[at - 1]
        if before > most:
            break
        if clusters[at].isspace():
            space = before
            sentence = before if _ends_sentence(clusters, at) else sentence
        elif clusters[at - 1] in _ENDS_SENTENCE_UNSPACED and clusters[at] not in _CLOSES:
            sentence = before
    if sentence or space:
        return sentence or space
    whole = bisect_right(ends, most)
    # A cluster longer than a whole message can only be cut.
    return ends[whole - 1] if whole else most


def _ends_sentence(clusters: list[str], at: int) -> bool:
    """Return True if a sentence ends before the space. A number with a dot usually begins an item instead."""
    last = at - 1
    while last > 0 and clusters[last] in _CLOSES:
        last -= 1
    if clusters[last] in _ENDS_SENTENCE_UNSPACED:
        return True
    return clusters[last] in _ENDS_SENTENCE and not (last and clusters[last - 1].isdigit() and clusters[last] == ".")
