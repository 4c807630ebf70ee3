"""Run requests with clients' tools: each in a task that ends with its client, and a bounded number at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.client_tools import ClientToolReply, ClientToolRequest
from rapport.domain.draft import Draft
from rapport.domain.errors import Busy
from rapport.domain.ids import new_id
from rapport.runtime.ticket import SILENCE_SECONDS
from rapport.turns.client_tools import answer_with_client_tools
from rapport.turns.deps import TurnDeps


class ClientToolTicket:
    """One running request."""

    def __init__(self, draft: Draft | None, task: asyncio.Task[ClientToolReply]) -> None:
        self.id = new_id()
        self._draft = draft
        self._task = task

    async def tokens(self) -> AsyncIterator[str]:
        """Yield the text as the model streams it; then call `reply()`. An empty token only says that the model still works."""
        if self._draft is not None:
            async for token in self._draft.stream_tokens(silence=SILENCE_SECONDS):
                yield token

    async def reply(self) -> ClientToolReply:
        """Return the answer. Raise what stopped it; Busy if this process is stopping."""
        try:
            await asyncio.wait([self._task])
        finally:
            self.close()
        if self._task.cancelled():
            raise Busy("The server is stopping; send the request again in a moment.", retry_after=2)
        return self._task.result()

    def close(self) -> None:
        """Stop the model if it still works."""
        self._task.cancel()


class ClientToolRequests:
    """The requests of this process."""

    def __init__(self, deps: TurnDeps, *, max_requests: int) -> None:
        self._deps = deps
        self._max_requests = max_requests
        self.is_stopping = False
        """True if no further request begins."""
        self.running: set[asyncio.Task[ClientToolReply]] = set()

    def begin(self, request: ClientToolRequest, profile: AgentProfile, *, listen: bool) -> ClientToolTicket:
        """Start to answer a request; with `listen` its text can be streamed."""
        if self.is_stopping or len(self.running) >= self._max_requests:
            raise Busy("The server is busy or stopping; send the request again in a moment.", retry_after=2)
        draft = Draft() if listen else None
        task = asyncio.create_task(self._answer(request, profile, draft), name="client tools")
        self.running.add(task)
        task.add_done_callback(self._forget)
        return ClientToolTicket(draft, task)

    async def end_all(self) -> None:
        """Cancel every request and wait for its end: its usage is stored then."""
        while self.running:
            for task in self.running:
                task.cancel()
            await asyncio.wait(self.running, timeout=0.5)

    async def _answer(self, request: ClientToolRequest, profile: AgentProfile, draft: Draft | None) -> ClientToolReply:
        try:
            return await answer_with_client_tools(request, profile, self._deps, draft=draft)
        finally:
            if draft is not None:
                draft.abandon()  # ends the stream

    def _forget(self, task: asyncio.Task[ClientToolReply]) -> None:
        self.running.discard(task)
        if not task.cancelled():
            task.exception()  # so that asyncio does not log it if the client has gone
