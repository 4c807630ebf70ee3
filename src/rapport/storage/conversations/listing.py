"""List conversations with their last message, search them by words, and list their people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rapport.domain.conversation import Author
from rapport.domain.ids import EPHEMERAL_PREFIX, is_id
from rapport.domain.read_models import LastMessage, ListedConversation
from rapport.storage.conversations.conversations import no_such_conversation, to_conversation
from rapport.storage.database import Connection

SEARCHED_CONVERSATIONS = 300
"""The number of an owner's newest conversations that a search reads. This and the next two limits bound its cost."""
SEARCHED_MESSAGES = 60
"""The number of the newest messages of each conversation that a search reads."""
SEARCHED_CHARACTERS = 1_000
"""The number of characters of each message that a search reads, from its beginning."""
SHOWN_CHARACTERS = 120
MAX_WORDS = 8
RECENT_MESSAGES = 2_000
"""The number of the newest messages that count for the list of people."""

_CONVERSATION = "c.id, c.owner_id, c.agent_id, c.kind, c.channel, c.title, c.created_at, c.last_at"
_SAID = "m.conversation_id = c.id AND m.owner_id = c.owner_id AND m.role <> 'system-summary' AND NOT m.synthetic"

# A backward scan of messages_order that ends at the first message. Only the beginning of its text is read.
_LAST = f"""
LEFT JOIN LATERAL (
    SELECT author_name, role, created_at AS said_at, left(content, {2 * SHOWN_CHARACTERS}) AS words, blocks IS NOT NULL AS has_blocks
    FROM messages m WHERE {_SAID} ORDER BY m.created_at DESC, m.id DESC LIMIT 1
) said ON true
"""

# The row comparison scans the index conversations_recent from the cursor on: every page costs the same. Ephemeral
# conversations are in no list.
_PAGE = f"""
FROM conversations c
WHERE c.owner_id = %(owner)s AND c.id < '{EPHEMERAL_PREFIX}' AND (%(at)s::timestamptz IS NULL OR (c.last_at, c.id) < (%(at)s, %(id)s))
ORDER BY c.last_at DESC, c.id DESC LIMIT
"""

_RECENT = f"""
SELECT c.*, said.* FROM (SELECT {_CONVERSATION} {_PAGE} %(limit)s) c {_LAST}
ORDER BY c.last_at DESC, c.id DESC
"""

# All words are in the title, or all in the same message. strpos, because the words are text and not a pattern.
_SEARCH = f"""
SELECT c.*, said.* FROM (SELECT {_CONVERSATION} {_PAGE} {SEARCHED_CONVERSATIONS}) c {_LAST}
WHERE (SELECT bool_and(strpos(lower(c.title), word) > 0) FROM unnest(%(words)s::text[]) AS word)
   OR EXISTS (
    SELECT FROM (
        SELECT lower(left(m.content, {SEARCHED_CHARACTERS})) AS words FROM messages m WHERE {_SAID}
        ORDER BY m.created_at DESC, m.id DESC LIMIT {SEARCHED_MESSAGES}) AS latest
    WHERE (SELECT bool_and(strpos(latest.words, word) > 0) FROM unnest(%(words)s::text[]) AS word))
ORDER BY c.last_at DESC, c.id DESC LIMIT %(limit)s
"""

_GET = f"SELECT {_CONVERSATION}, said.* FROM conversations c {_LAST} WHERE c.id = %(id)s AND c.owner_id = %(owner)s"

# A backward scan of messages_order with a limit, however long the chat is. An author's newest name is used.
_PEOPLE = f"""
SELECT author_id, (array_agg(author_name ORDER BY created_at DESC))[1] AS author_name FROM (
    SELECT author_id, author_name, created_at, role, is_bot, synthetic FROM messages
    WHERE conversation_id = %(id)s AND owner_id = %(owner)s ORDER BY created_at DESC, id DESC LIMIT {RECENT_MESSAGES}) AS latest
WHERE role = 'user' AND NOT is_bot AND NOT synthetic AND author_id IS NOT NULL
GROUP BY author_id ORDER BY max(created_at) DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class ConversationListing:
    connection: Connection

    async def list_recent(
        self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None, words: str = ""
    ) -> list[ListedConversation]:
        """Return the owner's conversations, the most recent first; `before` is the (last_at, id) of the last one of the previous page.

        With `words`, only recent ones whose title or a recent message has all of them.
        """
        search_words = words.lower().split()[:MAX_WORDS]
        cursor = await self.connection.execute(
            (_SEARCH if search_words else _RECENT).encode(),
            {
                "owner": owner_id,
                "at": before and before[0],
                "id": before and before[1],
                "limit": limit,
                **({"words": search_words} if search_words else {}),
            },
        )
        return [_to_listed_conversation(row) for row in await cursor.fetchall()]

    async def get(self, owner_id: str, conversation_id: str) -> ListedConversation:
        """Return the conversation; raise NotFound if it is missing or somebody else's."""
        if is_id(conversation_id):
            cursor = await self.connection.execute(_GET.encode(), {"owner": owner_id, "id": conversation_id})
            if row := await cursor.fetchone():
                return _to_listed_conversation(row)
        raise no_such_conversation(conversation_id)

    async def list_people(self, owner_id: str, conversation_id: str, *, limit: int) -> list[Author]:
        """Return the people who wrote recently, the latest first, without bots."""
        cursor = await self.connection.execute(
            _PEOPLE.encode(), {"owner": owner_id, "id": conversation_id, "limit": limit}
        )
        return [Author(row.author_id, row.author_name or row.author_id) for row in await cursor.fetchall()]

    async def get_agent_handle(self, owner_id: str, conversation_id: str) -> str | None:
        """Return the agent's name on this conversation's platform, beside its own handles."""
        cursor = await self.connection.execute(
            "SELECT handle FROM conversations WHERE id = %s AND owner_id = %s", (conversation_id, owner_id)
        )
        row = await cursor.fetchone()
        return row.handle if row else None


def _to_listed_conversation(row: Any) -> ListedConversation:
    conversation = to_conversation(row)
    if row.role is None:
        return ListedConversation(conversation, None)
    text = " ".join(row.words.split())
    if not text and row.has_blocks:
        text = "[picture]"
    if len(text) > SHOWN_CHARACTERS:
        text = text[: SHOWN_CHARACTERS - 1].rstrip() + "…"
    return ListedConversation(conversation, LastMessage(row.author_name, row.role, text, row.said_at))
