"""Load what `rapport context show` prints: a message, the context chosen for it, and the messages around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rapport.app import make_context_selector
from rapport.cli.database import open_agents
from rapport.cli.note_library import open_library
from rapport.cli.timeline import ChoiceReason, TimelineView, UsedSource
from rapport.core.explanations import load_note_titles
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, Strategy
from rapport.domain.conversation import Conversation, Message
from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.ids import is_id
from rapport.domain.read_models import SearchHit
from rapport.settings import Settings
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Connection, Database
from rapport.storage.memories import Memories
from rapport.storage.messages.messages import Messages
from rapport.storage.messages.neighbours import read_snapshot, sort_by_time
from rapport.turns.explain import Explanation, describe_tool, explain_reply, load_timeline
from rapport.turns.group_context import check_query

SHORTEST = 8
"""Minimum length of an id prefix: it determines the creation time to the second."""


async def explain_message(
    settings: Settings, message: str, *, user: str, conversation: str | None, strategy: Strategy | None
) -> tuple[Explanation, TimelineView]:
    """Explain a reply, or the selection that a message would get; raise NotFound or InvalidInput."""
    async with open_library(settings) as (library, _):
        async with library.database.statement() as connection:
            conversation_id, message_id = await _find_message(connection, user, message, conversation)
        selector = make_context_selector(settings, library.database, library.embedder)
        explanation = await explain_reply(
            selector, open_agents(library.database).directory, user, conversation_id, message_id, strategy=strategy
        )
        return explanation, await _load_timeline_view(library.database, explanation)


async def search_conversation(
    settings: Settings, conversation: str, question: str, *, user: str, topic: str | None, limit: int
) -> tuple[Conversation, list[SearchHit]]:
    """Return a conversation and its messages that a question is about, the best match first; raises NotFound or InvalidInput."""
    question = check_query(question, name="question")
    async with open_library(settings) as (library, _):
        async with library.database.statement() as connection:
            found_conversation = await Conversations(connection).get_by_prefix(user, conversation)
        selector = make_context_selector(settings, library.database, library.embedder)
        return found_conversation, await selector.search_all(
            user, found_conversation.id, question, thread_id=topic, limit=limit
        )


async def _find_message(connection: Connection, user: str, message: str, conversation: str | None) -> tuple[str, str]:
    """Find a conversation and a message by their ids or prefixes, in upper or lower case."""
    conversation_id = None
    if conversation is not None:
        conversation_id = (await Conversations(connection).get_by_prefix(user, conversation)).id
    beginning = message.strip().upper()
    if not is_id(beginning.ljust(26, "0")):
        raise NotFound(f"There is no message {message[:64]!r}.")
    if len(beginning) < SHORTEST:
        raise InvalidInput(f"Give more of the id than {beginning!r}: at least {SHORTEST} characters.")
    matches = await Messages(connection).find_by_prefix(user, beginning, conversation_id)
    if len(matches) > 1:
        ids = ", ".join(id_ for _, id_ in matches)
        raise InvalidInput(f"Several messages begin with {beginning!r}: give more of the id. ({ids})")
    if not matches:
        raise NotFound(f"The user {user!r} has no message {message[:64]!r}; `--user` names another user.")
    return matches[0]


async def _load_timeline_view(database: Database, explanation: Explanation) -> TimelineView:
    conversation, receipt = explanation.conversation, explanation.receipt
    messages = await load_timeline(database, explanation)
    anchor = _anchor(explanation, messages)
    if anchor is not None and all(message.id != anchor.id for message in messages):
        messages = sort_by_time([anchor, *messages])
    chosen = {entry["id"]: ChoiceReason(entry["reasons"], entry["score"]) for entry in receipt["messages"]}
    context = explanation.context
    async with database.statement() as connection:
        titles = await load_note_titles(connection, explanation)
        return TimelineView(
            conversation,
            (await open_agents(database).directory.reload(conversation.owner_id, conversation.agent_id)).name,
            explanation.call,
            receipt["strategy"],
            explanation.is_stored,
            messages,
            chosen,
            anchor,
            whole_from=_whole_from(messages, explanation.call),
            passed_over={entry.id: score for entry, score in context.selection.passed_over} if context else None,
            reply=explanation.reply,
            has_summary=receipt.get("summary_id") is not None,
            memories=[await _memory(connection, explanation, memory) for memory in explanation.memories],
            notes=[
                UsedSource(note["id"], note["score"], titles.get(note["id"], ""))
                for note in explanation.notes
                if note["given"]
            ],
            looked_up=receipt.get("looked_up", ()),
            tools=[describe_tool(tool) for tool in explanation.tools],
        )


def _anchor(explanation: Explanation, messages: Sequence[Message]) -> Message | None:
    """Return the anchor of the call: among the chosen messages, or from the call's own snapshot."""
    anchor_id = explanation.receipt["anchor_id"]
    snapshot = read_snapshot(explanation.call) if explanation.call else None
    return next(
        (message for message in [*messages, *([snapshot] if snapshot else [])] if message.id == anchor_id), None
    )


def _whole_from(messages: Sequence[Message], call: Message | None) -> datetime | None:
    """Return the time from which the messages are complete: before it only selected ones are loaded."""
    before = [message for message in messages if call is None or message.id != call.id]
    return before[-MAX_RECENT_MESSAGES].created_at if len(before) > MAX_RECENT_MESSAGES else None


async def _memory(connection: Connection, explanation: Explanation, used: Mapping[str, Any]) -> UsedSource:
    conversation = explanation.conversation
    try:
        memory = await Memories(connection).get(conversation.owner_id, conversation.agent_id, used["id"])
    except NotFound:  # deleted since
        return UsedSource(used["id"], used["score"])
    return UsedSource(used["id"], used["score"], memory.content)
