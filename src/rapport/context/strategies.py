"""Select messages without a model: the latest, one session, or what people have linked by replying."""

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
    said: list[Message] = []
    later = call
    for message in reversed(take_latest(recent, lookback)):
        if later.created_at - message.created_at > longest:
            break
        said.append(message)
        later = message
    return said[::-1]


def measure_reply_distances(start: str, messages: Sequence[Message]) -> Mapping[str, int]:
    """Map each message linked to `start` by replies, in either direction, to the number of replies between them."""
    near: dict[str, list[str]] = {}
    for message in messages:
        if message.reply_to_id is not None and message.reply_to_id != message.id:
            near.setdefault(message.id, []).append(message.reply_to_id)
            near.setdefault(message.reply_to_id, []).append(message.id)
    steps = {start: 0}
    line = [start]
    for here in line:
        for other in near.get(here, ()):
            if other not in steps:
                steps[other] = steps[here] + 1
                line.append(other)
    return steps
