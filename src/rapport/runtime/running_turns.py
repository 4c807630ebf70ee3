"""Run the turns of this process: one task for each claimed event, from its beginning to its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from rapport.domain.channel import OutgoingChannel
from rapport.domain.conversation import API_CHANNEL, Message
from rapport.domain.draft import Draft
from rapport.domain.errors import Transient
from rapport.domain.event import Accepted, ClaimedEvent, Finished
from rapport.runtime.delivery_loop import DeliveryLoop
from rapport.runtime.embedding_loop import EmbeddingLoop
from rapport.runtime.erasure import CheckpointStore, delete_checkpoints
from rapport.runtime.heartbeat import send_hint
from rapport.runtime.live_updates import LiveUpdates
from rapport.runtime.orphaned_events import put_back
from rapport.runtime.post_turn_jobs import PostTurnJobs
from rapport.runtime.tasks import end_all
from rapport.runtime.typing_indicator import show_typing
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.messages.messages import Messages
from rapport.storage.model_records import ModelRecords
from rapport.storage.work.events import Events, Superseded
from rapport.turns.answer import answer_message
from rapport.turns.deps import TurnDeps
from rapport.turns.follow_up import FollowUpResult, follow_up

log = structlog.get_logger()

ERASED_TURN_WAIT_SECONDS = 0.5
MAX_RETRY_SECONDS = 5.0


@dataclass(slots=True)
class _Turn:
    event: ClaimedEvent
    draft: Draft
    task: asyncio.Task[None]


class RunningTurns:
    """The turns that run in this process, and the drafts that callers of this process wait for."""

    def __init__(
        self,
        deps: TurnDeps,
        checkpoints: CheckpointStore,
        channels: Mapping[str, OutgoingChannel],
        *,
        worker_id: str,
        max_turns: int,
        live_updates: LiveUpdates,
        delivery_loop: DeliveryLoop,
        embedding_loop: EmbeddingLoop,
        on_follow_up_ended: Callable[[], None],
    ) -> None:
        self.deps = deps
        self.is_stopping = False
        """True if no further turn begins."""
        self.is_drained = False
        """True if no turn of this process runs and none will begin."""
        self._database = deps.database
        self._checkpoints = checkpoints
        self._channels = channels
        self._worker_id = worker_id
        self._max_turns = max_turns
        self._live_updates = live_updates
        self._delivery_loop = delivery_loop
        self._embedding_loop = embedding_loop
        self._on_follow_up_ended = on_follow_up_ended
        self._post_turn_jobs = PostTurnJobs(deps)
        self._turns: dict[str, _Turn] = {}
        self._drafts: dict[str, Draft] = {}

    @property
    def event_ids(self) -> Collection[str]:
        """Return a live view of the ids of the events whose turns run here."""
        return self._turns.keys()

    @property
    def free_slots(self) -> int:
        """Return the number of turns that may begin."""
        return self._max_turns - len(self._turns)

    @property
    def free_follow_up_slots(self) -> int:
        """Return the number of follow-ups that may begin. They get a quarter of the slots, so that messages find free ones."""
        follow_ups = sum(turn.event.trigger_type is not None for turn in self._turns.values())
        return max(1, self._max_turns // 4) - follow_ups

    # ---- drafts

    def get_draft(self, event_id: str) -> Draft:
        """Return the draft of an event's reply, new if the event has none or its draft is done."""
        draft = self._drafts.get(event_id)
        if draft is None or draft.done.done():
            draft = self._drafts[event_id] = Draft()
        return draft

    def is_running(self, event_id: str, draft: Draft) -> bool:
        """Return True if a turn of this process writes this draft (a later attempt at the same event has another one)."""
        turn = self._turns.get(event_id)
        return turn is not None and turn.draft is draft

    def forget_draft(self, event_id: str) -> None:
        """Remove the draft of an event whose turn does not run here, after its last listener has left."""
        if event_id not in self._turns:
            self._drafts.pop(event_id, None)

    async def load_reply(self, accepted: Accepted) -> Message | None:
        """Return the stored reply, None if there is none yet; raises NotFound if the conversation is gone."""
        ids = (accepted.owner_id, accepted.conversation_id)
        async with self._database.statement() as connection:
            reply = await Messages(connection).find_reply(*ids, accepted.message_id)
            if reply is None:
                await Conversations(connection).get(*ids)
            return reply

    # ---- beginning and ending turns

    def begin(self, event: ClaimedEvent) -> None:
        """Start the turn of an event that this worker has claimed."""
        if (older := self._turns.get(event.id)) is not None:
            # Another worker had the event in between: the older attempt can't commit any more.
            older.task.cancel()
            self._drafts.pop(event.id, None)
        draft = self.get_draft(event.id)
        draft.is_cancelled |= event.is_cancelled
        task = asyncio.create_task(self._run(event, draft), name=f"turn {event.id}")
        self._turns[event.id] = _Turn(event, draft, task)
        self._live_updates.begin_turn(event, draft)
        draft.nudge()  # the event may have been queued for a while, with a listener for its tokens

    async def begin_all(self, claimed: Sequence[ClaimedEvent]) -> None:
        """Start the turns of these events; put the events back if this worker is stopping."""
        for event in claimed:
            if self.is_stopping:  # it began while these were being claimed
                await put_back(self._database, event, "handed over", delay=0)
            else:
                self.begin(event)

    def cancel(self, event_id: str) -> bool:
        """Cancel the reply of an event for the user; return False if it is stored already, True also if it runs elsewhere."""
        turn = self._turns.get(event_id)
        return True if turn is None else turn.draft.cancel()

    def end_superseded(self, event_id: str) -> None:
        """End the turn of an event that another process has finished, and wake the clients that wait for its reply."""
        if (turn := self._turns.get(event_id)) is not None:
            # A turn that is done sent this hint itself. A second cancellation would leave a connection inside a statement.
            if not turn.draft.done.done() and not turn.task.cancelling():
                turn.task.cancel()
        elif (draft := self._drafts.get(event_id)) is not None:
            draft.nudge()

    async def interrupt_follow_ups(self, accepted: Accepted) -> None:
        """End the follow-up and the pause of a conversation in which somebody has just written, in all processes."""
        self._post_turn_jobs.end_pause(accepted.conversation_id)
        for _, trigger_type in accepted.overtaken:
            self.deps.metrics.count_follow_up(trigger_type, "superseded")
        if accepted.interrupted is not None:
            self.end_superseded(accepted.interrupted)
            await send_hint(self._database, f"done {accepted.interrupted}")

    async def stop_conversation(self, conversation_id: str) -> None:
        """End the turns and jobs of a conversation that has been erased."""
        self._post_turn_jobs.cancel(conversation_id)
        self._embedding_loop.discard(conversation_id)
        running = [turn for turn in self._turns.values() if turn.event.conversation_id == conversation_id]
        for turn in running:
            turn.draft.cancel()
        if running:
            await asyncio.wait([turn.task for turn in running], timeout=ERASED_TURN_WAIT_SECONDS)

    async def end_all(self) -> bool:
        """Cancel every turn and post-turn job, and put the turns' events back; return True if any turn was running."""
        turns = [turn.task for turn in self._turns.values()]
        await end_all([*turns, *self._post_turn_jobs.close()])
        return bool(turns)

    @property
    def has_listeners(self) -> bool:
        """Return True if a client of this process still waits for a reply."""
        return bool(self._drafts)

    def mark_drained(self) -> None:
        """Tell waiting clients that this process writes no further reply."""
        self.is_drained = True
        for draft in self._drafts.values():
            draft.nudge()

    # ---- one turn

    async def _run(self, event: ClaimedEvent, draft: Draft) -> None:
        """Run a turn and handle its end. Raise only the cancellation of its task."""
        # Adds both ids to every log line of this task.
        structlog.contextvars.bind_contextvars(conversationId=event.conversation_id, agentId=event.agent_id)
        try:
            push = event.channel != API_CHANNEL  # by whichever process has that channel
            async with show_typing(self._channels, event):
                if event.trigger_type is not None:
                    result = await follow_up(event, self.deps, draft=draft, push=push)
                else:
                    result = await answer_message(event, self.deps, draft=draft, push=push)
                    draft.finish(result.reply)
            await self._finish_turn(event, result)
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
            await self._retry_later(event, error)
        except Exception as error:
            log.exception(
                "chat.error",
                conversationId=event.conversation_id,
                errorType=type(error).__name__,
                message=str(error),
            )
            await self._retry_later(event, error)
        finally:
            if self.is_running(event.id, draft):
                del self._turns[event.id]
            if self._drafts.get(event.id) is draft:
                del self._drafts[event.id]
            self._live_updates.end_turn(event, draft)
            draft.abandon()  # waiting clients load the reply of the next attempt
            if event.trigger_type is not None:
                self._on_follow_up_ended()

    async def _retry_later(self, event: ClaimedEvent, error: Exception) -> None:
        await put_back(self._database, event, str(error), delay=min(MAX_RETRY_SECONDS, 0.25 * 2**event.attempts))

    async def _finish_turn(self, event: ClaimedEvent, result: Finished | FollowUpResult) -> None:
        """Announce and deliver the reply of a turn, then begin the conversation's next turn or its post-turn jobs."""
        self._live_updates.announce_change(event.conversation_id)
        if isinstance(result, FollowUpResult):
            log.info("autonomy.follow_up", **result.facts)
            self.deps.metrics.count_follow_up(**result.facts)
        elif event.accepted_by != self._worker_id:
            await send_hint(self._database, f"done {event.id}")
        if result.reply is not None:
            self._delivery_loop.wake()
            if event.traits.selects_context:
                self._embedding_loop.enqueue(event.conversation_id)
        for model in self.deps.models.take_changed_records():
            async with self._database.statement() as connection:
                await ModelRecords(connection).store(model.name, model.server, model.record.facts)
        if result.has_more:
            await self._claim_next(event.conversation_id)
        elif result.reply is not None and not self.is_stopping:
            self._post_turn_jobs.begin(event, needs_summary=result.needs_summary, is_open=result.has_plan)

    async def _claim_next(self, conversation_id: str) -> None:
        """Claim the conversation's next event and begin its turn."""
        if self.is_stopping:
            await send_hint(self._database, "queued")
            return
        async with self._database.statement() as connection:
            claimed = await Events(connection).claim_waiting(worker_id=self._worker_id, conversation_id=conversation_id)
        await self.begin_all(claimed)
