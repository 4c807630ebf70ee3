"""Chat by text files: a file in `in/` is a message, a file in `out/` is a reply. One folder is one direct chat."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from rapport.channels.base import Channel, ChannelServices
from rapport.core.core import Core
from rapport.domain.conversation import LOCAL_USER, Author, Incoming
from rapport.domain.errors import InvalidInput
from rapport.domain.outgoing import Outgoing


class FolderSettings(Protocol):
    """The settings that this channel reads."""

    @property
    def chat_folder(self) -> Path | None: ...


class FolderChannel:
    """Both sides of the channel: a MessageSource and an OutgoingChannel."""

    def __init__(self, folder: Path, core: Core) -> None:
        self.name, self.loops = f"folder {folder}", (self._poll,)
        self._folder, self._core = folder, core

    async def _poll(self) -> None:
        while True:
            for path in sorted(self._folder.glob("in/*.txt")):
                await self._receive(path)
            await asyncio.sleep(0.2)

    async def _receive(self, path: Path) -> None:
        conversation_id = await self._find_conversation()
        text = await asyncio.to_thread(path.read_text)
        incoming = Incoming(LOCAL_USER, conversation_id, text, Author("me", "Me"), platform_id=path.name)
        try:
            ticket = await self._core.runner.accept(incoming)
        except InvalidInput:  # repeating it never helps
            await asyncio.to_thread(path.rename, path.with_suffix(".refused"))
        else:
            ticket.close()  # nobody waits here: the reply is sent when it is stored
            await asyncio.to_thread(path.unlink)

    async def _find_conversation(self) -> str:
        mapping = self._folder / "conversation_id"
        if not mapping.exists():
            created = await self._core.conversations.create(LOCAL_USER, agent_id="companion", channel="folder")
            mapping.write_text(created.id)
        return mapping.read_text()

    def wake(self) -> None:
        """Do nothing: the folder is polled often enough."""

    async def send(self, outgoing: Outgoing) -> AsyncIterator[str]:
        if not outgoing.arrived_ids:
            self._get_reply_path(outgoing).write_text(outgoing.text)
            yield outgoing.id

    async def find_part(self, outgoing: Outgoing) -> str | None:
        return outgoing.id if self._get_reply_path(outgoing).exists() else None

    async def show_typing(self, conversation_id: str, message_id: str) -> None:
        """Do nothing: files show no typing."""

    def _get_reply_path(self, outgoing: Outgoing) -> Path:
        return self._folder / "out" / f"{outgoing.id}.txt"


@asynccontextmanager
async def open_channel(settings: FolderSettings, services: ChannelServices) -> AsyncGenerator[Channel | None]:
    """Yield the channel of the folder that is set; None without one."""
    if settings.chat_folder is None:
        yield None
        return
    for name in ("in", "out"):
        (settings.chat_folder / name).mkdir(parents=True, exist_ok=True)
    folder = FolderChannel(settings.chat_folder, services.core)
    yield Channel("folder", outgoing=folder, source=folder)
