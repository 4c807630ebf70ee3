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


class Answers(Protocol):
    """What a ticket needs of the runtime."""

    @property
    def has_left(self) -> bool: ...

    def runs(self, event_id: str, draft: Draft) -> bool: ...

    def forget(self, event_id: str) -> None: ...

    async def stored_reply(self, accepted: Accepted) -> Message | None: ...


class Ticket:
    """What a channel holds after handing over a message: proof that it is stored, and a way to wait for the reply."""

    def __init__(self, accepted: Accepted, draft: Draft | None, runtime: Answers) -> None:
        self.accepted = accepted
        self.draft = draft
        self._runtime = runtime

    async def tokens(self) -> AsyncIterator[str]:
        """The reply's tokens as they come, if this process makes it, then it is time for `reply()`.

        An empty token is a sign of life while there is nothing to say.
        """
        if self.draft is None:
            return
        while not self.draft.done.done():
            if self._runtime.runs(self.accepted.message_id, self.draft):
                async for token in self.draft.tokens(silence=SILENCE_SECONDS):
                    yield token
                return
            if self._runtime.has_left or await self._runtime.stored_reply(self.accepted) is not None:
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
                elsewhere = not self._runtime.runs(self.accepted.message_id, self.draft)
                if elsewhere and (reply := await self._runtime.stored_reply(self.accepted)) is not None:
                    return reply
                if self._runtime.has_left:
                    raise Busy("The server is stopping. Your message is stored and will be answered.", retry_after=2)
                await self.draft.wait(timeout=POLL_SECONDS)
            return self.draft.done.result()
        finally:
            self.close()

    def close(self) -> None:
        """Nobody waits any more."""
        self._runtime.forget(self.accepted.message_id)
