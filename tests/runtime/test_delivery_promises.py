"""Check in any order of events that every accepted message is stored once and answered once, in order (property test).

Hypothesis plays the clients, the workers and their deaths against the real statements on a real database; the model is
left out, so that thousands of steps run in seconds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rapport.domain.conversation import Incoming
from rapport.domain.errors import Conflict
from rapport.domain.event import ClaimedEvent, Reply
from rapport.ingest.accept import accept
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.work.events import Events, Superseded
from rapport.storage.work.workers import Workers


@dataclass
class Worker:
    """A process as the database sees it: the events that it assumes to own, and whether it is alive."""

    id: str
    holds: list[ClaimedEvent] = field(default_factory=list[ClaimedEvent])


class Promises(RuleBasedStateMachine):
    """Clients send (and repeat), workers claim, finish, return events, are killed and continue too late."""

    database: Database
    loop: asyncio.AbstractEventLoop
    conversations = Bundle("conversations")

    def __init__(self) -> None:
        super().__init__()
        self.workers = [Worker(f"worker-{number}") for number in range(3)]
        self.zombies: list[ClaimedEvent] = []
        self.sent: dict[str, list[str]] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.births = 0

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def sql(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        async def run() -> list[tuple[Any, ...]]:
            async with self.database.statement() as connection:
                return await (await connection.execute(query.encode(), parameters)).fetchall()

        return self.do(run())

    # ---- actions

    @rule(target=conversations)
    def begin(self) -> str:
        async def run() -> str:
            async with self.database.statement() as connection:
                return (await Conversations(connection).create("local", agent_id="companion")).id

        conversation: str = self.do(run())
        self.sent[conversation] = []
        return conversation

    @rule(
        conversation=conversations, worker=st.integers(0, 2), claim=st.booleans(), key=st.sampled_from([None, "a", "b"])
    )
    def post(self, conversation: str, worker: int, claim: bool, key: str | None) -> None:
        text = f"message {len(self.sent[conversation])}"
        known = self.keys.get((conversation, key)) if key else None
        incoming = Incoming("local", conversation, known or text, client_message_id=key)
        accepted = self.do(accept(self.database, incoming, worker_id=self.workers[worker].id, claim=claim))
        assert accepted.is_for_agent
        if known is None:
            self.sent[conversation].append(text)
            if key:
                self.keys[conversation, key] = text
        else:
            assert accepted.claimed is None
        if accepted.claimed is not None:
            self.workers[worker].holds.append(accepted.claimed)

    @rule(conversation=conversations)
    def post_something_else_under_a_used_key(self, conversation: str) -> None:
        if (conversation, "a") in self.keys:
            incoming = Incoming("local", conversation, "something else", client_message_id="a")
            with pytest.raises(Conflict):
                self.do(accept(self.database, incoming, worker_id="w", claim=True))

    @rule(worker=st.integers(0, 2), limit=st.integers(1, 5))
    def claim(self, worker: int, limit: int) -> None:
        async def run() -> list[ClaimedEvent]:
            async with self.database.statement() as connection:
                return await Events(connection).claim_waiting(worker_id=self.workers[worker].id, limit=limit)

        self.workers[worker].holds += self.do(run())

    @rule(worker=st.integers(0, 2))
    def finish(self, worker: int) -> None:
        if self.workers[worker].holds:
            self.answer(self.workers[worker].holds.pop(0), late=False)

    @rule(worker=st.integers(0, 2))
    def put_back(self, worker: int) -> None:
        async def run(event: ClaimedEvent) -> bool:
            async with self.database.statement() as connection:
                return await Events(connection).put_back(event, error="try again", delay=0)

        if self.workers[worker].holds:
            assert self.do(run(self.workers[worker].holds.pop(0)))

    @rule(worker=st.integers(0, 2), taken_over=st.booleans())
    def die(self, worker: int, taken_over: bool) -> None:
        """A process is declared dead and another one takes over its events. It may still be running, and finish late."""

        async def run() -> None:
            async with self.database.transaction() as connection:
                await connection.execute("UPDATE events SET worker_id = 'dead' WHERE worker_id = %s", (dead.id,))
                await Workers(connection).reap_dead_workers(except_for="somebody")

        dead = self.workers[worker]
        self.births += 1
        self.workers[worker] = Worker(f"worker-{worker}-{self.births}")
        self.zombies += dead.holds
        # Only this one is dead: the others are alive, as their database sessions would show.
        self.do(self.join_all())
        self.do(run())
        if taken_over:
            self.claim(worker, 5)

    async def join_all(self) -> None:
        async with self.database.statement() as connection:
            for worker in self.workers:
                await connection.execute(
                    "INSERT INTO workers (id, host, pid, lease_until) VALUES (%s, 'h', 1, clock_timestamp() + interval '15 s')"
                    " ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until",
                    (worker.id,),
                )

    @rule()
    def a_dead_worker_wakes_up_and_commits(self) -> None:
        if self.zombies:
            self.answer(self.zombies.pop(0), late=True)

    def answer(self, event: ClaimedEvent, *, late: bool) -> None:
        async def run() -> None:
            async with self.database.statement() as connection:
                said = await (
                    await connection.execute(
                        "SELECT content FROM messages WHERE conversation_id = %s AND id = %s",
                        (event.conversation_id, event.id),
                    )
                ).fetchone()
                assert said is not None
                await Events(connection).finish(event, Reply(f"re: {said[0]}"), agent_name="x", push=False)

        if late:
            with pytest.raises(Superseded):
                self.do(run())
        else:
            self.do(run())

    # ---- invariants

    @invariant()
    def messages_are_stored_once_and_in_the_order_they_were_accepted(self) -> None:
        for conversation, sent in self.sent.items():
            stored = self.sql(
                "SELECT content FROM messages WHERE conversation_id = %s AND role = 'user' ORDER BY created_at, id",
                conversation,
            )
            assert [row[0] for row in stored] == sent

    @invariant()
    def replies_are_unique_and_in_the_order_of_their_messages(self) -> None:
        for conversation, sent in self.sent.items():
            replies = self.sql(
                "SELECT content FROM messages WHERE conversation_id = %s AND role = 'assistant' ORDER BY created_at, id",
                conversation,
            )
            assert [row[0] for row in replies] == [f"re: {text}" for text in sent[: len(replies)]]

    @invariant()
    def times_strictly_increase(self) -> None:
        for conversation in self.sent:
            times = [
                row[0]
                for row in self.sql(
                    "SELECT created_at FROM messages WHERE conversation_id = %s ORDER BY created_at, id", conversation
                )
            ]
            assert all(a < b for a, b in pairwise(times))

    @invariant()
    def one_event_runs_per_conversation_and_the_count_is_right(self) -> None:
        wrong = self.sql(
            "SELECT c.id FROM conversations c LEFT JOIN events e ON e.conversation_id = c.id AND e.state <> 'done'"
            " GROUP BY c.id HAVING count(e.id) <> c.open_event_count OR count(*) FILTER (WHERE e.state = 'running') > 1"
        )
        assert wrong == []

    def teardown(self) -> None:
        """Check that everything is answered at the end."""
        for _ in range(200):
            for number, worker in enumerate(self.workers):
                while worker.holds:
                    self.finish(number)
            self.claim(0, 5)
            if not self.workers[0].holds:
                break
        assert self.sql("SELECT count(*) FROM events WHERE state <> 'done'") == [(0,)]
        self.replies_are_unique_and_in_the_order_of_their_messages()
        for conversation, sent in self.sent.items():
            answered = self.sql(
                "SELECT count(*) FROM messages WHERE conversation_id = %s AND role = 'assistant'", conversation
            )
            assert answered == [(len(sent),)]
        self.sql("DELETE FROM workers RETURNING 1")
        self.sql("DELETE FROM conversations RETURNING 1")


def test_every_accepted_message_is_answered_once_and_in_order(database_url: str) -> None:
    loop = asyncio.new_event_loop()
    database = Database(database_url, max_size=3)
    loop.run_until_complete(database.open())
    Promises.database, Promises.loop = database, loop
    try:
        run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
            Promises,
            settings=settings(
                max_examples=60,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    finally:
        loop.run_until_complete(database.close())
        loop.close()
