"""Ask the model: the step that answers and follow-ups share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog

from rapport.agents.failures import ModelFailed
from rapport.agents.graph_run import Answer, Entry, Keep, Prompt
from rapport.agents.tools.recorded import Requests
from rapport.agents.tools.toolbox import OutsideCalls, Toolbox
from rapport.context.prompt import build_system_prompt
from rapport.context.situation import Situation
from rapport.context.source_block import BLENDED, render_sources
from rapport.domain.agent_profile import ModelChoice
from rapport.domain.event import Reply
from rapport.domain.server_note import NO_NOTE, ServerNote
from rapport.domain.usage import Purpose
from rapport.memory.recall import render_memories
from rapport.replies.defusing import defuse_ids
from rapport.replies.quoting import quote_history, quote_prompt
from rapport.turns.deps import Agent, OnToken
from rapport.turns.findings import Findings, Search
from rapport.turns.prompt_input import PromptInput
from rapport.turns.set_reminders import finds_reminders_by_rules
from rapport.turns.turn import Turn
from rapport.turns.turn_tools import bind_tools, is_away, list_outside_tools, offers_reminders

log = structlog.get_logger()

FIRST_MODELS_SHARE = 0.6
"""The share of a turn's deadline that an agent's model has before its fallback model is asked."""


@dataclass(slots=True)
class TurnPrompt:
    """The prompt of one turn: its searches, and what is made of them when they are done."""

    turn: Turn
    prompt_input: PromptInput
    search: Search
    instructions: str | None = None
    """Instructions in place of the agent's and of every fact beside them."""
    hint: str = ""
    """A text that is added to the instructions."""
    find_refusal: Callable[[], Awaitable[Reply | None]] | None = None
    """Return a reply that is made without the model, after the searches; None: the model is asked."""
    stream: Callable[[Search], OnToken | None] | None = None
    """Return the callback for the model's tokens."""
    open_questions: str = ""
    """A sentence about the tool calls that a person must decide about."""
    refusal: Reply | None = None
    _relay: _Relay | None = None

    @property
    def entry(self) -> Entry:
        return self.search.entry

    async def recall(self) -> Sequence[str]:
        return await self.search.recall()

    async def retrieve(self) -> Sequence[str]:
        return await self.search.retrieve()

    async def compose(self) -> Prompt | None:
        if self.find_refusal is not None and (refusal := await self.find_refusal()) is not None:
            self.refusal = refusal
            return None
        turn, prompt_input, findings = self.turn, self.prompt_input, await self.search.run()
        citable_ids = {passage.note_id for passage in findings.passages}
        instructions, note = self.instructions, NO_NOTE
        if instructions is None:
            instructions, note = _instruct(turn, prompt_input, findings, citable_ids, self.open_questions)
        if prompt_input.lookups is not None:
            prompt_input.lookups.retrieved = citable_ids
        return Prompt(
            quote_prompt(prompt_input.message, citable_ids),
            "\n\n".join(part for part in (instructions, self.hint) if part),
            quote_history(prompt_input.history, citable_ids),
            note,
            self._choose_client(),
        )

    def _choose_client(self) -> OnToken | None:
        """Return the callback for tokens. What a failed model has streamed is not continued: the client gets the finished reply."""
        if self._relay is not None and self._relay.has_relayed:
            return None
        on_token = self.stream(self.search) if self.stream is not None else None
        self._relay = None if on_token is None else _Relay(on_token)
        return self._relay


async def ask_model(
    prompt: TurnPrompt,
    *,
    fresh: bool | None = None,
    outside_calls: OutsideCalls | None = None,
    purpose: Purpose = "answer",
) -> Answer | None:
    """Search, then return the answer of the agent's model, else of its fallback model, unchecked; None if `prompt` refused.

    Raise ModelFailed. `fresh` says that there is no checkpoint of this event: by default, on the first attempt. The turn's meter
    counts each call under `purpose`.
    """
    turn = prompt.turn
    event = turn.event
    is_fresh = (event.attempts == 1 and not event.resumes) if fresh is None else fresh
    is_called = event.trigger_type is None

    async def run(model: Agent, deadline_share: float, fresh: bool) -> Answer | None:
        requests = Requests()
        bound = bind_tools(turn, prompt.prompt_input, prompt.search, requests) if is_called else ()
        toolbox = Toolbox(bound, outside_calls=outside_calls, is_away=partial(is_away, turn))
        keep: Keep = ("steps" if toolbox.has_outside_effects else "nothing") if is_called else "end"  # ADR 71, 90
        return await model.run_turn(
            prompt,
            thread_id=event.message_id,
            tools=toolbox,
            requests=requests,
            on_call=partial(turn.meter.count, purpose),
            fresh=fresh,
            keep=keep,
            tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
            deadline_share=deadline_share,
        )

    return await _run_or_fall_back(turn, run, fresh=is_fresh)


class _Relay:
    """Forward tokens, and record whether any was forwarded."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.has_relayed = False

    def __call__(self, token: str, /) -> None:
        self.has_relayed = True
        self._on_token(token)


async def _run_or_fall_back(
    turn: Turn, run: Callable[[Agent, float, bool], Awaitable[Answer | None]], *, fresh: bool
) -> Answer | None:
    """Run the agent's model; if it fails, or has just failed, run its fallback model. Raise the first model's ModelFailed.

    The fallback model goes on after the tool calls that the first one has made.
    """
    if not turn.profile.fallback_model:
        return await run(turn.require_model(), 1.0, fresh)
    failure: ModelFailed
    try:
        model = turn.require_model()
        if model.health.has_just_failed():
            failure = ModelFailed("resting", "the agent's model has just failed")
        else:
            return await run(model, FIRST_MODELS_SHARE, fresh)
    except ModelFailed as error:
        failure = error
    log.warning("agent.fallback_model", reason=str(failure), model=turn.profile.fallback_model)
    try:
        fallback = await turn.deps.models.get(ModelChoice(turn.profile.fallback_model))
        return await run(fallback, 1.0 - FIRST_MODELS_SHARE, False)
    except ModelFailed as error:
        error.is_of_fallback = True
        raise error if failure.kind == "resting" else failure from error


def _instruct(
    turn: Turn, prompt_input: PromptInput, findings: Findings, citable_ids: Collection[str], open_questions: str
) -> tuple[str, ServerNote]:
    """Return the instructions of the agent, and the note beside the newest message."""
    event = turn.event
    is_called = event.trigger_type is None
    situation = _describe_situation(turn)
    memories = defuse_ids(render_memories(findings.memories), citable_ids)
    instructions = build_system_prompt(
        turn.profile,
        event.traits,
        findings.passages,
        about=findings.description,
        called=is_called,
        looks_up=prompt_input.lookups is not None,
        abilities=situation.describe_abilities(event.traits, is_called=is_called),
    )
    if is_called:  # what changes from turn to turn stands behind what does not, so that prompt caches hit
        return instructions, _write_note(turn, prompt_input, findings, situation, memories, open_questions)
    # A trigger's text is fixed (AUTO-3), so all of it is at the end of the instructions.
    facts = [memories, _render_passages(turn, findings), situation.time_sentence, situation.person_sentence]
    return "\n\n".join([instructions, *(fact for fact in facts if fact)]), NO_NOTE


def _describe_situation(turn: Turn) -> Situation:
    """Return the facts about time, person and abilities that the prompt states."""
    messages = (*turn.input.earlier, turn.input.message)
    names = [message.author.name for message in messages if message.role == "user" and message.author]
    return Situation(
        turn.deps.now(),
        turn.input.time_zone,
        names[-1] if names and not turn.event.traits.has_many_speakers else None,
        has_notes=bool(turn.input.note_counts.chunks),
        remembers=turn.may_use_memory,
        follows_up=turn.autonomy is not None and not turn.input.is_muted,
        reminders=_find_who_sets_reminders(turn),
        uses_outside_tools=turn.event.trigger_type is None and bool(list_outside_tools(turn)),
    )


def _find_who_sets_reminders(turn: Turn) -> Literal["none", "tool", "rules"]:
    if offers_reminders(turn):
        return "tool"
    return "rules" if finds_reminders_by_rules(turn) else "none"


def _write_note(
    turn: Turn,
    prompt_input: PromptInput,
    findings: Findings,
    situation: Situation,
    memories: str,
    open_questions: str,
) -> ServerNote:
    """Return the server note beside the newest message. In a group the message itself has its date, time and speaker."""
    limits = situation.limits_sentence if turn.profile.grounding == "strict" else ""
    sentences = [limits, open_questions]
    if not turn.event.traits.has_many_speakers:
        sentences = [situation.time_sentence, situation.person_sentence, limits, open_questions]
    blocks = [memories, _render_passages(turn, findings)]
    return ServerNote(
        " ".join(sentence for sentence in sentences if sentence),
        "\n\n".join(block for block in blocks if block),
        prompt_input.task,
    )


def _render_passages(turn: Turn, findings: Findings) -> str:
    """Return the passages for an agent whose instructions have no fixed place for them; empty if there are none."""
    if turn.profile.grounding == "strict" or not findings.passages:
        return ""
    return BLENDED.format(sources_block=render_sources(findings.passages, findings.description))
