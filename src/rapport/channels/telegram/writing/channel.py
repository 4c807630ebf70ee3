"""Send replies and notices as messages of Telegram."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from rapport.channels.base import OutcomeUnknown, Unreachable
from rapport.channels.telegram.api import BecameSupergroup, Blocked, BotApi, NoAnswer, Refused, TokenRefused
from rapport.channels.telegram.chat_mapping import find_chat_id, migrate_chat
from rapport.channels.telegram.writing.delivery_check import DeliveryCheck
from rapport.channels.telegram.writing.keyboard import render_keyboard_of
from rapport.channels.telegram.writing.markup import Part, render_parts
from rapport.core.history import MessageHistory
from rapport.domain.errors import NotFound, Transient
from rapport.domain.outgoing import Outgoing
from rapport.storage.database import Database
from rapport.storage.telegram import SHARED_NUMBERS_ABOVE, ChatMapping

TOKEN_RETRY_SECONDS = 60.0
"""Retry interval while the token is refused."""
CHECK_DELAY_SECONDS = 5.0
"""After this time an unconfirmed message has arrived, or will not arrive."""
MAX_INLINE_CHARACTERS = 4_000
"""Shorter texts are rendered without a thread: it takes a few milliseconds."""
_NO_PREVIEW = json.dumps({"is_disabled": True})
"""No link preview: an address in a reply must not be fetched."""


class TelegramChannel:
    """Send each message in as many parts as it needs, as a reply and in its topic."""

    def __init__(self, api: BotApi, database: Database, history: MessageHistory) -> None:
        self._api = api
        self._database = database
        self._history = history
        self._delivery_check = DeliveryCheck(api)

    async def send(self, outgoing: Outgoing) -> AsyncIterator[str]:
        """Send the parts that have not arrived yet; yield the platform id of each."""
        chat_id = await self._find_chat(outgoing)
        pieces = await _render(outgoing)
        for number, part in enumerate(pieces[len(outgoing.arrived_ids) :], len(outgoing.arrived_ids)):
            target = _make_target(outgoing, chat_id, is_first=number == 0, is_last=number == len(pieces) - 1)
            try:
                sent = await self._send(part, target)
            except BecameSupergroup as error:
                await migrate_chat(self._database, chat_id, error.new_chat_id, bot=self._api.number)
                chat_id = error.new_chat_id
                sent = await self._send(part, {**target, "chat_id": chat_id, "reply_parameters": None})
            yield f"{chat_id}/{sent['message_id']}"

    async def find_part(self, outgoing: Outgoing) -> str | None:
        """Find the part whose sending had no answer among the bot's unknown messages in that chat."""
        chat_id = await self._find_chat(outgoing)
        await self._delivery_check.require_caught_up()
        async with self._database.statement() as connection:
            mapping, ids = ChatMapping(connection, self._api.number), (chat_id, outgoing.conversation_id, outgoing.id)
            stored_ids = await mapping.list_platform_ids(*ids)
            shared_ids = [] if chat_id < SHARED_NUMBERS_ABOVE else await mapping.list_platform_ids_elsewhere(*ids)
        own_ids = [(name, True) for name in (outgoing.reply_to_platform_id or "", *outgoing.arrived_ids)]
        numbers, shared_numbers = _read_numbers((*stored_ids, *own_ids), chat_id), _read_numbers(shared_ids, None)
        before = [number for number, was_there in (*numbers, *shared_numbers) if was_there]
        if not before:
            raise OutcomeUnknown("No earlier message of the chat is known.")
        known, elsewhere = {number for number, _ in numbers}, {number for number, _ in shared_numbers}
        name = f"{outgoing.conversation_id} {outgoing.id} {len(outgoing.arrived_ids)}"
        is_last = len(outgoing.arrived_ids) == len(await _render(outgoing)) - 1
        try:
            found_number = await self._delivery_check.find(
                name,
                chat_id,
                after=max(before),
                known=known,
                elsewhere=elsewhere - known,
                keyboard=render_keyboard_of(outgoing) if is_last else None,
            )
        except TokenRefused as error:
            raise Transient(str(error), retry_after=TOKEN_RETRY_SECONDS) from error
        except (Blocked, BecameSupergroup) as error:
            raise OutcomeUnknown(str(error)) from error
        return None if found_number is None else f"{chat_id}/{found_number}"

    async def show_typing(self, conversation_id: str, message_id: str) -> None:
        chat_id = await find_chat_id(self._database, conversation_id, bot=self._api.number)
        topic = await self._history.find_topic(conversation_id, message_id)
        await self._api.call("sendChatAction", chat_id=chat_id, action="typing", message_thread_id=_parse_number(topic))

    async def _find_chat(self, outgoing: Outgoing) -> int:
        try:
            return await find_chat_id(self._database, outgoing.conversation_id, bot=self._api.number)
        except NotFound as error:
            raise Unreachable(str(error)) from error

    async def _send(self, part: Part, target: dict[str, Any]) -> dict[str, Any]:
        """Send one part; without formatting if Telegram refuses the formatting, outside the topic if the topic was deleted."""
        try:
            return await self._call_send(text=part.html, parse_mode="HTML", **target)
        except Refused as error:
            text = str(error).lower()
            if "can't parse" in text or "too long" in text:
                return await self._call_send(text=part.plain, **target)
            if "thread not found" in text and target["message_thread_id"] is not None:
                return await self._call_send(text=part.html, parse_mode="HTML", **{**target, "message_thread_id": None})
            raise

    async def _call_send(self, **parameters: Any) -> dict[str, Any]:
        try:
            return await self._api.call("sendMessage", link_preview_options=_NO_PREVIEW, **parameters)
        except NoAnswer as error:
            raise OutcomeUnknown(str(error), retry_after=CHECK_DELAY_SECONDS) from error
        except Blocked as error:
            raise Unreachable(str(error)) from error
        except TokenRefused as error:
            raise Transient(str(error), retry_after=TOKEN_RETRY_SECONDS) from error


async def _render(outgoing: Outgoing) -> Sequence[Part]:
    """Return the parts of the text. A long one takes the parser up to a second: a thread keeps the event loop free."""
    is_short = len(outgoing.text) <= MAX_INLINE_CHARACTERS
    return render_parts(outgoing.text) if is_short else await asyncio.to_thread(render_parts, outgoing.text)


def _make_target(outgoing: Outgoing, chat_id: int, *, is_first: bool, is_last: bool) -> dict[str, Any]:
    """Return the target's parameters: the first part is a reply, the last has the buttons."""
    reply = None
    chat, _, reply_number = (outgoing.reply_to_platform_id or "").partition("/")
    if is_first and chat == str(chat_id):  # messages of the former group have other numbers
        reply = json.dumps({"message_id": _parse_number(reply_number), "allow_sending_without_reply": True})
    return {
        "chat_id": chat_id,
        "message_thread_id": _parse_number(outgoing.thread_id),
        "reply_parameters": reply,
        "reply_markup": render_keyboard_of(outgoing) if is_last else None,
    }


def _read_numbers(platform_ids: Iterable[tuple[str, bool]], chat_id: int | None) -> list[tuple[int, bool]]:
    """Return the message numbers in platform ids of that chat (of any chat, without one)."""
    numbers: list[tuple[int, bool]] = []
    for name, was_there in platform_ids:
        chat, _, digits = name.partition("/")
        if (chat_id is None or chat == str(chat_id)) and (number := _parse_number(digits)) is not None:
            numbers.append((number, was_there))
    return numbers


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
