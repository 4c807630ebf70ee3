"""Samples: a small notebook and a group chat to try the agent on, loaded and removed as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources

import orjson

from rapport.agents.profiles import COMPANION
from rapport.core.turn_runner import TurnRunner
from rapport.domain.chat_archive import Archive, ArchivedMessage
from rapport.domain.conversation import Author
from rapport.domain.errors import Conflict, NotFound
from rapport.ingest.import_messages import import_archive
from rapport.retrieval.library import Library
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.notes.notes import Notes


@dataclass(frozen=True, slots=True)
class LoadedSamples:
    """The part of the samples that an owner has; `loaded` is true when it is all of them."""

    loaded: bool
    thread_id: str | None
    notes: Sequence[str]


def _read_notes() -> dict[str, str]:
    folder = resources.files("rapport") / "samples" / "notes"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".md"): file.read_text(encoding="utf-8") for file in files}


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of every owner: each has their own, under the same names."""

    database: Database
    library: Library
    runner: TurnRunner
    texts: Mapping[str, str] = field(default_factory=_read_notes)
    """The texts of the notes by their ids."""

    async def load(self, owner_id: str) -> None:
        """Add the missing samples. Messages that were added to the chat and changes of notes stay."""
        for note_id, text in self.texts.items():
            try:
                title = text.partition("\n")[0].removeprefix("# ")
                await self.library.add(owner_id, text, note_id=note_id, file_name=_file(note_id), file_title=title)
            except Conflict:  # a note with that id exists: changed since, or the owner's own
                continue
        await import_archive(self.database, read_chat(datetime.now(UTC)), owner_id=owner_id, agent_id=COMPANION.id)

    async def remove(self, owner_id: str) -> None:
        """Delete the samples with all messages of the chat. A note that only has the same id stays."""
        samples = await self.find(owner_id)
        for note_id in samples.notes:
            try:
                await self.library.delete(owner_id, note_id)
            except NotFound:  # deleted meanwhile
                continue
        if samples.thread_id is not None:
            await self.runner.erase(owner_id, samples.thread_id)

    async def find(self, owner_id: str) -> LoadedSamples:
        """Return which samples the owner has."""
        thread_id: str | None = read_chat(datetime.now(UTC)).derive_conversation_id(owner_id)
        present: list[str] = []
        async with self.database.statement() as connection:
            for note_id in self.texts:
                note = await Notes(connection).find(owner_id, note_id)
                if note is not None and note[0].file_name == _file(note_id):
                    present.append(note_id)
            try:
                await Conversations(connection).get(owner_id, thread_id)
            except NotFound:
                thread_id = None
        return LoadedSamples(thread_id is not None and len(present) == len(self.texts), thread_id, present)


def _file(note_id: str) -> str:
    """Return the file name that marks a note as a sample: the owner could have a note with the same id."""
    return f"rapport-{note_id}.md"


def read_chat(now: datetime) -> Archive:
    """Return the sample chat, dated so that its last message was written just before `now`."""
    chat = orjson.loads((resources.files("rapport") / "samples" / "chat.json").read_bytes())
    return Archive(
        "jsonl",
        chat["id"],
        chat["title"],
        "group",
        [
            ArchivedMessage(
                message["id"],
                "user",
                message["text"],
                now - timedelta(minutes=message["minutes_ago"]),
                Author(message["author"], chat["people"][message["author"]]),
                message.get("reply_to"),
            )
            for message in chat["messages"]
        ],
    )
