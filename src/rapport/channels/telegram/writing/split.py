"""Split formatted text into parts that fit one message each, every part valid alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

import regex

MIN_TEXT_UNITS = 32
"""The minimal number of UTF-16 units of a part that tags must leave for its words."""

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
        parts: list[Part] = []
        start = self._find_start(0)
        while start < self._length:
            max_end = self._measure_reach(start)
            cut = max_end if max_end == self._length else self._find_cut(start, max_end)
            end = start + len(self._whole[start:cut].rstrip())
            if _VISIBLE.search(self._whole, start, end):
                parts.append(Part(self._render(start, end), self._whole[start:end]))
            start = self._find_start(cut)
        return parts

    def _drop_costly_tags(self, tags: Tags) -> Tags:
        while tags and sum(tag.cost for tag in tags) > self._limit - MIN_TEXT_UNITS:
            longest = max(tags, key=lambda tag: tag.cost)
            replacement = () if longest.simpler is None else (longest.simpler,)
            index = tags.index(longest)
            tags = (*tags[:index], *replacement, *tags[index + 1 :])
        return tags

    def _find_run(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _find_run_end(self, run: int) -> int:
        return self._starts[run + 1] if run + 1 < len(self._starts) else self._length

    def _find_start(self, position: int) -> int:
        """Return the start of a part: after white space, but code keeps the indent of its first line."""
        match = _INK.search(self._whole, position)
        if match is None:
            return self._length
        run = self._find_run(match.start())
        if not any(tag.name == "pre" for tag in self._tags[run]):
            return match.start()
        line = self._whole.rfind("\n", position, match.start()) + 1
        return max(position, self._starts[run], line)

    def _measure_reach(self, start: int) -> int:
        """Return the largest end of a part from `start`. Only its HTML is measured, which is never shorter than its words."""
        position, used, open_tags = start, 0, ()
        for run in range(self._find_run(start), len(self._tags)):
            tags = self._tags[run]
            used += sum(map(count_units, _switch_tags(open_tags, tags)))
            units_left = self._limit - used - sum(count_units(tag.closing) for tag in tags)
            end = self._find_run_end(run)
            count, cost = _fit(self._whole[position : min(end, position + max(units_left, 0))], units_left)
            position, used, open_tags = position + count, used + cost, tags
            if position < end:
                break
        return max(position, start + 1)

    def _find_cut(self, start: int, max_end: int) -> int:
        for positions in self._cuts:
            index = bisect_right(positions, max_end) - 1
            if index >= 0 and positions[index] > start:
                return positions[index]
        line = self._whole.rfind("\n", start + 1, max_end + 1)
        if line > start and line not in self._joints:
            return line
        # One more character than fits shows whether the last cluster is complete.
        return max(line, start + _find_cut_in_line(_split_clusters(self._whole[start : max_end + 1]), max_end - start))

    def _render(self, start: int, end: int) -> str:
        html: list[str] = []
        open_tags: Tags = ()
        position = start
        for run in range(self._find_run(start), len(self._tags)):
            if position >= end:
                break
            stop = min(end, self._find_run_end(run))
            html += _switch_tags(open_tags, self._tags[run])
            html.append(escape_html(self._whole[position:stop]))
            open_tags, position = self._tags[run], stop
        return "".join([*html, *_switch_tags(open_tags, ())])


def _switch_tags(before: Tags, after: Tags) -> Iterable[str]:
    """Return the tags that close and open between two runs of words, inner ones first."""
    shared = 0
    while shared < min(len(before), len(after)) and before[shared] == after[shared]:
        shared += 1
    return [*(tag.closing for tag in reversed(before[shared:])), *(tag.opening for tag in after[shared:])]


def _fit(text: str, max_units: int) -> tuple[int, int]:
    """Return how many characters of the text fit, and their escaped length."""
    units = count_units(escape_html(text))
    if units <= max_units:
        return len(text), units
    costs = list(accumulate(_count_escaped(character) for character in text))
    count = bisect_right(costs, max_units)
    return count, costs[count - 1] if count else 0


def _count_escaped(character: str) -> int:
    if character == "&":
        return len("&amp;")
    if character in "<>":
        return len("&lt;")
    return 2 if character > "\uffff" else 1


def _split_clusters(text: str) -> list[str]:
    """Return the grapheme clusters of the text."""
    return [match.group() for match in _CLUSTER.finditer(text)]


def _find_cut_in_line(clusters: list[str], max_length: int) -> int:
    """Return where to cut a line: after a sentence, else at a space, else between clusters."""
    ends = list(accumulate(map(len, clusters)))
    space = sentence = 0
    for position in range(1, len(clusters)):
        before = ends[position - 1]
        if before > max_length:
            break
        if clusters[position].isspace():
            space = before
            sentence = before if _ends_sentence(clusters, position) else sentence
        elif clusters[position - 1] in _ENDS_SENTENCE_UNSPACED and clusters[position] not in _CLOSES:
            sentence = before
    if sentence or space:
        return sentence or space
    whole = bisect_right(ends, max_length)
    # A cluster that is longer than a message must be cut.
    return ends[whole - 1] if whole else max_length


def _ends_sentence(clusters: list[str], position: int) -> bool:
    """Return True if a sentence ends before the space. A number with a dot usually begins an item instead."""
    last = position - 1
    while last > 0 and clusters[last] in _CLOSES:
        last -= 1
    if clusters[last] in _ENDS_SENTENCE_UNSPACED:
        return True
    return clusters[last] in _ENDS_SENTENCE and not (last and clusters[last - 1].isdigit() and clusters[last] == ".")
