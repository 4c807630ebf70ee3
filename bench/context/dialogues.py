"""Make long dialogues and questions about them from hand-written episodes, for tuning and measuring the search of a chat.

Over many days people tell each other what happened to them, address each other by name and return to earlier subjects. Similar
things happen to several of them. The first half of `episodes.txt` is for tuning, the second half is held out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
CASTS = {
    "tuning": (("Caleb", "Mina"), ("Rosa", "Theo", "Ines"), ("Ada", "Bruno", "Cleo", "Dan", "Esme")),
    "held out": (("Nadia", "Oskar"), ("Priya", "Quentin", "Ruth"), ("Sven", "Tara", "Umar", "Vera", "Wim")),
}
TELLINGS = 3
"""How often an episode occurs in a dialogue, each time with another person or another detail."""


@dataclass(frozen=True)
class Episode:
    """An event in a person's life: the lines that tell it, by their letter, and questions about it."""

    lines: dict[str, str]
    variants: Sequence[str]
    questions: Sequence[tuple[str, str]]
    """The letter of the answering line, and the question."""


@dataclass(frozen=True)
class Turn:
    author: str
    text: str
    at: datetime


@dataclass
class Dialogue:
    people: Sequence[str]
    turns: list[Turn] = field(default_factory=list[Turn])
    questions: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """A question, and the number of the turn that answers it."""


def read_episodes() -> dict[str, list[Episode]]:
    """Return the episodes by the part that they belong to."""
    parts = (HERE / "episodes.txt").read_text().split("\n=\n")
    return {
        name: [_episode(block) for block in part.strip().split("\n\n")] for name, part in zip(CASTS, parts, strict=True)
    }


def _episode(block: str) -> Episode:
    lines: dict[str, str] = {}
    questions: list[tuple[str, str]] = []
    for line in block.splitlines():
        letter, text = line.split(" ", 1)
        if letter == "Q":
            answer, question = text.split(" ", 1)
            questions.append((answer, question))
        else:
            lines[letter] = text
    return Episode(lines, lines.pop("V").split(" | "), questions)


def make_dialogues(part: str, *, seed: int = 7) -> list[Dialogue]:
    """Return the dialogues of a part, one for each cast."""
    episodes, small = read_episodes()[part], (HERE / "smalltalk.txt").read_text().splitlines()
    return [_dialogue(people, episodes, small, random.Random(f"{seed} {people}")) for people in CASTS[part]]


def _dialogue(
    people: Sequence[str], episodes: Sequence[Episode], small: Sequence[str], chance: random.Random
) -> Dialogue:
    made = Dialogue(people)
    at = datetime(2025, 1, 6, 18, 0, tzinfo=UTC)
    tellings = list(_tellings(people, episodes, chance))
    later: list[tuple[Episode, dict[str, str]]] = []

    def say(author: str, text: str, **names: str) -> int:
        nonlocal at
        at += timedelta(seconds=chance.randint(20, 200))
        made.turns.append(Turn(author, text.format(**names), at))
        return len(made.turns) - 1

    def chat(count: int) -> None:
        for line in chance.sample(list(small), count):
            speaker, other = chance.sample(list(people), 2)
            say(speaker, line, y=other)

    while tellings:
        at += timedelta(days=chance.randint(2, 9))
        chat(4)
        for _ in range(min(3, len(tellings))):
            episode, names = tellings.pop()
            said = {"F": say(names["x"], episode.lines["F"], **names)}
            say(names["y"], episode.lines["R"], **names)
            said["D"] = say(names["x"], episode.lines["D"], **names)
            made.questions += [(question.format(**names), said[line]) for line, question in episode.questions]
            chat(2)
            later.append((episode, names))
        if len(later) > 6:
            episode, names = later.pop(chance.randrange(len(later) - 3))
            say(names["y"], episode.lines["C"], **names)
            say(names["x"], episode.lines["A"], **names)
        chat(3)
    return made


def _tellings(
    people: Sequence[str], episodes: Sequence[Episode], chance: random.Random
) -> Iterator[tuple[Episode, dict[str, str]]]:
    """Yield who tells which episode to whom, in a random order; nobody tells the same one twice."""
    every = [
        (episode, {"x": teller, "v": detail})
        for episode in episodes
        for teller, detail in zip(
            chance.sample(list(people), min(TELLINGS, len(people))),
            chance.sample(list(episode.variants), 3),
            strict=False,
        )
    ]
    for episode, names in chance.sample(every, len(every)):
        yield episode, {**names, "y": chance.choice([one for one in people if one != names["x"]])}
