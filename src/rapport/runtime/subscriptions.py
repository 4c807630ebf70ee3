"""Places: conversations that somebody watches, each with its latest news for all of them, and those who watch."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from rapport.domain.draft import Draft
from rapport.domain.live_updates import (
    AccessChanged,
    KeepAlive,
    LiveEvent,
    MemoryChanged,
    MessageStored,
    TextStreamed,
    TimersChanged,
    TurnEnded,
    TurnStarted,
)
from rapport.runtime.tasks import wait_until_set
from rapport.storage.database import Database
from rapport.storage.messages.new_messages import PAGE, ConversationPosition, NewMessages

TAIL_CHARACTERS = 500_000
"""Characters of the latest messages that a feed keeps for all subscriptions. A subscription further behind reads alone."""
MAX_MEMORY_CHANGES = 1_000
"""Changes of an owner's memories that are kept for those who are slow."""


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that answers a message in this process."""

    message_id: str
    draft: Draft


@dataclass(eq=False)
class Page:
    """Messages that were read from the log; shared by all who want the same ones while anybody holds them."""

    said: Sequence[MessageStored]


@dataclass(slots=True, eq=False)
class MemoryFeed:
    """The latest changes of an owner's memories, numbered."""

    changes: deque[MemoryChanged] = field(default_factory=lambda: deque(maxlen=MAX_MEMORY_CHANGES))
    count: int = 0
    access_changes: int = 0
    """The number of times that the access of the subscriptions had to be checked again."""
    subscriptions: set[Subscription] = field(default_factory=set["Subscription"])

    def add(self, change: MemoryChanged) -> None:
        self.changes.append(change)
        self.count += 1
        for watcher in self.subscriptions:
            watcher.wake()

    def change_access(self) -> None:
        self.access_changes += 1
        for watcher in self.subscriptions:
            watcher.wake()

    def after(self, number: int) -> list[MemoryChanged]:
        missing = min(self.count - number, len(self.changes))
        return list(self.changes)[len(self.changes) - missing :]


class ConversationFeed:
    """A conversation that is watched here."""

    def __init__(self, owner_id: str, conversation_id: str, position: ConversationPosition) -> None:
        self.owner_id = owner_id
        self.conversation_id = conversation_id
        self.seq = position.newest
        """Up to here everything has been seen by this process."""
        self.timers = position.timers
        self.timers_changed = 0
        self.is_over = False
        """Nothing more will be told here: the conversation is gone, or the server stops."""
        self.subscriptions: set[Subscription] = set()
        self.turn: RunningTurn | None = None
        """The running turn; set once the message that it answers has been read."""
        self._tail: deque[MessageStored] = deque()
        self._tail_from = position.newest
        self._pages: weakref.WeakValueDictionary[int, Page] = weakref.WeakValueDictionary()
        self._page_reads: dict[int, asyncio.Task[Page]] = {}

    def wake(self) -> None:
        for watcher in self.subscriptions:
            watcher.wake()

    def end(self) -> None:
        self.is_over = True
        self.wake()

    async def catch_up(self, news: NewMessages, newest: int) -> None:
        """Read what is new for everybody; of a great deal each reads alone what it has not seen."""
        found = await news.list_after(self.owner_id, self.conversation_id, self.seq)
        if found and found[-1][0] < newest and len(found) == PAGE:
            self._skip_to(newest)
        for seq, message in found:
            if seq <= self.seq:
                continue
            if isinstance(message.content, str):
                self._tail.append(MessageStored(seq, message))
                self.seq = seq
            else:
                self._skip_to(seq)  # pictures can be megabytes each: they are kept only while somebody is told
        while len(self._tail) > PAGE or sum(len(said.message.text) for said in self._tail) > TAIL_CHARACTERS:
            self._tail_from = self._tail.popleft().seq
        self.wake()

    def _skip_to(self, seq: int) -> None:
        self._tail.clear()
        self.seq = self._tail_from = seq

    async def after(self, seq: int, database: Database) -> Page:
        """Return the messages after that number; an empty page if there are none."""
        if seq >= self._tail_from:
            return Page([said for said in self._tail if said.seq > seq])
        if (page := self._pages.get(seq)) is not None:
            return page
        reading = self._page_reads.get(seq)
        if reading is None:
            reading = self._page_reads[seq] = asyncio.create_task(self._read(seq, database), name="read news")
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Who goes away meanwhile doesn't break off what others wait for, nor a statement in its middle.
        return await asyncio.shield(reading)

    async def _read(self, seq: int, database: Database) -> Page:
        """Read a page once for all subscriptions that need it: the messages after a number never change."""
        try:
            async with database.statement() as connection:
                found = await NewMessages(connection).list_after(self.owner_id, self.conversation_id, seq)
            page = Page([MessageStored(number, message) for number, message in found])
            if page.said:
                self._pages[seq] = page
            return page
        finally:
            del self._page_reads[seq]


Attach: TypeAlias = "Callable[[Subscription], AbstractContextManager[tuple[ConversationFeed, MemoryFeed]]]"


class Subscription:
    """One who watches a place. It is told at its own pace: what it has not been told yet is kept for nobody alone."""

    def __init__(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        seq: int,
        position: ConversationPosition,
        database: Database,
        attach: Attach,
    ) -> None:
        self.owner_id = owner_id
        self.conversation_id = conversation_id
        self.position = position
        self.seq = seq
        """Up to here it has been told everything."""
        self._database = database
        self._attach = attach
        self._turn: RunningTurn | None = None
        self._text_offset = 0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def events(self, *, silence: float) -> AsyncGenerator[LiveEvent]:
        """Everything from now on, until the place is over; a sign of life after each `silence` seconds without anything.

        Raises Transient while what was said can't be read.
        """
        with self._attach(self) as (place, recollections):
            timers, remembered, access = place.timers_changed, recollections.count, recollections.access_changes
            while not place.is_over:
                self._woken.clear()
                if access != recollections.access_changes:  # before anything else is told
                    access = recollections.access_changes
                    yield AccessChanged()
                upto = place.seq
                for (
                    event
                ) in self._read_draft():  # first: the end of an answer comes before the message that it has become
                    yield event
                async for said in self._read_messages(place, upto):
                    yield said
                for event in self._read_new_turn(place):
                    yield event
                if timers != place.timers_changed:
                    timers = place.timers_changed
                    yield TimersChanged()
                changes, remembered = recollections.after(remembered), recollections.count
                for change in changes:
                    yield change
                if not self._woken.is_set():
                    await wait_until_set(self._woken, timeout=silence)
                    if not self._woken.is_set():
                        yield KeepAlive()

    async def _read_messages(self, place: ConversationFeed, upto: int) -> AsyncGenerator[MessageStored]:
        while self.seq < upto:
            page = await place.after(self.seq, self._database)
            for said in page.said:
                if said.seq > upto:
                    return
                self.seq = said.seq
                yield said
            if not page.said:
                self.seq = upto  # what there was is gone

    def _read_draft(self) -> Iterator[LiveEvent]:
        if (turn := self._turn) is None:
            return
        text, self._text_offset = turn.draft.read_after(self._text_offset)
        if text:
            yield TextStreamed(turn.message_id, text)
        if turn.draft.is_over:
            self._turn = None
            yield TurnEnded(turn.message_id, turn.draft.reply_id)

    def _read_new_turn(self, place: ConversationFeed) -> Iterator[LiveEvent]:
        """Yield the events of a turn that has begun since. A turn that is over already is skipped: its reply is a message."""
        if self._turn is None and place.turn is not None and not place.turn.draft.is_over:
            self._turn, self._text_offset = place.turn, 0
            yield TurnStarted(place.turn.message_id)
            yield from self._read_draft()
