"""The door: an update that may come in is stored under its number; only then may Telegram forget it."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from rapport.channels.telegram.admission import Admission
from rapport.channels.telegram.reading.extract import chat_of
from rapport.channels.telegram.reading.names import is_number
from rapport.channels.telegram.update_types import Glance
from rapport.domain.conversation_kind import DIRECT, TRAITS, ConversationKind
from rapport.ingest.archive_rows import mapping
from rapport.storage.database import Connection, Database
from rapport.storage.telegram import ChatMapping, Updates

log = structlog.get_logger()

LARGEST = 1_000_000
"""Characters of an update. Telegram's own are far smaller."""
SAID_AGAIN_SECONDS = 60.0
"""A chat that goes on knocking is named in the log once in a while."""
_REMEMBERED = 1_000


class Inbox:
    """Stores what may come in, whichever way it comes; the same again is stored once."""

    def __init__(self, database: Database, admission: Admission, *, bot: int, on_stored: Callable[[], None]) -> None:
        self._database = database
        self._admission = admission
        self._bot = bot
        self._on_stored = on_stored
        self._told: OrderedDict[int, float] = OrderedDict()

    async def take(self, updates: Sequence[Mapping[str, Any]]) -> int:
        """Store all of them, or, if that can't be done now, none; returns how many are new. Raises Transient then.

        What comes from a chat that is not let in is not kept: only that it came.
        """
        new = 0
        async with self._database.transaction() as connection:
            for update in sorted(updates, key=lambda one: number_of(one) or 0):  # a move comes before what follows it
                new += await self._take(connection, update)
        if new:
            self._on_stored()
        return new

    async def _take(self, connection: Connection, update: Mapping[str, Any]) -> bool:
        update_id, glance = number_of(update), chat_of(update)
        if update_id is None or glance is None:
            log.info("telegram.ignored", updateId=update_id, reason="no number or no chat")
            return False
        if self._admission.admits(glance) is None and not await self._has_moved_here(connection, update, glance):
            await self._refuse(connection, glance, spoken_number(update, bot=self._bot))
            return False
        text = json.dumps(update, separators=(",", ":"))
        if len(text) > LARGEST:
            log.warning("telegram.too_large", updateId=update_id, characters=len(text))
            return False
        said = spoken_number(update, bot=self._bot)
        return await Updates(connection, self._bot).store(update_id, glance.chat_id, text, message_id=said)

    async def _has_moved_here(self, connection: Connection, update: Mapping[str, Any], glance: Glance) -> bool:
        """Whether it comes from a supergroup that is let in by the id which it had as a group: this update tells so, one
        that still waits does, or one that has been worked through did."""
        old = (mapping(update.get("message")) or {}).get("migrate_from_chat_id")
        if is_number(old) and self._admission.admits(Glance(old, "group", None, None, None)) is not None:
            return True
        places = ChatMapping(connection, self._bot)
        place = await places.of_chat(glance.chat_id)
        first = place.first_id if place else await places.first_id(glance.chat_id)
        if place is not None or first != glance.chat_id:
            return self._admission.admits(glance, known_as=first) is not None
        return await Updates(connection, self._bot).is_waiting(glance.chat_id)

    async def _refuse(self, connection: Connection, glance: Glance, message_id: int | None) -> None:
        name = glance.title or glance.person_name or ""
        await Updates(connection, self._bot).refuse(glance.chat_id, kind=glance.kind, name=name, message_id=message_id)
        now = time.monotonic()
        if now - self._told.get(glance.chat_id, -SAID_AGAIN_SECONDS) < SAID_AGAIN_SECONDS:
            return
        self._told[glance.chat_id] = now
        self._told.move_to_end(glance.chat_id)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        log.warning(
            "telegram.refused", chat=glance.chat_id, kind=glance.kind, remedy=remedy_for(glance.chat_id, glance.kind)
        )


def remedy_for(chat_id: int, kind: ConversationKind) -> str:
    """How to let a chat in."""
    if TRAITS[kind] is DIRECT:
        return f"to let this person in, set TELEGRAM_ALLOWED_USERS={chat_id} (several: with commas) and start again"
    return f"to let this group in, set TELEGRAM_ALLOWED_CHATS={chat_id} (several: with commas) and start again"


def number_of(update: Mapping[str, Any]) -> int | None:
    """An update's number; None if this is no update."""
    number = update.get("update_id")
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 else None


def spoken_number(update: Mapping[str, Any], *, bot: int) -> int | None:
    """The number of the message that an update tells of; None if it tells of none, or of one of the bot's own.

    Where somebody presses a button the message is the bot's own: that it is known must not hide that it has arrived.
    """
    told = mapping(update.get("message")) or mapping(update.get("edited_message")) or {}
    number = told.get("message_id")
    is_own = (mapping(told.get("from")) or {}).get("id") == bot
    return number if is_number(number) and not is_own else None
