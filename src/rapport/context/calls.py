"""Separate calls to the agent, and its answers, from messages between people (ADR 31).

That a message addresses the agent does not show which discussion it is about. The scorer therefore gets only people's
messages. A call without a subject stands for the messages that it was about, an answer for its call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rapport.context.question import AWAY_AFTER, find_subject_words, get_author_id
from rapport.context.relevance.chat_lines import is_addressed
from rapport.domain.conversation import Message


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A call with the agent's answers, or a follow-up of the agent."""

    call: Message | None
    answers: Sequence[Message]
    about: Sequence[str]
    """Ids of the people's messages that it belongs to: the call itself if it has a subject, else the messages it was about."""
    continues: str | None
    """The id of the agent's message that directly precedes the call."""

    @property
    def messages(self) -> list[Message]:
        return [*([self.call] if self.call else []), *self.answers]


@dataclass(frozen=True, slots=True)
class SeparatedChat:
    """Messages of a chat: people's own, and exchanges with the agent."""

    messages: Sequence[Message]
    """All messages, oldest first."""
    lines: Sequence[Message]
    """People's messages, calls with a subject included. A reply to the agent is linked to the messages it was about."""
    exchanges: Sequence[Exchange]
    """In the order of their calls."""
    subject_ids: Mapping[str, Sequence[str]]
    """For each message, the ids of the lines that it stands for. A line stands for itself."""
    words: Collection[str]
    """The subject words of all lines."""

    @property
    def non_line_ids(self) -> set[str]:
        """Return the ids of the messages that are no lines."""
        return {message.id for message in self.messages} - {line.id for line in self.lines}

    def lacks_subject(self, call: Message) -> bool:
        """Return True if the call has no word of people's messages: then it asks about the current discussion."""
        return not any(word in self.words for word in find_subject_words(call.text))

    def find_subject_lines(self, call: Message) -> list[str]:
        """Return the ids of the lines that a call without a subject may be about, if it replies to nothing.

        It is the asker's own latest message or, without one, the latest message. For an asker who has written nothing for
        long while others write, both are returned.
        """
        asker, newest_first = get_author_id(call), self.messages[::-1]
        own_message = next(
            (
                message
                for message in newest_first
                if get_author_id(message) == asker and _names_a_subject(message, self.subject_ids)
            ),
            None,
        )
        latest = next((message for message in newest_first if self.subject_ids[message.id]), None)
        line = self.lines[-1] if self.lines else None
        return _find_subject_lines(call, own_message, latest, line, self.subject_ids)

    def find_continued_exchanges(self, call: Message) -> list[Exchange]:
        """Return the exchanges that a call may continue: the one directly before it, with those which that one continued, and
        those whose calls share a word with it."""
        preceding = (
            self.trace_exchanges(self.messages[-1].id)
            if self.messages and self.messages[-1].role == "assistant"
            else []
        )
        words = set(find_subject_words(call.text))
        return [
            *preceding,
            *(
                exchange
                for exchange in self.exchanges[::-1]
                if exchange.call and words.intersection(find_subject_words(exchange.call.text))
            ),
        ]

    def list_exchanges_about(self, call: Message) -> list[Exchange]:
        """Return the exchanges that may belong to a call with a subject: those without words of their own, those that share one
        with the call, and the one directly before it. Replies between a call and people make it part of their talk."""
        words = set(find_subject_words(call.text))
        replied = {line.reply_to_id for line in self.lines}
        newest = self.messages[-1:]
        return [
            exchange
            for exchange in self.exchanges
            if exchange.call is None
            or exchange.answers[-1:] == newest
            or exchange.call.reply_to_id is not None
            or exchange.call.id in replied
            or not find_subject_words(exchange.call.text)
            or any(words.intersection(find_subject_words(message.text)) for message in exchange.messages)
        ]

    def trace_exchanges(self, id_: str) -> list[Exchange]:
        """Return the exchange of a message and those that it continued, the latest first."""
        by_message = {message.id: exchange for exchange in self.exchanges for message in exchange.messages}
        traced: dict[Exchange, None] = {}
        while (exchange := by_message.get(id_)) is not None and exchange not in traced:
            traced[exchange] = None
            id_ = exchange.continues or ""
        return list(traced)

    def link_to_line(self, message: Message) -> Message:
        """Return the message for the scorer: a reply to the agent, or to a call, becomes a reply to the messages it was about."""
        return _link_to_line(message, self.subject_ids)


def separate_calls(
    messages: Sequence[Message], handles: Collection[str], *, anchor: Message | None = None
) -> SeparatedChat:
    """Separate the messages, oldest first. `handles` are the agent's, in lower case.

    A follow-up of the agent counts as a line if it is the anchor: then people discuss it.
    """
    answers = _match_answers(messages, handles)
    calls = _find_calls(messages, handles, answers)
    plain_messages = [message for message in messages if message.role == "user" and message.id not in calls]
    replied = {one.reply_to_id for one in plain_messages}
    words = {word for one in plain_messages for word in find_subject_words(one.text)}
    lines: list[Message] = []
    exchanges: dict[str, Exchange] = {}
    subject_ids: dict[str, Sequence[str]] = {}
    latest_by: dict[str, Message] = {}
    latest: Message | None = None
    for number, message in enumerate(messages):
        own_words = find_subject_words(message.text) if message.id in calls else ()
        call = answers.get(message.id)
        if message.role == "assistant" and (call or not anchor or message.id != anchor.id):
            subject_ids[message.id] = subject_ids.get(call.id, ()) if call else ()
        elif message.id not in calls or message.id in replied or any(word in words for word in own_words):
            words.update(own_words)
            subject_ids[message.id] = (message.id,)
            lines.append(_link_to_line(message, subject_ids))
        elif message.reply_to_id is not None:
            subject_ids[message.id] = subject_ids.get(message.reply_to_id, ())
        else:
            own_message, line = latest_by.get(get_author_id(message)), lines[-1] if lines else None
            subject_ids[message.id] = _find_subject_lines(message, own_message, latest, line, subject_ids)
        if message.id in calls:
            before = messages[number - 1] if number else None
            continues = before.id if before and before.role == "assistant" else None
            exchanges[message.id] = Exchange(message, (), subject_ids[message.id], continues)
        elif message.role == "assistant":
            key = call.id if call and call.id in exchanges else message.id
            exchange = exchanges.get(key) or Exchange(None, (), subject_ids[message.id], None)
            exchanges[key] = replace(exchange, answers=[*exchange.answers, message])
        if _names_a_subject(message, subject_ids):
            latest_by[get_author_id(message)] = message
        if subject_ids[message.id]:
            latest = message
    return SeparatedChat(messages, lines, list(exchanges.values()), subject_ids, words)


def _match_answers(messages: Sequence[Message], handles: Collection[str]) -> dict[str, Message | None]:
    """Map each message of the agent to the call that it answers: by its link, or the latest call without an answer."""
    user_messages = {message.id: message for message in messages if message.role == "user"}
    answers: dict[str, Message | None] = {}
    open_call: Message | None = None
    for message in messages:
        if message.role == "assistant":
            linked = message.reply_to_id or message.event_id
            answers[message.id] = user_messages.get(linked) if linked else open_call
            open_call = None
        elif not message.is_bot and is_addressed(message, handles):
            open_call = message
    return answers


def _find_calls(
    messages: Sequence[Message], handles: Collection[str], answers: Mapping[str, Message | None]
) -> Collection[str]:
    """Return the ids of the messages that call the agent: by its name, by a reply to it, or because it has answered
    them."""
    answered_ids = {call.id for call in answers.values() if call}
    from_people = (message for message in messages if message.role == "user" and not message.is_bot)
    return {
        message.id
        for message in from_people
        if message.id in answered_ids or message.reply_to_id in answers or is_addressed(message, handles)
    }


def _link_to_line(message: Message, subject_ids: Mapping[str, Sequence[str]]) -> Message:
    replied = message.reply_to_id
    if replied is None or (line_ids := subject_ids.get(replied)) is None or replied in line_ids:
        return message
    return replace(message, reply_to_id=line_ids[-1] if line_ids else None)


def _names_a_subject(message: Message, subject_ids: Mapping[str, Sequence[str]]) -> bool:
    """Return True if it shows its author's subject: it is a line, or a call that replies to a message."""
    line_ids = subject_ids[message.id]
    return message.role == "user" and bool(line_ids) and (message.id in line_ids or message.reply_to_id is not None)


def _find_subject_lines(
    call: Message,
    own_message: Message | None,
    latest: Message | None,
    line: Message | None,
    subject_ids: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the ids of the lines that a call is about.

    `own_message` is the asker's latest message, `latest` the last message that stands for a line, `line` the last line.
    Only lines show whether others are writing; calls to the agent do not.
    """
    if latest is None or line is None:
        return []
    if own_message is None:
        return list(subject_ids[latest.id])
    is_away = call.created_at - own_message.created_at > AWAY_AFTER and call.created_at - line.created_at <= AWAY_AFTER
    return list(dict.fromkeys([*subject_ids[own_message.id], *([line.id] if is_away else ())]))
