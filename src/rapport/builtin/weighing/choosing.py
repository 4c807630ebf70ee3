"""Find which of several things people prefer: their votes, what speaks against each, what each costs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapport.builtin.language.words import sentences, terms
from rapport.builtin.phrasing import join_list
from rapport.builtin.prompt_reader import Turn
from rapport.builtin.question_kinds import is_question
from rapport.builtin.weighing.amounts import Amount, amounts
from rapport.builtin.weighing.bearing import Noted
from rapport.builtin.weighing.open_question import Table
from rapport.builtin.weighing.stances import find_leaning, stance
from rapport.builtin.weighing.voices import Voices, quote

_RATHER = re.compile(
    r"\b(?:i(?:'d| would) (?:still |much )?rather(?! not)|prefer|my vote|(?:i )?vote for|i'm for|rather have|team)\b",
    re.IGNORECASE,
)
_IS_THING = re.compile(r"^(?:[A-Z]|(?:the|an?|my|your|our|his|her|their|this|that)\b)")
_MOST_REMARKS = 2
_LONGEST_REMARK = 110
_VOTE, _CHEAPER, _NOTES = 2, 1, 3


@dataclass(slots=True)
class Option:
    """One of the things, with what was said about it."""

    name: str
    terms: frozenset[str]
    voters: list[str | None] = field(default_factory=list["str | None"])
    remarks: list[tuple[int, Turn, str]] = field(default_factory=list["tuple[int, Turn, str]"])
    """A value: it speaks well of it (1), ill (-1) or neither (0); who says it; the sentence."""
    named: list[Amount] = field(default_factory=list[Amount])

    @property
    def score(self) -> int:
        return _VOTE * len(self.voters) + sum(speaks for speaks, _, _ in self.remarks)


def choose_between(table: Table, noted: Noted, voices: Voices) -> list[str]:
    """Return who is for which, what speaks against one, what they cost, and which way that leans; empty if nothing was said."""
    found = _options(table.options)
    for turn in (*table.before, *table.after):
        _hear(turn, found)
    told = [*_votes(found, voices), *_remarks(found, voices)]
    if not told and table.prompted_by is not None:
        told.append(voices.quote(table.prompted_by))
    scores = {option.name: option.score for option in found}
    if cheaper := _cheaper(found):
        scores[cheaper[0]] += _CHEAPER
        told.append(cheaper[1])
    if noted.passages:
        told.append(noted.tell())
        for option in found:
            if noted.speaks_of(option.name, [each.name for each in found if each is not option]):
                scores[option.name] += _NOTES
    return [*told, _find_leaning(scores)] if told else []


def _options(names: Sequence[str]) -> list[Option]:
    every = [frozenset(terms(name)) for name in names]
    found: list[Option] = []
    for n, name in enumerate(names):
        others = frozenset[str]().union(*(each for m, each in enumerate(every) if m != n))
        own = every[n] - others or every[n]
        found.append(Option(name, frozenset(term for term in own if not term[0].isdigit()) or own))
    return found


def _hear(turn: Turn, options: Sequence[Option]) -> None:
    """Take down what somebody says about one of the options; the latest vote of each counts."""
    for sentence in sentences(turn.text):
        if is_question(sentence):
            continue
        said = frozenset(terms(sentence))
        meant = [option for option in options if option.terms & said]
        if len(meant) != 1:
            continue
        [option] = meant
        option.named += [amount for amount in amounts(turn.text) if amount.sentence == sentence]
        side = stance(sentence).side
        if _RATHER.search(sentence) or side == "for" or _begins_with(sentence, option):
            for each in options:
                each.voters = [voter for voter in each.voters if voter != turn.speaker or voter is None]
            option.voters.append(turn.speaker)
        speaks = -1 if side == "against" and not _RATHER.search(sentence) else find_leaning(sentence)
        option.remarks.append((speaks, turn, sentence))


def _begins_with(sentence: str, option: Option) -> bool:
    """ "Lisbon! Still warm": naming it is the vote."""
    head = set(terms(re.split(r"[!:,.]", sentence, maxsplit=1)[0]))
    return bool(head) and head <= set(terms(option.name))


def _votes(options: Sequence[Option], voices: Voices) -> list[str]:
    parts = [f"{voices.are(option.voters)} for {_find_named(option.name)}" for option in options if option.voters]
    return [f"{'; '.join(parts)}."] if parts else []


def _remarks(options: Sequence[Option], voices: Voices) -> list[str]:
    """Return what speaks for or against an option beyond a vote for it, what speaks against one first."""
    every = [
        (speaks, turn, sentence)
        for option in options
        for speaks, turn, sentence in option.remarks
        if speaks and len(sentence) <= _LONGEST_REMARK and not amounts(sentence)
    ]
    every.sort(key=lambda each: each[0])
    return [
        f"{voices.name(turn.speaker)} said: {quote(sentence, _LONGEST_REMARK, whole=True)}"
        for _, turn, sentence in every[:_MOST_REMARKS]
    ]


def _cheaper(options: Sequence[Option]) -> tuple[str, str] | None:
    """Return which of two options has the lower amounts, wherever both have one of a kind; None if that doesn't tell."""
    if len(options) != 2:
        return None
    first, second = options
    pairs = [(a, b) for a in first.named for b in second.named if a.compares_with(b) and a.value != b.value]
    if not pairs or not any(a.is_money for a, _ in pairs):
        return None
    if all(a.value < b.value for a, b in pairs):
        lower, compared = first, [f"{a.value:g} against {b.words}" for a, b in pairs]
    elif all(a.value > b.value for a, b in pairs):
        lower, compared = second, [f"{b.value:g} against {a.words}" for a, b in pairs]
    else:
        return None
    return lower.name, f"Cheaper: {lower.name}, {join_list(list(dict.fromkeys(compared))[:3])}."


def _find_leaning(scores: dict[str, int]) -> str:
    best, *others = sorted(scores, key=lambda name: -scores[name])
    if all(scores[best] > scores[other] for other in others):
        return f"So I lean to {_find_named(best)}."
    return (
        f"From what was said I can't tell which is better: {join_list([_find_named(each) for each in scores], 'or')}."
    )


def _find_named(option: str) -> str:
    return option if _IS_THING.match(option) else f"“{option}”"
