"""Find what documents say to a question that people are weighing: the sentences that bear on it, and the limits among them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapport.builtin.grounding import Passage, passages_of, search
from rapport.builtin.language.words import terms
from rapport.builtin.phrasing import finish_sentence, quotable
from rapport.builtin.rules import asks_to_break_rules
from rapport.builtin.source_reader import Source
from rapport.builtin.weighing.amounts import Amount, amounts, applies, limits
from rapport.builtin.weighing.open_question import Table, find_telling_words
from rapport.builtin.weighing.stances import find_asked_for, stance

_THRESHOLD = 0.5
_MOST = 2
_LONGEST = 240
_SHARED, _RARE = 2, 2
_FORBIDS = re.compile(
    r"\b(?:(?:may|must|can|could|shall|should|do|does|is|are) not|cannot|can't|mustn't|don't|isn't|aren't|never|nobody|nothing|no|forbidden|prohibited|without)\b",
    re.IGNORECASE,
)
_PERMITS = re.compile(r"\b(?:may|can|allowed|permitted|fine|all right|welcome|possible|free to)\b", re.IGNORECASE)
_TELLING_VALUE = 10  # "two of them" is no figure that anybody reckons with
_SHARE = 0.6  # of what an option says must stand in a sentence that is about it


@dataclass(frozen=True, slots=True)
class Noted:
    """The sentences that were found, the most relevant first."""

    passages: tuple[Passage, ...] = ()
    limit: Amount | None = None
    named: Amount | None = None
    """The thing that the limit is for."""
    unchecked: Amount | None = None
    """Another limit, for which nobody has named an amount of its kind."""

    @property
    def keeps(self) -> bool | None:
        """Return whether what was named keeps to the limit; None where there is nothing to compare."""
        return self.named.keeps(self.limit) if self.named and self.limit else None

    def decide(self, subject: frozenset[str]) -> bool:
        """Return whether what was found says yes or no by itself."""
        return self.keeps is not None or self.allows(subject) is not None

    def tell(self) -> str:
        """Return the sentences, each with its source."""
        by_source: dict[str | None, list[str]] = {}
        for passage in self.passages:
            # "It opens at nine" says nothing without the sentence before it.
            text = f"{passage.before} {passage.text}" if passage.points_back else passage.text
            by_source.setdefault(passage.source.id, []).append(f"“{finish_sentence(quotable(text, _LONGEST))}”")
        parts = (
            f"{' and '.join(texts)}{f' [source: {source_id}]' if source_id else ''}"
            for source_id, texts in by_source.items()
        )
        return f"The notes say: {', and '.join(parts)}"

    @property
    def ids(self) -> list[str]:
        return list(dict.fromkeys(passage.source.id for passage in self.passages if passage.source.id))

    def allows(self, subject: frozenset[str]) -> bool | None:
        """Return whether a sentence that was found says that what is asked about may be or may not; None if none says so."""
        for passage in self.passages:
            parts = re.split(r"[,;:]", passage.text)
            about = max(parts, key=lambda part: len(subject & set(terms(part))))
            if len(subject & set(terms(about))) < _SHARED:
                continue
            if _FORBIDS.search(about):
                return False
            if _PERMITS.search(about):
                return True
        return None

    def speaks_of(self, option: str, others: Sequence[str]) -> bool:
        """Return whether a sentence that was found is about this option and about none of the others."""
        return any(
            _covers(passage, option) and not any(_covers(passage, other) for other in others)
            for passage in self.passages
        )


def cite_notes(table: Table, sources: list[Source]) -> Noted:
    """Return what the sources say to the question: to the amounts that were named, to what people want to know, to the question itself."""
    found = [passage for passage in passages_of(sources) if not asks_to_break_rules(passage.text)]
    if not found:
        return Noted()
    named = find_named_amounts(table)
    kept, limit, amount = _apply_limits(found, named, table)
    for query in _find_wanted(table):
        kept += [each for each in search(query, "", sources, threshold=_THRESHOLD)[:1] if each not in kept]
    if not kept or table.options:
        kept += [each for each in _on_options(found, table.options) if each not in kept]
    if not kept:
        kept += _sharing(found, table)
    chosen = tuple(kept[:_MOST])
    others = [each for passage in chosen for each in limits([passage.text]) if each != limit]
    unchecked = next((each for each in others if not any(one.compares_with(each) for one in named)), None)
    return Noted(chosen, limit, amount, unchecked)


def find_named_amounts(table: Table) -> list[Amount]:
    """Return the amounts that people have named for what is asked about, the latest first."""
    since = [amount for text in (table.text, *(turn.text for turn in table.after)) for amount in amounts(text)]
    earlier = [amount for turn in reversed(table.before) for amount in amounts(turn.text)]
    # What was named before the question is for its subject only if it says so with more than one word of it.
    least = min(2, len(table.subject))
    return [
        *reversed(since),
        *(each for each in earlier if len(table.subject & find_telling_words(each.sentence)) >= least),
    ]


def figures(table: Table) -> list[str]:
    """Everything that was named on the subject, in the order in which it was."""
    every = [amount for turn in (*table.before, *table.after) for amount in amounts(turn.text)]
    fitting = [
        each for each in every if table.subject & find_telling_words(each.sentence) and each.value >= _TELLING_VALUE
    ]
    return list(dict.fromkeys(each.words for each in fitting))


def _apply_limits(
    found: Sequence[Passage], named: Sequence[Amount], table: Table
) -> tuple[list[Passage], Amount | None, Amount | None]:
    """Return the passage with a limit that is for something named here; one that says what it is per counts most."""
    for passage in sorted(found, key=lambda each: not any(limit.per for limit in limits([each.text]))):
        for limit in limits([passage.text]):
            about = table.subject | frozenset(term for turn in table.after for term in terms(turn.text))
            if amount := next((each for each in named if applies(limit, each, about | passage.context)), None):
                return [passage], limit, amount
    return [], None, None


def _find_wanted(table: Table) -> Iterable[str]:
    """Return what people would have to know: what somebody wants looked up, what a yes hangs on, and the question itself."""
    for turn in reversed(table.after):
        if what := find_asked_for(turn.text):
            yield f"{what}?"
        if condition := stance(turn.text).condition:
            yield condition.partition(" ")[2]
    yield table.question
    if not table.options:
        yield table.text


def _sharing(found: Sequence[Passage], table: Table) -> list[Passage]:
    """Return the sentence that has at least two of the question's telling words, if few others have them."""
    counts = Counter(term for passage in found for term in passage.terms)
    rare = frozenset(term for term in table.subject if counts[term] <= _RARE)
    best = max(found, key=lambda each: len(rare & each.terms))
    return [best] if len(rare & best.terms) >= _SHARED else []


def _on_options(found: Sequence[Passage], options: Sequence[str]) -> list[Passage]:
    return [passage for passage in found if any(_covers(passage, option) for option in options)]


def _covers(passage: Passage, option: str) -> bool:
    wanted = find_telling_words(option)
    # "back" is common, and still what tells "roll back" from "roll on".
    said = wanted | {term for term in terms(option) if not any(character.isdigit() for character in term)}
    wanted = frozenset(term for term in said if not any(character.isdigit() for character in term))
    return bool(wanted) and len(wanted & passage.terms) / len(wanted) > _SHARE
