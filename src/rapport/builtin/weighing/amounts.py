"""Amounts that people name, limits that a document sets, and whether the one keeps to the other."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rapport.builtin.language.word_lists import STOP_WORDS, word_set
from rapport.builtin.language.words import sentences, stem, terms

# Without "one": "the green one leaks" counts nothing.
_NUMBERS = {
    "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0, "eight": 8.0, "nine": 9.0, "ten": 10.0,
    "eleven": 11.0, "twelve": 12.0, "fifteen": 15.0, "twenty": 20.0, "thirty": 30.0, "forty": 40.0, "fifty": 50.0,
    "sixty": 60.0, "hundred": 100.0,
}  # fmt: skip
_UNITS = {
    **dict.fromkeys(("€", "euro", "euros", "eur"), "euros"),
    **dict.fromkeys(("$", "dollar", "dollars", "usd", "bucks"), "dollars"),
    **dict.fromkeys(("£", "pound", "pounds", "gbp", "quid"), "pounds"),
    **dict.fromkeys(("%", "percent"), "percent"),
    **dict.fromkeys(("person", "persons", "people", "guests", "seats"), "people"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "minutes"),
    **dict.fromkeys(("kg", "kilo", "kilos", "kilograms"), "kg"),
    **dict.fromkeys(("km", "kilometres", "kilometers"), "km"),
}
MONEY = frozenset({"euros", "dollars", "pounds"})
_SPANS = {"minutes": 1.0, "hour": 60.0, "day": 1_440.0, "week": 10_080.0}
_AMOUNT = re.compile(
    rf"(?<![\w.,:/-])(?P<sign>[€$£])?\s?(?P<number>\d{{1,9}}(?:[.,]\d{{3}})*(?:\.\d{{1,2}})?|{'|'.join(_NUMBERS)})(?![\w:]|[.,-]\d)"
    r"(?:\s?(?P<unit>[€$£%]|(?!(?:an?|per|each|every|the)\b)[^\W\d_]+))?(?:\s?(?:/|\b(?:an?|per|each|every|the)\s)\s?(?P<per>[^\W\d_]+))?",
    re.IGNORECASE,
)
_NO_UNIT = word_set(
    "or and but to of for in on at by with from is are was would could more less as than so too not per each an every"
)
_UP_TO = re.compile(
    r"(?:\bup to|\bat (?:the )?most|\b(?:no|not) (?:more|later|longer) than|\bmax(?:imum)?\.?(?: of| is)?|\blimit(?:ed)?(?: is| of| to)?|\bwithin"
    r"|\bunder|\bbelow|\bless than|\bbudget(?: is| of)?:?|\bnot exceed|\bcap(?:ped)?(?: at| of| is)?)\s+(?:\w+\s)?$",
    re.IGNORECASE,
)
_AT_LEAST = re.compile(
    r"(?:\bat least|\bmin(?:imum)?\.?(?: of| is)?|\b(?:no|not) (?:less|fewer|sooner|earlier) than)\s+(?:\w+\s)?$",
    re.IGNORECASE,
)
_AFTERWARDS = re.compile(r"^\s*(?:at (?:the )?most|or (?:less|fewer)|maximum|max\b|tops)", re.IGNORECASE)
_LONGEST_SENTENCE = 600

Bound = Literal["most", "least"]


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount, in the words in which somebody named it."""

    value: float
    unit: str
    per: str
    words: str
    sentence: str
    """The sentence in which it was named."""
    bound: Bound | None = None
    """The bound: what something may be at most, or must be at least."""

    @property
    def is_money(self) -> bool:
        return self.unit in MONEY

    def compares_with(self, other: "Amount") -> bool:
        """Return whether the two are of one kind: euros a night and euros a night, days and weeks."""
        same = self.unit == other.unit or (self.unit in _SPANS and other.unit in _SPANS)
        return same and self.per == other.per

    def keeps(self, limit: "Amount") -> bool:
        """Return whether it keeps to a limit of its kind."""
        own, theirs = (each.value * _SPANS.get(each.unit, 1.0) for each in (self, limit))
        return own <= theirs if limit.bound == "most" else own >= theirs


def amounts(text: str) -> list[Amount]:
    """Return every amount that has a unit; of one without, the unit of the money before it: "98 euros a night. Lisbon is 140."."""
    found: list[Amount] = []
    for sentence in sentences(text):
        for match in _AMOUNT.finditer(sentence[:_LONGEST_SENTENCE]):
            unit, said = _unit(match), " ".join(match.group(0).split())
            per = stem((match.group("per") or "").lower())
            if not unit:
                before = next((each for each in reversed(found) if each.is_money), None)
                if before is None or not _may_be_price(sentence, match):
                    continue
                unit, per = before.unit, before.per
                said = f"{match.group('number')} {before.words.partition(' ')[2]}".strip()
            found.append(Amount(_value(match.group("number")), unit, per, said, sentence, _find_bound(sentence, match)))
    return found


def limits(texts: Iterable[str]) -> list[Amount]:
    """Return the amounts in these sentences that something may not go beyond."""
    return [amount for text in texts for amount in amounts(text) if amount.bound]


def applies(limit: Amount, amount: Amount, about: frozenset[str]) -> bool:
    """Return whether a limit is for this amount: of one kind, and of the same thing by the words around both."""
    if amount.bound or not amount.compares_with(limit):
        return False
    kind = {limit.unit, stem(limit.unit), limit.per, *_UNITS}
    around, said = set(terms(limit.sentence)) - kind, set(terms(amount.sentence))
    # A span of time could be for anything: only what is said in one breath with it tells.
    return bool(around & said) if limit.unit in _SPANS and not limit.per else bool(around & (said | about))


def _unit(match: re.Match[str]) -> str:
    if sign := match.group("sign"):
        return _UNITS[sign]
    word = (match.group("unit") or "").lower()
    if not word or word in _NO_UNIT or word in STOP_WORDS:
        return ""
    known = _UNITS.get(word) or stem(word)
    # "2.4 came" is a version and no amount.
    return known if word in _UNITS or known in _SPANS or match.group("number").isalnum() else ""


def _may_be_price(sentence: str, match: re.Match[str]) -> bool:
    """Return whether a bare number says what something costs: "Lisbon is 140", but not "five of them"."""
    behind = sentence[match.end("number") :].lstrip()
    return match.group("number")[0].isdigit() and not behind[:1].isalpha()


def _value(number: str) -> float:
    if number.lower() in _NUMBERS:
        return _NUMBERS[number.lower()]
    return float(re.sub(r"[.,](?=\d{3}(?:\D|$))", "", number).replace(",", "."))


def _find_bound(sentence: str, match: re.Match[str]) -> Bound | None:
    before = sentence[: match.start()] + " "
    if _AT_LEAST.search(before):
        return "least"
    if _UP_TO.search(before) or _AFTERWARDS.search(sentence[match.end() :]):
        return "most"
    return None
