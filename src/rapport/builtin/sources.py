"""Answer from the sources of a prompt: with the sentences that answer, each with its citation."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rapport.builtin.language.words import ASKING_STEMS, find_phrase, gives_answer, sentences, terms, words
from rapport.builtin.phrases import clip, finish_sentence
from rapport.builtin.prompt import Prompt, Source
from rapport.builtin.topics import breaks_rules

STRICT_THRESHOLD, BLEND_THRESHOLD = 0.34, 0.5  # shares of a question's weight, for a sentence that answers it
_CONTEXT_WEIGHT = 0.45  # a heading or the sentence before counts, but less than the sentence itself
_EARLIER_WEIGHT = 0.25  # what a short question takes over from the one before it
_FIT = {None: 1.0, True: 1.3, False: 0.7}
_NEARLY = 0.8
_MAX_PASSAGES, _MAX_SENTENCES, _MAX_GIST_SENTENCES, _MAX_LISTED = 600, 3, 5, 12
_POINTS_BACK = frozenset(["it", "they", "he", "she", "this", "these", "those", "there", "its", "their", "that", "both"])
_ELLIPTIC = frozenset(["and", "but", "also", "or", "it", "they", "them", "there", "he", "she", "that", "for", "on"])
_PRICE_ASKED = ("how much is", "how much are", "how much does", "how expensive", "for how much")


@dataclass(frozen=True)
class Passage:
    """A sentence of a source, and what stands around it."""

    source_id: str
    text: str
    before: str
    heading: str
    position: int

    @cached_property
    def terms(self) -> frozenset[str]:
        """Return its content words; an amount of money says what something costs without the word."""
        own = frozenset(terms(self.text))
        return own | {"cost"} if "euro" in own or any(sign in self.text for sign in "€$£") else own

    @cached_property
    def context(self) -> frozenset[str]:
        around = f"{self.heading} {self.source_id.replace('-', ' ').replace('_', ' ')}"
        return frozenset(terms(f"{around} {self.before}" if self.points_back else around)) - self.terms

    @cached_property
    def points_back(self) -> bool:
        """Return True if it says nothing without the sentence before it: "It opens at nine"."""
        return bool(self.before) and not _POINTS_BACK.isdisjoint(words(self.text[:40])[:1])


def answer_from_sources(question: str, earlier: str, sources: Sequence[Source], *, threshold: float) -> str | None:
    """Return the one to three sentences that answer, with citations; None if the sources don't cover the question."""
    chosen = find_passages(question, earlier, sources, threshold=threshold)
    if not chosen:
        return None
    parts: list[str] = []
    ids = list(dict.fromkeys(passage.source_id for passage in chosen))
    for source_id in ids:
        own = sorted((one for one in chosen if one.source_id == source_id), key=lambda one: one.position)
        said = [text for one in own for text in ([one.before] if one.points_back else []) + [one.text]]
        told = (finish_sentence(clip(text, 400)) for text in dict.fromkeys(said[:4]) if not breaks_rules(text))
        parts.append(f"{' '.join(told)} [source: {source_id}]")
    return add_sources_line(" ".join(parts), ids)


def add_sources_line(text: str, ids: Sequence[str]) -> str:
    """Return the text with the closing line that the strict template asks for."""
    return f"{text}\n\nSources: {', '.join(dict.fromkeys(ids))}" if ids else text


def find_passages(
    question: str, earlier: str, sources: Sequence[Source], *, threshold: float, is_wide: bool = False
) -> list[Passage]:
    """Return up to three passages that answer, the best first; with `is_wide` also those without a further asked word."""
    passages = _list_passages(sources)
    wanted = _weigh_question(question, earlier)
    if not passages or not wanted:
        return []
    seen = Counter(term for passage in passages for term in passage.terms | passage.context)
    # A term that most sentences share tells little.
    weights = {term: math.log(1.5 + len(passages) / count) for term, count in seen.items()}
    most = max(weights.values(), default=1.0)
    total = sum(share * weights.get(term, most) for term, share in wanted.items())

    def score(passage: Passage) -> float:
        direct = sum(share * weights[term] for term, share in wanted.items() if term in passage.terms)
        around = sum(share * weights[term] for term, share in wanted.items() if term in passage.context)
        fit = _FIT[gives_answer(question, passage.text)]
        is_answer = direct > 0 or (around > 0 and fit > 1) or around >= _NEARLY * total
        return (direct + _CONTEXT_WEIGHT * around) / total * fit if is_answer else 0.0

    scores = {passage: score(passage) for passage in passages}
    ranked = sorted((one for one in passages if scores[one] >= threshold), key=lambda one: -scores[one])
    # A sentence that gives orders to the reader of the prompt answers nobody's question.
    ranked = [one for one in ranked[:12] if not breaks_rules(one.text)]
    full = {term for term, share in wanted.items() if share >= 1.0} or set(wanted)
    chosen = ranked[:1]
    for passage in ranked[1:] if is_wide or not (chosen and gives_answer(question, chosen[0].text)) else ():
        covered = frozenset[str]().union(*(one.terms for one in chosen))
        is_near = scores[passage] >= (0.6 if is_wide else _NEARLY) * scores[ranked[0]]
        if len(chosen) < _MAX_SENTENCES and is_near and (is_wide or (passage.terms & full) - covered):
            chosen.append(passage)
    return chosen


def find_related(text: str, sources: Sequence[Source], *, threshold: float) -> list[Passage]:
    """Return up to three passages that have several words of a talk; one word in common is chance."""
    found = find_passages(text, "", sources, threshold=threshold, is_wide=True)
    return [one for one in found if len(one.terms.intersection(terms(text))) > 1]


def _weigh_question(question: str, earlier: str) -> dict[str, float]:
    """Return the question's terms by weight: the asking sentences count in full, what leads up to them less."""
    asking = " ".join(one for one in sentences(question) if one.endswith(("?", "？")))
    wanted = dict.fromkeys(terms(question), 0.3 if asking else 1.0) | dict.fromkeys(terms(asking), 1.0)
    if find_phrase(question, _PRICE_ASKED):
        wanted["cost"] = 1.0
    if earlier and (not wanted or not _ELLIPTIC.isdisjoint(words(asking or question))):
        for term in terms(earlier):
            wanted.setdefault(term, _EARLIER_WEIGHT)
    return {term: share for term, share in wanted.items() if term not in ASKING_STEMS}


def answer_about_notes(prompt: Prompt) -> str | None:
    """Return the list of notes, or the first sentences of one; None if the prompt offers neither."""
    before, is_list, _ = prompt.instructions.partition("; these are the beginnings of")
    if is_list:
        shown = prompt.sources[:_MAX_LISTED]
        # The first line of a source is its title.
        titles = (f"{clip(one.text.splitlines()[0].lstrip('# '), 60)} [source: {one.id}]" for one in shown)
        more = " and more" if len(prompt.sources) > len(shown) else ""
        text = f"I have {before.rpartition('The person has ')[2]}: {', '.join(titles)}{more}."
        return add_sources_line(text, [one.id for one in shown])
    return _give_gist(prompt.sources) if "The note was asked for as a whole;" in prompt.instructions else None


def _give_gist(sources: Sequence[Source]) -> str | None:
    """Return the first sentence under each heading, in the order of the note."""
    parts: list[str] = []
    for source in sources:
        under: dict[str, str] = {}
        for passage in _list_passages([source]):
            if not breaks_rules(passage.text):
                under.setdefault(passage.heading, finish_sentence(clip(passage.text, 250)))
        parts += [f"{' '.join(list(under.values())[:_MAX_GIST_SENTENCES])} [source: {source.id}]"] if under else []
    return add_sources_line(" ".join(parts), [source.id for source in sources]) if parts else None


def _list_passages(sources: Sequence[Source]) -> list[Passage]:
    """Return every sentence of the sources in order, up to a limit."""
    found: list[Passage] = []
    for source in sources:
        before = heading = ""
        for block in _join_lines(source.text.splitlines()):
            if block.startswith("#"):
                heading, before = block.lstrip("# "), ""
                continue
            for sentence in sentences(block.lstrip("-*•– ").replace("**", "").replace("`", "")):
                found.append(Passage(source.id, sentence, before, heading, len(found)))
                before = sentence
    return found[:_MAX_PASSAGES]


def _join_lines(lines: Iterable[str]) -> list[str]:
    """Return paragraphs: hard-wrapped lines are joined; list items, headings and table rows stay alone."""
    blocks: list[list[str]] = []
    is_open = False
    for line in map(str.strip, lines):
        if line and is_open and not line.startswith(("#", "- ", "* ", "• ", "|")):
            blocks[-1].append(line)
        elif line:
            blocks.append([line])
        # A wrapped line is long; a short line is an entry of its own.
        is_open = len(line) > 50 and not line.startswith(("#", "|"))
    return [" ".join(block) for block in blocks]
