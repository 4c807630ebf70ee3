"""Choose which message of an album is answered. Its pictures come as separate messages."""

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
"""An album is complete when no message of it came for this long."""
MAX_WAITING_UPDATES = 100
"""Waiting updates of a chat to search for the rest of an album. An album has at most ten messages."""
MAX_NUMBER_DISTANCE = 30
"""The message numbers of one album differ by at most this much."""
_MAX_ALBUMS = 1_000


class AlbumIncomplete(Transient):
    """Raised while more of an album may follow: the update is handled again later."""


@dataclass(slots=True)
class Albums:
    """Choose the message of an album that stands for it. Only waiting times are kept in memory."""

    database: Database
    bot: int
    me: BotIdentity
    _incomplete: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict[str, tuple[str, float]])
    """The latest message of each album, and since when it is the latest."""

    async def is_representative(self, said: MessageReceived, conversation: Conversation) -> bool:
        """Return True if this message, which is for the agent, is the one of its album to answer.

        That is the last one with words, or else the first: so that all words are known by then. Of what comes when the album
        has been answered, only words to pictures without any are. Raises StillComing.
        """
        if said.album is None:
            return True
        async with self.database.statement() as connection:
            had_words = await ChatMapping(connection, self.bot).find_answered_in_album(
                conversation.id, said.album, among=_list_neighbour_ids(said)
            )
            waiting = await TelegramUpdates(connection, self.bot).list_of_chat(said.chat.id, limit=MAX_WAITING_UPDATES)
        if had_words is not None:
            return said.has_words and not had_words
        if said.edited_at is not None:
            return True
        pieces = self._list_pieces(said, waiting)
        self._wait_for_more(said.album, pieces[-1])
        with_words = [piece for piece in pieces if piece.has_words]
        call = with_words[-1] if with_words else pieces[0]
        return call.platform_id == said.platform_id

    def _list_pieces(self, said: MessageReceived, waiting: Sequence[str]) -> Sequence[MessageReceived]:
        """Return the messages of the album that are for the agent, in order: this one and those still waiting."""
        found = {said.message_id: said}
        for payload in waiting:
            try:
                piece = read_update(json.loads(payload), self.me)
            except InvalidInput:
                continue
            if (
                isinstance(piece, MessageReceived)
                and piece.album == said.album
                and piece.edited_at is None
                and is_for_agent(piece.facts)
            ):
                found[piece.message_id] = piece
        return [found[number] for number in sorted(found)]

    def _wait_for_more(self, album: str, latest: MessageReceived) -> None:
        now = time.monotonic()
        known, since = self._incomplete.get(album, ("", now))
        if known != latest.platform_id:
            since = now
        self._incomplete[album] = (latest.platform_id, since)
        if len(self._incomplete) > _MAX_ALBUMS:
            self._incomplete.popitem(last=False)
        if (left := since + ALBUM_QUIET_SECONDS - now) > 0:
            raise AlbumIncomplete("More of an album may follow.", retry_after=left)


def _list_neighbour_ids(said: MessageReceived) -> list[str]:
    """Return the platform ids that other messages of the album may have."""
    first, last = said.message_id - MAX_NUMBER_DISTANCE, said.message_id + MAX_NUMBER_DISTANCE
    return [
        make_platform_id(said.chat.id, number) for number in range(max(first, 1), last) if number != said.message_id
    ]
