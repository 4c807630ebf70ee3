"""Live: tells those who watch a conversation what happens there, whichever process it happens in.

What they are told is read from the log, by a number that each of them has come to: a hint only says that it is worth a look,
and without any hint there is a look every second, in one statement for everything that is watched here.
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
"""Nobody watches: whoever comes wakes it."""
MAX_HINTS = 1_000
"""Kept while the database is away; the others find out by looking."""
MAX_SUBSCRIPTIONS = 2_000
"""Of one owner, in this process: whoever opens more has lost count of them, and the memory is everybody's."""


class LiveUpdates:
    """One per process. It keeps nothing for those who watch but where they are: what they have missed is in the log."""

    def __init__(self, database: Database, *, worker_id: str, has_peers: Callable[[], bool]) -> None:
        """`has_company` says whether other processes are there, to be told what happens here."""
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

    # ---- those who watch

    async def subscribe(self, owner_id: str, conversation_id: str, *, after: int | None = None) -> Subscription:
        """Return a subscription to the messages after that number, or from now on.

        Raises NotFound, TooMany when the owner has too many of them, and Busy when it is too late.
        """
        if self._closed:
            raise Busy("The server is stopping; come back in a moment.", retry_after=1)
        known = self._memory_feeds.get(owner_id)
        if known is not None and len(known.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise TooMany(f"{MAX_SUBSCRIPTIONS} connections of yours are open already: close some.", retry_after=10)
        async with self._database.statement() as connection:
            standing = await NewMessages(connection).get_position(owner_id, conversation_id)
        # A number that was never given here is none: what it would keep back is wanted.
        seq = standing.newest if after is None else min(max(after, 0), standing.newest)
        return Subscription(
            owner_id,
            conversation_id,
            seq=seq,
            position=standing,
            database=self._database,
            attach=self._attach,
        )

    @contextmanager
    def _attach(self, watcher: Subscription) -> Generator[tuple[ConversationFeed, MemoryFeed]]:
        place = self._get_feed(watcher)
        recollections = self._memory_feeds.setdefault(watcher.owner_id, MemoryFeed())
        place.subscriptions.add(watcher)
        recollections.subscriptions.add(watcher)
        try:
            yield place, recollections
        finally:
            place.subscriptions.discard(watcher)
            recollections.subscriptions.discard(watcher)
            if not place.subscriptions and self._feeds.get(place.conversation_id) is place:
                del self._feeds[place.conversation_id]
            if not recollections.subscriptions and self._memory_feeds.get(watcher.owner_id) is recollections:
                del self._memory_feeds[watcher.owner_id]

    def _get_feed(self, watcher: Subscription) -> ConversationFeed:
        place = self._feeds.get(watcher.conversation_id)
        if place is None:
            place = ConversationFeed(watcher.owner_id, watcher.conversation_id, watcher.position)
            place.is_over = self._closed
            place.turn = self._turns.get(place.conversation_id)
            if place.turn is not None:
                place.turn.draft.listeners += 1  # if the model has not been asked yet, it is let stream
            self._feeds[place.conversation_id] = place
            self.mark_changed(place.conversation_id)  # something may have been while nobody was here
        return place

    def count_subscriptions(self, conversation_id: str) -> int:
        """Return the number of subscriptions to a conversation in this process."""
        place = self._feeds.get(conversation_id)
        return 0 if place is None else len(place.subscriptions)

    def on_access_change(self, callback: Callable[[], None]) -> None:
        """Call that whenever a key or a session has ended or a key was made, before those who watch are checked."""
        self._access_callbacks.append(callback)

    def close(self) -> None:
        """End every subscription at once. Clients reconnect to another process and miss nothing."""
        self._closed = True
        for place in self._feeds.values():
            place.end()

    # ---- what happens in this process

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
        place = self._feeds.get(conversation_id)
        if place is not None and place.turn is turn:
            place.wake()

    def announce_memory_change(self, owner_id: str, kind: MemoryChangeKind, memory: Memory) -> None:
        """Announce a change of the owner's memories. Call it after the commit."""
        if (recollections := self._memory_feeds.get(owner_id)) is not None:
            recollections.add(MemoryChanged(kind, memory.id, None if kind == "deleted" else memory))
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
                pass  # everybody hears a hint, also who gave it
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
        for hear in self._access_callbacks:
            hear()
        for owner_id, recollections in self._memory_feeds.items():
            if owner_id[:MAX_HINT_CHARACTERS] == owner:
                recollections.change_access()

    # ---- the loop

    async def run(self) -> None:
        """Look and tell until cancelled: at once when there is something, else every second while anybody watches."""
        while True:
            try:
                await self._send_hints()
                await self._poll_changes()
            except (Transient, Permanent) as error:
                log.warning("live.waiting", reason=str(error))
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
        """Read what is new: everywhere when it is time, else only where something is known to have happened."""
        if time.monotonic() >= self._poll_at:
            self._poll_at = time.monotonic() + POLL_SECONDS
            self._changed.update(self._feeds)
        places = [place for name in self._changed if (place := self._feeds.get(name)) is not None]
        self._changed.clear()
        changed, self._remote_memory_changes = self._remote_memory_changes, []
        if not places and not changed:
            return
        async with self._database.statement() as connection:
            if places:
                await self._update_feeds(places, NewMessages(connection))
            for kind, agent_id, memory_id, owner_id in changed:
                await self._load_memory_change(connection, kind, agent_id, memory_id, owner_id)

    async def _update_feeds(self, places: Sequence[ConversationFeed], news: NewMessages) -> None:
        standings = await news.get_positions([place.conversation_id for place in places])
        for place in places:
            standing = standings.get(place.conversation_id)
            if standing is None:
                place.end()  # the conversation was erased
                continue
            if standing.newest > place.seq:
                await place.catch_up(news, standing.newest)
            self._update_turn_and_timers(place, standing)

    def _update_turn_and_timers(self, place: ConversationFeed, standing: ConversationPosition) -> None:
        turn = self._turns.get(place.conversation_id)
        if turn is not place.turn or standing.timers != place.timers:
            place.turn = turn
            place.timers_changed += standing.timers != place.timers
            place.timers = standing.timers
            place.wake()

    async def _load_memory_change(
        self, connection: Connection, kind: MemoryChangeKind, agent_id: str, memory_id: str, owner_id: str
    ) -> None:
        recollections = self._memory_feeds.get(owner_id)
        if recollections is None:
            return
        memory = None
        if kind != "deleted":
            try:
                memory = await Memories(connection).get(owner_id, agent_id, memory_id)
            except NotFound:  # forgotten since: that is told too
                return
        recollections.add(MemoryChanged(kind, memory_id, memory))
