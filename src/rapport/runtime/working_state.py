"""What the runtime needs of LangGraph's checkpoints."""

from __future__ import annotations

import contextlib
from typing import Protocol

from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent


class WorkingState(Protocol):
    """LangGraph's checkpoints, as the runtime looks after them."""

    async def run(self) -> None: ...

    async def flush(self) -> None: ...

    async def adelete_thread(self, thread_id: str) -> None: ...


async def forget(working_state: WorkingState, event: ClaimedEvent) -> None:
    """Of a turn that must not be shown nothing stays: its conversation may have been erased."""
    with contextlib.suppress(Transient, Permanent):
        await working_state.adelete_thread(event.id)
