"""Serve `/api/notes`: the notes that replies may cite."""

from typing import Annotated, Any, NamedTuple, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.exceptions import HTTPException

from rapport.channels.http.rendering.json_views import (
    NotesView,
    NoteTextView,
    NoteView,
    PassagesView,
    json_response,
    note_view,
    passage_view,
)
from rapport.channels.http.requests.cursors import format_cursor, parse_cursor
from rapport.channels.http.requests.json_bodies import NoteBody, StrictRoute, parse_body
from rapport.channels.http.requests.uploads import Uploads, read_upload
from rapport.channels.http.routes.conversations import Caller
from rapport.core.core import Core
from rapport.domain.errors import InvalidInput
from rapport.domain.note import NOTE_ID
from rapport.domain.text_checks import check_text
from rapport.retrieval.files.document import FileName
from rapport.retrieval.files.reader import FileReader
from rapport.retrieval.library import Added
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
                    },
                }
            },
        },
    }
}


def note_routes(core: Core, reader: FileReader, caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/api/notes", tags=["notes"], route_class=StrictRoute)
    owner_id = Depends(caller)
    uploads = Uploads()

    @router.post(
        "",
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
    async def add(request: Request, owner: str = owner_id) -> Response:
        body, file = await _read_note(request, owner, reader, uploads)
        added = await core.notes.library.add(
            owner,
            body.text,
            title=_title(body.title),
            note_id=body.id,
            file_name=file and file.name,
            file_title=file.title if file else "",
        )
        return json_response(_build_note_view(added), 201 if added.is_new else 200)

    @router.get("", response_model=NotesView, summary="List your notes, latest first")
    async def page(
        limit: Annotated[int, Query(ge=1, le=500)] = 50, before: str | None = None, owner: str = owner_id
    ) -> Response:
        cursor = None if before is None else parse_cursor(before, is_id=NOTE_ID.fullmatch)
        rows = await core.notes.list_recent(owner, limit=limit + 1, before=cursor)
        listed = rows[:limit]
        following = format_cursor(listed[-1].updated_at, listed[-1].id) if len(rows) > limit else None
        return json_response({"notes": [note_view(note) for note in listed], "next": following})

    @router.get("/search", response_model=PassagesView, summary="Search the notes")
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

    @router.get("/{note_id}", response_model=NoteTextView, summary="Get a note with its text")
    async def read(note_id: str, owner: str = owner_id) -> Response:
        note, text = await core.notes.read(owner, note_id)
        return json_response({**note_view(note), "text": text})

    @router.put("/{note_id}", response_model=NoteView, openapi_extra=_BODY, summary="Replace a note's text")
    async def replace(request: Request, note_id: str, owner: str = owner_id) -> Response:
        body, _ = await _read_note(request, owner, reader, uploads)
        if body.id is not None and body.id != note_id:
            raise InvalidInput("The id in the body differs from the id in the path.")
        return json_response(
            _build_note_view(await core.notes.library.replace(owner, note_id, body.text, title=_title(body.title)))
        )

    @router.delete("/{note_id}", status_code=204, summary="Delete a note")
    async def delete(note_id: str, owner: str = owner_id) -> Response:
        await core.notes.library.delete(owner, note_id)
        return Response(status_code=204)

    return router


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
    return parse_body(NoteBody, {**upload.fields, "text": document.text}), file


def _build_note_view(added: Added) -> dict[str, Any]:
    return {**note_view(added.note), "unchanged": added.unchanged}


def _title(title: str | None) -> str:
    return "" if title is None else check_text(title, what="title", limit=200)
