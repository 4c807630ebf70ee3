"""Store updates of admitted chats under their number; only then may Telegram forget them."""

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
        """Store all of them, or, if that can't be done now, none; returns how many are new. Raises Transient then.

        What comes from a chat that is not let in is not kept: only that it came.
        """
        new = 0
        async with self._database.transaction() as connection:
            for update in sorted(
                updates, key=lambda one: read_update_id(one) or 0
            ):  # a move comes before what follows it
                new += await self._store_one(connection, update)
        if new:
            self._on_stored()
        return new

    async def _store_one(self, connection: Connection, update: Mapping[str, Any]) -> bool:
        update_id, glance = read_update_id(update), find_origin(update)
        if update_id is None or glance is None:
            log.info("telegram.ignored", updateId=update_id, reason="no number or no chat")
            return False
        if self._admission.find_admitted_id(glance) is None and not await self._is_admitted_supergroup(
            connection, update, glance
        ):
            await self._refuse(connection, glance, read_message_id(update, bot=self._bot))
            return False
        text = json.dumps(update, separators=(",", ":"))
        if len(text) > MAX_UPDATE_CHARACTERS:
            log.warning("telegram.too_large", updateId=update_id, characters=len(text))
            return False
        said = read_message_id(update, bot=self._bot)
        return await TelegramUpdates(connection, self._bot).store(update_id, glance.chat_id, text, message_id=said)

    async def _is_admitted_supergroup(
        self, connection: Connection, update: Mapping[str, Any], glance: UpdateOrigin
    ) -> bool:
        """Return True if the update is from a supergroup that is admitted by its former group id."""
        old = (as_mapping(update.get("message")) or {}).get("migrate_from_chat_id")
        if (
            is_number(old)
            and self._admission.find_admitted_id(UpdateOrigin(old, "group", None, None, None)) is not None
        ):
            return True
        places = ChatMapping(connection, self._bot)
        place = await places.find_by_chat(glance.chat_id)
        first = place.first_id if place else await places.get_first_id(glance.chat_id)
        if place is not None or first != glance.chat_id:
            return self._admission.find_admitted_id(glance, known_as=first) is not None
        return await TelegramUpdates(connection, self._bot).is_waiting(glance.chat_id)

    async def _refuse(self, connection: Connection, glance: UpdateOrigin, message_id: int | None) -> None:
        name = glance.title or glance.person_name or ""
        await TelegramUpdates(connection, self._bot).reject_chat(
            glance.chat_id, kind=glance.kind, name=name, message_id=message_id
        )
        now = time.monotonic()
        if now - self._logged_at.get(glance.chat_id, -LOG_AGAIN_SECONDS) < LOG_AGAIN_SECONDS:
            return
        self._logged_at[glance.chat_id] = now
        self._logged_at.move_to_end(glance.chat_id)
        if len(self._logged_at) > _MAX_LOGGED_CHATS:
            self._logged_at.popitem(last=False)
        log.warning(
            "telegram.refused",
            chat=glance.chat_id,
            kind=glance.kind,
            remedy=describe_remedy(glance.chat_id, glance.kind),
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

    Where somebody presses a button the message is the bot's own: that it is known must not hide that it has arrived.
    """
    told = as_mapping(update.get("message")) or as_mapping(update.get("edited_message")) or {}
    number = told.get("message_id")
    is_own = (as_mapping(told.get("from")) or {}).get("id") == bot
    return number if is_number(number) and not is_own else None
