"""Hold a reply while it is generated: its text so far, its listeners, and its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from rapport.domain.conversation import Message


class Draft:
    """The reply of one event while this process generates it. Listeners may join, leave or be slow: the turn never waits."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._news = asyncio.Event()
        self._answering: asyncio.Task[object] | None = None
        self.done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # Retrieve the exception, so that asyncio does not log it when nobody waits any more.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._nudged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_abandoned = False
        self._is_settled = False
        self.is_cancelled = False
        self.listeners = 0
        self.on_news: Callable[[], None] | None = None
        """Called after each new token and at the end."""

    @property
    def text(self) -> str:
        """Return the text streamed so far."""
        return "".join(self._parts)

    def add(self, token: str) -> None:
        if token:
            self._parts.append(token)
            self._notify()

    def complete(self, text: str) -> None:
        """Stream the rest of the finished reply, so that stream and reply are equal."""
        if self.listeners and text.startswith(streamed := self.text):
            self.add(text[len(streamed) :])

    def begin(self) -> None:
        """Let `cancel` stop the current task from now on; stop it at once if the reply is already cancelled."""
        self._answering = asyncio.current_task()
        if self.is_cancelled and self._answering is not None:
            self._answering.cancel()

    def end(self) -> None:
        """Settle the reply: it can't be cancelled any more."""
        self._answering = None
        self._is_settled = True

    def cancel(self) -> bool:
        """Stop the model and keep the streamed text; return False if the reply is settled already."""
        if self._is_settled or self.is_cancelled:
            return self.is_cancelled
        self.is_cancelled = True
        if self._answering is not None:
            self._answering.cancel()
        return True

    def accept_cancellation(self) -> bool:
        """Return True if a user cancelled the reply. Then the task's own cancellation is undone: it continues with the text so far.

        A task calls this when it receives CancelledError.
        """
        current = asyncio.current_task()
        if self.is_cancelled and current is not None:
            current.uncancel()
        return self.is_cancelled

    def finish(self, reply: Message) -> None:
        if not self.done.done():
            self.done.set_result(reply)
        self._notify()

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        self._notify()

    async def stream_tokens(self, *, silence: float) -> AsyncIterator[str]:
        """Yield all tokens from the first on, until the reply is done, has failed or is abandoned.

        Yields an empty string after each `silence` seconds without a token, as a keep-alive.
        """
        at = 0
        while True:
            if at < len(self._parts):
                # Tokens that arrived meanwhile are joined into one.
                piece, at = "".join(self._parts[at:]), len(self._parts)
                yield piece
            elif self.is_over:
                return
            elif not await self._wait_for_news(silence):
                yield ""

    def read_after(self, at: int) -> tuple[str, int]:
        """Return the text after the first `at` tokens, and the number of tokens now."""
        return "".join(self._parts[at:]), len(self._parts)

    @property
    def is_over(self) -> bool:
        """Return True if nothing more will be streamed: the reply is done, has failed or is abandoned."""
        return self.done.done() or self._is_abandoned

    @property
    def reply_id(self) -> str | None:
        """Return the id of the stored reply; None until it is done."""
        done = self.done
        return done.result().id if done.done() and not done.cancelled() and done.exception() is None else None

    async def _wait_for_news(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self) -> None:
        """End this attempt without a reply. The next attempt, in any process, has its own draft."""
        self._is_abandoned = True
        self._notify()
        self.nudge()

    async def wait(self, *, timeout: float) -> None:
        """Wait until the reply is done, `nudge` is called, or the time is over."""
        if not self.done.done():
            waiter = self._nudged
            await asyncio.wait({self.done, waiter}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def nudge(self) -> None:
        """Let `wait` return: the reply may be in the database."""
        self._nudged.set_result(None)
        self._nudged = asyncio.get_running_loop().create_future()

    def _notify(self) -> None:
        # Current waiters continue; later ones wait for a new event.
        self._news.set()
        self._news = asyncio.Event()
        if self.on_news is not None:
            self.on_news()
