"""Test that rules find clear requests for reminders, and nothing else, in sentences that were written before them.

`python -m tests.reminders.test_requests` prints the figures by language.
"""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up_requests import Preference
from rapport.reminders.new_reminder import make_reminder
from rapport.reminders.recurrence import to_local
from rapport.reminders.requests import find_requests
from tests.support.cases import every_case

ZONE = "Europe/Vienna"
NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)


def load(name: str) -> dict[str, list[dict[str, Any]]]:
    """The sentences of a file, by language."""
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


SENTENCES = load("sentences.toml")
"""Written before the rules."""
FILES = ("sentences.toml", "sentences_fresh.toml", "sentences_unseen.toml")


def read(sentence: str, *, now: datetime = NOW) -> list[dict[str, Any]]:
    """The reminders that would be stored."""
    found: list[dict[str, Any]] = []
    for request in find_requests(sentence, now=now, zone=ZONE):
        preference = Preference(ZONE)
        made = make_reminder(request.text, at=request.at, rule=request.rule, zone=None, preference=preference, now=now)
        local = to_local(made.due_at, ZoneInfo(ZONE))
        found.append({"text": made.text, "at": local.isoformat(timespec="minutes"), "rrule": made.schedule.rule})
    return found


def is_right(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    same_time = (found["at"], found["rrule"]) == (expected.get("at"), expected.get("rrule"))
    return same_time and expected["text"] in found["text"]


def count(sentences: Iterable[dict[str, Any]]) -> tuple[Counter[str], list[str]]:
    """Count the sentences, those that are requests, and what the rules find of them; list what is wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for expected in sentences:
        found = read(expected["say"])
        is_wanted = "at" in expected
        right = is_wanted and len(found) == 1 and is_right(found[0], expected)
        counts.update(sentences=1, wanted=int(is_wanted), found=len(found), right=int(right))
        if not right and (found or is_wanted):
            wrong.append(f"{expected['say']} → {found}")
    return counts, wrong


def describe(counts: Counter[str]) -> str:
    precision, recall = counts["right"] / max(1, counts["found"]), counts["right"] / max(1, counts["wanted"])
    return (
        f"{counts['sentences']} sentences, {counts['wanted']} requests: precision {precision:.2f}, recall {recall:.2f}"
    )


def test_clear_requests_are_found_and_nothing_else() -> None:
    assert sum(map(len, SENTENCES.values())) == 120
    assert len(SENTENCES["en"]) >= 60
    counts, wrong = count(each for sentences in SENTENCES.values() for each in sentences)
    assert counts["wanted"] == 60
    assert counts["right"] >= 0.98 * counts["found"], wrong
    assert counts["right"] >= 0.8 * counts["wanted"], wrong


def test_sentences_of_later_are_rarely_mistaken_for_requests() -> None:
    counts, wrong = count(each for name in FILES[1:] for sentences in load(name).values() for each in sentences)
    assert counts["sentences"] == 60
    assert counts["right"] >= 0.95 * counts["found"], wrong


@every_case(
    ("sentence", "expected"),
    (
        ("Remind me in two hours", "2026-11-19T15:00"),
        ("Remind me at 9", "2026-11-20T09:00"),
        ("Remind me at 14:00", "2026-11-19T14:00"),
        ("Remind me on 29 February to celebrate", "2028-02-29T09:00"),
        ("Remind me on 31 December at 23:59 to look up", "2026-12-31T23:59"),
        ("Remind me on 1 January at noon to call Eva", "2027-01-01T12:00"),
        ("Remind me the day after tomorrow at noon to fetch the bike", "2026-11-21T12:00"),
        ("Recuérdame pasado mañana a las 9 llamar", "2026-11-21T09:00"),
        ("Remind me tomorrow at 12 am to sleep", "2026-11-20T00:00"),
    ),
)
def test_times_are_those_of_the_persons_clock(sentence: str, expected: str) -> None:
    assert [each["at"] for each in read(sentence)] == [expected]


def test_a_span_is_counted_in_real_time_and_a_day_by_the_clock() -> None:
    before_summer = datetime(2027, 3, 28, 0, 30, tzinfo=UTC)  # 01:30 in Vienna; at 02:00 the clock skips an hour
    assert [each["at"] for each in read("Remind me in one hour", now=before_summer)] == ["2027-03-28T03:30"]
    assert [each["at"] for each in read("Remind me in 2 days", now=before_summer)] == ["2027-03-30T01:30"]


def test_several_sentences_are_several_requests_and_five_at_most() -> None:
    text = "\n".join(f"Remind me at {hour}:00 to drink" for hour in range(14, 21))
    assert [each["at"][11:] for each in read(text)] == [f"{hour}:00" for hour in range(14, 19)]


@every_case("text", ["remind me " * 200_000, "remind me at 9" + " a" * 1_000_000, "remind me at 9 " + "ё" * 600, ""])
def test_text_that_nobody_writes_sets_nothing(text: str) -> None:
    assert find_requests(text, now=NOW, zone=ZONE) == []


def test_words_in_any_order_are_a_reminder_or_none() -> None:
    """Nothing but a request that is stored or refused with a sentence comes of them."""
    odd = [
        "in 9999 years",
        "every 0 days",
        "at 25:00",
        "24:00",
        "on 31 November",
        "99 pm",
        "2026-13-45",
        "in 8 set",
        "ﬁ",
        "e\u0301",
    ]
    words = [word for each in chain(*SENTENCES.values()) for word in each["say"].split()] + odd
    asks = ("Remind me", "Erinnere mich", "Rappelle-moi", "Recuérdame", "Ricordami")
    chance = random.Random(5)
    stored = 0
    for _ in range(3_000):
        with suppress(InvalidInput):
            stored += len(read(f"{chance.choice(asks)} {' '.join(chance.choices(words, k=chance.randint(1, 6)))}"))
    assert stored > 20


def main() -> None:
    """Print the figures by language, and what is wrong."""
    for name in FILES:
        print(f"\n{name}")  # noqa: T201 - this is its purpose
        for language, sentences in load(name).items():
            print(language, describe(count(sentences)[0]))  # noqa: T201
        counts, wrong = count(each for sentences in load(name).values() for each in sentences)
        print("all", describe(counts), *wrong, sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
