"""Answers made of the sentences of the sources that answer the question, each with its source."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from rapport.builtin.language.word_lists import word_set
from rapport.builtin.language.words import passages, sentences, stem, terms
from rapport.builtin.phrasing import finish_sentence, quotable
from rapport.builtin.question_kinds import Kind, gives, kind_of
from rapport.builtin.rules import asks_to_break_rules
from rapport.builtin.source_reader import Source

_POINTS_BACK = re.compile(r"^(?:it|they|he|she|this|these|those|there|its|their|that|both)\b", re.IGNORECASE)
_LEANS_ON_EARLIER = re.compile(
    r"^(?:and|but|what about|how about|also|or|for|on|in|with|at|without)\b|\b(?:it|they|them|that one|there|he|she|him|the (?:first|second|other) one)\b",
    re.IGNORECASE,
)
_ASKS_PRICE = re.compile(r"\bhow (?:much (?:is|are|does|do|for)|expensive)\b|\bfor how much\b", re.IGNORECASE)
_COST = stem("cost")
_MONEY = re.compile(r"[€$£]\s?\d|\d\s?(?:€|(?:euros?|eur|dollars?|pounds?|cents?|usd|gbp)\b)", re.IGNORECASE)
_MOST_PASSAGES = 600
_MOST_RANKED = 12
_MOST_SENTENCES = 3
_SENTENCE_LIMIT = 400

_CONTEXT_WEIGHT = 0.45  # a heading, a document's id or the sentence before counts, but less than the sentence
_EARLIER_WEIGHT = 0.25  # what an elliptic question takes over from the one before it


@dataclass(frozen=True)
class Passage:
    """A sentence of a source with what stands around it."""

    source: Source
    text: str
    before: str
    heading: str
    position: int

    @cached_property
    def terms(self) -> frozenset[str]:
        """Its telling words; a sum of money says what something costs without the word."""
        own = frozenset(terms(self.text))
        return own | {_COST} if _MONEY.search(self.text) else own

    @cached_property
    def context(self) -> frozenset[str]:
        around = f"{self.heading} {(self.source.id or '').replace('-', ' ').replace('_', ' ')}"
        if self.points_back:
            around = f"{around} {self.before}"
        return frozenset(terms(around)) - self.terms

    @property
    def points_back(self) -> bool:
        return bool(_POINTS_BACK.match(self.text)) and bool(self.before)


def answer(question: str, earlier: str, sources: list[Source], *, threshold: float) -> str | None:
    """Return the one to three sentences that answer, tagged and listed; None if the sources do not cover it."""
    chosen = search(question, earlier, sources, threshold=threshold)
    return _cite(chosen) if chosen else None


def search(question: str, earlier: str, sources: list[Source], *, threshold: float) -> list[Passage]:
    """Return the one to three passages that answer, the best first; none if the sources do not cover it."""
    found = passages_of(sources)
    wanted = _query(question, earlier)
    if not found or not wanted:
        return []
    weights = _weights(found)
    most = max(weights.values(), default=1.0)
    total = sum(share * weights.get(term, most) for term, share in wanted.items())
    kind = kind_of(question)

    def score(passage: Passage) -> float:
        direct = sum(share * weights[t] for t, share in wanted.items() if t in passage.terms)
        around = sum(share * weights.get(t, 0.0) for t, share in wanted.items() if t in passage.context)
        return (direct + _CONTEXT_WEIGHT * around) / total * _fit(kind, passage.text) if direct + around else 0.0

    ranked = sorted(((score(p), -n, p) for n, p in enumerate(found)), key=lambda each: each[:2], reverse=True)
    # A sentence that gives orders to the reader of the prompt is no answer to anybody's question.
    fitting = [(s, p) for s, _, p in ranked[:_MOST_RANKED] if s > 0.0 and not asks_to_break_rules(p.text)]
    if not fitting or fitting[0][0] < threshold or not _truly_meets(fitting[0][1], wanted, kind):
        return []
    return _choose_passages(fitting, {term for term, share in wanted.items() if share >= 1.0} or set(wanted), kind)


def _truly_meets(passage: Passage, wanted: dict[str, float], kind: Kind) -> bool:
    """Return False for a heading alone, which is no answer unless the sentence under it is of the kind asked for."""
    return any(term in passage.terms for term in wanted) or (kind is not Kind.OPEN and gives(kind, passage.text))


def passages_of(sources: list[Source]) -> list[Passage]:
    """Return every sentence of the sources, in order, up to a bound."""
    found: list[Passage] = []
    for source in sources:
        before = ""
        for position, (heading, text) in enumerate(passages(source.text)):
            found.append(Passage(source, text, before, heading, position))
            before = text
    return found[:_MOST_PASSAGES]


def _query(question: str, earlier: str) -> dict[str, float]:
    """Return the question's terms by weight: the asking sentences count in full, what leads up to them less."""
    asking = [each for each in sentences(question) if each.rstrip().endswith(("?", "？"))]
    if not asking:
        wanted = dict.fromkeys(terms(question), 1.0)
    else:
        wanted = dict.fromkeys(terms(question), 0.3) | dict.fromkeys(terms(" ".join(asking)), 1.0)
    if earlier and (not wanted or _LEANS_ON_EARLIER.search(" ".join(asking) or question)):
        for term in terms(earlier):
            wanted.setdefault(term, _EARLIER_WEIGHT)
    if _ASKS_PRICE.search(question):
        wanted.setdefault(stem("price"), 1.0)
    for filler in _FILLERS & wanted.keys():
        del wanted[filler]
    return wanted


# Words of asking, not of the thing asked for.
_FILLERS = frozenset(
    map(
        stem,
        word_set(
            """
            document documents source sources note notes explain describe question answer ask show find list help info
            information detail details give exactly long many time year day does number name everything anything something hi hello hey anyone
            """
        ),
    )
)


def _weights(found: list[Passage]) -> dict[str, float]:
    """Return how telling each term is: one that most sentences share tells little."""
    seen = Counter(term for passage in found for term in passage.terms | passage.context)
    return {term: math.log(1.5 + len(found) / count) for term, count in seen.items()}


def _fit(kind: Kind, text: str) -> float:
    if kind is Kind.OPEN:
        return 1.0
    return 1.3 if gives(kind, text) else 0.7


def _choose_passages(ranked: list[tuple[float, Passage]], wanted: set[str], kind: Kind) -> list[Passage]:
    best = ranked[0][0]
    chosen = [ranked[0][1]]
    covered = set(chosen[0].terms & wanted)
    floor = 0.6 if kind is Kind.OPEN else 0.75
    for score, passage in ranked[1:]:
        if len(chosen) == _MOST_SENTENCES or score < floor * best:
            break
        adds = (passage.terms & wanted) - covered
        if (
            passage.terms & wanted
            and (adds or (kind is Kind.OPEN and score >= 0.9 * best))
            and all(passage.text != other.text for other in chosen)
        ):
            chosen.append(passage)
            covered |= adds
    return chosen


def _cite(chosen: list[Passage]) -> str:
    """Sentences in reading order, grouped by source, the best source first."""
    ids = list(dict.fromkeys(passage.source.id for passage in chosen))
    parts: list[str] = []
    for source_id in ids:
        own = sorted((p for p in chosen if p.source.id == source_id), key=lambda p: p.position)
        said: list[str] = []
        for passage in own:
            # "It opens at nine" says nothing without the sentence before it.
            wanting = passage.points_back and passage.before not in said and not asks_to_break_rules(passage.before)
            lead = [passage.before] if wanting else []
            said.extend([*lead, passage.text])
        text = " ".join(finish_sentence(quotable(each, _SENTENCE_LIMIT)) for each in dict.fromkeys(said[:4]))
        parts.append(f"{text} [source: {source_id}]" if source_id else text)
    named = [source_id for source_id in ids if source_id]
    return "\n\n".join([" ".join(parts), *([f"Sources: {', '.join(named)}"] if named else [])])
