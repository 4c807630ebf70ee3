"""Serve `/api/notes` and `/api/collections`: the notes that replies may cite, and who may see them."""

from typing import Annotated, Any, NamedTuple, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.exceptions import HTTPException

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import (
    CollectionsView,
    NotesView,
    NoteTextView,
    NoteView,
    PassagesView,
    json_response,
    note_view,
    passage_view,
)
from rapport.channels.http.requests.cursors import format_cursor, parse_cursor
from rapport.channels.http.requests.json_bodies import NoteBody, NoteSettingsBody, StrictRoute, parse_body
from rapport.channels.http.requests.uploads import Uploads, read_upload
from rapport.core.core import Core
from rapport.domain.caller import Caller
from rapport.domain.errors import InvalidInput
from rapport.domain.note import NOTE_ID
from rapport.domain.note_scope import EVERYONE, NoteSettings, check_collection, check_settings
from rapport.domain.text_checks import check_text
from rapport.retrieval.files.document import FileName
from rapport.retrieval.files.reader import FileReader
from rapport.retrieval.library import AddedNote
from rapport.retrieval.standalone_question import plain

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": NoteBody.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "txt, md, html, pdf or docx"},
                        "id": {"type": "string"},
                        "title": {"type": "string"},
                        "collections": {"type": "array", "items": {"type": "string"}},
                        "shared_with": {"type": "string"},
                    },
                }
            },
        },
    }
}


def note_routes(core: Core, reader: FileReader, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["notes"], route_class=StrictRoute)
    _add_reading_routes(router, core, auth)
    owner_id = Depends(auth.authenticate_owner)
    caller = Depends(auth.authenticate)
    uploads = Uploads()

    async def refuse_foreign(owner: str, note_id: str) -> None:
        """Raise 403 for a note that the caller sees but somebody else owns; a hidden one looks missing."""
        if (sharer := await core.notes.find_sharer(owner, note_id)) is not None:
            raise HTTPException(403, f"The note {note_id!r} is shared by {sharer!r}: only its owner can change it.")

    @router.post(
        "/notes",
        status_code=201,
        response_model=NoteView,
        responses={
            200: {
                "model": NoteView,
                "description": "The same note exists already, or it replaces an older file of the same name",
            }
        },
        openapi_extra=_BODY,
        summary="Add a note: JSON, or a file as multipart/form-data",
    )
    async def add(request: Request, by: Caller = caller) -> Response:
        body, file = await _read_note(request, by.owner_id, reader, uploads)
        added = await core.notes.library.add(
            by.owner_id,
            body.text,
            title=_title(body.title),
            note_id=body.id,
            file_name=file and file.name,
            file_title=file.title if file else "",
            settings=_read_settings(by, body),
        )
        return json_response(_build_note_view(added, by.owner_id), 201 if added.is_new else 200)

    @router.put("/notes/{note_id}", response_model=NoteView, openapi_extra=_BODY, summary="Replace a note's text")
    async def replace(request: Request, note_id: str, by: Caller = caller) -> Response:
        body, _ = await _read_note(request, by.owner_id, reader, uploads)
        await refuse_foreign(by.owner_id, note_id)
        if body.id is not None and body.id != note_id:
            raise InvalidInput("The id in the body differs from the id in the path.")
        settings = _read_settings(by, body)
        replaced = await core.notes.library.replace(
            by.owner_id, note_id, body.text, title=_title(body.title), settings=settings
        )
        return json_response(_build_note_view(replaced, by.owner_id))

    @router.patch(
        "/notes/{note_id}",
        response_model=NoteView,
        summary="Change the collections of a note, and with whom it is shared",
    )
    async def change(body: NoteSettingsBody, note_id: str, by: Caller = caller) -> Response:
        settings = _read_settings(by, body)
        if settings.is_empty:
            raise InvalidInput("Send `collections`, `shared_with` or both.")
        await refuse_foreign(by.owner_id, note_id)
        note = await core.notes.library.change_settings(by.owner_id, note_id, settings)
        return json_response(note_view(note, reader=by.owner_id))

    @router.delete("/notes/{note_id}", status_code=204, summary="Delete a note")
    async def delete(note_id: str, owner: str = owner_id) -> Response:
        await refuse_foreign(owner, note_id)
        await core.notes.library.delete(owner, note_id)
        return Response(status_code=204)

    return router


def _add_reading_routes(router: APIRouter, core: Core, auth: Authenticator) -> None:
    owner_id = Depends(auth.authenticate_owner)

    @router.get("/notes", response_model=NotesView, summary="List the notes that you may see, latest first")
    async def page(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: str | None = None,
        collection: str | None = None,
        owner: str = owner_id,
    ) -> Response:
        cursor = None if before is None else parse_cursor(before, is_id=NOTE_ID.fullmatch)
        name = None if collection is None else check_collection(collection, field="collection")
        rows = await core.notes.list_recent(owner, limit=limit + 1, before=cursor, collection=name)
        listed = rows[:limit]
        following = format_cursor(listed[-1].updated_at, listed[-1].id) if len(rows) > limit else None
        return json_response({"notes": [note_view(note, reader=owner) for note in listed], "next": following})

    @router.get(
        "/collections", response_model=CollectionsView, summary="List the collections of notes with their sizes"
    )
    async def collections(owner: str = owner_id) -> Response:
        rows = await core.notes.list_collections(owner)
        return json_response({"collections": [row._asdict() for row in rows]})

    @router.get("/notes/search", response_model=PassagesView, summary="Search the notes")
    async def search(
        q: Annotated[str, Query(max_length=4000)],
        limit: Annotated[int, Query(ge=1, le=20)] = 5,
        owner: str = owner_id,
    ) -> Response:
        question = plain(check_text(q, what="q", limit=4000))
        rows = await core.notes.search(owner, question, limit=limit)
        return json_response(
            {
                "passages": [passage_view(passage) for passage in rows.passages],
                "best_similarity": rows.best_similarity,
                "relevance": rows.relevance,
                "min_similarity": rows.min_similarity,
            }
        )

    @router.get("/notes/{note_id}", response_model=NoteTextView, summary="Get a note with its text")
    async def read(
        note_id: str,
        thread: Annotated[str | None, Query(description="A conversation: get the note that its replies cite by this id")] = None,
        owner: str = owner_id,
    ) -> Response:  # fmt: skip
        note, text = await core.notes.read(owner, note_id, conversation_id=thread)
        return json_response({**note_view(note, reader=owner), "text": text})


class _File(NamedTuple):
    """A note's file name, and the title inside the file."""

    name: str
    title: str


async def _read_note(
    request: Request, owner_id: str, reader: FileReader, uploads: Uploads
) -> tuple[NoteBody, _File | None]:
    """Return the note of a request, sent as JSON or as a file, and the name and title of the file."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        sent = await request.json()
        if not isinstance(sent, dict):
            raise HTTPException(422, "The body is not a JSON object.")
        return parse_body(NoteBody, cast("object", sent)), None
    if kind != "multipart/form-data":
        raise HTTPException(
            415, "Send a note as JSON (`Content-Type: application/json`) or a file as multipart/form-data."
        )
    with uploads.reserve(owner_id):
        upload = await read_upload(request, max_bytes=reader.limits.max_bytes)
        if "text" in upload.fields:
            raise InvalidInput("The form has a file and a text: send only one of them.")
        document = await reader.read(upload.name, upload.data)
    file = _File(f"{FileName.of(upload.name).stem}.{document.format_name}", document.title)
    fields: dict[str, object] = {**upload.fields, "text": document.text}
    if "collections" in fields:
        fields["collections"] = [name for name in upload.lists["collections"] if name.strip()]
    return parse_body(NoteBody, fields), file


def _read_settings(caller: Caller, body: NoteSettingsBody) -> NoteSettings:
    """Return the checked settings; raise 403 unless an operator shares with everyone: such a note reaches every agent."""
    by_operator = caller.is_operator
    settings = check_settings(body.collections, body.shared_with, by_operator=by_operator)
    if settings.shared_with == EVERYONE and not by_operator:
        raise HTTPException(403, "`shared_with` is `everyone`: only an operator may share a note with everyone.")
    return settings


def _build_note_view(added: AddedNote, reader: str) -> dict[str, Any]:
    return {**note_view(added.note, reader=reader), "unchanged": added.unchanged}


def _title(title: str | None) -> str:
    return "" if title is None else check_text(title, what="title", limit=200)
