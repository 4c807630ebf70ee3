"""Conversations as a list shows them: with what was said last, found by their words, and who speaks there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rapport.domain.conversation import Author, Conversation
from rapport.domain.ids import EPHEMERAL_PREFIX, is_id
from rapport.domain.read_models import LastMessage, ListedConversation
from rapport.storage.conversations.conversations import no_such_conversation
from rapport.storage.database import Connection

SEARCHED_CONVERSATIONS = 300
"""So many conversations, the latest, are searched,"""
SEARCHED_MESSAGES = 60
"""and of each so many messages, the latest,"""
SEARCHED_CHARACTERS = 1_000
"""and of each so much of the beginning: a search costs no more, whatever there is."""
SHOWN_CHARACTERS = 120
MAX_WORDS = 8
RECENT_MESSAGES = 2_000
"""Among so many of the latest messages people are looked for."""

_CONVERSATION = "c.id, c.owner_id, c.agent_id, c.kind, c.channel, c.title, c.created_at, c.last_at"
_SAID = "m.conversation_id = c.id AND m.owner_id = c.owner_id AND m.role <> 'system-summary' AND NOT m.synthetic"

# A backward walk of messages_order that ends at the first thing somebody said. Of its words only the beginning is read.
_LAST = f"""
LEFT JOIN LATERAL (
    SELECT author_name, role, created_at, left(content, {2 * SHOWN_CHARACTERS}) AS words, blocks IS NOT NULL AS has_blocks
    FROM messages m WHERE {_SAID} ORDER BY m.created_at DESC, m.id DESC LIMIT 1
) said ON true
"""

# The row comparison walks the index conversations_recent from the cursor on: a page costs the same anywhere. What is there
# for one answer only is in no list.
_PAGE = f"""
FROM conversations c
WHERE c.owner_id = %(owner)s AND c.id < '{EPHEMERAL_PREFIX}' AND (%(at)s::timestamptz IS NULL OR (c.last_at, c.id) < (%(at)s, %(id)s))
ORDER BY c.last_at DESC, c.id DESC LIMIT
"""

_RECENT = f"""
SELECT c.*, said.* FROM (SELECT {_CONVERSATION} {_PAGE} %(limit)s) c {_LAST}
ORDER BY c.last_at DESC, c.id DESC
"""

# Every word is somewhere in the title, or every one in the same message: strpos, because what is typed is no pattern.
_FOUND = f"""
SELECT c.*, said.* FROM (SELECT {_CONVERSATION} {_PAGE} {SEARCHED_CONVERSATIONS}) c {_LAST}
WHERE (SELECT bool_and(strpos(lower(c.title), word) > 0) FROM unnest(%(words)s::text[]) AS word)
   OR EXISTS (
    SELECT FROM (
        SELECT lower(left(m.content, {SEARCHED_CHARACTERS})) AS words FROM messages m WHERE {_SAID}
        ORDER BY m.created_at DESC, m.id DESC LIMIT {SEARCHED_MESSAGES}) AS latest
    WHERE (SELECT bool_and(strpos(latest.words, word) > 0) FROM unnest(%(words)s::text[]) AS word))
ORDER BY c.last_at DESC, c.id DESC LIMIT %(limit)s
"""

_ONE = f"SELECT {_CONVERSATION}, said.* FROM conversations c {_LAST} WHERE c.id = %(id)s AND c.owner_id = %(owner)s"

# A backward walk of messages_order, however long the chat is. Somebody who has changed their name is called by the new one.
_PEOPLE = f"""
SELECT author_id, (array_agg(author_name ORDER BY created_at DESC))[1] FROM (
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
        """The owner's conversations, the one talked in last first; `before` is the (last_at, id) of the last one seen.

        With `words`, those among the latest whose title, or something said there lately, has them all.
        """
        wanted = words.lower().split()[:MAX_WORDS]
        found = await self.connection.execute(
            (_FOUND if wanted else _RECENT).encode(),
            {
                "owner": owner_id,
                "at": before and before[0],
                "id": before and before[1],
                "limit": limit,
                **({"words": wanted} if wanted else {}),
            },
        )
        return [_to_listed_conversation(row) for row in await found.fetchall()]

    async def get(self, owner_id: str, conversation_id: str) -> ListedConversation:
        """The conversation, if it is this owner's."""
        if is_id(conversation_id):
            found = await self.connection.execute(_ONE.encode(), {"owner": owner_id, "id": conversation_id})
            if row := await found.fetchone():
                return _to_listed_conversation(row)
        raise no_such_conversation(conversation_id)

    async def list_people(self, owner_id: str, conversation_id: str, *, limit: int) -> list[Author]:
        """Those who spoke lately, the latest first; programs are none of them."""
        found = await self.connection.execute(
            _PEOPLE.encode(), {"owner": owner_id, "id": conversation_id, "limit": limit}
        )
        return [Author(id_, name or id_) for id_, name in await found.fetchall()]

    async def get_agent_handle(self, owner_id: str, conversation_id: str) -> str | None:
        """What the agent is called there, beside its own handles."""
        found = await self.connection.execute(
            "SELECT handle FROM conversations WHERE id = %s AND owner_id = %s", (conversation_id, owner_id)
        )
        row = await found.fetchone()
        return row[0] if row else None


def _to_listed_conversation(row: tuple[Any, ...]) -> ListedConversation:
    author, role, created_at, words, has_blocks = row[8:]
    if role is None:
        return ListedConversation(Conversation(*row[:8]), None)
    text = " ".join(words.split())
    if not text and has_blocks:
        text = "[picture]"
    if len(text) > SHOWN_CHARACTERS:
        text = text[: SHOWN_CHARACTERS - 1].rstrip() + "…"
    return ListedConversation(Conversation(*row[:8]), LastMessage(author, role, text, created_at))
