"""List and read the caller's notes and conversations as MCP resources."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mcp import types
from pydantic import AnyUrl

from rapport.channels.http.mcp.addresses import TEMPLATES, make_conversation_uri, make_note_uri, parse_uri
from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.search_tools import MAX_TEXT_CHARACTERS, format_time, load_conversations
from rapport.channels.http.rendering.json_views import as_json, conversation_view
from rapport.channels.http.requests.cursors import format_cursor, parse_cursor
from rapport.context.fence import clip
from rapport.domain.conversation import Message
from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.note import NOTE_ID, Note
from rapport.domain.read_models import ListedConversation

PAGE = 50
"""Resources of one page of the list."""
READ_MESSAGES = 100
"""The latest messages of a conversation that a read returns."""
_NOTES, _CONVERSATIONS = "notes:", "conversations:"
"""The kinds of cursors: the list has the notes first, then the conversations."""


async def list_resources(access: CallerAccess, cursor: str | None) -> types.ListResourcesResult:
    """Return a page of notes, and of conversations when there are no more notes."""
    if cursor is not None and cursor.startswith(_CONVERSATIONS):
        return await _list_conversations(access, cursor.removeprefix(_CONVERSATIONS) or None)
    if cursor is not None and not cursor.startswith(_NOTES):
        raise InvalidInput("`cursor` is not a cursor of this list: use `nextCursor` of the previous page.")
    before = None if cursor is None else parse_cursor(cursor.removeprefix(_NOTES), is_id=NOTE_ID.fullmatch)
    rows = await access.core.notes.list_recent(access.owner_id, limit=PAGE + 1, before=before)
    page = rows[:PAGE]
    listed = [_describe_note(note) for note in page]
    if len(rows) > PAGE:
        following = _NOTES + format_cursor(page[-1].updated_at, page[-1].id)
        return types.ListResourcesResult(resources=listed, nextCursor=following)
    conversations = await _list_conversations(access, None)
    return types.ListResourcesResult(resources=[*listed, *conversations.resources], nextCursor=conversations.nextCursor)


async def _list_conversations(access: CallerAccess, before: str | None) -> types.ListResourcesResult:
    page, following = await load_conversations(access, limit=PAGE, before=before)
    return types.ListResourcesResult(
        resources=[_describe_conversation(one) for one in page],
        nextCursor=None if following is None else _CONVERSATIONS + following,
    )


def list_templates() -> types.ListResourceTemplatesResult:
    """Return the forms of the addresses."""
    return types.ListResourceTemplatesResult(
        resourceTemplates=[
            types.ResourceTemplate(
                uriTemplate=TEMPLATES["notes"], name="note", title="A note", mimeType="text/markdown"
            ),
            types.ResourceTemplate(
                uriTemplate=TEMPLATES["conversations"],
                name="conversation",
                title="A conversation",
                description=f"Its latest {READ_MESSAGES} messages, oldest first.",
                mimeType="application/json",
            ),
        ]
    )


async def read_resource(access: CallerAccess, uri: str) -> types.ReadResourceResult:
    """Return the text of a note, or the latest messages of a conversation. Raise NotFound, also for another owner's."""
    named = parse_uri(uri)
    if named is None:
        raise NotFound(f"There is no resource {uri[:100]!r}; `resources/list` names those that exist.")
    kind, id_ = named
    if kind == "notes":
        _, text = await access.core.notes.read(access.owner_id, id_)
        return _make_contents(uri, text, "text/markdown")
    return _make_contents(uri, await _read_conversation(access, id_), "application/json")


async def _read_conversation(access: CallerAccess, conversation_id: str) -> str:
    conversation = await access.core.conversations.get(access.owner_id, conversation_id)
    rows = await access.core.history.load_page(access.owner_id, conversation_id, limit=READ_MESSAGES + 1)
    messages = [_message_view(message) for message in rows[-READ_MESSAGES:]]
    whole = {**conversation_view(conversation), "messages": messages, "has_earlier": len(rows) > READ_MESSAGES}
    return as_json(whole).decode()


def _message_view(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role,
        "author": message.author and message.author.name,
        "text": clip(message.text, MAX_TEXT_CHARACTERS),
        "created_at": message.created_at,
        "reply_to_id": message.reply_to_id,
    }


def _make_contents(uri: str, text: str, kind: str) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=AnyUrl(uri), text=text, mimeType=kind)])


def _describe_note(note: Note) -> types.Resource:
    return types.Resource(
        uri=AnyUrl(make_note_uri(note.id)),
        name=note.id,
        title=note.title,
        mimeType="text/markdown",
        annotations=_make_annotations(note.updated_at),
    )


def _describe_conversation(listed: ListedConversation) -> types.Resource:
    conversation = listed.conversation
    return types.Resource(
        uri=AnyUrl(make_conversation_uri(conversation.id)),
        name=conversation.id,
        title=conversation.title or (listed.last_message.text if listed.last_message else None),
        description=f"A {conversation.kind} conversation with {conversation.agent_id}",
        mimeType="application/json",
        annotations=_make_annotations(conversation.last_at),
    )


def _make_annotations(at: datetime) -> types.Annotations:
    return types.Annotations.model_validate({"lastModified": format_time(at)})
