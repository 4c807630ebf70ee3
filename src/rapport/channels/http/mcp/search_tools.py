"""Run the tools that search notes, messages and memories, list conversations, and add a note."""

from __future__ import annotations

from datetime import UTC, datetime

from rapport.agents.profiles import COMPANION
from rapport.channels.http.mcp.addresses import make_conversation_uri, make_note_uri
from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.schemas import (
    MAX_NOTE_QUERY_CHARACTERS,
    AddedNoteResult,
    AddNoteArguments,
    ConversationResult,
    ConversationsResult,
    FoundMessagesResult,
    ListConversationsArguments,
    MemoriesResult,
    MemoryResult,
    MessageResult,
    PassageResult,
    PassagesResult,
    SearchConversationArguments,
    SearchMemoriesArguments,
    SearchNotesArguments,
)
from rapport.channels.http.requests.cursors import format_cursor, parse_cursor
from rapport.channels.http.routes.conversations import resolve_agent
from rapport.context.fence import clip
from rapport.domain.ids import is_id
from rapport.domain.note_scope import check_settings
from rapport.domain.read_models import ListedConversation
from rapport.domain.text_checks import check_text
from rapport.retrieval.standalone_question import plain
from rapport.turns.group_context import check_query

MAX_TEXT_CHARACTERS = 4_000
"""The part of a message that a result quotes."""


async def search_notes(access: CallerAccess, body: SearchNotesArguments) -> PassagesResult:
    """Return passages of the notes that the caller may see."""
    question = plain(check_text(body.query, what="query", limit=MAX_NOTE_QUERY_CHARACTERS))
    found = await access.core.notes.search(access.owner_id, question, limit=body.limit)
    return PassagesResult(
        passages=[
            PassageResult(
                note_id=passage.note_id,
                title=passage.title,
                heading=passage.heading,
                text=passage.text,
                similarity=passage.similarity,
                shared_by=passage.shared_by,
            )
            for passage in found.passages
        ]
    )


async def add_note(access: CallerAccess, body: AddNoteArguments) -> AddedNoteResult:
    """Store a note of the caller, which nobody else sees."""
    added = await access.core.notes.library.add(
        access.owner_id,
        body.text,
        title="" if body.title is None else check_text(body.title, what="title", limit=200),
        settings=check_settings(body.collections, None, by_operator=access.caller.is_operator),
    )
    note = added.note
    return AddedNoteResult(id=note.id, title=note.title, unchanged=added.unchanged, uri=make_note_uri(note.id))


async def search_conversation(access: CallerAccess, body: SearchConversationArguments) -> FoundMessagesResult:
    """Return messages of one of the caller's conversations."""
    question = check_query(body.query, name="query")
    hits = await access.core.explanations.search(access.owner_id, body.conversation_id, question, limit=body.limit)
    return FoundMessagesResult(
        messages=[
            MessageResult(
                id=hit.message.id,
                author=hit.message.author.name if hit.message.author else None,
                role=hit.message.role,
                text=clip(hit.message.text, MAX_TEXT_CHARACTERS),
                created_at=format_time(hit.message.created_at),
            )
            for hit in hits
        ]
    )


async def search_memories(access: CallerAccess, body: SearchMemoriesArguments) -> MemoriesResult:
    """Return what an agent remembers about the caller."""
    agent_id = await resolve_agent(access.core, access.owner_id, body.agent, COMPANION.id)
    found = await access.core.memories.search(access.owner_id, agent_id, body.query, body.limit)
    return MemoriesResult(
        memories=[
            MemoryResult(
                id=memory.id,
                content=memory.content,
                key=memory.key,
                similarity=similarity,
                created_at=format_time(memory.created_at),
            )
            for memory, similarity in found
        ]
    )


async def list_conversations(access: CallerAccess, body: ListConversationsArguments) -> ConversationsResult:
    """Return a page of the caller's conversations."""
    page, following = await load_conversations(access, limit=body.limit, before=body.before, query=body.query)
    return ConversationsResult(
        conversations=[
            ConversationResult(
                id=one.conversation.id,
                title=one.conversation.title,
                agent=one.conversation.agent_id,
                kind=one.conversation.kind,
                channel=one.conversation.channel,
                last_at=format_time(one.conversation.last_at),
                last_message=one.last_message and one.last_message.text,
                uri=make_conversation_uri(one.conversation.id),
            )
            for one in page
        ],
        next=following,
    )


async def load_conversations(
    access: CallerAccess, *, limit: int, before: str | None, query: str | None = None
) -> tuple[list[ListedConversation], str | None]:
    """Return a page of conversations, and the cursor of the next page."""
    cursor = None if before is None else parse_cursor(before, is_id=is_id)
    words = "" if query is None else check_text(query, what="query", limit=200)
    rows = await access.core.conversations.list_recent(access.owner_id, limit=limit + 1, before=cursor, words=words)
    page = rows[:limit]
    last = page[-1].conversation if page else None
    return page, format_cursor(last.last_at, last.id) if last and len(rows) > limit else None


def format_time(at: datetime) -> str:
    """Return a time in UTC, as in all responses."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
