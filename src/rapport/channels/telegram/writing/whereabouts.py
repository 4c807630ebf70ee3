"""Whether a message has arrived whose sending had no answer. The platform can't be asked that; but it says of any number
whether the bot may edit the message that has it, and the numbers of a chat rise."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from rapport.channels.telegram.api import Refused
from rapport.deliver.outbox import OutcomeUnknown

MISSES = 25
"""So many numbers in a row that nothing has: then nothing comes after them."""
LOOKS = 80
"""So many questions at most."""

_OURS = "message is not modified"
_THEIRS = "message can't be edited"
_NOBODYS = "message to edit not found"


class Asks(Protocol):
    """The Bot API."""

    async def call(self, method: str, **parameters: Any) -> Any: ...


async def unknown_message(
    api: Asks, chat_id: int, *, after: int, known: Collection[int | None], elsewhere: Collection[int] = ()
) -> int | None:
    """The first message of the bot's own that comes after that number and isn't known; None if there is none.

    Numbers that are known to be `elsewhere` are nobody's here, and before the last of them nothing has come to its end. To
    edit a message without buttons so that it has none changes nothing, and is refused with words that tell whose it is.
    Raises OutcomeUnknown if the answers don't tell, and Transient.
    """
    misses = looks = 0
    number, last_elsewhere = after, max(elsewhere, default=after)
    while misses < MISSES:
        number += 1
        if number in elsewhere:
            continue
        if number in known:
            misses = 0
            continue
        looks += 1
        if looks > LOOKS:
            raise OutcomeUnknown("Too much was said since to find out whether it has arrived.")
        said = await _answer(api, chat_id, number)
        if _OURS in said:
            return number
        if _THEIRS in said:
            misses = 0
        elif _NOBODYS in said:
            misses += number > last_elsewhere
        else:
            raise OutcomeUnknown("Telegram does not say whether it has arrived.")
    return None


async def _answer(api: Asks, chat_id: int, number: int) -> str:
    try:
        await api.call("editMessageReplyMarkup", chat_id=chat_id, message_id=number)
    except Refused as error:
        return str(error).lower()
    return _OURS  # it had buttons, and nobody can take them from a message of somebody else's
