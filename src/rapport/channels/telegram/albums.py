"""Choose which message of an album is answered. Its pictures arrive as separate messages."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapport.channels.telegram.reading.extract import read_update
from rapport.channels.telegram.reading.message import make_platform_id
from rapport.channels.telegram.update_types import BotIdentity, MessageReceived
from rapport.domain.conversation import Conversation
from rapport.domain.errors import InvalidInput, Transient
from rapport.ingest.addressing import is_for_agent
from rapport.storage.database import Database
from rapport.storage.telegram import ChatMapping, TelegramUpdates

ALBUM_QUIET_SECONDS = 1.0
"""An album is complete when no message of it has arrived for this long."""
MAX_WAITING_UPDATES = 100
"""The number of waiting updates of a chat that are searched for the rest of an album. An album has at most ten messages."""
MAX_NUMBER_DISTANCE = 30
"""The message numbers of one album differ by at most this much."""
_MAX_ALBUMS = 1_000


class AlbumIncomplete(Transient):
    """Raised while more of an album may follow: the update is handled again later."""


@dataclass(slots=True)
class Albums:
    """Choose the message of an album that is answered for all. Only waiting times are kept in memory."""

    database: Database
    bot: int
    me: BotIdentity
    _incomplete: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict[str, tuple[str, float]])
    """The latest message of each album, and the time when it arrived."""

    async def is_representative(self, message: MessageReceived, conversation: Conversation) -> bool:
        """Return True if this message, which is for the agent, is the one of its album to answer.

        It is the last one with words, so that all words are known by then; without words, the first. After the album was
        answered, a further message is answered only if it has words and the answered one had none. Raise AlbumIncomplete.
        """
        if message.album is None:
            return True
        async with self.database.statement() as connection:
            had_words = await ChatMapping(connection, self.bot).find_answered_in_album(
                conversation.id, message.album, among=_list_neighbour_ids(message)
            )
            payloads = await TelegramUpdates(connection, self.bot).list_of_chat(
                message.chat.id, limit=MAX_WAITING_UPDATES
            )
        if had_words is not None:
            return message.has_words and not had_words
        if message.edited_at is not None:
            return True
        pieces = self._list_pieces(message, payloads)
        self._wait_for_more(message.album, pieces[-1])
        with_words = [piece for piece in pieces if piece.has_words]
        call = with_words[-1] if with_words else pieces[0]
        return call.platform_id == message.platform_id

    def _list_pieces(self, message: MessageReceived, payloads: Sequence[str]) -> Sequence[MessageReceived]:
        """Return the messages of the album that are for the agent, in order: this one and those still waiting."""
        by_number = {message.message_id: message}
        for payload in payloads:
            try:
                piece = read_update(json.loads(payload), self.me)
            except InvalidInput:
                continue
            if (
                isinstance(piece, MessageReceived)
                and piece.album == message.album
                and piece.edited_at is None
                and is_for_agent(piece.facts)
            ):
                by_number[piece.message_id] = piece
        return [by_number[number] for number in sorted(by_number)]

    def _wait_for_more(self, album: str, latest: MessageReceived) -> None:
        now = time.monotonic()
        latest_id, since = self._incomplete.get(album, ("", now))
        if latest_id != latest.platform_id:
            since = now
        self._incomplete[album] = (latest.platform_id, since)
        if len(self._incomplete) > _MAX_ALBUMS:
            self._incomplete.popitem(last=False)
        if (seconds_left := since + ALBUM_QUIET_SECONDS - now) > 0:
            raise AlbumIncomplete("More of an album may follow.", retry_after=seconds_left)


def _list_neighbour_ids(message: MessageReceived) -> list[str]:
    """Return the platform ids that other messages of the album may have."""
    first, last = message.message_id - MAX_NUMBER_DISTANCE, message.message_id + MAX_NUMBER_DISTANCE
    return [
        make_platform_id(message.chat.id, number)
        for number in range(max(first, 1), last)
        if number != message.message_id
    ]
