"""Plan by rules whether, when and about what to follow up: they hold for every model, and plan alone for those that can't (AUTO-1)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from rapport.domain import text_bounds as bounding
from rapport.domain.conversation import Message
from rapport.domain.follow_up import Autonomy, PastFollowUp, Plan, TriggerType
from rapport.domain.phrases import find_any, load_languages, load_phrases, load_words
from rapport.domain.synthetic import is_synthetic
from rapport.followups.closings import is_closing, is_in_distress, is_only_thanks, sends_for_help, take_since_bad_news
from rapport.followups.open_topics import (
    OpenTopic,
    find_open_decision,
    find_open_question,
    find_open_task,
    is_decided,
    is_offer,
    settles,
)
from rapport.followups.own_words import find_own_messages, find_own_subject
from rapport.followups.topics import is_closed, make_topic
from rapport.followups.word_stems import DATA, KNOWN, content_words, plain, shorten, words

_MINUTE = 60.0
USUAL_DELAY: dict[TriggerType, float] = {
    "question_unanswered": 3 * _MINUTE,
    "waiting_for_decision": 20 * _MINUTE,
    "task_incomplete": 30 * _MINUTE,
    "check_in": 10 * _MINUTE,
}
"""Seconds, when nothing that was said makes it shorter or longer."""
GAP_MARGIN_SECONDS = 60.0
"""A follow-up is planned this much later than it may come: the one before it is dated a moment after its successor is planned."""
_RECENT = 3
"""Number of a person's latest messages that may leave something open."""
_SUBSTANCE = 3
"""Content words from which on a message has a subject."""
_EXCHANGES = 2
_LONGEST = 1_000
"""Characters of a message that are looked at."""
_REASON_LENGTH = 200
_DAY = timedelta(days=1)

_AT_ONCE = find_any(load_phrases(DATA, "at_once"))
_LATER = find_any(load_phrases(DATA, "later"))
_TODAY = find_any(load_phrases(DATA, "today"))
_WEIGHTY = find_any(load_phrases(DATA, "weighty"))
_OWN = load_words(DATA, "own")
_SPOKEN = re.compile(r"(?<![\w'’])(?:[^\W\d_]|['’](?=\w))+")
_PERSPECTIVE: dict[str, str] = load_languages(DATA)["en"]["perspective"]


@dataclass(frozen=True, slots=True)
class _Talk:
    """A conversation, seen by the planner: real messages with words, the agent's reply last."""

    everything: Sequence[Message]
    """Also what was said before bad news."""
    people: tuple[Message, ...]
    """Return what the user wrote themselves, oldest first: without what others wrote and what they quoted."""
    reply: Message
    before: str
    """The agent's messages before the user's last message."""
    unasked: tuple[Message, ...]
    """Follow-ups made since the user's last message."""
    is_after_bad_news: bool
    """The user has told something sad, and then spoke of something else."""


def plan_by_rules(
    said: Sequence[Message], *, earlier: Sequence[PastFollowUp], autonomy: Autonomy, owner_id: str | None = None
) -> Plan | None:
    """Return the follow-up that the strongest open end of a conversation calls for, or None; the same for the same talk.

    `said` is its newest part, oldest first, ending with the agent's reply; `earlier` are the follow-ups made before. Only the
    words of the person who wrote last count and, with `owner_id` (in a direct chat), only the owner's.
    """
    talk = _talk(said, owner_id)
    if talk is None or _is_full(talk, autonomy):
        return None
    for plan in _openings(talk):
        if plan.trigger_type in autonomy.trigger_types and _is_new(plan, talk, earlier):
            return space_out(clamp_delay(plan, autonomy), earlier=earlier, now=said[-1].created_at, autonomy=autonomy)
    return None


def is_follow_up_ruled_out(said: Sequence[Message], *, autonomy: Autonomy, owner_id: str | None = None) -> bool:
    """Return whether nothing may be said unasked after this, whatever it would be about."""
    talk = _talk(said, owner_id)
    return talk is None or _is_full(talk, autonomy)


def space_out(plan: Plan, *, earlier: Sequence[PastFollowUp], now: datetime, autonomy: Autonomy) -> Plan | None:
    """Return the plan, put off until an inferred follow-up may be made again; None when too many were made within a day."""
    since = max((one.at for one in earlier if one.in_this_silence), default=None)
    gap = autonomy.inferred_gap + GAP_MARGIN_SECONDS
    delay = plan.delay if since is None else max(plan.delay, gap - (now - since).total_seconds())
    due = now + timedelta(seconds=delay)
    lately = sum(one.is_inferred and due - one.at < _DAY for one in earlier)
    return replace(plan, delay=delay) if lately < autonomy.inferred_per_day else None


def _is_full(talk: _Talk, autonomy: Autonomy) -> bool:
    if len(talk.unasked) >= autonomy.max_in_a_row:
        return True
    if any(talk.reply.metadata.get(flag) is True for flag in ("fallback_used", "guard_used", "cancelled")):
        return True
    if any(is_in_distress(message.text) for message in talk.everything if message.role == "user"):
        return True
    if any(sends_for_help(message.text) for message in talk.everything if message.role == "assistant"):
        return True
    last = talk.people[-1].text
    return is_closing(last, answers_an_offer=is_offer(talk.before), is_first=len(talk.people) == 1 and not talk.before)


def fits(plan: Plan, *, said: Sequence[Message], earlier: Sequence[PastFollowUp], owner_id: str | None = None) -> bool:
    """Return whether this has not been brought up before: neither its topic, until the user speaks of it again, nor its type since
    the user's last message."""
    talk = _talk(said, owner_id)
    return talk is not None and _is_new(plan, talk, earlier)


def _is_new(plan: Plan, talk: _Talk, earlier: Sequence[PastFollowUp]) -> bool:
    used = {message.metadata.get("trigger_type") for message in talk.unasked}
    return plan.trigger_type not in used and not is_closed(plan.topic, plan.sources, earlier=earlier, own=talk.people)


def clamp_delay(plan: Plan, autonomy: Autonomy) -> Plan:
    """Return the plan with a delay that the agent's limits allow; one that is no number becomes what is usual for the type."""
    delay = USUAL_DELAY[plan.trigger_type] if math.isnan(plan.delay) else plan.delay
    longest = max(autonomy.min_delay, autonomy.max_delay)
    return replace(plan, delay=min(max(delay, autonomy.min_delay), longest))


def _real(said: Sequence[Message]) -> list[Message]:
    real = [message for message in said if not is_synthetic(message) and message.role != "system-summary"]
    return [_with_text(message, _limit_text(bounding.shorten(message.text, _LONGEST))) for message in real]


def _with_text(message: Message, text: str) -> Message:
    """Return the message with this text; the same object if it has it, because a copy takes longer than the comparison."""
    return message if message.content == text else replace(message, content=text)


@lru_cache(KNOWN)
def _limit_text(text: str) -> str:
    return bounding.limit_text(text, _LONGEST)


def _talk(said: Sequence[Message], owner_id: str | None = None) -> _Talk | None:
    """None when there is no reply to somebody's words at the end, or none that leaves room beside bad news."""
    everything = _real(said)
    real = take_since_bad_news(everything)
    if real is None:
        return None
    spoken = [index for index, message in enumerate(real) if message.role == "user"]
    own = find_own_messages(real, owner_id=owner_id)
    people = [_with_text(one, text) for one in own if (text := find_own_subject(one.text)).strip()]
    if not spoken or not people or real[-1].role != "assistant" or not real[-1].text.strip():
        return None
    after = real[spoken[-1] + 1 :]
    earlier = [message.text for message in real[: spoken[-1]] if message.role == "assistant"]
    return _Talk(
        everything=everything,
        people=tuple(people),
        reply=real[-1],
        before=earlier[-1] if earlier else "",
        unasked=tuple(message for message in after if message.metadata.get("autonomous") is True),
        is_after_bad_news=len(real) < len(everything),
    )


def _openings(talk: _Talk) -> Iterator[Plan]:
    """Yield what is open, strongest first: what the user said they have to decide or do, then what the agent asked."""
    yield from _decision(talk)
    yield from _task(talk)
    if not talk.unasked:  # Asking again what was asked unasked is nagging.
        if asked := find_open_question(talk.reply.text):
            yield from _question(asked, talk)
        yield from _lull(talk)


def _question(asked: str, talk: _Talk) -> Iterator[Plan]:
    if not content_words(f"{asked} {talk.people[-1].text}"):
        return
    # The topic is what the user wrote, and not the agent's question: a model may ask what a note told it to ask.
    about = next((one for one in reversed(talk.people) if content_words(one.text)), talk.people[-1])
    # A long question takes longer to think about.
    delay = min(2 + len(words(asked)) / 8, 5) * _MINUTE
    reason = f'The question "{shorten(asked, _REASON_LENGTH - 40)}" is still open.'
    yield Plan("question_unanswered", delay, make_topic(about.text), reason, _ids(about, talk.people[-1]))


def _decision(talk: _Talk) -> Iterator[Plan]:
    for message in reversed(talk.people[-_RECENT:]):
        if found := find_open_decision(message.text):
            said = plain(found.sentence)
            stands_alone = len(content_words(said)) > 1
            subject = found.sentence if stands_alone else f"{found.sentence} {_context(talk)}"
            sources = _ids(message) if stands_alone else _ids(*talk.people[-_RECENT:])
            delay = (25 if _WEIGHTY.search(said) else 10) + min(len(words(said)) / 4, 5)
            reason = f'You have not decided yet: "{shorten(found.sentence, _REASON_LENGTH - 40)}"'
            yield Plan("waiting_for_decision", delay * _MINUTE, make_topic(subject), reason, sources)
        if found or is_decided(message.text):
            return


def _task(talk: _Talk) -> Iterator[Plan]:
    later: list[str] = []
    for message in reversed(talk.people[-_RECENT:]):
        found = find_open_task(message.text)
        if found and not any(settles(each, found.task) for each in later):
            reason = _promise(found)
            yield Plan("task_incomplete", _task_delay(found.sentence), make_topic(found.task), reason, _ids(message))
            return
        later.append(message.text)


def _task_delay(sentence: str) -> float:
    said = plain(sentence)
    if _LATER.search(said):
        return 60 * _MINUTE
    if _TODAY.search(said):
        return 45 * _MINUTE
    return (20 if _AT_ONCE.search(said) else 30) * _MINUTE


def _promise(found: OpenTopic) -> str:
    if not found.is_english:
        return f'You said: "{shorten(found.sentence, _REASON_LENGTH - 25)}"'
    return f"You said you would {shorten(_SPOKEN.sub(_to_them, found.task), _REASON_LENGTH - 25)}."


def _to_them(match: re.Match[str]) -> str:
    """`my` → `your`; a word in capitals is a name, unless it is I."""
    word = match[0]
    is_name = word.isupper() and len(word) > 1
    return word if is_name else _PERSPECTIVE.get(word.lower().replace("’", "'"), word)


def _lull(talk: _Talk) -> Iterator[Plan]:
    """Yield a conversation about something of the user's own that simply went quiet; small talk and look-ups don't call for more."""
    with_substance = [message for message in talk.people if len(content_words(message.text)) >= _SUBSTANCE]
    own = [message for message in with_substance if _OWN & set(words(message.text))]
    if len(with_substance) < _EXCHANGES or not own or is_only_thanks(talk.people[-1].text):
        return
    topic = make_topic(own[-1].text)
    # Who has just told something sad is left in peace as long as the agent's limits allow.
    delay = math.inf if talk.is_after_bad_news else min(4 + 2 * len(with_substance), 15) * _MINUTE
    yield Plan("check_in", delay, topic, f"You were talking about this: {topic}.", _ids(own[-1]))


def _ids(*messages: Message) -> tuple[str, ...]:
    return tuple(dict.fromkeys(message.id for message in messages))


def _context(talk: _Talk) -> str:
    return " ".join(message.text for message in talk.people[-_RECENT:])
