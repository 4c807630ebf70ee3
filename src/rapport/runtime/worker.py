"""The runtime: accepts messages, runs their turns one at a time per conversation, and picks up what others left."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

import structlog

from rapport.domain.channel import MessageSource, OutgoingChannel
from rapport.domain.conversation import API_CHANNEL, Incoming, Message
from rapport.domain.draft import Draft
from rapport.domain.errors import Busy, Permanent, Transient
from rapport.domain.event import Accepted, ClaimedEvent, Finished
from rapport.domain.ids import new_id
from rapport.ingest.accept import accept
from rapport.ingest.embed_messages import MessageEmbedding
from rapport.runtime.delivery_loop import DeliveryLoop
from rapport.runtime.embedding_loop import EmbeddingLoop
from rapport.runtime.erasure import CheckpointStore, delete_checkpoints, erase_conversation
from rapport.runtime.heartbeat import Heartbeat, send_hint
from rapport.runtime.leader import LeaderLoop
from rapport.runtime.live_updates import LiveUpdates
from rapport.runtime.orphaned_events import OrphanedEvents, put_back
from rapport.runtime.post_turn_jobs import PostTurnJobs
from rapport.runtime.retention import RetentionLoop
from rapport.runtime.tasks import end_all, wait_until_set
from rapport.runtime.ticket import Ticket
from rapport.runtime.timer_loop import TimerLoop
from rapport.runtime.typing_indicator import show_typing
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.messages.messages import Messages
from rapport.storage.work.events import Events, Superseded
from rapport.storage.work.workers import Workers
from rapport.turns.answer import answer_message
from rapport.turns.deps import TurnDeps
from rapport.turns.follow_up import FollowUpResult, follow_up

log = structlog.get_logger()

POLL_SECONDS = 1.0
HAND_OVER_SECONDS = 0.5


@dataclass(slots=True)
class _Turn:
    event: ClaimedEvent
    draft: Draft
    task: asyncio.Task[None]


class Worker:
    """One per process. What it must not lose is a row; what is in its memory only makes things faster."""

    def __init__(
        self,
        deps: TurnDeps,
        checkpoints: CheckpointStore,
        *,
        max_turns: int = 256,
        retention: timedelta | None = None,
    ) -> None:
        self.worker_id = new_id()
        self._deps = deps
        self._database = deps.database
        self._post_turn_jobs = PostTurnJobs(deps)
        self._embedding_loop = EmbeddingLoop(MessageEmbedding(deps.database, deps.retriever.embedder))
        self._retention_loop = RetentionLoop(deps.database, checkpoints, deps.metrics, retention=retention)
        self._channels: dict[str, OutgoingChannel] = {}
        self._checkpoints = checkpoints
        self._max_turns = max_turns
        self._turns: dict[str, _Turn] = {}
        self._drafts: dict[str, Draft] = {}
        self._orphaned_events = OrphanedEvents(self.worker_id)
        self._sources: list[MessageSource] = []
        self._more_followups = False
        self._wake = asyncio.Event()
        self.timer_loop = TimerLoop(deps.database, metrics=deps.metrics, on_fired=self._handle_fired_timers)
        self.delivery_loop = DeliveryLoop(deps.database, self._channels, worker_id=self.worker_id)
        self._accepting = 0
        self._stopping = False
        self.is_drained = False
        self._drained: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []
        self.heartbeat = Heartbeat(deps.database, self.worker_id, on_hint=self._handle_hint)
        self.live_updates = LiveUpdates(
            deps.database, worker_id=self.worker_id, has_peers=lambda: self.heartbeat.has_peers
        )
        deps.memory_store.listeners.append(self.live_updates.announce_memory_change)

    # ---- life

    async def start(self) -> None:
        """Join the workers and begin to look for work."""
        self._loops = [
            asyncio.create_task(self.heartbeat.run(), name="presence"),
            asyncio.create_task(self._work(), name="work"),
            asyncio.create_task(self.timer_loop.run(), name="timekeeper"),
            asyncio.create_task(self._checkpoints.run(), name="working state"),
            asyncio.create_task(self._embedding_loop.run(), name="indexing"),
            asyncio.create_task(self.live_updates.run(), name="live updates"),
            asyncio.create_task(self._retention_loop.run(), name="retention"),
        ]
        if self._channels:
            self._loops.append(asyncio.create_task(self.delivery_loop.run(), name="delivery"))
        try:
            async with asyncio.timeout(15):
                await self.heartbeat.wait_joined()
        except TimeoutError as error:
            raise Permanent(
                "The database accepts no further connection for this worker's presence: is max_connections used up?"
            ) from error

    def add_channel(self, name: str, channel: OutgoingChannel) -> None:
        """Send what conversations of this channel have to get. Call it before `start`."""
        self._channels[name] = channel

    def add_source(self, source: MessageSource) -> None:
        """Let messages come in there too, from now on; one process at a time sees to it."""
        self._sources.append(source)
        self._loops.append(
            asyncio.create_task(LeaderLoop(self._database.url, source).run(), name=f"watch {source.name}")
        )

    def begin_drain(self, seconds: float) -> None:
        """Take nothing new; finish what runs within `seconds`, hand over the rest."""
        if self._drained is None:
            self._stopping = True
            self.live_updates.close()
            self._drained = asyncio.create_task(self._drain(seconds), name="drain")

    async def stop(self, *, seconds: float = 5.0) -> None:
        """Drain, say goodbye, and end every task of this runtime."""
        self.begin_drain(seconds)
        assert self._drained is not None
        await self._drained
        await end_all(self._loops)
        try:
            await self._checkpoints.flush()
            async with self._database.statement() as connection:
                await Workers(connection).leave(self.worker_id)
        except (Transient, Permanent) as error:
            log.warning("worker.left_silently", reason=str(error))

    async def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        # A message that is just being accepted still begins its turn here.
        while (self._turns or self._accepting) and time.monotonic() < end:
            await asyncio.sleep(0.02)
        left = [turn.task for turn in self._turns.values()]
        await end_all([*left, *self._post_turn_jobs.close()])
        await self.delivery_loop.drain(end - time.monotonic())
        if left or self._drafts:
            await asyncio.sleep(HAND_OVER_SECONDS)  # another process may answer at once, and the client still waits
        self.is_drained = True
        for draft in self._drafts.values():
            draft.nudge()

    async def accept(self, incoming: Incoming, *, listen: bool = False) -> Ticket:
        """Store a message; when this returns it is safe, and its turn has begun or stands in line."""
        if self._stopping:
            raise Busy("The server is stopping; send the message again in a moment.", retry_after=2)
        claim = len(self._turns) < self._max_turns
        self._accepting += 1
        try:
            accepted = await accept(self._database, incoming, worker_id=self.worker_id, claim=claim)
            draft = self._draft(accepted.message_id) if accepted.is_for_agent else None
            if draft is not None:
                draft.listeners += listen
            if accepted.claimed is not None:
                self._begin(accepted.claimed)
            elif not accepted.is_for_agent:
                self._embedding_loop.enqueue(
                    accepted.conversation_id
                )  # a group's; what is answered there, with its answer
            if not incoming.is_bot:
                await self._interrupt_follow_ups(accepted)
        finally:
            self._accepting -= 1
        if not accepted.is_repeated:
            self.live_updates.announce_change(accepted.conversation_id)
            self._deps.metrics.received()
            log.info(
                "chat.event",
                conversationId=accepted.conversation_id,
                agentId=accepted.agent_id,
                type="message_received",
                messageId=accepted.message_id,
            )
        if accepted.is_for_agent and not claim:
            await send_hint(self._database, "queued")  # this process has its hands full: somebody else may be free
        return Ticket(accepted, draft, self)

    async def cancel(self, owner_id: str, conversation_id: str, message_id: str | None = None) -> bool:
        """Stop the conversation's running turn, wherever it runs, or only what answers a message; False when none does."""
        async with self._database.statement() as connection:
            await Conversations(connection).get(owner_id, conversation_id)
            event_id = await Events(connection).request_cancel(owner_id, conversation_id, message_id)
        if event_id is None:
            return False
        turn = self._turns.get(event_id)
        return True if turn is None else turn.draft.cancel()

    async def erase(self, owner_id: str, conversation_id: str) -> None:
        """Delete a conversation with all that was said in it, and only then stop its turn: the next in line must not begin."""
        await erase_conversation(self._database, self._checkpoints, owner_id, conversation_id)
        self._post_turn_jobs.cancel(conversation_id)
        self._embedding_loop.discard(conversation_id)
        running = [turn for turn in self._turns.values() if turn.event.conversation_id == conversation_id]
        for turn in running:
            turn.draft.cancel()
        if running:
            await asyncio.wait([turn.task for turn in running], timeout=HAND_OVER_SECONDS)
        self.live_updates.announce_change(conversation_id)

    async def load_reply(self, accepted: Accepted) -> Message | None:
        """The reply, if there is one yet; raises NotFound when the conversation is gone and there will be none."""
        where = (accepted.owner_id, accepted.conversation_id)
        async with self._database.statement() as connection:
            reply = await Messages(connection).find_reply(*where, accepted.message_id)
            if reply is None:
                await Conversations(connection).get(*where)
            return reply

    def is_running(self, event_id: str, draft: Draft) -> bool:
        """Whether this very draft is being written here (a later attempt at the same event has another one)."""
        turn = self._turns.get(event_id)
        return turn is not None and turn.draft is draft

    def forget_draft(self, event_id: str) -> None:
        """Nobody waits for this event here any more."""
        if event_id not in self._turns:
            self._drafts.pop(event_id, None)

    # ---- turns

    def _draft(self, event_id: str) -> Draft:
        draft = self._drafts.get(event_id)
        if draft is None or draft.done.done():
            draft = self._drafts[event_id] = Draft()
        return draft

    def _begin(self, event: ClaimedEvent) -> None:
        if (older := self._turns.get(event.id)) is not None:
            # It was taken from us while we were still at it, and has come back to us: that attempt can't commit any more.
            older.task.cancel()
            self._drafts.pop(event.id, None)
        draft = self._draft(event.id)
        draft.is_cancelled |= event.is_cancelled
        task = asyncio.create_task(self._run(event, draft), name=f"turn {event.id}")
        self._turns[event.id] = _Turn(event, draft, task)
        self.live_updates.begin_turn(event, draft)
        draft.nudge()  # it may have stood in line for a while, with somebody waiting for its tokens

    async def _run(self, event: ClaimedEvent, draft: Draft) -> None:
        """A turn and what follows from its end; nothing escapes from here."""
        # For every line that is logged in this task, however deep.
        structlog.contextvars.bind_contextvars(conversationId=event.conversation_id, agentId=event.agent_id)
        try:
            await self._post_turn_jobs.wait_for_summary(event.conversation_id)
            push = event.channel != API_CHANNEL  # by whichever process has that channel
            async with show_typing(self._channels, event):
                if event.trigger_type is not None:
                    finished = await follow_up(event, self._deps, draft=draft, push=push)
                else:
                    finished = await answer_message(event, self._deps, draft=draft, push=push)
                    draft.finish(finished.reply)
            await self._finish_turn(event, finished)
        except Superseded as gone:
            log.info("turn.superseded", reason=str(gone))
            await delete_checkpoints(self._checkpoints, event)
        except asyncio.CancelledError:
            await asyncio.shield(put_back(self._database, event, "handed over", delay=0))
            raise
        except Transient as error:
            log.warning("turn.postponed", reason=str(error))
            draft.fail(
                Transient(f"{error} Your message is stored and will be answered.", retry_after=error.retry_after)
            )
            await put_back(self._database, event, str(error), delay=min(5.0, 0.25 * 2**event.attempts))
        except Exception as error:
            log.exception(
                "chat.error",
                conversationId=event.conversation_id,
                errorType=type(error).__name__,
                message=str(error),
            )
            await put_back(self._database, event, str(error), delay=min(5.0, 0.25 * 2**event.attempts))
        finally:
            if self.is_running(event.id, draft):
                del self._turns[event.id]
            if self._drafts.get(event.id) is draft:
                del self._drafts[event.id]
            self.live_updates.end_turn(event, draft)
            draft.abandon()  # whoever still waits finds the reply of the next attempt in the log
            if event.trigger_type is not None and self._more_followups:
                self._wake.set()  # the next one has its place

    async def _finish_turn(self, event: ClaimedEvent, finished: Finished | FollowUpResult) -> None:
        """What follows from a turn's end: its reply is sent, its waiters are told, the line moves on."""
        self.live_updates.announce_change(event.conversation_id)
        if isinstance(finished, FollowUpResult):
            log.info("autonomy.follow_up", **finished.facts)
            self._deps.metrics.followed_up(**finished.facts)
        elif event.accepted_by != self.worker_id:
            await send_hint(self._database, f"done {event.id}")
        if finished.reply is not None:
            self.delivery_loop.wake()
            if event.traits.selects_context:
                self._embedding_loop.enqueue(event.conversation_id)
        if finished.has_more:
            await self._claim_next(event.conversation_id)
        elif finished.reply is not None and not self._stopping:
            self._post_turn_jobs.begin(event, crowded=finished.needs_summary)

    async def _interrupt_follow_ups(self, accepted: Accepted) -> None:
        """Somebody has spoken: whatever was under way because nobody did ends, here and elsewhere."""
        self._post_turn_jobs.cancel_reflection(accepted.conversation_id)
        for _, trigger_type in accepted.overtaken:
            self._deps.metrics.followed_up(trigger_type, "superseded")
        if accepted.interrupted is not None:
            self._handle_hint(f"done {accepted.interrupted}")
            await send_hint(self._database, f"done {accepted.interrupted}")

    async def _claim_next(self, conversation_id: str) -> None:
        """Go on with the conversation's next event."""
        if self._stopping:
            await send_hint(self._database, "queued")
            return
        async with self._database.statement() as connection:
            claimed = await Events(connection).claim_waiting(worker_id=self.worker_id, conversation_id=conversation_id)
        await self._begin_all(claimed)

    async def _begin_all(self, claimed: list[ClaimedEvent]) -> None:
        for event in claimed:
            if self._stopping:  # it began while these were being claimed
                await put_back(self._database, event, "handed over", delay=0)
            else:
                self._begin(event)

    # ---- the loop

    def _handle_hint(self, hint: str) -> None:
        """A hint of another process: worth a look, never more."""
        if self.live_updates.handle_hint(hint):
            return
        word, _, event_id = hint.partition(" ")
        if word == "cancel":
            self._cancel_here(event_id)
        elif word == "done":
            if (turn := self._turns.get(event_id)) is not None:
                # Else it is our own hint. Cancelled once more, it would leave a connection in the middle of a statement.
                if not turn.draft.done.done() and not turn.task.cancelling():
                    turn.task.cancel()  # somebody else has answered what we are still at
            elif (draft := self._drafts.get(event_id)) is not None:
                draft.nudge()
        else:
            self._wake.set()
            for inlet in self._sources:
                inlet.wake()

    def _cancel_here(self, event_id: str) -> None:
        if (turn := self._turns.get(event_id)) is not None:
            turn.draft.cancel()

    def _handle_fired_timers(self) -> None:
        self._wake.set()
        self.live_updates.check_all()

    def notice_timer_change(self) -> None:
        """Somebody has set, moved or cancelled a timer."""
        self.timer_loop.wake()
        self.live_updates.check_all()

    async def _work(self) -> None:
        """Look for work now and then, and at once when there is a hint."""
        while True:
            try:
                await self._poll_work()
            except (Transient, Permanent) as error:
                log.warning("worker.waiting", reason=str(error))
            except Exception as error:
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
            await wait_until_set(self._wake, timeout=POLL_SECONDS)
            self._wake.clear()

    async def _poll_work(self) -> None:
        if self._stopping:
            return
        async with self._database.transaction() as connection:
            left = await Workers(connection).reap_dead_workers(except_for=self.worker_id)
        if left:
            log.warning("worker.took_over", events=left)
        async with self._database.statement() as connection:
            events = Events(connection)
            for event_id in await events.list_cancelled(worker_id=self.worker_id):
                self._cancel_here(event_id)
            await self._orphaned_events.put_back(events, self._turns)
            free = self._max_turns - len(self._turns)
            claimed = await events.claim_waiting(worker_id=self.worker_id, limit=free) if free > 0 else []
            # What nobody waits for has a quarter of the places, so that there is room for those who speak meanwhile.
            unasked = sum(turn.event.trigger_type is not None for turn in self._turns.values())
            free = min(free - len(claimed), max(1, self._max_turns // 4) - unasked)
            waiting: list[ClaimedEvent] = []
            if free > 0 and not self.timer_loop.is_firing_many:
                waiting = await events.claim_waiting(worker_id=self.worker_id, limit=free, followups=True)
            self._more_followups = len(waiting) >= free
            claimed += waiting
        await self._begin_all(claimed)
