"""Choosing context: which messages of a chat belong to a call, and why. Pure: storage has loaded what it chooses from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from rapport.context.question import is_bare, pointed_at, words_of
from rapport.context.relevance.belonging import Belonging, belonging
from rapport.context.relevance.scorer import WordVectors
from rapport.context.strategies import latest, reply_distances, session
from rapport.context.summaries import estimated_tokens
from rapport.domain.agents import AGENTS
from rapport.domain.conversation import Message
from rapport.domain.selection import (
    CONTEXT_TOKENS,
    LOOKBACK_LIMIT,
    RECENT,
    SHOWN_CHARACTERS,
    TIME_THRESHOLD,
    Chosen,
    ContextSelection,
    Reason,
    Strategy,
    Surroundings,
)

LINE_TOKENS = 12
"""What a message costs beside its words: its speaker, its time."""
CERTAIN_REPLIES = 30
"""So many messages linked with the anchor by replies belong to it whatever the model thinks of them, the nearest first."""
SIMILAR = 5
"""So many older messages are chosen for their meaning alone."""
BARE_MARGIN = 0.15
"""So much closer in meaning an older message must be when the call has no words of its own to be close to."""
HANDLES = frozenset(handle.casefold() for agent in AGENTS.values() for handle in agent.handles)


@dataclass(frozen=True, slots=True)
class Choice:
    """How to choose."""

    strategy: Strategy = "relevant"
    tokens: int = CONTEXT_TOKENS
    lookback: int = LOOKBACK_LIMIT
    gap_minutes: float = TIME_THRESHOLD
    min_similarity: float = 0.45
    """From here on an older message is close in meaning to the question; depends on whose vectors were compared."""
    handles: Collection[str] = HANDLES
    """What people write after an @ to address the agent, in small letters."""
    words: WordVectors | None = None
    """Words as vectors, for the scorer; without them it knows only the words themselves."""


DEFAULT = Choice()


def select(call: Message, found: Surroundings, choice: Choice = DEFAULT) -> ContextSelection:
    """What of the surroundings belongs to the call: the call itself once, its anchor always, the rest while there is room."""
    found = _without(call, found)
    if choice.strategy == "relevant":
        anchor, picked, passed = _relevant(call, found, choice)
    else:
        anchor, picked, passed = _plain(call, found, choice)
    kept = _fitting(picked, anchor, choice.tokens)
    left = {one.message.id for one in kept}
    passed = [*passed, *((one.message, one.score) for one in picked if one.message.id not in left)]
    passed.sort(key=lambda one: (one[0].created_at, one[0].id))
    return ContextSelection(choice.strategy, [*kept, Chosen(call, ("trigger",), 1.0)], anchor, passed)


_Picked = tuple["Message | None", "list[Chosen]", "list[tuple[Message, float]]"]


def _plain(call: Message, found: Surroundings, choice: Choice) -> _Picked:
    """By time or by replies alone."""
    anchor = found.anchor
    why: Reason
    if choice.strategy == "thread":
        anchor = anchor or next(reversed(pointed_at(call, found.recent)), None)
        everything = _distinct([*found.chain, *found.around, *found.recent])
        steps = reply_distances(anchor.id if anchor else call.id, [*everything, call])
        chosen, why = [one for one in everything if one.id in steps], "reply_chain"
    elif choice.strategy == "time_gap":
        chosen = session(call, found.recent, lookback=choice.lookback, minutes=choice.gap_minutes)
        why = "session"
    else:
        chosen, why = latest(found.recent, choice.lookback), "recent"
    count = len(chosen)
    picked = [Chosen(one, (why,), round(0.5 + 0.5 * (number + 1) / count, 3)) for number, one in enumerate(chosen)]
    passed = [(one, 0.0) for one in found.recent if one.id not in {message.id for message in chosen}]
    if anchor is not None:
        picked = [one for one in picked if one.message.id != anchor.id] + [Chosen(anchor, ("anchor",), 1.0)]
        passed = [one for one in passed if one[0].id != anchor.id]
    return anchor, picked, passed


def _relevant(call: Message, found: Surroundings, choice: Choice) -> _Picked:
    """Message by message: by what the learned scorer says belongs together, by replies, and by meaning (CTX-5)."""
    bare = is_bare(call.text)
    window = _window(found)
    meant = [found.anchor] if found.anchor else pointed_at(call, window)
    anchor = found.anchor or (meant[-1] if bare and meant else None)
    asked = [] if bare else [replace(call, content=words_of(call.text))]
    chosen: dict[str, Chosen] = {}
    passed: list[tuple[Message, float]] = []
    if window:
        ids = {one.id for one in meant}  # the same message may have been loaded twice, with more or less of it
        pointed = [number for number, one in enumerate(window) if one.id in ids]
        about = [len(window)] if asked else pointed
        scored = belonging([*window, *asked], about, pointed, handles=choice.handles, words=choice.words)
        chosen, passed = _by_scorer(scored, window, anchor)
    if anchor is not None:
        _add_replies(chosen, anchor, call, _distinct([*found.chain, *window]))
        chosen[anchor.id] = Chosen(anchor, ("anchor",), 1.0)
    least = choice.min_similarity + (BARE_MARGIN if bare else 0.0)
    for message, similarity in found.similar[:SIMILAR]:
        if similarity >= least and message.id not in chosen:
            chosen[message.id] = Chosen(message, ("semantic",), round(similarity, 3))
    return anchor, list(chosen.values()), [one for one in passed if one[0].id not in chosen]


def _window(found: Surroundings) -> list[Message]:
    """The lines that the scorer looks at, oldest first: the latest, or those around an anchor from long ago and the latest."""
    if found.anchor is None or any(one.id == found.anchor.id for one in found.recent):
        return latest(found.recent, RECENT)
    around = _distinct([*found.around, found.anchor])
    return _distinct([*around, *latest(found.recent, RECENT - len(around))])


def _by_scorer(
    scored: Belonging, window: Sequence[Message], anchor: Message | None
) -> tuple[dict[str, Chosen], list[tuple[Message, float]]]:
    chosen: dict[str, Chosen] = {}
    passed: list[tuple[Message, float]] = []
    for number, message in enumerate(window):
        score = round(float(scored.scores[number]), 3)
        # Between two that belong, "Any thoughts?" does too: it has no subject but theirs.
        is_between = {number - 1, number + 1} <= scored.chosen
        if number in scored.chosen or (is_between and "?" in message.text and is_bare(message.text)):
            chosen[message.id] = Chosen(message, scored.reasons(number), score)
        elif anchor is None or message.id != anchor.id:
            passed.append((message, score))
    return chosen, passed


def _add_replies(chosen: dict[str, Chosen], anchor: Message, call: Message, messages: Sequence[Message]) -> None:
    """People have said what belongs to the anchor by replying: that is kept, whatever the scorer thinks of it."""
    steps = reply_distances(anchor.id, [*messages, anchor, call])
    linked = sorted(
        (one for one in messages if one.id in steps), key=lambda one: (steps[one.id], -one.created_at.timestamp())
    )
    for message in linked[:CERTAIN_REPLIES]:
        known = chosen.get(message.id)
        reasons: tuple[Reason, ...] = ("reply_chain", *(known.reasons if known else ()))
        score = max(known.score if known else 0.0, round(1 - 0.02 * steps[message.id], 3))
        chosen[message.id] = Chosen(message, tuple(dict.fromkeys(reasons)), score)


def _fitting(picked: Sequence[Chosen], anchor: Message | None, tokens: int) -> list[Chosen]:
    """The surest of them that have room, oldest first; the anchor has it always."""
    kept: list[Chosen] = []
    surest = sorted(
        picked, key=lambda one: ("anchor" not in one.reasons, -one.score, -one.message.created_at.timestamp())
    )
    for one in surest:
        cost = estimated_tokens(one.message.text[:SHOWN_CHARACTERS]) + LINE_TOKENS
        is_anchor = anchor is not None and one.message.id == anchor.id
        if is_anchor or cost <= tokens:
            kept.append(one)
            tokens -= cost
    return sorted(kept, key=lambda one: (one.message.created_at, one.message.id))


def _without(call: Message, found: Surroundings) -> Surroundings:
    """The surroundings with each message once, and without the call itself."""
    recent = _distinct(one for one in found.recent if one.id != call.id)
    near = {one.id for one in recent}
    return Surroundings(
        recent,
        found.anchor if found.anchor is None or found.anchor.id != call.id else None,
        _distinct(one for one in found.chain if one.id != call.id),
        _distinct(one for one in found.around if one.id != call.id),
        [one for one in found.similar if one[0].id != call.id and one[0].id not in near],
    )


def _distinct(messages: Iterable[Message]) -> list[Message]:
    """Each message once, oldest first."""
    known = {message.id: message for message in messages}
    return sorted(known.values(), key=lambda one: (one.created_at, one.id))
