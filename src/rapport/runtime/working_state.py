"""What the runtime needs of LangGraph's checkpoints."""

from __future__ import annotations

from typing import Protocol


class WorkingState(Protocol):
    """LangGraph's checkpoints, as the runtime looks after them."""

    async def run(self) -> None: ...

    async def flush(self) -> None: ...

    async def adelete_thread(self, thread_id: str) -> None: ...
