"""What of a group chat belongs to a call: loaded, looked for by meaning, chosen. Turns, tools and explanations share it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog

from rapport.context.engine import Choice, pointed_at, select
from rapport.context.named_participants import find_named
from rapport.context.question import author_of, is_bare, meant, spoken, tells
from rapport.domain.context_selection import RECENT, CandidateMessages, ContextSelection, Strategy
from rapport.domain.conversation import Message
from rapport.domain.errors import InvalidInput, Permanent, Transient
from rapport.domain.note import Vector
from rapport.domain.text_checks import checked_text
from rapport.retrieval.ports import Embedder
from rapport.retrieval.standalone_question import plain, standalone
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.chat_search import Hit, participants, search_chat
from rapport.storage.messages.neighbours import LinkedMessages, in_order, load_linked, recent, vector_of

log = structlog.get_logger()

SEMANTIC_SECONDS = 3.0
"""So long a call waits for what is close to it in meaning; then it goes without."""
OWN_QUESTIONS = 12
"""Among so many of the latest messages what the asker has asked before is looked for."""
LONGEST_QUERY = 500
"""Characters of what is searched for."""
_WORD = re.compile(r"[^\W_]{2,}")
NOTHING_LINKED = LinkedMessages(None, (), ())


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What a call is to be answered from."""

    call: Message
    found: CandidateMessages
    selection: ContextSelection
    question: str
    """What is asked, understandable by itself; of a call that only points at something, what that says. May be empty."""


@dataclass(frozen=True, slots=True)
class ContextSelector:
    """Chooses what belongs to a call. No transaction is open while anything is embedded."""

    database: Database
    embedder: Embedder
    choice: Choice

    def warm(self) -> None:
        """Choose once, from nothing that anybody said: the scorer's tables are read, and the first call need not wait for it.
        Takes a moment, so not for the event loop."""
        at = datetime.now(UTC)
        lines = [
            Message(str(number), "", "user", f"line {number}", at + timedelta(seconds=number))
            for number in range(RECENT + 1)
        ]
        select(lines[-1], CandidateMessages(lines[:-1]), replace(self.choice, strategy="relevant"))

    async def gather(self, owner_id: str, call: Message, *, strategy: Strategy | None = None) -> GroupContext:
        """What belongs to a call, everything loaded here and now."""
        where = (owner_id, call.conversation_id)
        async with self.database.statement() as connection:
            before = await recent(
                connection, *where, before=(call.created_at, call.id), limit=RECENT, thread_id=call.thread_id
            )
            links = await load_linked(connection, *where, call)
        return await self.choose(owner_id, call, before, links, strategy=strategy)

    async def choose(
        self,
        owner_id: str,
        call: Message,
        before: Sequence[Message],
        links: LinkedMessages = NOTHING_LINKED,
        *,
        strategy: Strategy | None = None,
    ) -> GroupContext:
        """What belongs to a call, chosen from the messages `before` it, from what it is linked to, and by meaning."""
        choice = self.choice if strategy is None else replace(self.choice, strategy=strategy)
        told, bare = spoken(before), is_bare(call.text)
        points = bare if choice.strategy == "relevant" else choice.strategy == "thread"
        if points and links.anchor is None:
            links = await self._beyond(owner_id, call, told)
        found = surroundings(told, links)
        question = "" if bare else standalone(call.text, _asked_before(call, found))
        # Of a chat that was loaded whole a call without a question needs no more; a question may be about any of it.
        if choice.strategy == "relevant" and (len(before) >= RECENT or (question and before)):
            found = replace(found, similar=await self._similar(owner_id, call, found, question))
        selection = select(call, found, choice)
        if not question:
            question = standalone(meant(links.anchor, [one.message for one in selection.earlier]), ())
        return GroupContext(call, found, selection, question)

    async def _beyond(self, owner_id: str, call: Message, before: Sequence[Message]) -> LinkedMessages:
        """What the message that a call points at replies to, if that is older than the messages before the call."""
        target = pointed_at(call, before)
        if target is None or target.reply_to_id in {None, *(one.id for one in before)}:
            return NOTHING_LINKED
        async with self.database.statement() as connection:
            links = await load_linked(connection, owner_id, call.conversation_id, target, neighbours=0)
        return LinkedMessages(None, in_order([*([links.anchor] if links.anchor else []), *links.chain]), ())

    async def _similar(
        self, owner_id: str, call: Message, found: CandidateMessages, question: str
    ) -> Sequence[tuple[Message, float]]:
        """Return messages close to what is asked, of all that were said before it; older ones like what a call without a question points
        at. None when that can't be found out now."""
        try:
            async with asyncio.timeout(SEMANTIC_SECONDS):
                if question:
                    hits = await self.search(owner_id, call.conversation_id, question, before=call.created_at)
                else:
                    hits = await self._like(owner_id, call, found)
                return [(one.message, _closeness(one)) for one in hits]
        except (Transient, Permanent, TimeoutError) as error:
            log.warning(
                "chat.error", errorType="context", message=f"nothing by meaning: {str(error) or 'no time left'}"
            )
            return ()

    async def search(
        self,
        owner_id: str,
        conversation_id: str,
        question: str,
        *,
        before: datetime,
        thread_id: str | None = None,
        limit: int = 8,
    ) -> list[Hit]:
        """Return messages of a chat, older than `before`, that a question is about, the best first.

        They are found by meaning and by words, without the names of participants; what a named participant wrote counts for
        more. When the embedder can't be used, the words alone decide.
        """
        where = (owner_id, conversation_id)
        async with self.database.statement() as connection:
            named = find_named(question, await participants(connection, *where, before=before))
        asked = plain(named.text) or plain(question)
        vector = await self._question_vector(asked)
        async with self.database.statement() as connection:
            return await search_chat(
                connection,
                *where,
                embedder=self.embedder.name,
                before=before,
                vector=vector,
                words=asked,
                named=sorted(named.author_ids),
                thread_id=thread_id,
                limit=limit,
            )

    async def search_all(
        self, owner_id: str, conversation_id: str, question: str, *, thread_id: str | None = None, limit: int = 10
    ) -> list[Hit]:
        """Search everything that was said in a conversation so far; raises NotFound if the owner has no such conversation."""
        async with self.database.statement() as connection:
            conversation = await Conversations(connection).get(owner_id, conversation_id)
        after_all = conversation.last_at + timedelta(microseconds=1)
        return await self.search(
            owner_id, conversation_id, question, before=after_all, thread_id=thread_id, limit=limit
        )

    async def _question_vector(self, question: str) -> Vector | None:
        try:
            return await self.embedder.embed_question(question)
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType="context", message=f"searched by words alone: {error}")
            return None

    async def _like(self, owner_id: str, call: Message, found: CandidateMessages) -> list[Hit]:
        """Older messages like the one that a call without a question points at, whose vector mostly is there already."""
        likely = [found.anchor] if found.anchor else [pointed_at(call, found.recent), *reversed(found.recent)]
        target = next((one for one in likely if one and tells(one)), None)
        if target is None:
            return []
        where = (owner_id, call.conversation_id)
        async with self.database.statement() as connection:
            vector = await vector_of(connection, *where, target.id, embedder=self.embedder.name)
        if vector is None and (text := standalone(target.text, ())):
            vector = await self.embedder.embed_question(text)
        if vector is None:
            return []
        before = found.recent[0].created_at
        async with self.database.statement() as connection:
            return await search_chat(connection, *where, embedder=self.embedder.name, before=before, vector=vector)


def checked_question(text: str) -> str:
    """Return what to search for; raises InvalidInput if it is too long or has no word."""
    question = checked_text(text, what="query", limit=LONGEST_QUERY).strip()
    if not _WORD.search(plain(question)):
        raise InvalidInput("`query` needs at least one word.")
    return question


def _closeness(hit: Hit) -> float:
    """Return how close a message is to what is asked: by meaning, or by the words if it has at least two of them."""
    return max(hit.similarity or 0.0, hit.share if hit.matched > 1 else 0.0)


def surroundings(before: Sequence[Message], links: LinkedMessages) -> CandidateMessages:
    """What is chosen from: an anchor's neighbours count where they are not among the latest messages anyway."""
    is_old = links.anchor is not None and (not before or links.anchor.created_at < before[0].created_at)
    return CandidateMessages(before, links.anchor, links.chain, links.around if is_old else ())


def _asked_before(call: Message, found: CandidateMessages) -> list[str]:
    """What a question may lean on: the message that it replies to, else what the same person has asked before."""
    if found.anchor is not None:
        return [found.anchor.text]
    asker = author_of(call)
    return [one.text for one in found.recent[-OWN_QUESTIONS:] if one.role == "user" and author_of(one) == asker]
