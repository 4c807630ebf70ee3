"""Print how the rules for follow-ups, leaks and memories do on their example sets: `python -m tests.support.rule_figures`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rapport.followups.own_words import is_founded
from tests.followups import leak_examples as leaks
from tests.followups import leak_examples_fresh as fresh_leaks
from tests.followups import test_planner as planner
from tests.followups.test_leaks import TOLD, caught
from tests.memory import founded, founded_fresh, said, said_fresh
from tests.memory.test_extraction import contents


def count(name: str, of: Iterable[bool]) -> None:
    """Print how many of the cases are true."""
    cases = list(of)
    print(f"{name:62} {sum(cases):4} of {len(cases)}")  # noqa: T201 - this is its purpose


def count_stories() -> None:
    """Print the figures of the planner's dialogues."""
    plans = [(kind, planner.kind_of(planner.planned(*lines))) for kind, lines in planner.STORIES.values()]
    count("planner: something open, planned with the expected type", (kind == got for kind, got in plans if kind))
    count("planner: something open, planned with any type", (got is not None for kind, got in plans if kind))
    count("planner: nothing open, planned all the same", (got is not None for kind, got in plans if not kind))


def count_texts(name: str, judge: Callable[[str], bool], positive: Iterable[str], negative: Iterable[str]) -> None:
    """Print how many texts are found, and how many others are taken for one."""
    count(f"{name}: found", map(judge, positive))
    count(f"{name}: false alarms", map(judge, negative))


def main() -> None:
    """Print every figure."""
    count_stories()
    count_texts("closings", planner.is_closing, planner.each_of(planner.CLOSING), planner.each_of(planner.OPEN))
    count_texts("bad news", planner.tells_bad_news, planner.each_of(planner.BAD), planner.each_of(planner.FINE))
    sets: tuple[tuple[str, list[str], list[str]], ...] = (
        ("leaks 1", leaks.LEAKING, leaks.INNOCENT),
        ("leaks 2", leaks.SECOND_LEAKING, leaks.SECOND_INNOCENT),
        ("leaks 3", leaks.THIRD_LEAKING, leaks.THIRD_INNOCENT),
        ("leaks 4", fresh_leaks.FOURTH_LEAKING, fresh_leaks.FOURTH_INNOCENT),
        ("leaks told", [*TOLD.strip().splitlines()], []),
    )
    for name, leaking, innocent in sets:
        count_texts(name, lambda reply: bool(caught([reply])), leaking, innocent)
    for name, examples in (("memory", said), ("memory fresh", said_fresh)):
        results = [(contents(text), expected) for text, expected in examples.KEPT]
        count(f"{name}: exactly right", (got == expected for got, expected in results))
        count(
            f"{name}: in part",
            (got != expected and set(got) < set(expected) and bool(got) for got, expected in results),
        )
        count(f"{name}: missed", (not got for got, _ in results))
        count(f"{name}: something wrong", (not set(got) <= set(expected) for got, expected in results))
        count(f"{name}: something made of nothing", (bool(contents(text)) for text in examples.NOTHING))
    for name, claims in (("own words", founded), ("own words fresh", founded_fresh)):
        count(
            f"{name}: kept",
            (is_founded(memory, own, is_matter=memory == "finish tax return") for own, memory in claims.FOUNDED),
        )
        count(f"{name}: attacks kept", (is_founded(memory, own) for own, memory in claims.ATTACKS))


if __name__ == "__main__":
    main()
