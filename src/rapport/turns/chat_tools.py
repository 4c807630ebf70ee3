"""Let a model read more of the chat that it was called in, as the owner sees it, and of no other chat (CTX-7)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from rapport.context.engine import select_context
from rapport.context.transcript import TranscriptRenderer, trim_selection
from rapport.domain.context_selection import (
    MAX_LINE_CHARACTERS,
    CandidateMessages,
    ChosenMessage,
    ContextSelection,
    Reason,
)
from rapport.domain.conversation import Message
from rapport.domain.errors import InvalidInput, Permanent, Transient
from rapport.replies.defusing import defuse_ids
from rapport.storage.messages.messages import Messages
from rapport.storage.messages.neighbours import LinkedMessages, load_linked
from rapport.turns.group_context import (
    MAX_QUERY_CHARACTERS,
    ContextSelector,
    GroupContext,
    check_query,
    gather_candidates,
)

log = structlog.get_logger()

MAX_SHOWN_MESSAGES = 50
"""The number of messages that one look-up shows."""
MAX_SHOWN_CHARACTERS = 8_000
"""The number of characters that one look-up shows."""
MAX_MESSAGE_CHARACTERS = 8_000
"""The number of characters that `get_message` shows."""
MAX_HITS = 10
"""The number of messages that a search shows."""
MAX_GAP_MINUTES = 7 * 24 * 60.0
_MAX_ID_CHARACTERS = 200


class BadArgument(Exception):
    """The model called a tool with a bad argument. The text is the tool's answer."""


class ChatTools:
    """The tools of one call in one chat. `used` keeps the names of those that were called, for the receipt."""

    def __init__(
        self, owner_id: str, gathered: GroupContext, chooser: ContextSelector, scribe: TranscriptRenderer
    ) -> None:
        self._owner_id = owner_id
        self._call = gathered.call
        self._recent = gathered.candidates.recent
        self._anchor = gathered.candidates.anchor
        self._chooser = chooser
        self._scribe = scribe
        self.used: list[str] = []
        self.retrieved: Collection[str] = ()
        """The notes that the reply may cite; what is looked up cites none of them."""
        self._tools: dict[str, Callable[[Mapping[str, Any]], Awaitable[str]]] = {
            "get_smart_context": self._get_smart_context,
            "get_conversation_history": self._get_history,
            "get_message": self._get_message,
            "search_conversation": self._search_chat,
        }

    async def use(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what the tool of this name finds, quoted and capped; or a sentence on why it finds nothing."""
        if name not in self._tools:
            return "There is no such tool."
        self.used.append(name)
        try:
            return defuse_ids(await self._tools[name](arguments), self.retrieved)
        except BadArgument as bad:
            return str(bad)
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType="lookup", message=f"{name}: {error}")
            return "That can't be looked up right now. Answer with what there is."

    async def _get_smart_context(self, arguments: Mapping[str, Any]) -> str:
        minutes = _read_number(arguments, "max_gap_minutes", default=60.0, most=MAX_GAP_MINUTES)
        anchor_id = arguments.get("anchor_id")
        if anchor_id in (None, ""):
            found = CandidateMessages(self._recent)
            choice = replace(self._chooser.options, strategy="time_gap", gap_minutes=minutes)
        else:
            found = gather_candidates(
                self._recent, await self._load_linked(_read_text(arguments, "anchor_id", most=_MAX_ID_CHARACTERS))
            )
            choice = replace(self._chooser.options, strategy="relevant", gap_minutes=minutes)
        return self._render(select_context(self._call, found, choice), "Nothing was said shortly before the call.")

    async def _get_history(self, arguments: Mapping[str, Any]) -> str:
        limit = int(_read_number(arguments, "limit", default=5, most=MAX_SHOWN_MESSAGES))
        return self._render(self._select(self._recent[-limit:], "recent"), "Nothing was said before the call.")

    async def _get_message(self, arguments: Mapping[str, Any]) -> str:
        message = await self._find_message(_read_text(arguments, "id", most=_MAX_ID_CHARACTERS))
        return self._scribe.quote_messages([message], line=MAX_MESSAGE_CHARACTERS)

    async def _search_chat(self, arguments: Mapping[str, Any]) -> str:
        try:
            query = check_query(_read_text(arguments, "query", most=MAX_QUERY_CHARACTERS))
        except InvalidInput as error:
            raise BadArgument(str(error)) from error
        hits = await self._chooser.search(
            self._owner_id, self._call.conversation_id, query, before=self._call.created_at, limit=MAX_HITS
        )
        shown: list[Message] = []
        left = MAX_SHOWN_CHARACTERS
        for one in hits:
            left -= min(len(one.message.text), MAX_LINE_CHARACTERS)
            if left >= 0 and one.message.id != self._call.id:
                shown.append(one.message)
        if not shown:
            return "Nothing like that was found."
        return self._scribe.quote_messages(shown, in_order=False)

    async def _load_linked(self, reference: str) -> LinkedMessages:
        anchor = await self._find_message(reference)
        async with self._chooser.database.statement() as connection:
            return await load_linked(
                connection, self._owner_id, self._call.conversation_id, replace(self._call, reply_to_id=anchor.id)
            )

    async def _find_message(self, reference: str) -> Message:
        id_ = self._scribe.find_id(reference)
        if self._anchor is not None and id_ == self._anchor.id:
            return self._anchor  # it may be stored nowhere: the call has brought it along
        async with self._chooser.database.statement() as connection:
            message = await Messages(connection).get(self._owner_id, self._call.conversation_id, id_)
        if message is None or message.role == "system-summary" or self._is_later(message):
            raise BadArgument("There is no such message in this chat.")
        return message

    def _is_later(self, message: Message) -> bool:
        return message.role == "user" and (message.created_at, message.id) > (self._call.created_at, self._call.id)

    def _select(self, messages: Sequence[Message], reason: Reason) -> ContextSelection:
        return ContextSelection(
            "recent", [ChosenMessage(one, (reason,), 1.0) for one in messages if one.id != self._call.id]
        )

    def _render(self, selection: ContextSelection, nothing: str) -> str:
        shown = trim_selection(selection, characters=MAX_SHOWN_CHARACTERS).earlier[-MAX_SHOWN_MESSAGES:]
        if not shown:
            return nothing
        return self._scribe.quote_messages([one.message for one in shown], recent=self._recent)


def _read_text(arguments: Mapping[str, Any], name: str, *, most: int) -> str:
    value = arguments.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # a number of a line
    if not isinstance(value, str) or not value.strip():
        raise BadArgument(f"`{name}` must be a text.")
    if len(value) > most or not _is_storable(value):
        raise BadArgument(f"`{name}` must be a short, plain text.")
    return value.strip()


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _read_number(arguments: Mapping[str, Any], name: str, *, default: float, most: float) -> float:
    value = arguments.get(name)
    if value is None:
        return default
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number) or number < 1:
        raise BadArgument(f"`{name}` must be a number from 1 on.")
    return min(number, most)
