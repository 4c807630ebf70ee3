"""Check whether an unconfirmed message has arrived.

The platform has no method for that. But it says for any message number whether the bot may edit that message, and the
numbers of a chat rise.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from rapport.channels.base import NotYet, OutcomeUnknown
from rapport.channels.telegram.api import NoAnswer, Refused
from rapport.domain.errors import Permanent
from rapport.ingest.archive_rows import as_mapping

MAX_MISSES = 25
"""After this many unused numbers in a row, the chat has no later message."""
MAX_REQUESTS = 400
"""Maximum requests for one message. Numbers whose sender is known need none."""
REQUEST_INTERVAL_SECONDS = 0.05
"""Pause between two requests: the platform limits their rate."""
MAX_PENDING_UPDATES = 10
"""Search only while at most this many updates wait at the platform: fewer than MAX_MISSES."""
BACKLOG_RETRY_SECONDS = 2.0
"""Retry interval while more updates wait."""
MAX_FAILURES = 3
"""After this many consecutive failed requests for the number of waiting updates, search without it."""
_MAX_SEARCHES = 100

_OURS = "message is not modified"
_THEIRS = "message can't be edited"
_NOBODYS = "message to edit not found"


class CallsApi(Protocol):
    """The Bot API."""

    async def call(self, method: str, **parameters: Any) -> Any: ...


@dataclass(slots=True)
class Progress:
    """The progress of one message's search."""

    after: int
    """Every number up to this one is known."""
    requests: int = 0


@dataclass(slots=True)
class DeliveryCheck:
    """Search for messages, one request at a time. An interrupted search resumes."""

    api: CallsApi
    _failures: int = 0
    """Consecutive failed requests for the number of waiting updates."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _progress: OrderedDict[str, Progress] = field(default_factory=OrderedDict[str, Progress])

    async def require_caught_up(self) -> None:
        """Raise NotYet while many updates wait: their numbers must not be taken for unused ones."""
        try:
            info = as_mapping(await self.api.call("getWebhookInfo")) or {}
        except Permanent:  # the server does not support the method
            return
        except NoAnswer as error:
            self._failures += 1
            if self._failures < MAX_FAILURES:
                raise NotYet(str(error), retry_after=BACKLOG_RETRY_SECONDS) from error
            return
        self._failures = 0
        pending = info.get("pending_update_count")
        if isinstance(pending, int) and pending > MAX_PENDING_UPDATES:
            raise NotYet(f"{pending} updates must be received first.", retry_after=BACKLOG_RETRY_SECONDS)

    async def find(
        self,
        message: str,
        chat_id: int,
        *,
        after: int,
        known: Collection[int],
        elsewhere: Collection[int] = (),
        keyboard: str | None = None,
    ) -> int | None:
        """Return the bot's first unknown message after that number; None if there is none.

        The message keeps `keyboard`, its buttons. `elsewhere` are numbers of other chats: no message here has them. The search goes at least to the last known number.
        `message` is the name under which an interrupted search is continued. Raise OutcomeUnknown if the answers do not
        decide it, and Transient.
        """
        name = f"{chat_id} {message}"  # a supergroup numbers its messages from 1 again
        progress = self._progress.setdefault(name, Progress(after))
        progress.after = max(progress.after, after)
        if len(self._progress) > _MAX_SEARCHES:
            self._progress.popitem(last=False)
        number = await self._search(chat_id, progress, known, elsewhere, keyboard)
        self._progress.pop(name, None)
        return number

    async def _search(
        self,
        chat_id: int,
        progress: Progress,
        known: Collection[int],
        elsewhere: Collection[int],
        keyboard: str | None,
    ) -> int | None:
        number, misses = progress.after, 0
        last = max((*known, *elsewhere), default=number)
        while misses < MAX_MISSES:
            number += 1
            if number not in known and number not in elsewhere:
                if progress.requests >= MAX_REQUESTS:
                    raise OutcomeUnknown("Too many messages came since to find out whether it has arrived.")
                answer = await self._ask(chat_id, number, keyboard)
                progress.requests += 1
                if _OURS in answer:
                    return number
                if _THEIRS not in answer and _NOBODYS not in answer:
                    raise OutcomeUnknown("Telegram does not say whether it has arrived.")
                last = max(last, number) if _THEIRS in answer else last
            # Only numbers after the last known message may still be assigned.
            misses = misses + 1 if number > last else 0
            progress.after = min(number, last)
        return None

    async def _ask(self, chat_id: int, number: int, keyboard: str | None) -> str:
        """Give a message the buttons that it has. This changes nothing, and the error says whose message it is."""
        async with self._one_at_a_time:
            try:
                edited = await self.api.call(
                    "editMessageReplyMarkup", chat_id=chat_id, message_id=number, reply_markup=keyboard
                )
            except Refused as error:
                return str(error).lower()
            finally:
                await asyncio.sleep(REQUEST_INTERVAL_SECONDS)
        # Success: the message had other buttons, so it is the bot's own. A server that accepts anything returns no message.
        return _OURS if edited else ""
