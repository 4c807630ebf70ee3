"""What a channel holds after handing over a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from rapport.domain.conversation import Message
from rapport.domain.draft import Draft
from rapport.domain.errors import Busy, Permanent
from rapport.domain.event import Accepted

POLL_SECONDS = 0.5
SILENCE_SECONDS = 15.0


class PendingReplies(Protocol):
    """What a ticket needs of the runtime."""

    @property
    def is_drained(self) -> bool: ...

    def is_running(self, event_id: str, draft: Draft) -> bool: ...

    def forget_draft(self, event_id: str) -> None: ...

    async def load_reply(self, accepted: Accepted) -> Message | None: ...


class Ticket:
    """What a channel holds after handing over a message: proof that it is stored, and a way to wait for the reply."""

    def __init__(self, accepted: Accepted, draft: Draft | None, pending: PendingReplies) -> None:
        self.accepted = accepted
        self.draft = draft
        self._pending = pending

    async def tokens(self) -> AsyncIterator[str]:
        """The reply's tokens as they come, if this process makes it, then it is time for `reply()`.

        An empty token is a sign of life while there is nothing to say.
        """
        if self.draft is None:
            return
        while not self.draft.done.done():
            if self._pending.is_running(self.accepted.message_id, self.draft):
                async for token in self.draft.stream_tokens(silence=SILENCE_SECONDS):
                    yield token
                return
            if self._pending.is_drained or await self._pending.load_reply(self.accepted) is not None:
                return
            await self.draft.wait(timeout=POLL_SECONDS)
            yield ""

    async def reply(self) -> Message:
        """The stored reply, whichever process makes it."""
        if self.draft is None:
            raise Permanent("Nothing will be said to this message.")
        try:
            while not self.draft.done.done():
                # Perhaps another process answered: hints tell, polling makes sure.
                elsewhere = not self._pending.is_running(self.accepted.message_id, self.draft)
                if elsewhere and (reply := await self._pending.load_reply(self.accepted)) is not None:
                    return reply
                if self._pending.is_drained:
                    raise Busy("The server is stopping. Your message is stored and will be answered.", retry_after=2)
                await self.draft.wait(timeout=POLL_SECONDS)
            return self.draft.done.result()
        finally:
            self.close()

    def close(self) -> None:
        """Nobody waits any more."""
        self._pending.forget_draft(self.accepted.message_id)
