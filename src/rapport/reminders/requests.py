"""Find reminders that a person asks for in clear words, for agents whose model calls no tools (ADR 100).

The words are data, one file a language; `dateparser` reads names of days and months. A sentence is a request only if it begins as
one, and names exactly one time. Everything else is none: a reminder that nobody wanted is worse than a question.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from rapport.domain.patterns import Pattern, compile_linear
from rapport.domain.phrases import expand, find_any, load_languages, load_phrases
from rapport.followups.own_words import find_own_subject
from rapport.followups.word_stems import plain

DATA = "rapport.reminders"
USUAL_TIME = time(9)
"""The time of a day that is named without one."""
MAX_FOUND = 5
_MAX_READ_CHARACTERS = 2_000
_MAX_SENTENCE_CHARACTERS = 500
_CUES = find_any(load_phrases(DATA, "cues"))
_SENTENCE_END = compile_linear(r"[^0-9\s]\.(?:\s|$)|[\n?!]", is_ascii=True)
_WEEK = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_FREQUENCIES = ("HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_ISO_DATE = compile_linear(r"\b(?P<day>20\d\d-\d\d-\d\d)\b", is_ascii=True)
_BLANK = "\x00"
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Request:
    """A reminder that a sentence asks for: its words, and a time of the person's clock or a moment."""

    text: str
    at: datetime
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class _Now:
    """The present moment, and the time that the person's clock shows."""

    moment: datetime
    local: datetime


@dataclass(slots=True)
class _Sentence:
    """A sentence in plain letters, of which each time that is read is blanked out, and the original place of each letter."""

    original: str
    text: str
    places: Sequence[int]

    @classmethod
    def read(cls, original: str) -> _Sentence:
        letters = [(letter, place) for place, character in enumerate(original) for letter in plain(character)]
        return cls(original, "".join(letter for letter, _ in letters), [place for _, place in letters])

    def blank(self, start: int, end: int) -> None:
        self.text = self.text[:start] + _BLANK * (end - start) + self.text[end:]

    def take(self, pattern: Pattern) -> list[Mapping[str, str | None]]:
        """Return the named parts of every place that the pattern finds, and blank it out."""
        found = list(pattern.finditer(self.text))
        for each in found:
            self.blank(*each.span())
        return [each.groupdict() for each in found]

    def quote(self, start: int, end: int) -> str:
        return self.original[self.places[start] : self.places[end - 1] + 1]


def asks_for_reminder(text: str) -> bool:
    """Return True if the text has a word by which people ask for reminders."""
    return _CUES.search(plain(text[:_MAX_READ_CHARACTERS])) is not None


def find_requests(text: str, *, now: datetime, zone: str) -> list[Request]:
    """Return the reminders that a person's message asks for in clear words, at times of the clock of `zone`."""
    own = find_own_subject(text[:_MAX_READ_CHARACTERS])
    if not asks_for_reminder(own):
        return []
    present = _Now(now.astimezone(UTC), now.astimezone(ZoneInfo(zone)).replace(tzinfo=None))
    found = (request for each in _split(own) if (request := _read_sentence(each, present)) is not None)
    return list(islice(found, MAX_FOUND))


def _split(text: str) -> Iterator[str]:
    """Yield the sentences with the marks at their ends."""
    begin = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[begin : end.end()].strip()
        begin = end.end()
    yield text[begin:].strip()


def _read_sentence(sentence: str, now: _Now) -> Request | None:
    if not sentence or len(sentence) > _MAX_SENTENCE_CHARACTERS:
        return None
    for grammar in _load_grammars():
        if (request := grammar.read(_Sentence.read(sentence), now)) is not None:
            return request
    return None


class _Grammar:
    """The clear requests of one language."""

    def __init__(self, language: str, data: Mapping[str, Any]) -> None:
        self._language = language
        self._times: Mapping[str, Any] = data["times"]
        self._numbers: Mapping[str, int] = data["numbers"]
        asks, leads, polite = _join(data["asks"]), _join(data["leads"]), _join(data["polite"])
        gap = rf"[\s,:;.!¿¡{_BLANK}-]*"
        ask = "|".join([asks, *map(_expand, data["asks_before_verb"])])
        self._begins = compile_linear(
            rf"^{gap}(?:(?:{leads})\b{gap})*(?P<polite>(?:{polite})\b{gap})?(?:(?:{leads})\b{gap})*(?P<ask>{ask})\b",
            is_ascii=True,
        )
        self._says = find_any([_expand(each) for each in data["asks"]])
        verbs = _join(data["last_verbs"])
        self._last_verb = compile_linear(rf"\b(?:{verbs})(?:[\s.!?]*$|,)", is_ascii=True) if verbs else None
        self._vetoes = find_any([_expand(each) for each in data["vetoes"]])
        self._asks_for_knowledge = compile_linear(rf"^{gap}(?:{_join(data['asks_for_knowledge'])})\b", is_ascii=True)
        self._link = compile_linear(rf"^(?:{gap}(?:{_join(data['links'])})\b)*{gap}", is_ascii=True)
        actions = _join(data["actions"])
        self._action = compile_linear(rf"^{gap}(?:{actions})\b", is_ascii=True) if actions else None
        self._compile_times()

    def _compile_times(self) -> None:
        times = self._times
        clock_words = _join([word for word, number in self._numbers.items() if number > 1])
        number = _join(self._numbers)
        at, signs, am, pm = (_join(times[name]) for name in ("at", "hour_signs", "am", "pm"))
        part_of_day = rf"(?:[\s]+(?:(?P<am>{am})|(?P<pm>{pm}))\b)?"
        self._clock = compile_linear(
            rf"(?:\b(?P<at>{at}) ?)?\b(?P<hour>\d{{1,2}}|{clock_words})(?:(?:[:.]| ?(?:{signs}) ?)(?P<minute>\d\d)\b)?"
            rf"(?P<sign> ?(?:{signs})\b)?(?:{_part(am, pm)})?(?:\b|$)",
            is_ascii=True,
        )
        half = [rf"(?:(?:{at}) )?{_expand(each)} (?P<half>\d{{1,2}}|{clock_words})\b" for each in times["half_past"]]
        self._special_clock = compile_linear(
            "|".join([*half, rf"(?P<noon>\b(?:{_join(times['noon'])})\b)"]), is_ascii=True
        )
        before, days = _join(times["before_day"]), _join([*times["days"], *times["weekdays"]])
        self._day = compile_linear(rf"\b(?:(?:{before}) )*(?P<day>{days})\b{part_of_day}", is_ascii=True)
        of = rf"(?:(?:{_join(times['of'])}) )?" if times["of"] else ""
        self._date = compile_linear(
            rf"\b(?:(?:{before}) )*(?P<day>\d{{1,2}}(?:st|nd|rd|th|\.|er)? {of}[a-z]{{3,10}}(?: {of}20\d\d)?)\b",
            is_ascii=True,
        )
        self._month_first = compile_linear(
            rf"\b(?:(?:{before}) )*(?P<day>[a-z]{{3,10}} \d{{1,2}}(?:st|nd|rd|th))\b", is_ascii=True
        )
        self._span = compile_linear(
            rf"\b(?:{_join(times['span'])}) (?P<number>\d{{1,4}}|{number}) (?P<unit>[a-z]{{1,12}})\b", is_ascii=True
        )
        self._half_an_hour = find_any([_expand(each) for each in times["half_an_hour"]])
        self._day_after_tomorrow = find_any([_expand(each) for each in times["day_after_tomorrow"]])
        units = "|".join(
            rf"(?P<{name}>{_expand(unit)})" for name, unit in zip(_FREQUENCIES, times["units"], strict=True)
        )
        weekdays = "|".join(rf"(?P<{name}>{_expand(day)})" for name, day in zip(_WEEK, times["weekdays"], strict=True))
        workdays = rf"(?P<workdays>\b(?:{_join(times['workdays'])})\b)|" if times["workdays"] else ""
        self._every = compile_linear(
            rf"{workdays}\b(?:(?P<daily>{_join(times['daily'])})|(?:{_join(times['every'])}) (?:(?P<number>\d{{1,3}}|{number}) )?"
            rf"(?:{units}|{weekdays}))\b",
            is_ascii=True,
        )
        self._weekday = compile_linear(weekdays, is_ascii=True)
        self._month_day = compile_linear(
            rf"\b(?:{_join(times['month_day'])}) (?P<day>\d{{1,2}})(?:st|nd|rd|th|\.|er)?(?:\s|$)", is_ascii=True
        )

    def read(self, sentence: _Sentence, now: _Now) -> Request | None:
        """Return the request that the sentence is; None if it is none, or not clear."""
        whole = sentence.text
        in_two_days = sentence.take(self._day_after_tomorrow)
        if self._vetoes.search(sentence.text) is not None:
            return None
        when = self._read_time(sentence, now, [now.local + 2 * _DAY for _ in in_two_days])
        if when is None or (begin := self._begins.match(sentence.text)) is None:
            return None
        if whole.rstrip().endswith("?") and begin["polite"] is None:
            return None
        if self._last_verb is not None and self._says.search(begin["ask"]) is None:
            verb = self._last_verb.search(sentence.text)
            if verb is None or begin["polite"] is None:
                return None
            sentence.blank(*verb.span())
        if self._asks_for_knowledge.match(sentence.text[begin.end() :]) is not None:
            return None
        if not self._is_time_of_request(sentence.text, begin.end() - len(begin["ask"]), begin.end()):
            return None
        return Request(self._choose_text(sentence, begin.end()), *when)

    def _is_time_of_request(self, text: str, begin: int, end: int) -> bool:
        """Return True if a time stands beside the words that ask, or what is to be done follows them.

        Otherwise the time may belong to something that somebody wants to know: "remind me the name of the bar on Friday".
        """
        link = self._link.match(text[end:])
        beside = text[:begin] + text[end : end + (link.end() if link is not None else 0)]
        return _BLANK in beside or (self._action is not None and self._action.match(text[end:]) is not None)

    def _choose_text(self, sentence: _Sentence, begin: int) -> str:
        """Return the words beside request and time; the whole sentence if they do not stand together."""
        rest = sentence.text[begin:]
        begin += len(rest) - len(rest.lstrip(f"{_BLANK} ,:;.!"))
        link = self._link.match(sentence.text[begin:])
        begin += link.end() if link is not None else 0
        end = len(sentence.text.rstrip(f"{_BLANK} ,:;.!?"))
        if begin >= end or _BLANK in sentence.text[begin:end]:
            return sentence.original
        return sentence.quote(begin, end)

    # ---- times

    def _read_time(
        self, sentence: _Sentence, now: _Now, days: Sequence[datetime]
    ) -> tuple[datetime, str | None] | None:
        """Return the one time that the sentence names, beside `days`, and its rule; None if it names none, or several."""
        every = sentence.take(self._every)
        span = self._read_spans(sentence, now)
        clocks = self._read_clocks(sentence)
        dates = [*days, *self._read_dates(sentence, now)]
        named = sentence.take(self._day)
        for each in named:
            if each["am"] or each["pm"]:
                if len(clocks) != 1 or clocks[0] is None:  # a part of a day is no time
                    return None
                clocks = [_move(clocks[0], is_pm=bool(each["pm"]))]
            dates.append(self._parse(each["day"] or "", now))
        if len(every) > 1 or len(span) > 1 or len(dates) > 1 or len(clocks) > 1 or None in (*dates, *clocks):
            return None
        if span:
            return None if every or dates or clocks else (span[0], None)
        clock = clocks[0] if clocks else None
        day = dates[0] if dates else None
        if every:
            names_a_weekday = bool(named and self._weekday.search(named[0]["day"] or ""))
            return self._recur(every[0], sentence, now, day=day, clock=clock, names_a_weekday=names_a_weekday)
        if day is not None:
            if clock is None and day.date() == now.local.date():
                return None
            return datetime.combine(day.date(), clock or USUAL_TIME), None
        if clock is None:
            return None
        at = datetime.combine(now.local.date(), clock)
        return (at if at > now.local else at + _DAY), None

    def _recur(
        self,
        every: Mapping[str, str | None],
        sentence: _Sentence,
        now: _Now,
        *,
        day: datetime | None,
        clock: time | None,
        names_a_weekday: bool,
    ) -> tuple[datetime, str] | None:
        interval = self._read_number(every.get("number") or "1")
        suffix = f";INTERVAL={interval}" if interval != 1 else ""
        if clock is None and not (every.get("HOURLY") or every.get("YEARLY")):
            return None  # "every day is a gift"
        begin = datetime.combine((day or now.local).date(), clock or USUAL_TIME)
        if weekday := next((name for name in _WEEK if every.get(name)), None):
            return None if day else (begin, f"FREQ=WEEKLY{suffix};BYDAY={weekday}")
        if every.get("workdays"):
            return None if day else (begin, "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR")
        if every.get("daily") or every.get("DAILY"):
            return None if day else (begin, f"FREQ=DAILY{suffix}")
        if every.get("HOURLY"):
            start = now.local.replace(second=0, microsecond=0) + timedelta(hours=interval)
            return None if day or clock else (start, f"FREQ=HOURLY{suffix}")
        if every.get("WEEKLY"):
            if day is None or not names_a_weekday:
                return None
            return begin, f"FREQ=WEEKLY{suffix};BYDAY={_WEEK[day.weekday()]}"
        if every.get("MONTHLY"):
            days = sentence.take(self._month_day)
            if day is not None or len(days) != 1:
                return None
            return begin, f"FREQ=MONTHLY{suffix};BYMONTHDAY={int(days[0]['day'] or 0)}"
        return (begin, f"FREQ=YEARLY{suffix}") if day is not None and not names_a_weekday else None

    def _read_spans(self, sentence: _Sentence, now: _Now) -> list[datetime]:
        spans: list[timedelta] = [timedelta(minutes=30) for _ in sentence.take(self._half_an_hour)]
        for found in list(self._span.finditer(sentence.text)):
            phrase = f"{self._times['span'][0]} {self._read_number(found['number'])} {found['unit']}"
            if (then := self._parse(phrase, now, parser="relative-time")) is not None and then > now.local:
                spans.append(then - now.local)
                sentence.blank(*found.span())
        return [now.moment + span if span < _DAY else now.local + span for span in spans]

    def _read_dates(self, sentence: _Sentence, now: _Now) -> list[datetime | None]:
        dates: list[datetime | None] = []
        for each in sentence.take(_ISO_DATE):
            try:
                dates.append(datetime.fromisoformat(each["day"] or ""))
            except ValueError:
                dates.append(None)
        for pattern in (self._date, self._month_first):
            for found in list(pattern.finditer(sentence.text)):
                if (day := self._parse(found["day"], now, parser="absolute-time")) is not None:
                    dates.append(day)
                    sentence.blank(*found.span())
        return dates

    def _read_clocks(self, sentence: _Sentence) -> list[time | None]:
        """Return the times of the clock that are named; None for one that no clock shows."""
        clocks = [
            time(12) if each.get("noon") else _make_clock(self._read_number(each.get("half") or "0"), 30)
            for each in sentence.take(self._special_clock)
        ]
        for found in list(self._clock.finditer(sentence.text)):
            is_clear = found["at"] and not self._times.get("needs_sign")
            if not (is_clear or found["minute"] or found["sign"] or found["am"] or found["pm"]):
                continue
            clock = _make_clock(self._read_number(found["hour"]), int(found["minute"] or 0))
            if clock is not None and (found["am"] or found["pm"]):
                clock = _move(clock, is_pm=bool(found["pm"]))
            clocks.append(clock)
            sentence.blank(*found.span())
        return clocks

    def _read_number(self, word: str) -> int:
        return int(word) if word.isdigit() else self._numbers[word]

    def _parse(self, phrase: str, now: _Now, *, parser: str | None = None) -> datetime | None:
        """Return what dateparser, or one of its parsers, reads in a phrase of a few words."""
        dateparser: Any = importlib.import_module(
            "dateparser"
        )  # It has no type stubs, and half of its users never need it.
        settings: dict[str, Any] = {"RELATIVE_BASE": now.local, "PREFER_DATES_FROM": "future"}
        if parser is not None:
            settings["PARSERS"] = [parser]
        if parser == "absolute-time":
            settings["REQUIRE_PARTS"] = ["day", "month"]
        found: datetime | None = dateparser.parse(phrase, languages=[self._language], settings=settings)
        return None if found is None or found.tzinfo is not None else found


@cache
def _load_grammars() -> Sequence[_Grammar]:
    return [_Grammar(language, data) for language, data in load_languages(DATA).items()]


def _make_clock(hour: int, minute: int) -> time | None:
    return time(hour, minute) if hour < 24 and minute < 60 else None


def _move(clock: time, *, is_pm: bool) -> time:
    """Return the time in this half of the day."""
    if clock.hour > 12:
        return clock
    return clock.replace(hour=clock.hour % 12 + 12 * is_pm)


def _part(am: str, pm: str) -> str:
    return rf" ?(?:(?P<am>{am})|(?P<pm>{pm}))\b"


def _expand(phrase: str) -> str:
    return expand(phrase, {})


def _join(phrases: Sequence[str] | Mapping[str, int]) -> str:
    return "|".join(_expand(each) for each in phrases)
