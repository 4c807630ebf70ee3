"""Albums: pictures that are sent together come as messages of their own, and are one thing said."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapport.channels.telegram.reading.extract import read_update
from rapport.channels.telegram.reading.message import platform_id_of
from rapport.channels.telegram.update_types import Me, Said
from rapport.domain.conversation import Conversation
from rapport.domain.errors import InvalidInput, Transient
from rapport.ingest.addressing import is_for_agent
from rapport.storage.database import Database
from rapport.storage.telegram import ChatMapping, Updates

ALBUM_SECONDS = 1.0
"""When nothing more of an album has come for so long it is complete."""
WAITING = 100
"""Updates of a chat among which the rest of an album is looked for. It has ten messages at most."""
NEAR = 30
"""By so much the numbers of an album's messages differ at most, if others get some of those between."""
_REMEMBERED = 1_000


class StillComing(Transient):
    """More of an album may follow: it is heard when it is complete."""


@dataclass(slots=True)
class Albums:
    """Says which message of an album calls the agent. What is remembered here is only how long it has been waited."""

    database: Database
    bot: int
    me: Me
    _coming: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict[str, tuple[str, float]])
    """Of each album the latest message, and since when it is that."""

    async def is_call(self, said: Said, conversation: Conversation) -> bool:
        """Whether this message, which is for the agent, is the one of its album that is answered.

        That is the last one with words, or else the first: so that all words are known by then. Of what comes when the album
        has been answered, only words to pictures without any are. Raises StillComing.
        """
        if said.album is None:
            return True
        async with self.database.statement() as connection:
            had_words = await ChatMapping(connection, self.bot).answered_in_album(
                conversation.id, said.album, among=_near(said)
            )
            waiting = await Updates(connection, self.bot).of_chat(said.chat.id, limit=WAITING)
        if had_words is not None:
            return said.has_words and not had_words
        if said.edited_at is not None:
            return True
        pieces = self._pieces(said, waiting)
        self._wait(said.album, pieces[-1])
        with_words = [piece for piece in pieces if piece.has_words]
        call = with_words[-1] if with_words else pieces[0]
        return call.platform_id == said.platform_id

    def _pieces(self, said: Said, waiting: Sequence[str]) -> Sequence[Said]:
        """What is there of the album and for the agent, in order: this one, and those that are still to be read."""
        found = {said.message_id: said}
        for payload in waiting:
            try:
                piece = read_update(json.loads(payload), self.me)
            except InvalidInput:
                continue
            if (
                isinstance(piece, Said)
                and piece.album == said.album
                and piece.edited_at is None
                and is_for_agent(piece.facts)
            ):
                found[piece.message_id] = piece
        return [found[number] for number in sorted(found)]

    def _wait(self, album: str, latest: Said) -> None:
        now = time.monotonic()
        known, since = self._coming.get(album, ("", now))
        if known != latest.platform_id:
            since = now
        self._coming[album] = (latest.platform_id, since)
        if len(self._coming) > _REMEMBERED:
            self._coming.popitem(last=False)
        if (left := since + ALBUM_SECONDS - now) > 0:
            raise StillComing("More of an album may follow.", retry_after=left)


def _near(said: Said) -> list[str]:
    """What other messages of its album may be called."""
    first, last = said.message_id - NEAR, said.message_id + NEAR
    return [platform_id_of(said.chat.id, number) for number in range(max(first, 1), last) if number != said.message_id]
