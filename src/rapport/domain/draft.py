"""A reply while it is being made: what has been said so far, who listens, and whether it shall go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from rapport.domain.conversation import Message


class Draft:
    """One event's reply in the making, in this process. Listeners may come, go and be slow: the turn never waits."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._news = asyncio.Event()
        self._answering: asyncio.Task[object] | None = None
        self.done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more; then its exception is nobody's business either.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._nudged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_abandoned = False
        self._is_settled = False
        self.is_cancelled = False
        self.listeners = 0
        self.on_news: Callable[[], None] | None = None
        """Called whenever there are more words, and when there will be none any more."""

    @property
    def text(self) -> str:
        """What was streamed so far."""
        return "".join(self._parts)

    def add(self, token: str) -> None:
        if token:
            self._parts.append(token)
            self._notify()

    def complete(self, text: str) -> None:
        """What the finished reply has beyond what was streamed is streamed too, so that both say the same."""
        if self.listeners and text.startswith(streamed := self.text):
            self.add(text[len(streamed) :])

    def begin(self) -> None:
        """The current task is now at the model, and may be cancelled there (or was already, while it was loading)."""
        self._answering = asyncio.current_task()
        if self.is_cancelled and self._answering is not None:
            self._answering.cancel()

    def end(self) -> None:
        """From here on the reply is settled: it can't be cancelled any more."""
        self._answering = None
        self._is_settled = True

    def cancel(self) -> bool:
        """Stop the model; what was streamed is kept. False when there is nothing to stop (any more)."""
        if self._is_settled or self.is_cancelled:
            return self.is_cancelled
        self.is_cancelled = True
        if self._answering is not None:
            self._answering.cancel()
        return True

    def accept_cancellation(self) -> bool:
        """Asked by a task that is being cancelled: whether the user has cancelled the reply, and not somebody the task.

        Then the task goes on with what there is.
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
        """The tokens from the first on, as they come, until the reply is done, failed or made elsewhere.

        An empty one after each `silence` seconds without any: a sign of life.
        """
        at = 0
        while True:
            if at < len(self._parts):
                # Many small tokens may have come meanwhile: they go out as one.
                piece, at = "".join(self._parts[at:]), len(self._parts)
                yield piece
            elif self.is_over:
                return
            elif not await self._wait_for_news(silence):
                yield ""

    def read_after(self, at: int) -> tuple[str, int]:
        """What was streamed after the first `at` tokens, and how many there are now."""
        return "".join(self._parts[at:]), len(self._parts)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be streamed: it is done, it failed, or it is made elsewhere."""
        return self.done.done() or self._is_abandoned

    @property
    def reply_id(self) -> str | None:
        """The id of the stored reply, once it is done."""
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
        """This attempt ended without a reply; another one, here or elsewhere, will have a draft of its own."""
        self._is_abandoned = True
        self._notify()
        self.nudge()

    async def wait(self, *, timeout: float) -> None:
        """Until it is done, somebody has nudged it, or the time is over."""
        if not self.done.done():
            waiter = self._nudged
            await asyncio.wait({self.done, waiter}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def nudge(self) -> None:
        """There may be news about it in the database."""
        self._nudged.set_result(None)
        self._nudged = asyncio.get_running_loop().create_future()

    def _notify(self) -> None:
        # Whoever waits now is woken; whoever looks next waits for the next news.
        self._news.set()
        self._news = asyncio.Event()
        if self.on_news is not None:
            self.on_news()
