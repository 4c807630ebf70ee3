"""Select the messages of a group chat that belong to a call. Turns, tools and explanations share this."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog

from rapport.context.engine import AGENT_HANDLES, SelectionOptions, find_subject_message, select_context
from rapport.context.named_participants import find_named_participants
from rapport.context.question import derive_question, drop_empty_replies, get_author_id, has_subject, is_bare
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, CandidateMessages, ContextSelection, Strategy
from rapport.domain.conversation import Message
from rapport.domain.embedder import Embedder
from rapport.domain.errors import InvalidInput, Permanent, Transient
from rapport.domain.note import Vector
from rapport.domain.read_models import SearchHit
from rapport.domain.text_checks import check_text
from rapport.retrieval.standalone_question import make_standalone, plain
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.chat_search import list_participants, search_chat
from rapport.storage.messages.neighbours import LinkedMessages, load_linked, load_recent, load_vector, sort_by_time

log = structlog.get_logger()

SEMANTIC_SEARCH_TIMEOUT_SECONDS = 3.0
"""A call waits this long for the search by meaning; then it continues without its results."""
EARLIER_QUESTIONS_LOOKBACK = 12
"""The number of the latest messages that are searched for earlier questions of the asker."""
MAX_QUERY_CHARACTERS = 500
"""The longest text that can be searched for."""
_WORD = re.compile(r"[^\W_]{2,}")
NOTHING_LINKED = LinkedMessages(None, (), ())


@dataclass(frozen=True, slots=True)
class GroupContext:
    """A call with the messages selected for it."""

    call: Message
    candidates: CandidateMessages
    selection: ContextSelection
    question: str
    """The question, understandable without context; for a call without one, the text that it refers to. May be empty."""


@dataclass(frozen=True, slots=True)
class ContextSelector:
    """Selects the messages that belong to a call. No transaction is open while the embedder works."""

    database: Database
    embedder: Embedder
    options: SelectionOptions

    def warm_up(self) -> None:
        """Select once from sample messages, so that the scorer's tables are loaded before the first call.

        It blocks: don't run it on the event loop.
        """
        start = datetime.now(UTC)
        lines = [
            Message(str(number), "", "user", f"line {number}", start + timedelta(seconds=number))
            for number in range(MAX_RECENT_MESSAGES + 1)
        ]
        select_context(lines[-1], CandidateMessages(lines[:-1]), replace(self.options, strategy="relevant"))

    async def load_and_select(
        self, owner_id: str, call: Message, *, options: SelectionOptions | None = None
    ) -> GroupContext:
        """Load the messages around a call, and select those that belong to it."""
        ids = (owner_id, call.conversation_id)
        async with self.database.statement() as connection:
            before = await load_recent(
                connection,
                *ids,
                before=(call.created_at, call.id),
                limit=MAX_RECENT_MESSAGES,
                thread_id=call.thread_id,
            )
            links = await load_linked(connection, *ids, call)
        return await self.select(owner_id, call, before, links, options=options)

    async def select(
        self,
        owner_id: str,
        call: Message,
        before: Sequence[Message],
        links: LinkedMessages = NOTHING_LINKED,
        *,
        options: SelectionOptions | None = None,
    ) -> GroupContext:
        """Select the messages that belong to a call: from those `before` it, from those it is linked to, and by meaning."""
        options = options or self.options
        messages, has_no_question = drop_empty_replies(before), is_bare(call.text)
        needs_subject = has_no_question if options.strategy == "relevant" else options.strategy == "thread"
        if needs_subject and links.anchor is None:
            links = await self._load_older_links(owner_id, call, messages)
        candidates = gather_candidates(messages, links)
        question = "" if has_no_question else make_standalone(call.text, _find_earlier_questions(call, candidates))
        # Search if the chat has older messages than the loaded ones, or if there is a question.
        if options.strategy == "relevant" and (len(before) >= MAX_RECENT_MESSAGES or (question and before)):
            candidates = replace(candidates, similar=await self._find_similar(owner_id, call, candidates, question))
        selection = select_context(call, candidates, options)
        if not question:
            question = make_standalone(
                derive_question(links.anchor, [chosen.message for chosen in selection.earlier]), ()
            )
        return GroupContext(call, candidates, selection, question)

    async def _load_older_links(self, owner_id: str, call: Message, before: Sequence[Message]) -> LinkedMessages:
        """Load the message that the subject of a call replies to, if it is older than the messages before the call."""
        target = find_subject_message(call, before)
        if target is None or target.reply_to_id in {None, *(message.id for message in before)}:
            return NOTHING_LINKED
        async with self.database.statement() as connection:
            links = await load_linked(connection, owner_id, call.conversation_id, target, neighbours=0)
        return LinkedMessages(None, sort_by_time([*([links.anchor] if links.anchor else []), *links.chain]), ())

    async def _find_similar(
        self, owner_id: str, call: Message, candidates: CandidateMessages, question: str
    ) -> Sequence[tuple[Message, float]]:
        """Return earlier messages close to the question; for a call without one, older messages like its subject.
        Return none if the search fails or takes too long."""
        try:
            async with asyncio.timeout(SEMANTIC_SEARCH_TIMEOUT_SECONDS):
                if question:
                    hits = await self.search(owner_id, call.conversation_id, question, before=call.created_at)
                else:
                    hits = await self._find_like_subject(owner_id, call, candidates)
                return [(hit.message, _measure_closeness(hit)) for hit in hits]
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
    ) -> list[SearchHit]:
        """Return messages of a chat, older than `before`, that a question is about, the best first.

        The search is by meaning and by words, without the names of participants; messages of a named participant get a bonus.
        If the embedder fails, it is by words only.
        """
        ids = (owner_id, conversation_id)
        async with self.database.statement() as connection:
            named = find_named_participants(question, await list_participants(connection, *ids, before=before))
        query = plain(named.text) or plain(question)
        vector = await self._embed_question(query)
        async with self.database.statement() as connection:
            return await search_chat(
                connection,
                *ids,
                embedder=self.embedder.name,
                before=before,
                vector=vector,
                words=query,
                named=sorted(named.author_ids),
                thread_id=thread_id,
                limit=limit,
            )

    async def search_all(
        self, owner_id: str, conversation_id: str, question: str, *, thread_id: str | None = None, limit: int = 10
    ) -> list[SearchHit]:
        """Search all messages of a conversation; raise NotFound if the owner has no such conversation."""
        async with self.database.statement() as connection:
            conversation = await Conversations(connection).get(owner_id, conversation_id)
        after_all = conversation.last_at + timedelta(microseconds=1)
        return await self.search(
            owner_id, conversation_id, question, before=after_all, thread_id=thread_id, limit=limit
        )

    async def _embed_question(self, question: str) -> Vector | None:
        try:
            return await self.embedder.embed_question(question)
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType="context", message=f"searched by words alone: {error}")
            return None

    async def _find_like_subject(self, owner_id: str, call: Message, candidates: CandidateMessages) -> list[SearchHit]:
        """Return older messages like the one that a call without a question refers to. Mostly its vector is stored already."""
        subjects = (
            [candidates.anchor]
            if candidates.anchor
            else [find_subject_message(call, candidates.recent), *reversed(candidates.recent)]
        )
        target = next((message for message in subjects if message and has_subject(message)), None)
        if target is None:
            return []
        ids = (owner_id, call.conversation_id)
        async with self.database.statement() as connection:
            vector = await load_vector(connection, *ids, target.id, embedder=self.embedder.name)
        if vector is None and (text := make_standalone(target.text, ())):
            vector = await self.embedder.embed_question(text)
        if vector is None:
            return []
        before = candidates.recent[0].created_at
        async with self.database.statement() as connection:
            return await search_chat(connection, *ids, embedder=self.embedder.name, before=before, vector=vector)


def check_query(text: str, *, name: str) -> str:
    """Return the text to search for. Raise InvalidInput, which names the parameter, if it is too long or has no word."""
    question = check_text(text, what=name, limit=MAX_QUERY_CHARACTERS).strip()
    if not _WORD.search(plain(question)):
        raise InvalidInput(f"`{name}` needs at least one word.")
    return question


def _measure_closeness(hit: SearchHit) -> float:
    """Return how close a message is to the question: by meaning, or by words if it has at least two of them."""
    return max(hit.similarity or 0.0, hit.share if hit.matched > 1 else 0.0)


def gather_candidates(before: Sequence[Message], links: LinkedMessages) -> CandidateMessages:
    """Return the messages to select from. An anchor's neighbours count only if the anchor is older than the latest
    messages."""
    is_old = links.anchor is not None and (not before or links.anchor.created_at < before[0].created_at)
    return CandidateMessages(before, links.anchor, links.chain, links.around if is_old else ())


def _find_earlier_questions(call: Message, candidates: CandidateMessages) -> list[str]:
    """Return the texts that a question may refer to: the replied-to message, otherwise earlier messages of the asker."""
    if candidates.anchor is not None:
        return [candidates.anchor.text]
    asker = get_author_id(call)
    return [
        message.text
        for message in candidates.recent[-EARLIER_QUESTIONS_LOOKBACK:]
        if message.role == "user" and get_author_id(message) == asker
    ]


def choose_options(
    servers: SelectionOptions, profile: AgentProfile, *, strategy: Strategy | None = None
) -> SelectionOptions:
    """Return the options for calls of an agent: its own, or else the server's. `strategy` replaces both."""
    own = profile.context
    return replace(
        servers,
        strategy=strategy or own.strategy or servers.strategy,
        lookback=own.lookback or servers.lookback,
        gap_minutes=own.gap_minutes or servers.gap_minutes,
        tokens=own.tokens or servers.tokens,
        handles=AGENT_HANDLES | {handle.casefold() for handle in profile.handles},
    )
