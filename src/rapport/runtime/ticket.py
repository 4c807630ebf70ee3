"""The ticket that a channel gets for an accepted message."""

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
    """The part of the runtime that a ticket uses."""

    @property
    def is_drained(self) -> bool: ...

    def is_running(self, event_id: str, draft: Draft) -> bool: ...

    def forget_draft(self, event_id: str) -> None: ...

    async def load_reply(self, accepted: Accepted) -> Message | None: ...


class Ticket:
    """Proof that a message is stored, and a way to wait for its reply."""

    def __init__(self, accepted: Accepted, draft: Draft | None, pending: PendingReplies) -> None:
        self.accepted = accepted
        self.draft = draft
        self._pending = pending

    async def tokens(self) -> AsyncIterator[str]:
        """Yield the reply's tokens as they are generated, if this process writes it; then call `reply()`.

        An empty token only says that the turn still runs.
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
        """Return the stored reply, whichever process writes it."""
        if self.draft is None:
            raise Permanent("This message gets no reply.")
        try:
            while not self.draft.done.done():
                # Another process may have answered. Its hint can be lost, so poll too.
                runs_elsewhere = not self._pending.is_running(self.accepted.message_id, self.draft)
                if runs_elsewhere and (reply := await self._pending.load_reply(self.accepted)) is not None:
                    return reply
                if self._pending.is_drained:
                    raise Busy("The server is stopping. Your message is stored and will be answered.", retry_after=2)
                await self.draft.wait(timeout=POLL_SECONDS)
            return self.draft.done.result()
        finally:
            self.close()

    def close(self) -> None:
        """Stop waiting for the reply."""
        self._pending.forget_draft(self.accepted.message_id)
