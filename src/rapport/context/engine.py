"""Select which messages of a chat belong to a call, with the reasons. Pure: storage has loaded the candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from rapport.agents.profiles import list_agents
from rapport.context.calls import Exchange, separate_calls
from rapport.context.question import is_bare, strip_address
from rapport.context.relevance.grouping import Belonging, score_belonging
from rapport.context.relevance.scorer import WordVectors
from rapport.context.strategies import measure_reply_distances, take_latest, take_session
from rapport.context.summary_rules import estimate_tokens
from rapport.domain.context_selection import (
    LOOKBACK_LIMIT,
    MAX_CONTEXT_TOKENS,
    MAX_LINE_CHARACTERS,
    MAX_RECENT_MESSAGES,
    SESSION_GAP_MINUTES,
    CandidateMessages,
    ChosenMessage,
    ContextSelection,
    Reason,
    Strategy,
)
from rapport.domain.conversation import Message

TOKENS_PER_LINE = 12
"""The tokens of a message's speaker and time."""
MAX_CERTAIN_REPLIES = 30
"""The number of messages linked to the anchor by replies that are selected whatever their score, nearest first."""
MAX_SIMILAR = 5
"""The number of older messages that are selected for their meaning alone."""
MAX_EXCHANGES = 5
"""The number of earlier calls, with the agent's answers, that are selected with a talk: the latest."""
BARE_MARGIN = 0.15
"""The additional similarity that an older message needs when the call has no subject of its own."""
AGENT_HANDLES = frozenset(handle.casefold() for agent in list_agents() for handle in agent.handles)


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Options of a selection."""

    strategy: Strategy = "relevant"
    tokens: int = MAX_CONTEXT_TOKENS
    lookback: int = LOOKBACK_LIMIT
    gap_minutes: float = SESSION_GAP_MINUTES
    min_similarity: float = 0.45
    """From here on an older message is close in meaning to the question; depends on whose vectors were compared."""
    handles: Collection[str] = AGENT_HANDLES
    """The names after an @ that address the agent, in lower case."""
    words: WordVectors | None = None
    """Words as vectors, for the scorer; without them it knows only the words themselves."""


DEFAULT_OPTIONS = SelectionOptions()


def select_context(
    call: Message, found: CandidateMessages, choice: SelectionOptions = DEFAULT_OPTIONS
) -> ContextSelection:
    """Select what belongs to the call: the call once, its anchor always, the rest while there is room."""
    found = _exclude_call(call, found)
    if choice.strategy == "relevant":
        anchor, picked, passed, aside = _pick_relevant(call, found, choice)
    else:
        anchor, picked, passed, aside = _pick_by_rule(call, found, choice)
    kept = _fit_budget(picked, anchor, choice.tokens, aside)
    left = {one.message.id for one in kept}
    passed = [*passed, *((one.message, one.score) for one in picked if one.message.id not in left)]
    passed.sort(key=lambda one: (one[0].created_at, one[0].id))
    return ContextSelection(choice.strategy, [*kept, ChosenMessage(call, ("trigger",), 1.0)], anchor, passed)


_Picked = tuple["Message | None", "list[ChosenMessage]", "list[tuple[Message, float]]", "Collection[str]"]
"""The anchor, what was picked, what was passed over, and the ids of those that get only the room that the others leave."""


def _pick_by_rule(call: Message, found: CandidateMessages, choice: SelectionOptions) -> _Picked:
    """Pick by time or by replies alone."""
    anchor = found.anchor
    why: Reason
    if choice.strategy == "thread":
        anchor = anchor or find_subject_message(call, found.recent, choice.handles)
        everything = _deduplicate([*found.chain, *found.around, *found.recent])
        steps = measure_reply_distances(anchor.id if anchor else call.id, [*everything, call])
        chosen, why = [one for one in everything if one.id in steps], "reply_chain"
    elif choice.strategy == "time_gap":
        chosen = take_session(call, found.recent, lookback=choice.lookback, minutes=choice.gap_minutes)
        why = "session"
    else:
        chosen, why = take_latest(found.recent, choice.lookback), "recent"
    count = len(chosen)
    picked = [
        ChosenMessage(one, (why,), round(0.5 + 0.5 * (number + 1) / count, 3)) for number, one in enumerate(chosen)
    ]
    passed = [(one, 0.0) for one in found.recent if one.id not in {message.id for message in chosen}]
    if anchor is not None:
        picked = [one for one in picked if one.message.id != anchor.id] + [ChosenMessage(anchor, ("anchor",), 1.0)]
        passed = [one for one in passed if one[0].id != anchor.id]
    return anchor, picked, passed, ()


def _pick_relevant(call: Message, found: CandidateMessages, choice: SelectionOptions) -> _Picked:
    """Pick message by message: by the learned scorer, by replies, and by meaning (CTX-5)."""
    bare = is_bare(call.text)
    window = _build_window(found)
    parted = separate_calls(window, choice.handles, anchor=found.anchor)
    known = {one.id: one for one in window}
    pointed = list(parted.stands_for[found.anchor.id]) if found.anchor else parted.find_subject_lines(call)
    anchor = found.anchor or (known[pointed[-1]] if bare and pointed else None)
    lines = _limit_lines(parted.lines, {*pointed, *(message.id for message in found.around)})
    about = [number for number, one in enumerate(lines) if one.id in pointed]
    asked = [] if bare else [parted.link_to_line(replace(call, content=strip_address(call.text)))]
    lacks_subject = parted.lacks_subject(call)
    chosen: dict[str, ChosenMessage] = {}
    passed: dict[str, tuple[Message, float]] = {one.id: (one, 0.0) for one in window}
    if lines and (asked or about):
        scored = score_belonging(
            [*lines, *asked],
            [len(lines)] if asked else about,
            about,
            handles=choice.handles,
            words=choice.words,
            lacks_subject=lacks_subject,
        )
        _add_scored(chosen, passed, scored, [known[line.id] for line in lines])
    if anchor is not None:
        _add_replies(chosen, anchor, call, _deduplicate([*found.chain, *window]), parted.non_line_ids)
        chosen[anchor.id] = ChosenMessage(anchor, ("anchor",), 1.0)
    least = choice.min_similarity + (BARE_MARGIN if bare else 0.0)
    # Calls and answers among the latest messages come along with their talk, or not at all.
    close = [one for one in found.similar if one[0].id not in parted.non_line_ids]
    for message, similarity in close[:MAX_SIMILAR]:
        if similarity >= least and message.id not in chosen:
            chosen[message.id] = ChosenMessage(message, ("semantic",), round(similarity, 3))
    if found.anchor is not None:
        meant = parted.trace_exchanges(found.anchor.id)
    else:
        meant = parted.find_continued_exchanges(call) if lacks_subject else []
    _add_exchanges(chosen, parted.exchanges, meant)
    return anchor, list(chosen.values()), [one for id_, one in passed.items() if id_ not in chosen], parted.non_line_ids


def find_subject_message(
    call: Message, before: Sequence[Message], handles: Collection[str] = AGENT_HANDLES
) -> Message | None:
    """Return the message that a call without a subject is most likely about, if it replies to nothing."""
    ids = separate_calls(before, handles).find_subject_lines(call)
    return next((message for message in before if ids and message.id == ids[-1]), None)


def _build_window(found: CandidateMessages) -> list[Message]:
    """Return the messages to look at, oldest first: the latest, and those around an anchor from long ago."""
    if found.anchor is None or any(message.id == found.anchor.id for message in found.recent):
        return list(found.recent)
    return _deduplicate([*found.around, found.anchor, *found.recent])


def _limit_lines(lines: Sequence[Message], certain: Collection[str]) -> list[Message]:
    """Return the lines that the scorer looks at, at most RECENT: the certain ones and the latest."""
    others = take_latest([line for line in lines if line.id not in certain], MAX_RECENT_MESSAGES - len(certain))
    kept = {other.id for other in others}
    return [line for line in lines if line.id in certain or line.id in kept]


def _add_scored(
    chosen: dict[str, ChosenMessage],
    passed: dict[str, tuple[Message, float]],
    scored: Belonging,
    lines: Sequence[Message],
) -> None:
    for number, message in enumerate(lines):
        score = round(float(scored.scores[number]), 3)
        # Between two that belong, "Any thoughts?" does too: it has no subject but theirs.
        is_between = {number - 1, number + 1} <= scored.chosen
        if number in scored.chosen or (is_between and "?" in message.text and is_bare(message.text)):
            chosen[message.id] = ChosenMessage(message, scored.explain(number), score)
        passed[message.id] = (message, score)


def _add_exchanges(chosen: dict[str, ChosenMessage], exchanges: Sequence[Exchange], meant: Sequence[Exchange]) -> None:
    """Add earlier calls and the agent's answers to what they are about: the latest, with the `meant` ones first."""
    belong = [exchange for exchange in reversed(exchanges) if any(id_ in chosen for id_ in exchange.about)]
    about = dict(chosen)
    for exchange in list(dict.fromkeys([*meant, *belong]))[:MAX_EXCHANGES]:
        score = max((about[id_].score for id_ in exchange.about if id_ in about), default=0.5)
        for message in exchange.messages:
            is_linked = message.role == "assistant" or message.reply_to_id in about
            reason: Reason = "reply_chain" if is_linked else "session"
            chosen.setdefault(message.id, ChosenMessage(message, (reason,), score))


def _add_replies(
    chosen: dict[str, ChosenMessage],
    anchor: Message,
    call: Message,
    messages: Sequence[Message],
    aside: Collection[str],
) -> None:
    """Add what people have linked to the anchor by replying, whatever its score."""
    steps = measure_reply_distances(anchor.id, [*messages, anchor, call])
    linked = sorted(
        (message for message in messages if message.id in steps and message.id not in aside),
        key=lambda one: (steps[one.id], -one.created_at.timestamp()),
    )
    for message in linked[:MAX_CERTAIN_REPLIES]:
        known = chosen.get(message.id)
        reasons: tuple[Reason, ...] = ("reply_chain", *(known.reasons if known else ()))
        score = max(known.score if known else 0.0, round(1 - 0.02 * steps[message.id], 3))
        chosen[message.id] = ChosenMessage(message, tuple(dict.fromkeys(reasons)), score)


def _fit_budget(
    picked: Sequence[ChosenMessage], anchor: Message | None, tokens: int, aside: Collection[str]
) -> list[ChosenMessage]:
    """Return the surest messages that fit, oldest first. The anchor always fits; those aside get the room that is left."""
    kept: list[ChosenMessage] = []
    surest = sorted(
        picked,
        key=lambda one: (
            "anchor" not in one.reasons,
            one.message.id in aside,
            -one.score,
            -one.message.created_at.timestamp(),
        ),
    )
    for one in surest:
        cost = estimate_tokens(one.message.text[:MAX_LINE_CHARACTERS]) + TOKENS_PER_LINE
        is_anchor = anchor is not None and one.message.id == anchor.id
        if is_anchor or cost <= tokens:
            kept.append(one)
            tokens -= cost
    return sorted(kept, key=lambda one: (one.message.created_at, one.message.id))


def _exclude_call(call: Message, found: CandidateMessages) -> CandidateMessages:
    """Return the candidates with each message once, and without the call itself."""
    recent = _deduplicate(message for message in found.recent if message.id != call.id)
    return CandidateMessages(
        recent,
        found.anchor if found.anchor is None or found.anchor.id != call.id else None,
        _deduplicate(message for message in found.chain if message.id != call.id),
        _deduplicate(message for message in found.around if message.id != call.id),
        [one for one in found.similar if one[0].id != call.id],
    )


def _deduplicate(messages: Iterable[Message]) -> list[Message]:
    """Return each message once, oldest first."""
    known = {message.id: message for message in messages}
    return sorted(known.values(), key=lambda one: (one.created_at, one.id))
