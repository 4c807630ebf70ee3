"""`/api/samples`: a small notebook and a group chat to try things on, there and gone again with one request."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources

import orjson
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from rapport.agents.profiles import COMPANION
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.channels.http.routes.conversations import Caller
from rapport.core.turn_runner import TurnRunner
from rapport.domain.chat_archive import Archive, ArchivedMessage
from rapport.domain.conversation import Author
from rapport.domain.errors import Conflict, NotFound
from rapport.ingest.import_messages import import_archive
from rapport.retrieval.library import Library
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.notes.notes import Notes


class SamplesView(BaseModel):
    """What of the samples is there; `loaded` says whether all of it is."""

    loaded: bool
    thread_id: str | None
    notes: list[str]


def sample_routes(core: TurnRunner, library: Library, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/api/samples", tags=["samples"], route_class=StrictRoute)
    owner_id = Depends(caller)
    samples = Samples(core, library, _read_notes())

    @router.get("", response_model=SamplesView, summary="Whether the samples are there")
    async def look(owner: str = owner_id) -> Response:
        return json_response((await samples.found(owner)).model_dump())

    @router.post("", response_model=SamplesView, summary="Load the samples: some notes and a group chat; twice is once")
    async def load(owner: str = owner_id) -> Response:
        await samples.load(owner)
        return json_response((await samples.found(owner)).model_dump())

    @router.delete("", status_code=204, summary="Remove the samples, and nothing else")
    async def remove(owner: str = owner_id) -> Response:
        await samples.remove(owner)
        return Response(status_code=204)

    return router


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of every owner: each has their own, under the same names."""

    core: TurnRunner
    library: Library
    notes: Mapping[str, str]
    """Texts by their ids."""

    async def load(self, owner_id: str) -> None:
        """They are there afterwards. Whatever was said in the chat, or changed in a note, since they were loaded stays."""
        for note_id, text in self.notes.items():
            try:
                title = text.partition("\n")[0].removeprefix("# ")
                await self.library.add(owner_id, text, note_id=note_id, file_name=_file(note_id), file_title=title)
            except Conflict:  # there is a note of that id: changed since, or somebody's own
                continue
        await import_archive(
            self.library.database, read_chat(datetime.now(UTC)), owner_id=owner_id, agent_id=COMPANION.id
        )

    async def remove(self, owner_id: str) -> None:
        """They are gone afterwards, with what was said in the chat since; a note that only has the same id is not touched."""
        found = await self.found(owner_id)
        for note_id in found.notes:
            try:
                await self.library.delete(owner_id, note_id)
            except NotFound:  # deleted meanwhile
                continue
        if found.thread_id is not None:
            await self.core.erase(owner_id, found.thread_id)

    async def found(self, owner_id: str) -> SamplesView:
        thread_id = read_chat(datetime.now(UTC)).conversation_id(owner_id)
        there: list[str] = []
        async with self.library.database.statement() as connection:
            for note_id in self.notes:
                note = await Notes(connection).find(owner_id, note_id)
                if note is not None and note[0].file_name == _file(note_id):
                    there.append(note_id)
            try:
                await Conversations(connection).get(owner_id, thread_id)
            except NotFound:
                thread_id = None
        return SamplesView(
            loaded=thread_id is not None and len(there) == len(self.notes), thread_id=thread_id, notes=there
        )


def _file(note_id: str) -> str:
    """What says that a note is one of ours: its id alone could be somebody's own."""
    return f"rapport-{note_id}.md"


def _read_notes() -> dict[str, str]:
    folder = resources.files("rapport") / "samples" / "notes"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".md"): file.read_text(encoding="utf-8") for file in files}


def read_chat(now: datetime) -> Archive:
    """The sample chat as if its last word had been said just before `now`."""
    chat = orjson.loads((resources.files("rapport") / "samples" / "chat.json").read_bytes())
    return Archive(
        "jsonl",
        chat["id"],
        chat["title"],
        "group",
        [
            ArchivedMessage(
                one["id"],
                "user",
                one["text"],
                now - timedelta(minutes=one["minutes_ago"]),
                Author(one["author"], chat["people"][one["author"]]),
                one.get("reply_to"),
            )
            for one in chat["messages"]
        ],
    )
