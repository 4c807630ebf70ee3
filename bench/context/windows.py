"""Draw windows of chat for training, augmented so that the scorer does not learn the habits of one channel.

The training chats come from one channel: hundreds of strangers, names before most answers, a dozen discussions at a time. Other
chats differ. So a window may have its names removed, its silences stretched to hours and days, most of its discussions left out,
replies marked as a platform would mark them, or its people replaced by a few who take part in everything. Some windows combine
discussions of different days, one after the other, as in a meeting or among friends.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rapport.context.relevance.line_features import Line, strip_handles

SIZES = (100, 100, 100, 100, 60, 40, 20, 10, 6)
"""The number of lines of a window; short ones stand for new chats."""


@dataclass(frozen=True, slots=True)
class Said:
    author: str
    at: float
    text: str
    mentions: tuple[str, ...]
    parents: tuple[int, ...]
    """The numbers of the messages that it answers."""


@dataclass(frozen=True, slots=True)
class Log:
    judged_from: int
    said: Sequence[Said]


@dataclass(frozen=True, slots=True)
class Window:
    lines: Sequence[Line]
    answers: Sequence[Sequence[int]]
    """For each line, the earlier lines that it answers."""
    together: NDArray[np.bool_]
    """[i, k]: whether i and the earlier k are in one thread, given the messages up to i."""


def read(path: Path, *, least: int = 60) -> list[Log]:
    """Return the logs of a base file in which at least this many messages are annotated."""
    logs: list[Log] = []
    for line in path.read_text("utf8").splitlines():
        log = json.loads(line)
        numbers = {one["id"]: number for number, one in enumerate(log["messages"])}
        said = [
            Said(
                one["author"],
                one["time"],
                one["text"],
                tuple(one["mentions"]),
                tuple(numbers[parent] for parent in one["parents"]),
            )
            for one in log["messages"]
        ]
        if len(said) - log["judged_from"] >= least:
            logs.append(Log(log["judged_from"], said))
    return logs


class Windows:
    """Draw windows from logs: the same ones for the same random numbers."""

    def __init__(self, logs: Sequence[Log], *, merged: float = 0.1, serial: float = 0.12) -> None:
        self._logs = logs
        self._judged = [len(log.said) - log.judged_from for log in logs]
        self._merged = merged
        self._serial = serial
        self._threads = [(log, thread) for log in logs for thread in _threads(log) if len(thread) >= 4]

    def draw(self, size: int, chance: random.Random) -> Window | None:
        """Return a window of about this many lines; None if the draw gave no usable window."""
        if chance.random() < (self._serial if size > 20 else 0.05):
            return self._one_after_another(size, chance)
        return self._stretch(size, chance)

    def _stretch(self, size: int, chance: random.Random) -> Window | None:
        """Return a section of a log, sometimes with only some of its discussions."""
        log = chance.choices(self._logs, self._judged)[0]
        judged = len(log.said) - log.judged_from
        share = chance.choices([1.0, 0.6, 0.35, 0.2], [0.45, 0.2, 0.2, 0.15])[0]
        span = min(judged, int(size / share) + 1)
        end = chance.randint(log.judged_from + span, len(log.said))
        numbers = list(range(end - span, end))
        if share < 1:
            label = _labels(log.said, numbers)
            kept = {one for one in dict.fromkeys(label.values()) if chance.random() < share}
            numbers = [number for number in numbers if label[number] in kept]
        numbers = numbers[-size:]
        if len(numbers) < max(4, 0.6 * size):
            return None
        together = _together(log, numbers, since=numbers[0] if share < 1 else max(0, numbers[0] - 400))
        place = {number: index for index, number in enumerate(numbers)}
        answers = [[place[one] for one in log.said[number].parents if one in place] for number in numbers]
        said = [log.said[number] for number in numbers]
        if chance.random() < self._merged:
            said = _merged(said, together.argmax(1), chance.choice([3, 4, 5, 6, 8]), chance)
        lines = _with_times(_with_names(said, chance), chance, longest=None if share == 1 else 600.0)
        return Window(_with_links(lines, answers, chance, [0.7, 0.2, 0.1]), answers, together)

    def _one_after_another(self, size: int, chance: random.Random) -> Window | None:
        """Return discussions of any log one after another, slightly overlapping, among the same few people or different ones."""
        row: list[tuple[int, Log, int]] = []
        overlap = chance.choice([0, 0, 2, 4, 8] if size > 20 else [0, 2, 4, 6])
        lengths = [6, 10, 20, 40, 80] if size > 20 else [2, 3, 4, 6, 10, 20]
        talk = 0
        while len(row) < size + 20:
            log, thread = self._threads[chance.randrange(len(self._threads))]
            new = [(talk, log, number) for number in thread[: chance.choice(lengths)]]
            at = max(0, len(row) - chance.randint(0, overlap)) if overlap else len(row)
            row[at:] = _riffled(row[at:], new, 2 * overlap, chance)
            talk += 1
        first = chance.randint(0, len(row) - size)
        row = row[first : first + size]
        place = {(id(log), number): index for index, (_, log, number) in enumerate(row)}
        if len(place) < len(row):
            return None  # the same discussion twice
        answers = [
            [here for one in log.said[number].parents if (here := place.get((id(log), one), index)) < index]
            for index, (_, log, number) in enumerate(row)
        ]
        talks = np.array([talk for talk, _, _ in row])
        few = chance.choice([3, 4, 5, 6, 8, 10]) if chance.random() < 0.75 else 0
        said = _merged([log.said[number] for _, log, number in row], talks, few, chance)
        said = _dropped(said, chance.choice([0.0, 0.3, 0.7, 1.0]), chance)
        rate, breaks = chance.choice([5, 20, 60, 600, 3_600, 40_000]), chance.random() < 0.3
        at, before = 1e9, -1
        for index, one in enumerate(said):
            pause = chance.choice([5, 50, 500]) if breaks and talks[index] != before and chance.random() < 0.5 else 1
            at += chance.expovariate(1 / rate) * pause * math.exp(chance.gauss(0, 1))
            before = int(talks[index])
            said[index] = replace(one, at=at)
        lines = [Line(one.author, one.at, one.text, one.mentions) for one in said]
        together = np.tril(talks[:, None] == talks[None, :])
        return Window(_with_links(lines, answers, chance, [0.8, 0.2, 0.0]), answers, together)


def _labels(said: Sequence[Said], numbers: Iterable[int]) -> dict[int, int]:
    """Return the thread of each message, using only links among these messages."""
    label: dict[int, int] = {}
    for number in numbers:
        joined = [label[one] for one in said[number].parents if one in label]
        label[number] = joined[0] if joined else number
        for other in set(joined[1:]) - {label[number]}:
            for one, known in label.items():
                if known == other:
                    label[one] = label[number]
    return label


def _threads(log: Log) -> list[list[int]]:
    threads: dict[int, list[int]] = {}
    for number, label in _labels(log.said, range(log.judged_from, len(log.said))).items():
        threads.setdefault(label, []).append(number)
    return list(threads.values())


def _together(log: Log, numbers: Sequence[int], *, since: int) -> NDArray[np.bool_]:
    """Return which lines are in one thread, at each moment; links through messages before the window count."""
    label = np.arange(numbers[-1] + 1 - since)
    place = {number: index for index, number in enumerate(numbers)}
    where = np.array(numbers) - since
    together = np.zeros((len(numbers), len(numbers)), np.bool_)
    for number in range(since, numbers[-1] + 1):
        for parent in log.said[number].parents:
            if parent >= since:
                one, other = label[parent - since], label[number - since]
                label[label == max(one, other)] = min(one, other)
        if (index := place.get(number)) is not None:
            together[index, : index + 1] = label[where[: index + 1]] == label[number - since]
    return together


def _riffled(
    old: list[tuple[int, Log, int]], new: list[tuple[int, Log, int]], most: int, chance: random.Random
) -> list[tuple[int, Log, int]]:
    """Interleave the end of one discussion with the beginning of the next."""
    mixed: list[tuple[int, Log, int]] = []
    while old or (new and len(mixed) < most):
        mixed.append((old if old and (not new or chance.random() < 0.5) else new).pop(0))
    return mixed + new


def _merged(said: Sequence[Said], talks: Iterable[int], few: int, chance: random.Random) -> list[Said]:
    """Return the same discussions among `few` people with different roles in each; with 0, among different people in each."""
    casts: dict[int, dict[str, str]] = {}
    pool = [f"p{number}" for number in range(few)]

    def played(talk: int, name: str) -> str:
        cast = casts.setdefault(talk, {})
        if name not in cast:
            free = [one for one in pool if one not in cast.values()]
            cast[name] = chance.choice(free) if free else f"q{talk}{name}"
        return cast[name]

    out: list[Said] = []
    for one, talk in zip(said, talks, strict=True):
        author = played(int(talk), one.author)
        mentions = tuple(name for name in (played(int(talk), other) for other in one.mentions) if name != author)
        out.append(replace(one, author=author, mentions=mentions))
    return out


def _with_names(said: Sequence[Said], chance: random.Random) -> list[Said]:
    """Return the lines unchanged, without names, with some names, or with names that are no mentions."""
    mode = chance.choices(["kept", "none", "some", "plain"], [0.45, 0.25, 0.15, 0.15])[0]
    if mode == "plain":
        return [replace(one, text=one.text.replace("@", ""), mentions=()) for one in said]
    return _dropped(said, {"kept": 0.0, "none": 1.0, "some": chance.random()}[mode], chance)


def _dropped(said: Sequence[Said], share: float, chance: random.Random) -> list[Said]:
    return [
        replace(one, text=strip_handles(one.text), mentions=()) if one.mentions and chance.random() < share else one
        for one in said
    ]


def _with_times(said: Sequence[Said], chance: random.Random, *, longest: float | None) -> list[Line]:
    """Return the lines with their true times, slowed down as in the variant `slow`, evenly spaced, or scaled."""
    mode = chance.choices(["true", "slow", "even", "scaled"], [0.4, 0.45, 0.05, 0.1])[0]
    scale = math.exp(chance.gauss(0, 2))
    at = before = said[0].at
    lines: list[Line] = []
    for one in said:
        gap = max(0.0, one.at - before)
        gap = gap if longest is None else min(gap, longest)
        before = one.at
        if mode == "slow":
            gap = max(2.0, gap) * math.exp(chance.gauss(math.log(60), 2.0))
        elif mode != "true":
            gap = 30.0 if mode == "even" else gap * scale
        at += gap
        lines.append(Line(one.author, at, one.text, one.mentions))
    return lines


def _with_links(
    lines: Sequence[Line], answers: Sequence[Sequence[int]], chance: random.Random, odds: Sequence[float]
) -> list[Line]:
    """Return the lines with some answers marked as replies, as on a platform with replies."""
    share = chance.choices([0.0, 0.3, 0.7], odds)[0]
    return [
        replace(line, reply_to=answered[-1]) if answered and chance.random() < share else line
        for line, answered in zip(lines, answers, strict=True)
    ]
