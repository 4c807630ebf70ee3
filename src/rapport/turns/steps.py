"""What turns have in common: what is looked up for one, how the model is asked, and what is planned after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog
from langchain_core.messages import BaseMessage, HumanMessage

from rapport.agents.graph import Answer, Form
from rapport.agents.tools import ChatToolbox, MaySave
from rapport.context.prompt import build_system_prompt
from rapport.context.situation import Situation
from rapport.context.summary_rules import MAX_CHAT_HISTORY, estimate_tokens
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Message
from rapport.domain.conversation_kind import ConversationTraits
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.follow_up import Autonomy, PastFollowUp, Plan
from rapport.domain.memory import MemoryCandidate
from rapport.domain.note import Passage
from rapport.followups.planner import plan_by_rules
from rapport.memory.memory_store import MemoryStore
from rapport.memory.query import Query
from rapport.memory.recall import Recall, RecalledMemory, memories_block
from rapport.metrics import Metrics
from rapport.replies.defusing import defuse_ids
from rapport.replies.quoting import quoted_history, quoted_passages, quoted_prompt
from rapport.replies.reply_kinds import checked
from rapport.replies.text import storable
from rapport.retrieval.retriever import Retrieval, Retriever
from rapport.storage.database import Database
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.group_context import ContextSelector
from rapport.turns.prompt_input import PromptInput

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
        may_save: MaySave | None,
        lookups: ChatToolbox | None,
        note: str,
        tags: dict[str, str],
    ) -> Answer: ...

    async def ask(self, system: str, text: str) -> str: ...

    async def decide(self, system: str, text: str, form: type[Form]) -> Form: ...


class OnToken(Protocol):
    def __call__(self, token: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class TurnDeps:
    """What turns are made with."""

    database: Database
    agent: Agent
    retriever: Retriever
    recall: Recall
    memory_store: MemoryStore
    metrics: Metrics
    context_selector: ContextSelector
    autonomy: bool = True
    """Whether anything is ever said unasked on this server."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The clock that prompts tell the time by."""
    model: str = ""
    """The name of the model, as RAPPORT_MODEL gives it."""

    def allowed_autonomy(
        self, profile: AgentProfile, traits: ConversationTraits, choice: bool | None
    ) -> Autonomy | None:
        """What may be planned in a conversation of this kind, where somebody has wanted follow-ups or not; None: nothing."""
        return profile.autonomy if self.autonomy and traits.wants_follow_ups(choice) else None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was looked up for a turn."""

    retrieval: Retrieval | None = None
    passages: Sequence[Passage] = ()
    memories: Sequence[RecalledMemory] = ()

    @property
    def about(self) -> str:
        """What the passages are, where they are not what a search found."""
        return self.retrieval.about if self.retrieval is not None and self.passages else ""

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


def build_findings(retrieval: Retrieval | None, memories: Sequence[RecalledMemory]) -> Findings:
    """What of everything that was looked up the model is given."""
    passages: list[Passage] = []
    if retrieval is not None and retrieval.is_relevant:
        passages = quoted_passages(retrieval.passages)
    return Findings(retrieval, passages, memories)


async def recall_memories(
    event: ClaimedEvent, material: TurnInput, profile: AgentProfile, query: Query, tools: TurnDeps
) -> Sequence[RecalledMemory]:
    """What the agent remembers that belongs to this turn. What one person has told it is not for a group to hear."""
    if not profile.remembers or not event.traits.may_use_memory or not material.has_memories:
        return ()
    return await tools.recall.recall(event.owner_id, event.agent_id, query, tokens=estimate_tokens)


async def look_up(
    event: ClaimedEvent, material: TurnInput, question: str, retriever: Retriever, *, earlier: Sequence[str]
) -> Retrieval | None:
    """What the notes say to the question, which follows these earlier ones; None when there are none to ask."""
    if not material.note_counts.chunks:
        return None
    retrieved = await retriever.retrieve(event.owner_id, question, earlier=earlier, shelf=material.note_counts)
    scores = {"ids": [one["id"] for one in retrieved.audit], "scores": [one["score"] for one in retrieved.audit]}
    log.info("chat.retrieval", **scores)
    return retrieved


async def ask_model(
    event: ClaimedEvent,
    given: PromptInput,
    profile: AgentProfile,
    findings: Findings,
    *,
    agent: Agent,
    situation: Situation,
    on_token: OnToken | None = None,
    aside: str = "",
    fresh: bool | None = None,
    may_save: MaySave | None = None,
) -> Reply:
    """Ask the model, and return its reply with its citations checked. Raise ModelFailed.

    With `may_save` it may ask to remember what that says yes to.
    """
    retrieved = {passage.note_id for passage in findings.passages}
    if given.lookups is not None:
        given.lookups.retrieved = retrieved
    is_called = event.trigger_type is None
    system = build_system_prompt(
        profile,
        event.traits,
        findings.passages,
        defuse_ids(memories_block(findings.memories), retrieved),
        about=findings.about,
        called=is_called,
        looks_up=given.lookups is not None,
        abilities=situation.describe_abilities(event.traits, is_called=is_called),
    )
    # A trigger is given exactly as it is (AUTO-3): there the time stands at the end of the instructions.
    closing = [] if is_called else [_sentences(situation.time_sentence, situation.person_sentence)]
    answer = await agent.run(
        quoted_prompt(given.message, retrieved),
        thread_id=event.id,
        system="\n\n".join([system, *closing, *([aside] if aside else [])]),
        history=quoted_history(given.history, retrieved),
        on_token=on_token,
        fresh=event.attempts == 1 if fresh is None else fresh,
        may_save=may_save,
        lookups=given.lookups,
        note=_note(situation, profile, event.traits) if is_called else "",
        tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
    )
    remarks = [MemoryCandidate(storable(one["content"]), one["key"], "agent") for one in answer.saved]
    return replace(checked(answer.text, findings.passages), model_failed=False, remarks=remarks)


def describe_situation(event: ClaimedEvent, material: TurnInput, profile: AgentProfile, tools: TurnDeps) -> Situation:
    """Return what the prompt of this turn states about time, person and abilities."""
    names = [one.author.name for one in (*material.earlier, material.message) if one.role == "user" and one.author]
    return Situation(
        tools.now(),
        material.time_zone,
        names[-1] if names and not event.traits.has_many_speakers else None,
        has_notes=bool(material.note_counts.chunks),
        remembers=profile.remembers and event.traits.may_use_memory,
        follows_up=tools.allowed_autonomy(profile, event.traits, material.autonomy) is not None
        and not material.is_muted,
    )


def _note(situation: Situation, profile: AgentProfile, traits: ConversationTraits) -> str:
    """Return what stands beside the newest message. In a group the message itself bears its date, time and speaker."""
    limits = situation.limits_sentence if profile.grounding == "strict" else ""
    return (
        _sentences(limits)
        if traits.has_many_speakers
        else _sentences(situation.time_sentence, situation.person_sentence, limits)
    )


def _sentences(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def plan_follow_up(
    event: ClaimedEvent,
    material: TurnInput,
    profile: AgentProfile,
    reply: Reply,
    tools: TurnDeps,
    *,
    made: Sequence[PastFollowUp] = (),
) -> Plan | None:
    """The follow-up that the rules would make after this reply, and after those that are just being made."""
    autonomy = tools.allowed_autonomy(profile, event.traits, material.autonomy)
    if autonomy is None:
        return None
    said = [
        *material.earlier[-MAX_CHAT_HISTORY:],
        *([] if event.trigger_type else [material.message]),
        build_reply_message(event, reply),
    ]
    owner_id = get_speaking_owner(event)
    return plan_by_rules(said, earlier=[*made, *material.past_follow_ups], autonomy=autonomy, owner_id=owner_id)


def get_speaking_owner(event: ClaimedEvent) -> str | None:
    """Return whose words alone count there: the owner's in a direct chat; in a group each person's are their own."""
    return None if event.traits.has_many_speakers else event.owner_id


def build_reply_message(event: ClaimedEvent, reply: Reply) -> Message:
    """The reply as it will stand in the log."""
    return Message(
        f"{event.id}-reply",
        event.conversation_id,
        "assistant",
        reply.content,
        datetime.now(UTC),
        metadata=reply.metadata,
    )


class PhaseTimer:
    """Says how long each part of a turn took."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._at = time.perf_counter()

    def record(self, phase: str) -> None:
        now = time.perf_counter()
        ms = round((now - self._at) * 1000, 2)
        log.info("chat.metrics", phase=phase, ms=ms)
        self._metrics.phase(phase, ms)
        self._at = now
