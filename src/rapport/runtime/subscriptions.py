"""Feeds of subscribed conversations, which all subscriptions to a conversation share, and the subscriptions."""

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
    ApprovalsChanged,
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
"""The number of characters of the latest messages that a feed keeps. A subscription that is further behind reads pages."""
MAX_MEMORY_CHANGES = 1_000
"""The number of changes of an owner's memories that are kept for slow subscriptions."""


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that answers a message in this process."""

    message_id: str
    draft: Draft


@dataclass(eq=False)
class Page:
    """Messages that were read from the database, shared by all subscriptions that need the same ones at that time."""

    messages: Sequence[MessageStored]


@dataclass(slots=True, eq=False)
class MemoryFeed:
    """The latest changes of an owner's memories, numbered."""

    changes: deque[MemoryChanged] = field(default_factory=lambda: deque(maxlen=MAX_MEMORY_CHANGES))
    count: int = 0
    access_changes: int = 0
    """The number of changes of access so far. After each change, the access of the subscriptions is checked again."""
    subscriptions: set[Subscription] = field(default_factory=set["Subscription"])

    def add(self, change: MemoryChanged) -> None:
        self.changes.append(change)
        self.count += 1
        for subscription in self.subscriptions:
            subscription.wake()

    def change_access(self) -> None:
        self.access_changes += 1
        for subscription in self.subscriptions:
            subscription.wake()

    def after(self, number: int) -> list[MemoryChanged]:
        missing = min(self.count - number, len(self.changes))
        return list(self.changes)[len(self.changes) - missing :]


class ConversationFeed:
    """The updates of a conversation that has subscriptions in this process."""

    def __init__(self, owner_id: str, conversation_id: str, position: ConversationPosition) -> None:
        self.owner_id = owner_id
        self.conversation_id = conversation_id
        self.seq = position.newest
        """The number of the newest message that this process has read."""
        self.timers = position.timers
        self.timers_changed = 0
        self.tool_calls = position.tool_calls
        self.approvals_changed = 0
        self.is_over = False
        """True if there are no further updates: the conversation is deleted, or the server stops."""
        self.subscriptions: set[Subscription] = set()
        self.turn: RunningTurn | None = None
        """The running turn; set once the message that it answers has been read."""
        self._tail: deque[MessageStored] = deque()
        self._tail_from = position.newest
        self._pages: weakref.WeakValueDictionary[int, Page] = weakref.WeakValueDictionary()
        self._page_reads: dict[int, asyncio.Task[Page]] = {}

    def wake(self) -> None:
        for subscription in self.subscriptions:
            subscription.wake()

    def end(self) -> None:
        self.is_over = True
        self.wake()

    async def catch_up(self, news: NewMessages, newest: int) -> None:
        """Read new messages for all subscriptions. If they exceed a page, each subscription reads them from its own position."""
        rows = await news.list_after(self.owner_id, self.conversation_id, self.seq)
        if rows and rows[-1][0] < newest and len(rows) == PAGE:
            self._skip_to(newest)
        for seq, message in rows:
            if seq <= self.seq:
                continue
            if isinstance(message.content, str):
                self._tail.append(MessageStored(seq, message))
                self.seq = seq
            else:
                self._skip_to(seq)  # pictures can be megabytes each: they are not kept in the tail
        while len(self._tail) > PAGE or sum(len(stored.message.text) for stored in self._tail) > TAIL_CHARACTERS:
            self._tail_from = self._tail.popleft().seq
        self.wake()

    def _skip_to(self, seq: int) -> None:
        self._tail.clear()
        self.seq = self._tail_from = seq

    async def after(self, seq: int, database: Database) -> Page:
        """Return the messages after that number; an empty page if there are none."""
        if seq >= self._tail_from:
            return Page([stored for stored in self._tail if stored.seq > seq])
        if (page := self._pages.get(seq)) is not None:
            return page
        reading = self._page_reads.get(seq)
        if reading is None:
            reading = self._page_reads[seq] = asyncio.create_task(self._read(seq, database), name="read news")
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        # shield: a subscription that ends must cancel neither the read that others wait for nor a running statement.
        return await asyncio.shield(reading)

    async def _read(self, seq: int, database: Database) -> Page:
        """Read a page once for all subscriptions that need it: the messages after a number never change."""
        try:
            async with database.statement() as connection:
                rows = await NewMessages(connection).list_after(self.owner_id, self.conversation_id, seq)
            page = Page([MessageStored(number, message) for number, message in rows])
            if page.messages:
                self._pages[seq] = page
            return page
        finally:
            del self._page_reads[seq]


Attach: TypeAlias = "Callable[[Subscription], AbstractContextManager[tuple[ConversationFeed, MemoryFeed]]]"


class Subscription:
    """A client that receives live updates of a conversation at its own speed. There is no queue per client."""

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
        """The number of the newest message that it has received."""
        self._database = database
        self._attach = attach
        self._turn: RunningTurn | None = None
        self._text_offset = 0
        self._timer_count = self._approval_count = 0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def events(self, *, silence: float) -> AsyncGenerator[LiveEvent]:
        """Yield all updates until the feed is over, and KeepAlive after each `silence` seconds without one.

        Raise Transient while messages can't be read.
        """
        with self._attach(self) as (feed, memory_feed):
            memory_count, access_count = memory_feed.count, memory_feed.access_changes
            self._timer_count = feed.timers_changed
            # A client that was away does not know what became of a question.
            self._approval_count = feed.approvals_changed - bool(feed.tool_calls)
            while not feed.is_over:
                self._woken.clear()
                if access_count != memory_feed.access_changes:  # before any other update
                    access_count = memory_feed.access_changes
                    yield AccessChanged()
                newest = feed.seq
                # The draft first: the end of a turn is sent before its stored reply.
                for event in self._read_draft():
                    yield event
                async for stored in self._read_messages(feed, newest):
                    yield stored
                for event in self._read_new_turn(feed):
                    yield event
                for event in self._read_changes(feed):
                    yield event
                changes, memory_count = memory_feed.after(memory_count), memory_feed.count
                for change in changes:
                    yield change
                if not self._woken.is_set():
                    await wait_until_set(self._woken, timeout=silence)
                    if not self._woken.is_set():
                        yield KeepAlive()

    async def _read_messages(self, feed: ConversationFeed, newest: int) -> AsyncGenerator[MessageStored]:
        while self.seq < newest:
            page = await feed.after(self.seq, self._database)
            for stored in page.messages:
                if stored.seq > newest:
                    return
                self.seq = stored.seq
                yield stored
            if not page.messages:
                self.seq = newest  # the messages were deleted

    def _read_changes(self, feed: ConversationFeed) -> Iterator[LiveEvent]:
        if self._timer_count != feed.timers_changed:
            self._timer_count = feed.timers_changed
            yield TimersChanged()
        if self._approval_count != feed.approvals_changed:
            self._approval_count = feed.approvals_changed
            yield ApprovalsChanged()

    def _read_draft(self) -> Iterator[LiveEvent]:
        if (turn := self._turn) is None:
            return
        text, self._text_offset = turn.draft.read_after(self._text_offset)
        if text:
            yield TextStreamed(turn.message_id, text)
        if turn.draft.is_over:
            self._turn = None
            yield TurnEnded(turn.message_id, turn.draft.reply_id)

    def _read_new_turn(self, feed: ConversationFeed) -> Iterator[LiveEvent]:
        """Yield the events of a new turn. A turn that is over already is skipped: its reply is a message."""
        if self._turn is None and feed.turn is not None and not feed.turn.draft.is_over:
            self._turn, self._text_offset = feed.turn, 0
            yield TurnStarted(feed.turn.message_id)
            yield from self._read_draft()
