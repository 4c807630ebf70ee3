"""Ask the model: the step that answers and follow-ups share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial

import structlog

from rapport.agents.failures import ModelFailed
from rapport.agents.graph import Answer
from rapport.agents.tools import MaySave
from rapport.context.prompt import build_system_prompt
from rapport.context.situation import Situation
from rapport.context.source_block import BLENDED, render_sources
from rapport.domain.agent_profile import ModelChoice
from rapport.domain.server_note import NO_NOTE, ServerNote
from rapport.domain.usage import Purpose
from rapport.memory.recall import render_memories
from rapport.replies.defusing import defuse_ids
from rapport.replies.quoting import quote_history, quote_prompt
from rapport.turns.deps import Agent, OnToken
from rapport.turns.findings import Findings
from rapport.turns.prompt_input import PromptInput
from rapport.turns.turn import Turn

log = structlog.get_logger()

FIRST_MODELS_SHARE = 0.6
"""The share of a turn's deadline that an agent's model has before its fallback model is asked."""


async def ask_model(
    turn: Turn,
    prompt_input: PromptInput,
    findings: Findings,
    *,
    on_token: OnToken | None = None,
    instructions: str | None = None,
    hint: str = "",
    fresh: bool | None = None,
    may_save: MaySave | None = None,
    purpose: Purpose = "answer",
) -> Answer:
    """Return the answer of the agent's model, else of its fallback model, unchecked. Raise ModelFailed.

    `instructions` replace those of the agent and every fact beside them. `hint` is added to the instructions. `fresh` says
    that there is no checkpoint of this event: by default, on the first attempt. With `may_save` the model may save memories
    that this function accepts. The turn's meter counts each call under `purpose`.
    """
    event = turn.event
    citable_ids = {passage.note_id for passage in findings.passages}
    if prompt_input.lookups is not None:
        prompt_input.lookups.retrieved = citable_ids
    is_called = event.trigger_type is None
    note = NO_NOTE
    if instructions is None:
        instructions, note = _instruct(turn, prompt_input, findings, citable_ids)
    relay = None if on_token is None else _Relay(on_token)

    async def run(model: Agent, deadline_share: float) -> Answer:
        return await model.run(
            quote_prompt(prompt_input.message, citable_ids),
            thread_id=event.id,
            system="\n\n".join(part for part in (instructions, hint) if part),
            history=quote_history(prompt_input.history, citable_ids),
            # What a failed model has streamed is not continued: the client gets the finished reply.
            on_token=None if relay is None or relay.has_relayed else relay,
            on_call=partial(turn.meter.count, purpose),
            fresh=event.attempts == 1 if fresh is None else fresh,
            checkpoint=not is_called,  # ADR 71
            may_save=may_save,
            may_plan=turn.types_to_plan if is_called else (),
            lookups=prompt_input.lookups,
            note=note,
            tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
            allowed_tools=turn.profile.tools,
            deadline_share=deadline_share,
        )

    return await _run_or_fall_back(turn, run)


class _Relay:
    """Forward tokens, and record whether any was forwarded."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.has_relayed = False

    def __call__(self, token: str, /) -> None:
        self.has_relayed = True
        self._on_token(token)


async def _run_or_fall_back(turn: Turn, run: Callable[[Agent, float], Awaitable[Answer]]) -> Answer:
    """Run the agent's model; if it fails, or has just failed, run its fallback model. Raise the first model's ModelFailed."""
    if not turn.profile.fallback_model:
        return await run(turn.require_model(), 1.0)
    failure: ModelFailed
    try:
        model = turn.require_model()
        if model.health.has_just_failed():
            failure = ModelFailed("resting", "the agent's model has just failed")
        else:
            return await run(model, FIRST_MODELS_SHARE)
    except ModelFailed as error:
        failure = error
    log.warning("agent.fallback_model", reason=str(failure), model=turn.profile.fallback_model)
    try:
        return await run(await turn.deps.models.get(ModelChoice(turn.profile.fallback_model)), 1.0 - FIRST_MODELS_SHARE)
    except ModelFailed as error:
        raise error if failure.kind == "resting" else failure from error


def _instruct(
    turn: Turn, prompt_input: PromptInput, findings: Findings, citable_ids: Collection[str]
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
        return instructions, _write_note(turn, prompt_input, findings, situation, memories)
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
    )


def _write_note(
    turn: Turn, prompt_input: PromptInput, findings: Findings, situation: Situation, memories: str
) -> ServerNote:
    """Return the server note beside the newest message. In a group the message itself has its date, time and speaker."""
    limits = situation.limits_sentence if turn.profile.grounding == "strict" else ""
    sentences = [limits]
    if not turn.event.traits.has_many_speakers:
        sentences = [situation.time_sentence, situation.person_sentence, limits]
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
