"""Ask the model: the step that answers and follow-ups share."""

from __future__ import annotations

from rapport.agents.graph import Answer
from rapport.agents.tools import MaySave
from rapport.context.prompt import build_system_prompt
from rapport.context.situation import Situation
from rapport.context.source_block import BLENDED, render_sources
from rapport.domain.server_note import NO_NOTE, ServerNote
from rapport.memory.recall import memories_block
from rapport.replies.defusing import defuse_ids
from rapport.replies.quoting import quote_history, quote_prompt
from rapport.turns.deps import OnToken
from rapport.turns.findings import Findings
from rapport.turns.prompt_input import PromptInput
from rapport.turns.turn import Turn


async def ask_model(
    turn: Turn,
    prompt_input: PromptInput,
    findings: Findings,
    *,
    on_token: OnToken | None = None,
    hint: str = "",
    fresh: bool | None = None,
    may_save: MaySave | None = None,
) -> Answer:
    """Return the model's answer, unchecked. Raise ModelFailed.

    `hint` is added to the instructions. `fresh` says that there is no checkpoint of this event: by default, on the first
    attempt. With `may_save` the model may save memories that this function accepts.
    """
    event = turn.event
    citable_ids = {passage.note_id for passage in findings.passages}
    if prompt_input.lookups is not None:
        prompt_input.lookups.retrieved = citable_ids
    is_called = event.trigger_type is None
    situation = _describe_situation(turn)
    memories = defuse_ids(memories_block(findings.memories), citable_ids)
    instructions = [
        build_system_prompt(
            turn.profile,
            event.traits,
            findings.passages,
            about=findings.description,
            called=is_called,
            looks_up=prompt_input.lookups is not None,
            abilities=situation.describe_abilities(event.traits, is_called=is_called),
        )
    ]
    note = NO_NOTE
    if is_called:  # what changes from turn to turn stands behind what does not, so that prompt caches hit
        note = _write_note(turn, prompt_input, findings, situation, memories)
    else:  # a trigger's text is fixed (AUTO-3), so all of it is at the end of the instructions
        facts = [memories, _render_passages(turn, findings), situation.time_sentence, situation.person_sentence]
        instructions += [fact for fact in facts if fact]
    if hint:
        instructions.append(hint)
    return await turn.deps.agent.run(
        quote_prompt(prompt_input.message, citable_ids),
        thread_id=event.id,
        system="\n\n".join(instructions),
        history=quote_history(prompt_input.history, citable_ids),
        on_token=on_token,
        fresh=event.attempts == 1 if fresh is None else fresh,
        may_save=may_save,
        may_plan=is_called and turn.may_model_plan,
        lookups=prompt_input.lookups,
        note=note,
        tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
    )


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
