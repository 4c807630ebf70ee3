"""Run one worker: accept, cancel and erase on behalf of channels, start all loops of the process, drain and stop them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

import structlog

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.channel import MessageSource, OutgoingChannel
from rapport.domain.client_tools import ClientToolRequest
from rapport.domain.conversation import Incoming
from rapport.domain.errors import Busy, Permanent, Transient
from rapport.domain.event import Accepted, Reply
from rapport.domain.ids import new_id
from rapport.ingest.accept import accept
from rapport.ingest.addressing import may_mention_agent
from rapport.ingest.embed_messages import MessageEmbedding
from rapport.runtime.background import keep_running
from rapport.runtime.client_tool_requests import ClientToolRequests, ClientToolTicket
from rapport.runtime.delivery_loop import DeliveryLoop
from rapport.runtime.embedding_loop import EmbeddingLoop
from rapport.runtime.erasure import CheckpointStore, erase_conversation
from rapport.runtime.heartbeat import Heartbeat, send_hint
from rapport.runtime.leader import LeaderLoop
from rapport.runtime.live_updates import LiveUpdates
from rapport.runtime.reminder_loop import ReminderLoop
from rapport.runtime.retention import RetentionLoop
from rapport.runtime.running_turns import RunningTurns
from rapport.runtime.tasks import end_all
from rapport.runtime.ticket import Ticket
from rapport.runtime.timer_loop import TimerLoop
from rapport.runtime.work_loop import WorkLoop
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.work.events import Events
from rapport.storage.work.workers import Workers
from rapport.turns.deps import TurnDeps
from rapport.turns.try_agent import try_agent

log = structlog.get_logger()

JOIN_TIMEOUT_SECONDS = 15.0
HAND_OVER_SECONDS = 0.5


class Worker:
    """The worker of a process. Everything that must survive a crash is a row; state in memory only saves time."""

    def __init__(
        self,
        deps: TurnDeps,
        checkpoints: CheckpointStore,
        *,
        max_turns: int = 256,
        retention: timedelta | None = None,
    ) -> None:
        self.worker_id = new_id()
        self._database = deps.database
        self._agents = deps.agents
        self._metrics = deps.metrics
        self._checkpoints = checkpoints
        self._channels: dict[str, OutgoingChannel] = {}
        self._sources: list[MessageSource] = []
        self.heartbeat = Heartbeat(deps.database, self.worker_id, on_hint=self._handle_hint)
        self.live_updates = LiveUpdates(
            deps.database, worker_id=self.worker_id, has_peers=lambda: self.heartbeat.has_peers
        )
        deps.memory_store.listeners.append(self.live_updates.announce_memory_change)
        self.delivery_loop = DeliveryLoop(deps.database, self._channels, worker_id=self.worker_id)
        self.timer_loop = TimerLoop(deps.database, metrics=deps.metrics, on_fired=self._handle_fired_timers)
        self._reminder_loop = ReminderLoop(
            deps.database, metrics=deps.metrics, channels=self._channels, on_delivered=self._handle_sent_reminders
        )
        self._embedding_loop = EmbeddingLoop(MessageEmbedding(deps.database, deps.retriever.embedder))
        self._retention_loop = RetentionLoop(deps.database, checkpoints, deps.metrics, retention=retention)
        self.running_turns = RunningTurns(
            deps,
            checkpoints,
            self._channels,
            worker_id=self.worker_id,
            max_turns=max_turns,
            live_updates=self.live_updates,
            delivery_loop=self.delivery_loop,
            embedding_loop=self._embedding_loop,
            on_follow_up_ended=lambda: self._work_loop.handle_ended_follow_up(),
        )
        self._client_tool_requests = ClientToolRequests(deps, max_requests=max_turns)
        self._work_loop = WorkLoop(deps.database, self.running_turns, self.timer_loop, worker_id=self.worker_id)
        self._accepting = 0
        self._drained: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []

    # ---- start, drain, stop

    async def start(self) -> None:
        """Join the workers and start every loop. Raises Permanent if the database accepts no connection for the heartbeat."""
        self._loops = [
            asyncio.create_task(self.heartbeat.run(), name="heartbeat"),
            asyncio.create_task(self._work_loop.run(), name="work"),
            asyncio.create_task(self.timer_loop.run(), name="timers"),
            asyncio.create_task(self._reminder_loop.run(), name="reminders"),
            asyncio.create_task(self._checkpoints.run(), name="checkpoints"),
            asyncio.create_task(self._embedding_loop.run(), name="embedding"),
            asyncio.create_task(self.live_updates.run(), name="live updates"),
            asyncio.create_task(self._retention_loop.run(), name="retention"),
        ]
        if self._channels:
            self._loops.append(asyncio.create_task(self.delivery_loop.run(), name="delivery"))
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_SECONDS):
                await self.heartbeat.wait_joined()
        except TimeoutError as error:
            raise Permanent(
                "The database accepts no further connection for this worker's heartbeat: is max_connections used up?"
            ) from error

    def add_channel(self, name: str, channel: OutgoingChannel) -> None:
        """Send the replies and notices of this channel's conversations through it. Call it before `start`."""
        self._channels[name] = channel

    def add_source(self, source: MessageSource) -> None:
        """Receive messages from this source whenever this process is its leader."""
        self._sources.append(source)
        self._loops.append(
            asyncio.create_task(LeaderLoop(self._database.url, source).run(), name=f"leader {source.name}")
        )

    def add_loop(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run this coroutine in every process, from now on until `stop`."""
        self._loops.append(asyncio.create_task(keep_running(name, loop), name=name))

    def begin_drain(self, seconds: float) -> None:
        """Accept and claim nothing more; finish running turns within `seconds`, and put the rest back for others."""
        if self._drained is None:
            self.running_turns.is_stopping = self._client_tool_requests.is_stopping = True
            self.live_updates.close()
            self._drained = asyncio.create_task(self._drain(seconds), name="drain")

    async def stop(self, *, seconds: float = 5.0) -> None:
        """Drain, leave the workers, and end every task of this runtime."""
        self.begin_drain(seconds)
        assert self._drained is not None
        await self._drained
        await end_all(self._loops)
        try:
            await self._checkpoints.flush()
            async with self._database.statement() as connection:
                await Workers(connection).leave(self.worker_id)
        except (Transient, Permanent) as error:
            log.warning("worker.leave_failed", reason=str(error))

    async def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        turns = self.running_turns
        # A message that is being accepted still begins its turn here.
        while (turns.event_ids or self._accepting or self._client_tool_requests.running) and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await self._client_tool_requests.end_all()
        were_running = await turns.end_all()
        await self.delivery_loop.drain(end - time.monotonic())
        if were_running or turns.has_listeners:
            await asyncio.sleep(HAND_OVER_SECONDS)  # another process may answer while the client still waits
        turns.mark_drained()

    # ---- for channels

    async def accept(self, incoming: Incoming, *, listen: bool = False) -> Ticket:
        """Store a message and begin its turn, or leave it queued. When this returns, the message is stored."""
        turns = self.running_turns
        if turns.is_stopping:
            raise Busy("The server is stopping; send the message again in a moment.", retry_after=2)
        claim = turns.free_slots > 0
        self._accepting += 1
        try:
            agents = await self._agents.list_handles(incoming.owner_id) if may_mention_agent(incoming) else ()
            accepted = await accept(self._database, incoming, worker_id=self.worker_id, claim=claim, agents=agents)
            draft = turns.get_draft(accepted.message_id) if accepted.is_for_agent else None
            if draft is not None:
                draft.listeners += listen
            if accepted.claimed is not None:
                turns.begin(accepted.claimed)
            elif not accepted.is_for_agent:
                self._embedding_loop.enqueue(
                    accepted.conversation_id
                )  # an answered message is embedded with its answer
            if not incoming.is_bot:
                await turns.interrupt_follow_ups(accepted)
        finally:
            self._accepting -= 1
        if not accepted.is_repeated:
            self._announce(accepted)
        if accepted.is_for_agent and not claim:
            await send_hint(self._database, "queued")  # this process has no free slot, another may have one
        return Ticket(accepted, draft, turns)

    def _announce(self, accepted: Accepted) -> None:
        self.live_updates.announce_change(accepted.conversation_id)
        self._metrics.count_received()
        log.info(
            "chat.event",
            conversationId=accepted.conversation_id,
            agentId=accepted.agent_id,
            type="message_received",
            messageId=accepted.message_id,
        )

    async def cancel(self, owner_id: str, conversation_id: str, message_id: str | None = None) -> bool:
        """Cancel the conversation's running turn, or only the one that answers a message, in whichever process it runs.

        Returns False if there is none.
        """
        async with self._database.statement() as connection:
            await Conversations(connection).get(owner_id, conversation_id)
            event_id = await Events(connection).request_cancel(owner_id, conversation_id, message_id)
        return event_id is not None and self.running_turns.cancel(event_id)

    async def try_agent(self, owner_id: str, profile: AgentProfile, text: str) -> Reply:
        """Return the agent's answer to one message, and store nothing."""
        return await try_agent(owner_id, profile, text, self.running_turns.deps)

    def begin_client_tools(
        self, request: ClientToolRequest, profile: AgentProfile, *, listen: bool = False
    ) -> ClientToolTicket:
        """Begin to answer a request with a client's tools. Raise Busy if this process stops or has no free slot."""
        return self._client_tool_requests.begin(request, profile, listen=listen)

    async def erase(self, owner_id: str, conversation_id: str) -> None:
        """Delete a conversation with its messages, and only then stop its turn: the next one must not begin."""
        await erase_conversation(self._database, self._checkpoints, owner_id, conversation_id)
        await self.running_turns.stop_conversation(conversation_id)
        self.live_updates.announce_change(conversation_id)

    async def notice_decision(self, conversation_id: str) -> None:
        """Begin the rest of a turn that waited for a person's decision, here or in another process."""
        self._work_loop.wake()
        self.live_updates.announce_change(conversation_id)
        await send_hint(self._database, "queued")

    def notice_timer_change(self) -> None:
        """Update the loops after a timer was set, moved or cancelled."""
        self.timer_loop.wake()
        self.live_updates.check_all()

    def notice_reminder_change(self) -> None:
        """Update the loop after a reminder was set, changed or cancelled."""
        self._reminder_loop.wake()
        self.live_updates.check_all()

    # ---- hints

    def _handle_hint(self, hint: str) -> None:
        """Handle a hint of any process. Hints only save time: polling finds the same changes."""
        if self.live_updates.handle_hint(hint):
            return
        word, _, event_id = hint.partition(" ")
        if word == "cancel":
            self.running_turns.cancel(event_id)
        elif word == "done":
            self.running_turns.end_superseded(event_id)
        elif word == "agents":
            self._agents.forget_handles()
        else:
            self._work_loop.wake()
            for source in self._sources:
                source.wake()

    def _handle_fired_timers(self) -> None:
        self._work_loop.wake()
        self.live_updates.check_all()

    def _handle_sent_reminders(self, conversation_ids: Collection[str]) -> None:
        for conversation_id in conversation_ids:
            self.live_updates.announce_change(conversation_id)
        self.delivery_loop.wake()
