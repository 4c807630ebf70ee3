"""What turns have in common: what is looked up for one, how the model is asked, and what is planned after it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog
from langchain_core.messages import BaseMessage, HumanMessage

from rapport.agent.graph import Answer, Form
from rapport.agent.tools import Lookups
from rapport.autonomy.planner import plan_by_rules
from rapport.chiming import Chooser
from rapport.context.summaries import MAX_CHAT_HISTORY, estimated_tokens
from rapport.context.window import system_prompt
from rapport.domain.agents import AgentProfile
from rapport.domain.conversation import Kind, Message
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.followups import Autonomy, Plan
from rapport.domain.memories import Remark
from rapport.domain.notes import Passage
from rapport.given import Given
from rapport.knowledge.retrieval import Retrieval, Retriever
from rapport.memory.book import MemoryBook
from rapport.memory.query import Query
from rapport.memory.recall import Recall, Recalled, memories_block
from rapport.metrics import Metrics
from rapport.reply.defusing import defuse_ids
from rapport.reply.quoting import quoted_history, quoted_passages, quoted_prompt
from rapport.reply.replies import checked
from rapport.reply.text import storable
from rapport.storage.database import Database
from rapport.storage.turns import Material

log = structlog.get_logger()

MAX_ATTEMPTS = 10
"""After so many tries an event gets the fallback: one message must not bring the process down for ever."""


class Agent(Protocol):
    """What turns and what follows them need of an agent."""

    @property
    def calls_tools(self) -> bool: ...

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str,
        history: Sequence[BaseMessage],
        on_token: OnToken | None,
        fresh: bool,
        may_save: bool,
        lookups: Lookups | None,
        tags: dict[str, str],
    ) -> Answer: ...

    async def ask(self, system: str, text: str) -> str: ...

    async def decide(self, system: str, text: str, form: type[Form]) -> Form: ...


class OnToken(Protocol):
    def __call__(self, token: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What turns are made with."""

    database: Database
    agent: Agent
    retriever: Retriever
    recall: Recall
    book: MemoryBook
    metrics: Metrics
    chooser: Chooser
    autonomy: bool = True
    """Whether anything is ever said unasked on this server."""

    def plans(self, profile: AgentProfile, kind: Kind, wanted: bool | None) -> Autonomy | None:
        """What may be planned in a conversation of this kind, where somebody has wanted follow-ups or not; None: nothing."""
        is_on = self.autonomy and (kind == "direct" if wanted is None else wanted)
        return profile.autonomy if is_on else None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was looked up for a turn."""

    retrieval: Retrieval | None = None
    passages: Sequence[Passage] = ()
    memories: Sequence[Recalled] = ()

    @property
    def audit(self) -> dict[str, object]:
        """What is kept beside what was cited of it."""
        found: dict[str, object] = {}
        if self.retrieval is not None:
            found["retrieved"] = self.retrieval.audit
            found["notes_given"] = bool(self.passages)
        if self.memories:
            found["memories"] = [{"id": one.id, "score": round(one.similarity, 4)} for one in self.memories]
        return found


def found(retrieval: Retrieval | None, memories: Sequence[Recalled]) -> Findings:
    """What of everything that was looked up the model is given."""
    passages: list[Passage] = []
    if retrieval is not None and retrieval.is_relevant:
        passages = quoted_passages(retrieval.passages)
    return Findings(retrieval, passages, memories)


async def recalled(
    event: ClaimedEvent, material: Material, profile: AgentProfile, query: Query, tools: Tools
) -> Sequence[Recalled]:
    """What the agent remembers that belongs to this turn. What one person has told it is not for a group to hear."""
    if not profile.remembers or event.kind != "direct" or not material.has_memories:
        return ()
    return await tools.recall.recall(event.owner_id, event.agent_id, query, tokens=estimated_tokens)


async def look_up(
    event: ClaimedEvent, material: Material, question: str, retriever: Retriever, *, earlier: Sequence[str]
) -> Retrieval | None:
    """What the notes say to the question, which follows these earlier ones; None when there are none to ask."""
    if not material.shelf.chunks:
        return None
    retrieved = await retriever.retrieve(event.owner_id, question, earlier=earlier, shelf=material.shelf)
    scores = {"ids": [one["id"] for one in retrieved.audit], "scores": [one["score"] for one in retrieved.audit]}
    log.info("chat.retrieval", **scores)
    return retrieved


async def asked(
    event: ClaimedEvent,
    given: Given,
    profile: AgentProfile,
    findings: Findings,
    *,
    agent: Agent,
    on_token: OnToken | None = None,
    aside: str = "",
    fresh: bool | None = None,
) -> Reply:
    """What the model says to what it is given, with its citations checked. Raises ModelFailed."""
    retrieved = {passage.note_id for passage in findings.passages}
    if given.lookups is not None:
        given.lookups.retrieved = retrieved
    system = system_prompt(
        profile,
        event.kind,
        findings.passages,
        defuse_ids(memories_block(findings.memories), retrieved),
        called=event.trigger_type is None,
        looks_up=given.lookups is not None,
    )
    answer = await agent.run(
        quoted_prompt(given.message, retrieved),
        thread_id=event.id,
        system=f"{system}\n\n{aside}" if aside else system,
        history=quoted_history(given.history, retrieved),
        on_token=on_token,
        fresh=event.attempts == 1 if fresh is None else fresh,
        may_save=profile.remembers and event.kind == "direct" and event.trigger_type is None,
        lookups=given.lookups,
        tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
    )
    remarks = [Remark(storable(one["content"]), one["key"], "agent") for one in answer.saved]
    return replace(checked(answer.text, findings.passages), model_failed=False, remarks=remarks)


def planned_after(
    event: ClaimedEvent, material: Material, profile: AgentProfile, reply: Reply, tools: Tools
) -> Plan | None:
    """The follow-up that the rules would make after this reply."""
    autonomy = tools.plans(profile, event.kind, material.autonomy)
    if autonomy is None:
        return None
    said = [
        *material.earlier[-MAX_CHAT_HISTORY:],
        *([] if event.trigger_type else [material.asked]),
        as_said(event, reply),
    ]
    return plan_by_rules(said, matters=material.matters, autonomy=autonomy)


def as_said(event: ClaimedEvent, reply: Reply) -> Message:
    """The reply as it will stand in the log."""
    return Message(
        f"{event.id}-reply",
        event.conversation_id,
        "assistant",
        reply.content,
        datetime.now(UTC),
        metadata=reply.metadata,
    )


class Phases:
    """Says how long each part of a turn took."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._at = time.perf_counter()

    def passed(self, phase: str) -> None:
        now = time.perf_counter()
        ms = round((now - self._at) * 1000, 2)
        log.info("chat.metrics", phase=phase, ms=ms)
        self._metrics.phase(phase, ms)
        self._at = now
