"""Send live updates of conversations to their subscriptions, whichever process makes a change.

Updates are read from the stored messages, after the number that each subscription has reached. A hint only starts a read at
once; without hints one statement a second checks all subscribed conversations of this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import structlog

from rapport.domain.draft import Draft
from rapport.domain.errors import Busy, NotFound, Permanent, TooMany, Transient
from rapport.domain.event import ClaimedEvent
from rapport.domain.live_updates import MemoryChanged, MemoryChangeKind
from rapport.domain.memory import Memory
from rapport.runtime.subscriptions import ConversationFeed, MemoryFeed, RunningTurn, Subscription
from rapport.runtime.tasks import wait_until_set
from rapport.storage.access.api_keys import MAX_HINT_CHARACTERS
from rapport.storage.database import Connection, Database
from rapport.storage.memories import Memories
from rapport.storage.messages.new_messages import ConversationPosition, NewMessages, memory_hint

log = structlog.get_logger()

POLL_SECONDS = 1.0
IDLE_SECONDS = 60.0
"""The poll interval without subscriptions; a new subscription wakes the loop."""
MAX_HINTS = 1_000
"""Limit of queued hints while the database does not answer. Without a hint, the others find the change by polling."""
MAX_SUBSCRIPTIONS = 2_000
"""Limit per owner in this process. Subscriptions take memory that all owners share."""


class LiveUpdates:
    """The live updates of a process. It stores only the position of each subscription; missed messages are in the database."""

    def __init__(self, database: Database, *, worker_id: str, has_peers: Callable[[], bool]) -> None:
        """`has_peers` returns True if there are other processes, which need hints."""
        self._database = database
        self._worker_id = worker_id
        self.has_peers = has_peers
        self._feeds: dict[str, ConversationFeed] = {}
        self._memory_feeds: dict[str, MemoryFeed] = {}
        self._turns: dict[str, RunningTurn] = {}
        self._woken = asyncio.Event()
        self._changed: set[str] = set()
        self._poll_at = 0.0
        self._hints: dict[str, None] = {}
        self._remote_memory_changes: list[tuple[MemoryChangeKind, str, str, str]] = []
        self._closed = False
        self._access_callbacks: list[Callable[[], None]] = []

    # ---- subscriptions

    async def subscribe(self, owner_id: str, conversation_id: str, *, after: int | None = None) -> Subscription:
        """Return a subscription to the messages after that number, or from now on.

        Raise NotFound, TooMany if the owner has too many subscriptions, and Busy if the server is stopping.
        """
        if self._closed:
            raise Busy("The server is stopping; connect again in a moment.", retry_after=1)
        feed = self._memory_feeds.get(owner_id)
        if feed is not None and len(feed.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise TooMany(f"{MAX_SUBSCRIPTIONS} connections of yours are open already: close some.", retry_after=10)
        async with self._database.statement() as connection:
            position = await NewMessages(connection).get_position(owner_id, conversation_id)
        # A number above the newest is invalid: it counts as the newest, so that no message is held back.
        seq = position.newest if after is None else min(max(after, 0), position.newest)
        return Subscription(
            owner_id,
            conversation_id,
            seq=seq,
            position=position,
            database=self._database,
            attach=self._attach,
        )

    @contextmanager
    def _attach(self, subscription: Subscription) -> Generator[tuple[ConversationFeed, MemoryFeed]]:
        feed = self._get_feed(subscription)
        memory_feed = self._memory_feeds.setdefault(subscription.owner_id, MemoryFeed())
        feed.subscriptions.add(subscription)
        memory_feed.subscriptions.add(subscription)
        try:
            yield feed, memory_feed
        finally:
            feed.subscriptions.discard(subscription)
            memory_feed.subscriptions.discard(subscription)
            if not feed.subscriptions and self._feeds.get(feed.conversation_id) is feed:
                del self._feeds[feed.conversation_id]
            if not memory_feed.subscriptions and self._memory_feeds.get(subscription.owner_id) is memory_feed:
                del self._memory_feeds[subscription.owner_id]

    def _get_feed(self, subscription: Subscription) -> ConversationFeed:
        feed = self._feeds.get(subscription.conversation_id)
        if feed is None:
            feed = ConversationFeed(subscription.owner_id, subscription.conversation_id, subscription.position)
            feed.is_over = self._closed
            feed.turn = self._turns.get(feed.conversation_id)
            if feed.turn is not None:
                feed.turn.draft.listeners += 1  # lets the model stream, if it is not called yet
            self._feeds[feed.conversation_id] = feed
            self.mark_changed(feed.conversation_id)  # the subscription's position may be outdated
        return feed

    def count_subscriptions(self, conversation_id: str) -> int:
        """Return the number of subscriptions to a conversation in this process."""
        feed = self._feeds.get(conversation_id)
        return 0 if feed is None else len(feed.subscriptions)

    def on_access_change(self, callback: Callable[[], None]) -> None:
        """Register a function to call when a key or session has ended or a key was created, before subscriptions are checked."""
        self._access_callbacks.append(callback)

    def close(self) -> None:
        """End every subscription at once. Clients reconnect to another process and miss nothing."""
        self._closed = True
        for feed in self._feeds.values():
            feed.end()

    # ---- changes in this process

    def mark_changed(self, conversation_id: str) -> None:
        """Read the conversation again for its subscriptions. Call it after the commit."""
        if conversation_id in self._feeds:
            self._changed.add(conversation_id)
            self._woken.set()

    def announce_change(self, conversation_id: str) -> None:
        """Mark the conversation as changed here and in the other processes."""
        self.mark_changed(conversation_id)
        self._queue_hint(f"said {self._worker_id} {conversation_id}")

    def check_all(self) -> None:
        """Read every subscribed conversation again."""
        if self._feeds:
            self._poll_at = 0.0
            self._woken.set()

    def begin_turn(self, event: ClaimedEvent, draft: Draft) -> None:
        """Announce a turn that begins. Follow-ups are announced only when they are stored."""
        if event.trigger_type is not None:
            return
        turn = self._turns[event.conversation_id] = RunningTurn(event.id, draft)
        if event.conversation_id in self._feeds:
            draft.listeners += 1
            self.mark_changed(event.conversation_id)
        draft.on_news = lambda: self._wake_feed(event.conversation_id, turn)

    def end_turn(self, event: ClaimedEvent, draft: Draft) -> None:
        """Remove a turn that has ended."""
        turn = self._turns.get(event.conversation_id)
        if turn is not None and turn.draft is draft:
            del self._turns[event.conversation_id]

    def _wake_feed(self, conversation_id: str, turn: RunningTurn) -> None:
        feed = self._feeds.get(conversation_id)
        if feed is not None and feed.turn is turn:
            feed.wake()

    def announce_memory_change(self, owner_id: str, kind: MemoryChangeKind, memory: Memory) -> None:
        """Announce a change of the owner's memories. Call it after the commit."""
        if (memory_feed := self._memory_feeds.get(owner_id)) is not None:
            memory_feed.add(MemoryChanged(kind, memory.id, None if kind == "deleted" else memory))
        self._queue_hint(memory_hint(self._worker_id, kind, memory.agent_id, memory.id, owner_id))

    # ---- other processes

    def _queue_hint(self, hint: str) -> None:
        if self.has_peers() and len(self._hints) < MAX_HINTS:
            self._hints[hint] = None
            self._woken.set()

    def handle_hint(self, hint: str) -> bool:
        """Handle a hint about live updates. Returns False for any other hint."""
        word, _, owner = hint.partition(" ")
        if word == "access":
            self._change_access(owner)
            return True
        match hint.split(" ", 5):
            case ["said" | "memory", worker_id, *_] if worker_id == self._worker_id:
                pass  # a process receives its own hints, too
            case ["said", _, conversation_id]:
                self.mark_changed(conversation_id)
            case ["memory", _, ("created" | "updated" | "deleted") as kind, agent_id, memory_id, owner_id]:
                if owner_id in self._memory_feeds:
                    self._remote_memory_changes.append((kind, agent_id, memory_id, owner_id))
                    self._woken.set()
            case _:
                return False
        return True

    def _change_access(self, owner: str) -> None:
        for callback in self._access_callbacks:
            callback()
        for owner_id, memory_feed in self._memory_feeds.items():
            if owner_id[:MAX_HINT_CHARACTERS] == owner:
                memory_feed.change_access()

    # ---- the loop

    async def run(self) -> None:
        """Poll until cancelled: at once after a change, else every second while there are subscriptions."""
        while True:
            try:
                await self._send_hints()
                await self._poll_changes()
            except (Transient, Permanent) as error:
                log.warning("live.retrying", reason=str(error))
                self._poll_at = 0.0
                await asyncio.sleep(POLL_SECONDS)
            except Exception as error:
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
                self._poll_at = 0.0
                await asyncio.sleep(POLL_SECONDS)
            pause = max(self._poll_at - time.monotonic(), 0.0) if self._feeds else IDLE_SECONDS
            await wait_until_set(self._woken, timeout=pause)
            self._woken.clear()

    async def _send_hints(self) -> None:
        if hints := list(self._hints):
            self._hints.clear()
            async with self._database.statement() as connection:
                await NewMessages(connection).send_hints(hints)

    async def _poll_changes(self) -> None:
        """Read new messages: of all subscribed conversations once per interval, else only of those marked as changed."""
        if time.monotonic() >= self._poll_at:
            self._poll_at = time.monotonic() + POLL_SECONDS
            self._changed.update(self._feeds)
        feeds = [feed for name in self._changed if (feed := self._feeds.get(name)) is not None]
        self._changed.clear()
        memory_changes, self._remote_memory_changes = self._remote_memory_changes, []
        if not feeds and not memory_changes:
            return
        async with self._database.statement() as connection:
            if feeds:
                await self._update_feeds(feeds, NewMessages(connection))
            for kind, agent_id, memory_id, owner_id in memory_changes:
                await self._load_memory_change(connection, kind, agent_id, memory_id, owner_id)

    async def _update_feeds(self, feeds: Sequence[ConversationFeed], new_messages: NewMessages) -> None:
        positions = await new_messages.get_positions([feed.conversation_id for feed in feeds])
        for feed in feeds:
            position = positions.get(feed.conversation_id)
            if position is None:
                feed.end()  # the conversation was erased
                continue
            if position.newest > feed.seq:
                await feed.catch_up(new_messages, position.newest)
            self._update_turn_timers_and_calls(feed, position)

    def _update_turn_timers_and_calls(self, feed: ConversationFeed, position: ConversationPosition) -> None:
        turn = self._turns.get(feed.conversation_id)
        if turn is not feed.turn or (position.timers, position.tool_calls) != (feed.timers, feed.tool_calls):
            feed.turn = turn
            feed.approvals_changed += position.tool_calls != feed.tool_calls
            feed.tool_calls = position.tool_calls
            feed.timers_changed += position.timers != feed.timers
            feed.timers = position.timers
            feed.wake()

    async def _load_memory_change(
        self, connection: Connection, kind: MemoryChangeKind, agent_id: str, memory_id: str, owner_id: str
    ) -> None:
        memory_feed = self._memory_feeds.get(owner_id)
        if memory_feed is None:
            return
        memory = None
        if kind != "deleted":
            try:
                memory = await Memories(connection).get(owner_id, agent_id, memory_id)
            except NotFound:  # deleted since: the deletion has its own hint
                return
        memory_feed.add(MemoryChanged(kind, memory_id, memory))
