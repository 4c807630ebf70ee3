"""Store updates of admitted chats under their number, before they are confirmed to Telegram."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from rapport.channels.telegram.admission import Admission
from rapport.channels.telegram.reading.extract import find_origin
from rapport.channels.telegram.reading.names import is_number
from rapport.channels.telegram.update_types import UpdateOrigin
from rapport.domain.conversation_kind import DIRECT, TRAITS, ConversationKind
from rapport.ingest.archive_rows import as_mapping
from rapport.storage.database import Connection, Database
from rapport.storage.telegram import ChatMapping, TelegramUpdates

log = structlog.get_logger()

MAX_UPDATE_CHARACTERS = 1_000_000
"""Maximum size of an update. Telegram's own are far smaller."""
LOG_AGAIN_SECONDS = 60.0
"""Log a refused chat at most this often."""
_MAX_LOGGED_CHATS = 1_000


class Inbox:
    """Store admitted updates from polling and webhook; the same update is stored once."""

    def __init__(self, database: Database, admission: Admission, *, bot: int, on_stored: Callable[[], None]) -> None:
        self._database = database
        self._admission = admission
        self._bot = bot
        self._on_stored = on_stored
        self._logged_at: OrderedDict[int, float] = OrderedDict()

    async def store(self, updates: Sequence[Mapping[str, Any]]) -> int:
        """Store all updates or none; return how many are new. Raise Transient if they can't be stored now.

        The content of an update from a rejected chat is not stored, only the chat's id and name.
        """
        new_count = 0
        async with self._database.transaction() as connection:
            for update in sorted(
                updates, key=lambda item: read_update_id(item) or 0
            ):  # in order: a migration comes before the messages of the new chat
                new_count += await self._store_one(connection, update)
        if new_count:
            self._on_stored()
        return new_count

    async def _store_one(self, connection: Connection, update: Mapping[str, Any]) -> bool:
        update_id, origin = read_update_id(update), find_origin(update)
        if update_id is None or origin is None:
            log.info("telegram.ignored", updateId=update_id, reason="no number or no chat")
            return False
        if self._admission.find_admitted_id(origin) is None and not await self._is_admitted_supergroup(
            connection, update, origin
        ):
            await self._refuse(connection, origin, read_message_id(update, bot=self._bot))
            return False
        text = json.dumps(update, separators=(",", ":"))
        if len(text) > MAX_UPDATE_CHARACTERS:
            log.warning("telegram.too_large", updateId=update_id, characters=len(text))
            return False
        message_id = read_message_id(update, bot=self._bot)
        return await TelegramUpdates(connection, self._bot).store(
            update_id, origin.chat_id, text, message_id=message_id
        )

    async def _is_admitted_supergroup(
        self, connection: Connection, update: Mapping[str, Any], origin: UpdateOrigin
    ) -> bool:
        """Return True if the update is from a supergroup that is admitted by its former group id."""
        old = (as_mapping(update.get("message")) or {}).get("migrate_from_chat_id")
        if (
            is_number(old)
            and self._admission.find_admitted_id(UpdateOrigin(old, "group", None, None, None)) is not None
        ):
            return True
        mapping = ChatMapping(connection, self._bot)
        mapped = await mapping.find_by_chat(origin.chat_id)
        first = mapped.first_id if mapped else await mapping.get_first_id(origin.chat_id)
        if mapped is not None or first != origin.chat_id:
            return self._admission.find_admitted_id(origin, known_as=first) is not None
        return await TelegramUpdates(connection, self._bot).is_waiting(origin.chat_id)

    async def _refuse(self, connection: Connection, origin: UpdateOrigin, message_id: int | None) -> None:
        name = origin.title or origin.person_name or ""
        await TelegramUpdates(connection, self._bot).reject_chat(
            origin.chat_id, kind=origin.kind, name=name, message_id=message_id
        )
        now = time.monotonic()
        if now - self._logged_at.get(origin.chat_id, -LOG_AGAIN_SECONDS) < LOG_AGAIN_SECONDS:
            return
        self._logged_at[origin.chat_id] = now
        self._logged_at.move_to_end(origin.chat_id)
        if len(self._logged_at) > _MAX_LOGGED_CHATS:
            self._logged_at.popitem(last=False)
        log.warning(
            "telegram.refused",
            chat=origin.chat_id,
            kind=origin.kind,
            remedy=describe_remedy(origin.chat_id, origin.kind),
        )


def describe_remedy(chat_id: int, kind: ConversationKind) -> str:
    """Return the setting that admits a chat."""
    if TRAITS[kind] is DIRECT:
        return f"to let this person in, set TELEGRAM_ALLOWED_USERS={chat_id} (several: with commas) and start again"
    return f"to let this group in, set TELEGRAM_ALLOWED_CHATS={chat_id} (several: with commas) and start again"


def read_update_id(update: Mapping[str, Any]) -> int | None:
    """Return an update's number; None if this is no update."""
    number = update.get("update_id")
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 else None


def read_message_id(update: Mapping[str, Any], *, bot: int) -> int | None:
    """Return the number of the message in an update; None if there is none, or if it is the bot's own.

    The message of a pressed button is the bot's own. If its number counted as known, the delivery check would skip it.
    """
    message = as_mapping(update.get("message")) or as_mapping(update.get("edited_message")) or {}
    number = message.get("message_id")
    is_own = (as_mapping(message.get("from")) or {}).get("id") == bot
    return number if is_number(number) and not is_own else None
