"""Test that no pattern of the package is slow on any text that can reach it.

Every pattern is fuzzed with texts that repeat what it repeats, of 4,000 and of 32,000 characters: eight times the text may take
little more than eight times as long. Patterns that would take more see only text that their entrance has bounded; `ENTRANCES`
names the bound, and further tests show that the entrance enforces it. The others run on RE2 or are simple enough (ADR 53).
"""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from rapport.builtin.prompt import MAX_TURN_CHARACTERS, read_prompt
from rapport.domain.text_bounds import (
    MAX_LINE_CHARACTERS,
    MAX_RUN_CHARACTERS,
    MAX_WORD_CHARACTERS,
    collapse_runs,
    limit_text,
)
from rapport.memory.statements import LONGEST_CLAUSE, MAX_CHARACTERS, split_statements
from rapport.retrieval.standalone_question import plain
from tests.patterns.collecting import Found, methods_of, patterns, pumps
from tests.support.growth import TRIES, least_cpu_seconds

LONG = 32_000
"""As many characters as a message may have."""

LENGTHS = (4_000, LONG)
RE2_PUMPS = 12
SHORT = 500
"""Characters on which a pattern that is worse than quadratic shows."""
AT_MOST = (LENGTHS[1] / LENGTHS[0]) ** 1.5
"""How much longer the long text may take: 8 times is linear, 64 times is quadratic."""
CPU_SECONDS = 0.15
"""Below this nothing is judged: quadratic time over 32,000 characters is half a second and more."""

BACKSTOP_CPU_SECONDS = 3.0

ENTRANCES: dict[str, Callable[[str], str]] = {
    "retrieval.standalone_question": plain,
    "memory.extraction": lambda text: collapse_runs(text)[:LONGEST_CLAUSE],
    "memory.query._EVERYTHING": lambda text: " ".join(text.split())[:300],
    "memory.statements._QUESTION": lambda text: collapse_runs(text)[:LONGEST_CLAUSE],
    "memory.statements._CLAUSE": lambda text: collapse_runs(text)[:LONGEST_CLAUSE],
    "memory.statements._PARTS": lambda text: collapse_runs(text)[:LONGEST_CLAUSE],
    "memory.statements": lambda text: collapse_runs(text[:MAX_CHARACTERS]),
}
"""Says how text comes to the patterns of a module; to those of others as it is."""

FOLDERS = ("builtin", "channels", "context", "followups", "memory", "retrieval")
"""Those with many patterns are tested apart, so that they share the work; the others together."""


@cache
def find_patterns() -> list[Found]:
    """Find them when the first test asks: the whole package is imported for that."""
    return sorted(patterns(), key=lambda found: found.module)


class TooSlow(Exception):
    """A match does not end."""


@contextmanager
def backstop(seconds: float) -> Generator[None]:
    """Raise TooSlow after this CPU time; matching a pattern can be interrupted by a signal."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    gc.disable()  # an exception that a signal raises in a callback of the garbage collection is lost
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def entrance_of(found: Found) -> Callable[[str], str] | None:
    return next((bound for name, bound in ENTRANCES.items() if str(found).startswith(name)), None)


def slow_text(found: Found) -> str | None:
    """Return a text whose time grows faster than its length; None if there is none."""
    bound = entrance_of(found) or str
    tried: set[str] = set()
    # RE2 is linear by design, and its patterns hold hundreds of phrases: some of their repeats stand for all.
    chosen = sorted(pumps(found.pattern), key=lambda pump: (pump.unit, pump.head))
    for pump in chosen[:: max(1, len(chosen) // RE2_PUMPS)] if found.is_linear else chosen:
        texts = [bound(pump.text(length)) for length in (SHORT, *LENGTHS)]
        if texts[-1] in tried:
            continue
        tried.add(texts[-1])
        try:
            if not is_in_proportion(found, *texts):
                return texts[-1]
        except TooSlow:
            return texts[-1]
    return None


def is_in_proportion(found: Found, short: str, small: str, large: str) -> bool:
    match_all(found, short)
    if ends_within(CPU_SECONDS, found, large):
        return True
    least = least_cpu_seconds(lambda: match_all(found, small))
    return ends_within(AT_MOST * least, found, large)


def ends_within(seconds: float, found: Found, text: str) -> bool:
    """Return whether any of some runs ends within this CPU time; a run that does not is stopped."""
    for _ in range(TRIES):
        with suppress(TooSlow):
            match_all(found, text, seconds)
            return True
    return False


def match_all(found: Found, text: str, seconds: float = BACKSTOP_CPU_SECONDS) -> None:
    methods = methods_of(found) or {"findall"}
    seen = text if isinstance(found.pattern.pattern, str) else text.encode()
    with backstop(seconds):
        for method in methods:
            getattr(found.pattern, method)(seen)


def test_the_patterns_are_found() -> None:
    names = {str(found) for found in find_patterns()}
    assert len(names) > 150
    assert {"replies.citations._KEPT_TAG", "builtin.language.words._WORD", "memory.extraction._ANY_RULE"} <= names
    assert [entrance for entrance in ENTRANCES if not any(name.startswith(entrance) for name in names)] == []


@pytest.mark.parametrize("pattern", [r"\s+$", r"(a+)+$", r"(?:a|b)*?c", r"\bx.*y.*z"])
def test_a_slow_pattern_would_be_found(pattern: str) -> None:
    assert slow_text(Found("somewhere", "_SLOW", re.compile(pattern)))


@pytest.mark.parametrize("folder", [*FOLDERS, "elsewhere"])
def test_no_pattern_is_slow_on_what_can_reach_it(folder: str) -> None:
    held = [found for found in find_patterns() if (top(found) if top(found) in FOLDERS else "elsewhere") == folder]
    assert held
    slow = {str(found): repr(text[:80]) for found in held if (text := slow_text(found)) is not None}
    assert not slow


def top(found: Found) -> str:
    return found.module.partition(".")[0]


# ---- the entrances bound what passes them

HOSTILE = ["my name is " + " " * 3_900 + " z", "a" * LONG, "so " * 10_000, "\n \t" * 10_000, "x" * 900 + ". " * 9_000]
anything = st.lists(
    st.sampled_from(["word", " ", "  ", "\n", "\n\n", ".", "! ", "é", "漢。", "a" * 200, ". " * 90, "x " * 300]),
    max_size=30,
).map("".join)


def is_bounded(text: str, most: int) -> bool:
    words = text.split()
    return (
        len(text) <= most * 1.1 + 10
        and not re.search(r"[^\S\n]{2}|\n[ ]*\n[ ]*\n", text)
        and not re.search(rf"(.)\1{{{MAX_RUN_CHARACTERS}}}", text)
        and all(len(line) <= MAX_LINE_CHARACTERS + MAX_WORD_CHARACTERS + 1 for line in text.split("\n"))
        and all(len(word) <= MAX_WORD_CHARACTERS for word in words)
    )


@settings(max_examples=200)
@given(anything, st.sampled_from([300, 1_000, 2_000]))
def test_bounded_text_has_nothing_that_goes_on(text: str, most: int) -> None:
    assert is_bounded(limit_text(text, most), most)
    assert (
        limit_text(text, most).split()[:3] == limit_text(text[: most // 2], most).split()[:3] or len(text) > most // 2
    )


@pytest.mark.parametrize("text", ["I live in Rome.\n\nAnd you?", "One. Two! Three?", "a, b", ""])
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert limit_text(text, 1_000) == text


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_the_builtin_model_reads_bounded_text(text: str) -> None:
    chat = f"<<<chat x\n[Ann, 10:00] {text}\nchat x>>>"
    heard = HumanMessage(chat, additional_kwargs={"lc_source": "context"})
    prompt = read_prompt([SystemMessage(text), AIMessage(text), heard, HumanMessage(text)])
    assert len(prompt.turns) >= 1
    assert all(len(turn.text) <= MAX_TURN_CHARACTERS + 1 for turn in prompt.turns)


def test_the_other_entrances_bound_what_passes() -> None:
    assert len(plain("why " * LONG)) <= 1_000
    assert split_statements("I live in Rome. " * (MAX_CHARACTERS // 16 + 1)) == []
    assert len(split_statements("I live in Rome.")) == 1
