"""Select messages without a model: the latest, one session, or those linked by replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from rapport.domain.conversation import Message


def take_latest(messages: Sequence[Message], count: int) -> list[Message]:
    """Return the last `count` messages."""
    return list(messages[-count:]) if count > 0 else []


def take_session(call: Message, recent: Sequence[Message], *, lookback: int, minutes: float) -> list[Message]:
    """Return the messages before the call without a gap longer than `minutes`, at most `lookback` of them (CTX-4)."""
    longest = timedelta(minutes=minutes)
    session: list[Message] = []
    later = call
    for message in reversed(take_latest(recent, lookback)):
        if later.created_at - message.created_at > longest:
            break
        session.append(message)
        later = message
    return session[::-1]


def measure_reply_distances(start: str, messages: Sequence[Message]) -> Mapping[str, int]:
    """Map each message linked to `start` by replies, in either direction, to the number of replies between them."""
    neighbours: dict[str, list[str]] = {}
    for message in messages:
        if message.reply_to_id is not None and message.reply_to_id != message.id:
            neighbours.setdefault(message.id, []).append(message.reply_to_id)
            neighbours.setdefault(message.reply_to_id, []).append(message.id)
    steps = {start: 0}
    line = [start]
    for current in line:
        for neighbour in neighbours.get(current, ()):
            if neighbour not in steps:
                steps[neighbour] = steps[current] + 1
                line.append(neighbour)
    return steps
