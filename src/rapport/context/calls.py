"""Tell calls to the agent, and its answers, from what people say to each other (ADR 31).

Speaking to the agent says nothing about which talk is meant. The scorer therefore sees people's messages alone, as if nobody
had called the agent. A call without a subject stands for the messages that it was about, an answer for its call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rapport.context.question import AWAY_AFTER, find_subject_words, get_author_id
from rapport.context.relevance.chat_lines import is_addressed
from rapport.domain.conversation import Message


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A call with the agent's answers to it, or something that the agent said unasked."""

    call: Message | None
    answers: Sequence[Message]
    about: Sequence[str]
    """Ids of the people's messages that it belongs to: the call itself if it has a subject, else what it was about."""
    continues: str | None
    """The id of the agent's message that directly precedes the call."""

    @property
    def messages(self) -> list[Message]:
        return [*([self.call] if self.call else []), *self.answers]


@dataclass(frozen=True, slots=True)
class SeparatedChat:
    """Messages of a chat: people's own, and exchanges with the agent."""

    messages: Sequence[Message]
    """All of them, oldest first."""
    lines: Sequence[Message]
    """People's messages, calls with a subject included. Whatever replies to the agent replies to what that was about."""
    exchanges: Sequence[Exchange]
    """In the order of their calls."""
    stands_for: Mapping[str, Sequence[str]]
    """Of each message, the ids of the lines that it stands for. A line stands for itself."""
    words: Collection[str]
    """The subject words of all lines."""

    @property
    def non_line_ids(self) -> set[str]:
        """Return the ids of the messages that are no lines."""
        return {message.id for message in self.messages} - {line.id for line in self.lines}

    def lacks_subject(self, call: Message) -> bool:
        """Return whether the call has no word that people have said: it then asks about the talk that is going on."""
        return not any(word in self.words for word in find_subject_words(call.text))

    def find_subject_lines(self, call: Message) -> list[str]:
        """Return the ids of the lines that a call without a subject may be about, if it replies to nothing.

        These are the asker's own latest words or, if there are none, what was last said. Who has said nothing for long and
        calls while others are talking may mean either.
        """
        asker, backwards = get_author_id(call), self.messages[::-1]
        own = next(
            (
                message
                for message in backwards
                if get_author_id(message) == asker and _names_a_subject(message, self.stands_for)
            ),
            None,
        )
        latest = next((message for message in backwards if self.stands_for[message.id]), None)
        line = self.lines[-1] if self.lines else None
        return _find_subject_lines(call, own, latest, line, self.stands_for)

    def find_continued_exchanges(self, call: Message) -> list[Exchange]:
        """Return the exchanges that a call may go on from: the one that ended right before it with what that went on from,
        and those whose calls share a word with it."""
        found = (
            self.trace_exchanges(self.messages[-1].id)
            if self.messages and self.messages[-1].role == "assistant"
            else []
        )
        words = set(find_subject_words(call.text))
        return [
            *found,
            *(
                exchange
                for exchange in self.exchanges[::-1]
                if exchange.call and words.intersection(find_subject_words(exchange.call.text))
            ),
        ]

    def trace_exchanges(self, id_: str) -> list[Exchange]:
        """Return the exchange that a message is part of and those that it went on from, the latest first."""
        holding = {message.id: exchange for exchange in self.exchanges for message in exchange.messages}
        found: dict[Exchange, None] = {}
        while (exchange := holding.get(id_)) is not None and exchange not in found:
            found[exchange] = None
            id_ = exchange.continues or ""
        return list(found)

    def link_to_line(self, message: Message) -> Message:
        """Return the message as the scorer gets it: a reply to the agent, or to a call, replies to what that was about."""
        return _link_to_line(message, self.stands_for)


def separate_calls(
    messages: Sequence[Message], handles: Collection[str], *, anchor: Message | None = None
) -> SeparatedChat:
    """Part the messages, oldest first. `handles` are the agent's, in small letters.

    What the agent said unasked is a line if it is the anchor: then it is what people talk about.
    """
    answered = _match_answers(messages, handles)
    calls = _find_calls(messages, handles, answered)
    talk = [message for message in messages if message.role == "user" and message.id not in calls]
    replied = {one.reply_to_id for one in talk}
    words = {word for one in talk for word in find_subject_words(one.text)}
    lines: list[Message] = []
    exchanges: dict[str, Exchange] = {}
    stands_for: dict[str, Sequence[str]] = {}
    latest_by: dict[str, Message] = {}
    latest: Message | None = None
    for number, message in enumerate(messages):
        own_words = find_subject_words(message.text) if message.id in calls else ()
        call = answered.get(message.id)
        if message.role == "assistant" and (call or not anchor or message.id != anchor.id):
            stands_for[message.id] = stands_for.get(call.id, ()) if call else ()
        elif message.id not in calls or message.id in replied or any(word in words for word in own_words):
            words.update(own_words)
            stands_for[message.id] = (message.id,)
            lines.append(_link_to_line(message, stands_for))
        elif message.reply_to_id is not None:
            stands_for[message.id] = stands_for.get(message.reply_to_id, ())
        else:
            own, line = latest_by.get(get_author_id(message)), lines[-1] if lines else None
            stands_for[message.id] = _find_subject_lines(message, own, latest, line, stands_for)
        if message.id in calls:
            before = messages[number - 1] if number else None
            continues = before.id if before and before.role == "assistant" else None
            exchanges[message.id] = Exchange(message, (), stands_for[message.id], continues)
        elif message.role == "assistant":
            key = call.id if call and call.id in exchanges else message.id
            begun = exchanges.get(key) or Exchange(None, (), stands_for[message.id], None)
            exchanges[key] = replace(begun, answers=[*begun.answers, message])
        if _names_a_subject(message, stands_for):
            latest_by[get_author_id(message)] = message
        if stands_for[message.id]:
            latest = message
    return SeparatedChat(messages, lines, list(exchanges.values()), stands_for, words)


def _match_answers(messages: Sequence[Message], handles: Collection[str]) -> dict[str, Message | None]:
    """Map each message of the agent to the call that it answers: by its link, or the latest call without an answer."""
    known = {message.id: message for message in messages if message.role == "user"}
    found: dict[str, Message | None] = {}
    waiting: Message | None = None
    for message in messages:
        if message.role == "assistant":
            linked = message.reply_to_id or message.event_id
            found[message.id] = known.get(linked) if linked else waiting
            waiting = None
        elif not message.is_bot and is_addressed(message, handles):
            waiting = message
    return found


def _find_calls(
    messages: Sequence[Message], handles: Collection[str], answered: Mapping[str, Message | None]
) -> Collection[str]:
    """Return the ids of the messages that call the agent: by its name, by a reply to it, or because it has answered
    them."""
    asked = {call.id for call in answered.values() if call}
    from_people = (message for message in messages if message.role == "user" and not message.is_bot)
    return {
        message.id
        for message in from_people
        if message.id in asked or message.reply_to_id in answered or is_addressed(message, handles)
    }


def _link_to_line(message: Message, stands_for: Mapping[str, Sequence[str]]) -> Message:
    replied = message.reply_to_id
    if replied is None or (about := stands_for.get(replied)) is None or replied in about:
        return message
    return replace(message, reply_to_id=about[-1] if about else None)


def _names_a_subject(message: Message, stands_for: Mapping[str, Sequence[str]]) -> bool:
    """Return whether it shows what its author talks about: a line does, and a call that replies to something."""
    about = stands_for[message.id]
    return message.role == "user" and bool(about) and (message.id in about or message.reply_to_id is not None)


def _find_subject_lines(
    call: Message,
    own: Message | None,
    latest: Message | None,
    line: Message | None,
    stands_for: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return what a call is about: `own` are the asker's latest words, `latest` is the last message that stands for any line, and
    `line` the last line. Whether others are talking is told by lines alone, whoever has called the agent since."""
    if latest is None or line is None:
        return []
    if own is None:
        return list(stands_for[latest.id])
    is_away = call.created_at - own.created_at > AWAY_AFTER and call.created_at - line.created_at <= AWAY_AFTER
    return list(dict.fromkeys([*stands_for[own.id], *([line.id] if is_away else ())]))
