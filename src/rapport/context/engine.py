"""Select which messages of a chat belong to a call, with the reasons. Pure: storage has loaded the candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rapport.agents.profiles import SHIPPED_HANDLES
from rapport.context.calls import Exchange, separate_calls
from rapport.context.question import is_bare, strip_address
from rapport.context.relevance.grouping import Belonging, score_belonging
from rapport.context.relevance.scorer import WordVectors
from rapport.context.strategies import measure_reply_distances, take_latest, take_session
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
from rapport.domain.token_estimate import estimate_tokens

TOKENS_PER_LINE = 12
"""The tokens of a message's speaker and time."""
MAX_CERTAIN_REPLIES = 30
"""The number of messages linked to the anchor by replies that are selected whatever their score, nearest first."""
MAX_SIMILAR = 5
"""The number of older messages that are selected for their meaning alone."""
MAX_REPLIES_TO_SIMILAR = 5
"""The number of replies to such messages that are selected with them: the latest."""
MAX_EXCHANGES = 5
"""The number of earlier calls, with the agent's answers, that are selected with a discussion: the latest."""
BARE_MARGIN = 0.15
"""The additional similarity that an older message needs when the call has no subject of its own."""
AGENT_HANDLES = frozenset(handle.casefold() for handle in SHIPPED_HANDLES)


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Options of a selection."""

    strategy: Strategy = "relevant"
    tokens: int = MAX_CONTEXT_TOKENS
    lookback: int = LOOKBACK_LIMIT
    gap_minutes: float = SESSION_GAP_MINUTES
    min_similarity: float = 0.45
    """The similarity from which an older message is selected by meaning; it depends on the embedder."""
    handles: Collection[str] = AGENT_HANDLES
    """The names after an @ that address the agent, in lower case."""
    words: WordVectors | None = None
    """Word vectors for the scorer; without them it compares only the words themselves."""


DEFAULT_OPTIONS = SelectionOptions()


def select_context(
    call: Message, found: CandidateMessages, choice: SelectionOptions = DEFAULT_OPTIONS
) -> ContextSelection:
    """Select the messages that belong to the call: the call once, its anchor always, the others within the token budget."""
    found = _exclude_call(call, found)
    if choice.strategy == "relevant":
        anchor, picked, passed_over, secondary_ids = _pick_relevant(call, found, choice)
    else:
        anchor, picked, passed_over, secondary_ids = _pick_by_rule(call, found, choice)
    kept = _fit_budget(picked, anchor, choice.tokens, secondary_ids)
    kept_ids = {entry.message.id for entry in kept}
    passed_over = [
        *passed_over,
        *((entry.message, entry.score) for entry in picked if entry.message.id not in kept_ids),
    ]
    passed_over.sort(key=lambda entry: (entry[0].created_at, entry[0].id))
    return ContextSelection(choice.strategy, [*kept, ChosenMessage(call, ("trigger",), 1.0)], anchor, passed_over)


_Picked = tuple["Message | None", "list[ChosenMessage]", "list[tuple[Message, float]]", "Collection[str]"]
"""The anchor, the picked messages, those passed over, and the ids of those that get only the remaining budget."""


def _pick_by_rule(call: Message, candidates: CandidateMessages, options: SelectionOptions) -> _Picked:
    """Pick by time or by replies alone."""
    anchor = candidates.anchor
    reason: Reason
    if options.strategy == "thread":
        anchor = anchor or find_subject_message(call, candidates.recent, options.handles)
        all_messages = _deduplicate([*candidates.chain, *candidates.around, *candidates.recent])
        distances = measure_reply_distances(anchor.id if anchor else call.id, [*all_messages, call])
        chosen, reason = [one for one in all_messages if one.id in distances], "reply_chain"
    elif options.strategy == "time_gap":
        chosen = take_session(call, candidates.recent, lookback=options.lookback, minutes=options.gap_minutes)
        reason = "session"
    else:
        chosen, reason = take_latest(candidates.recent, options.lookback), "recent"
    count = len(chosen)
    picked = [
        ChosenMessage(one, (reason,), round(0.5 + 0.5 * (number + 1) / count, 3)) for number, one in enumerate(chosen)
    ]
    passed_over = [(one, 0.0) for one in candidates.recent if one.id not in {message.id for message in chosen}]
    if anchor is not None:
        picked = [one for one in picked if one.message.id != anchor.id] + [ChosenMessage(anchor, ("anchor",), 1.0)]
        passed_over = [one for one in passed_over if one[0].id != anchor.id]
    return anchor, picked, passed_over, ()


def _pick_relevant(call: Message, candidates: CandidateMessages, options: SelectionOptions) -> _Picked:
    """Pick message by message: by the learned scorer, by replies, and by meaning (CTX-5)."""
    has_no_question = is_bare(call.text)
    window = _build_window(candidates)
    separated = separate_calls(window, options.handles, anchor=candidates.anchor)
    by_id = {one.id: one for one in window}
    subject_ids = (
        list(separated.subject_ids[candidates.anchor.id]) if candidates.anchor else separated.find_subject_lines(call)
    )
    anchor = candidates.anchor or (by_id[subject_ids[-1]] if has_no_question and subject_ids else None)
    lines = _limit_lines(separated.lines, {*subject_ids, *(message.id for message in candidates.around)})
    subject_numbers = [number for number, one in enumerate(lines) if one.id in subject_ids]
    question_lines = (
        [] if has_no_question else [separated.link_to_line(replace(call, content=strip_address(call.text)))]
    )
    lacks_subject = separated.lacks_subject(call)
    chosen: dict[str, ChosenMessage] = {}
    passed_over: dict[str, tuple[Message, float]] = {one.id: (one, 0.0) for one in window}
    if lines and (question_lines or subject_numbers):
        scored = score_belonging(
            [*lines, *question_lines],
            [len(lines)] if question_lines else subject_numbers,
            subject_numbers,
            handles=options.handles,
            words=options.words,
            lacks_subject=lacks_subject,
        )
        _add_scored(chosen, passed_over, scored, [by_id[line.id] for line in lines])
    if anchor is not None:
        _add_replies(chosen, anchor, call, _deduplicate([*candidates.chain, *window]), separated.non_line_ids)
        chosen[anchor.id] = ChosenMessage(anchor, ("anchor",), 1.0)
    min_similarity = options.min_similarity + (BARE_MARGIN if has_no_question else 0.0)
    # Calls and answers among the latest messages are added only with their discussion.
    close = [one for one in candidates.similar if one[0].id not in separated.non_line_ids][:MAX_SIMILAR]
    similar = {message.id: (message, similarity) for message, similarity in close if similarity >= min_similarity}
    for message, similarity in similar.values():
        chosen.setdefault(message.id, ChosenMessage(message, ("semantic",), round(similarity, 3)))
    _add_replies_to_similar(chosen, similar, [by_id[line.id] for line in lines])
    exchanges = separated.exchanges
    if candidates.anchor is not None:
        continued = separated.trace_exchanges(candidates.anchor.id)
    elif lacks_subject:
        continued = separated.find_continued_exchanges(call)
    else:
        continued, exchanges = [], separated.list_exchanges_about(call)
        _remove_calls(chosen, [exchange for exchange in separated.exchanges if exchange not in exchanges])
    _add_exchanges(chosen, exchanges, continued)
    return (
        anchor,
        list(chosen.values()),
        [one for id_, one in passed_over.items() if id_ not in chosen],
        separated.non_line_ids,
    )


def find_subject_message(
    call: Message, before: Sequence[Message], handles: Collection[str] = AGENT_HANDLES
) -> Message | None:
    """Return the message that a call without a subject is most likely about, if it replies to nothing."""
    ids = separate_calls(before, handles).find_subject_lines(call)
    return next((message for message in before if ids and message.id == ids[-1]), None)


def _build_window(candidates: CandidateMessages) -> list[Message]:
    """Return the messages to select from, oldest first: the latest, and those around an old anchor."""
    if candidates.anchor is None or any(message.id == candidates.anchor.id for message in candidates.recent):
        return list(candidates.recent)
    return _deduplicate([*candidates.around, candidates.anchor, *candidates.recent])


def _limit_lines(lines: Sequence[Message], certain_ids: Collection[str]) -> list[Message]:
    """Return the lines for the scorer, at most MAX_RECENT_MESSAGES: the certain ones and the latest."""
    latest = take_latest([line for line in lines if line.id not in certain_ids], MAX_RECENT_MESSAGES - len(certain_ids))
    latest_ids = {other.id for other in latest}
    return [line for line in lines if line.id in certain_ids or line.id in latest_ids]


def _add_scored(
    chosen: dict[str, ChosenMessage],
    passed_over: dict[str, tuple[Message, float]],
    scored: Belonging,
    lines: Sequence[Message],
) -> None:
    for number, message in enumerate(lines):
        score = round(float(scored.scores[number]), 3)
        # "Any thoughts?" between two chosen messages belongs to them: it has no subject of its own.
        is_between = {number - 1, number + 1} <= scored.chosen
        if number in scored.chosen or (is_between and "?" in message.text and is_bare(message.text)):
            chosen[message.id] = ChosenMessage(message, scored.explain(number), score)
        passed_over[message.id] = (message, score)


def _add_replies_to_similar(
    chosen: dict[str, ChosenMessage], similar: Mapping[str, tuple[Message, float]], lines: Sequence[Message]
) -> None:
    """Add the latest direct replies to messages that were found by meaning: "MySQL is cheaper" has no word of its question."""
    replies = [line for line in lines if line.reply_to_id in similar and line.id not in chosen]
    for line in replies[-MAX_REPLIES_TO_SIMILAR:]:
        chosen[line.id] = ChosenMessage(line, ("reply_chain",), round(similar[line.reply_to_id or ""][1] - 0.02, 3))


def _remove_calls(chosen: dict[str, ChosenMessage], exchanges: Sequence[Exchange]) -> None:
    """Remove the calls of exchanges about something else, unless they were found by meaning."""
    for exchange in exchanges:
        entry = chosen.get(exchange.call.id) if exchange.call is not None else None
        if entry is not None and "semantic" not in entry.reasons:
            del chosen[entry.message.id]


def _add_exchanges(
    chosen: dict[str, ChosenMessage], exchanges: Sequence[Exchange], continued: Sequence[Exchange]
) -> None:
    """Add the latest exchanges about the chosen messages; the `continued` ones come first."""
    related = [exchange for exchange in reversed(exchanges) if any(id_ in chosen for id_ in exchange.about)]
    chosen_before = dict(chosen)
    for exchange in list(dict.fromkeys([*continued, *related]))[:MAX_EXCHANGES]:
        score = max((chosen_before[id_].score for id_ in exchange.about if id_ in chosen_before), default=0.5)
        for message in exchange.messages:
            is_linked = message.role == "assistant" or message.reply_to_id in chosen_before
            reason: Reason = "reply_chain" if is_linked else "session"
            chosen.setdefault(message.id, ChosenMessage(message, (reason,), score))


def _add_replies(
    chosen: dict[str, ChosenMessage],
    anchor: Message,
    call: Message,
    messages: Sequence[Message],
    excluded_ids: Collection[str],
) -> None:
    """Add the messages that are linked to the anchor by replies, whatever their score."""
    distances = measure_reply_distances(anchor.id, [*messages, anchor, call])
    linked = sorted(
        (message for message in messages if message.id in distances and message.id not in excluded_ids),
        key=lambda item: (distances[item.id], -item.created_at.timestamp()),
    )
    for message in linked[:MAX_CERTAIN_REPLIES]:
        previous = chosen.get(message.id)
        reasons: tuple[Reason, ...] = ("reply_chain", *(previous.reasons if previous else ()))
        score = max(previous.score if previous else 0.0, round(1 - 0.02 * distances[message.id], 3))
        chosen[message.id] = ChosenMessage(message, tuple(dict.fromkeys(reasons)), score)


def _fit_budget(
    picked: Sequence[ChosenMessage], anchor: Message | None, tokens: int, secondary_ids: Collection[str]
) -> list[ChosenMessage]:
    """Return the best messages within the budget, oldest first. The anchor is always included; secondary ones come last."""
    kept: list[ChosenMessage] = []
    by_priority = sorted(
        picked,
        key=lambda entry: (
            "anchor" not in entry.reasons,
            entry.message.id in secondary_ids,
            -entry.score,
            -entry.message.created_at.timestamp(),
        ),
    )
    for entry in by_priority:
        cost = estimate_tokens(entry.message.text[:MAX_LINE_CHARACTERS]) + TOKENS_PER_LINE
        is_anchor = anchor is not None and entry.message.id == anchor.id
        if is_anchor or cost <= tokens:
            kept.append(entry)
            tokens -= cost
    return sorted(kept, key=lambda entry: (entry.message.created_at, entry.message.id))


def _exclude_call(call: Message, candidates: CandidateMessages) -> CandidateMessages:
    """Return the candidates with each message once, and without the call itself."""
    recent = _deduplicate(message for message in candidates.recent if message.id != call.id)
    return CandidateMessages(
        recent,
        candidates.anchor if candidates.anchor is None or candidates.anchor.id != call.id else None,
        _deduplicate(message for message in candidates.chain if message.id != call.id),
        _deduplicate(message for message in candidates.around if message.id != call.id),
        [hit for hit in candidates.similar if hit[0].id != call.id],
    )


def _deduplicate(messages: Iterable[Message]) -> list[Message]:
    """Return each message once, oldest first."""
    by_id = {message.id: message for message in messages}
    return sorted(by_id.values(), key=lambda one: (one.created_at, one.id))
