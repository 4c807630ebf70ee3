"""Tools with which a model reads more of the chat that it was called in, and of no other chat (CTX-7)."""

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
        self, owner_id: str, context: GroupContext, selector: ContextSelector, renderer: TranscriptRenderer
    ) -> None:
        self._owner_id = owner_id
        self._call = context.call
        self._recent = context.candidates.recent
        self._anchor = context.candidates.anchor
        self._selector = selector
        self._renderer = renderer
        self.used: list[str] = []
        self.retrieved: Collection[str] = ()
        """The ids of the notes that the reply may cite. Their citations are removed from the tools' results."""
        self._tools: dict[str, Callable[[Mapping[str, Any]], Awaitable[str]]] = {
            "get_smart_context": self._get_smart_context,
            "get_conversation_history": self._get_history,
            "get_message": self._get_message,
            "search_conversation": self._search_chat,
        }

    async def use(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of the tool, quoted and cut to the limits; or a sentence that explains why there is none."""
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
        minutes = _read_number(arguments, "max_gap_minutes", default=60.0, maximum=MAX_GAP_MINUTES)
        anchor_id = arguments.get("anchor_id")
        if anchor_id in (None, ""):
            candidates = CandidateMessages(self._recent)
            options = replace(self._selector.options, strategy="time_gap", gap_minutes=minutes)
        else:
            candidates = gather_candidates(
                self._recent,
                await self._load_linked(_read_text(arguments, "anchor_id", max_characters=_MAX_ID_CHARACTERS)),
            )
            options = replace(self._selector.options, strategy="relevant", gap_minutes=minutes)
        return self._render(
            select_context(self._call, candidates, options), "Nothing was said shortly before the call."
        )

    async def _get_history(self, arguments: Mapping[str, Any]) -> str:
        limit = int(_read_number(arguments, "limit", default=5, maximum=MAX_SHOWN_MESSAGES))
        return self._render(self._select(self._recent[-limit:], "recent"), "Nothing was said before the call.")

    async def _get_message(self, arguments: Mapping[str, Any]) -> str:
        message = await self._find_message(_read_text(arguments, "id", max_characters=_MAX_ID_CHARACTERS))
        return self._renderer.quote_messages([message], line=MAX_MESSAGE_CHARACTERS)

    async def _search_chat(self, arguments: Mapping[str, Any]) -> str:
        try:
            query = check_query(_read_text(arguments, "query", max_characters=MAX_QUERY_CHARACTERS), name="query")
        except InvalidInput as error:
            raise BadArgument(str(error)) from error
        hits = await self._selector.search(
            self._owner_id, self._call.conversation_id, query, before=self._call.created_at, limit=MAX_HITS
        )
        shown: list[Message] = []
        characters_left = MAX_SHOWN_CHARACTERS
        for hit in hits:
            characters_left -= min(len(hit.message.text), MAX_LINE_CHARACTERS)
            if characters_left >= 0 and hit.message.id != self._call.id:
                shown.append(hit.message)
        if not shown:
            return "Nothing like that was found."
        return self._renderer.quote_messages(shown, in_order=False)

    async def _load_linked(self, reference: str) -> LinkedMessages:
        anchor = await self._find_message(reference)
        async with self._selector.database.statement() as connection:
            return await load_linked(
                connection, self._owner_id, self._call.conversation_id, replace(self._call, reply_to_id=anchor.id)
            )

    async def _find_message(self, reference: str) -> Message:
        id_ = self._renderer.find_id(reference)
        if self._anchor is not None and id_ == self._anchor.id:
            return self._anchor  # it may be a snapshot from the call that is not stored
        async with self._selector.database.statement() as connection:
            message = await Messages(connection).get(self._owner_id, self._call.conversation_id, id_)
        if message is None or message.role == "system-summary" or self._is_later(message):
            raise BadArgument("There is no such message in this chat.")
        return message

    def _is_later(self, message: Message) -> bool:
        return message.role == "user" and (message.created_at, message.id) > (self._call.created_at, self._call.id)

    def _select(self, messages: Sequence[Message], reason: Reason) -> ContextSelection:
        return ContextSelection(
            "recent", [ChosenMessage(message, (reason,), 1.0) for message in messages if message.id != self._call.id]
        )

    def _render(self, selection: ContextSelection, nothing: str) -> str:
        shown = trim_selection(selection, characters=MAX_SHOWN_CHARACTERS).earlier[-MAX_SHOWN_MESSAGES:]
        if not shown:
            return nothing
        return self._renderer.quote_messages([chosen.message for chosen in shown], recent=self._recent)


def _read_text(arguments: Mapping[str, Any], name: str, *, max_characters: int) -> str:
    value = arguments.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # a line number
    if not isinstance(value, str) or not value.strip():
        raise BadArgument(f"`{name}` must be a text.")
    if len(value) > max_characters or not _is_storable(value):
        raise BadArgument(f"`{name}` must be a short, plain text.")
    return value.strip()


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _read_number(arguments: Mapping[str, Any], name: str, *, default: float, maximum: float) -> float:
    value = arguments.get(name)
    if value is None:
        return default
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number) or number < 1:
        raise BadArgument(f"`{name}` must be a number from 1 on.")
    return min(number, maximum)
