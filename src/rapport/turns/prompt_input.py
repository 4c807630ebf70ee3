"""Build the prompt of a turn without its instructions: the message, the history before it, and the receipt of both.

A direct chat gives the model its newest messages, a group the messages selected for the call. `PROMPT_BUILDERS` holds
what differs; the rest of a turn is the same for both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from langchain_core.messages import BaseMessage, HumanMessage

from rapport.context.prompt import build_history, build_question, build_window_selection
from rapport.context.question import drop_empty_replies, get_author_id
from rapport.context.situation import load_zone
from rapport.context.summary_rules import fit_window, get_window_limit
from rapport.context.transcript import TranscriptRenderer, render_preceding_message
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, ContextSelection
from rapport.domain.conversation_kind import ConversationKind
from rapport.replies.quoting import quote_message
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.chat_tools import ChatTools
from rapport.turns.deps import TurnDeps
from rapport.turns.group_context import choose_options
from rapport.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class PromptInput:
    """A prompt without its instructions, and the selection that it was built from."""

    message: HumanMessage
    history: Sequence[BaseMessage]
    selection: ContextSelection
    question: str = ""
    """The question for the search in notes."""
    earlier_questions: Sequence[str] = ()
    """Earlier questions of the same person."""
    summary_id: str | None = None
    task: str = ""
    """A sentence after the message that says what to do with it."""
    lookups: ChatTools | None = None
    """Tools with which the model can read more of a group chat."""
    tools_used: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The tools that have read something for this turn, beside those of the chat: name, server and state."""

    @property
    def receipt(self) -> dict[str, Any]:
        """Ids, reasons and scores without texts; stored with the reply under "context"."""
        looked_up = {"looked_up": list(self.lookups.used)} if self.lookups and self.lookups.used else {}
        return {**self.selection.receipt, "summary_id": self.summary_id, **looked_up}


class PromptBuilder(Protocol):
    """Builds prompt inputs for conversations of one kind."""

    def get_messages_to_load(self, deps: TurnDeps, profile: AgentProfile) -> int:
        """Return the number of messages before the answered one that a turn loads."""
        ...

    @property
    def neighbours_to_load(self) -> int:
        """Return how many messages to load around a replied-to one: along its replies, and on either side."""
        ...

    async def build_for_message(self, turn: Turn) -> PromptInput: ...

    def build_for_trigger(self, turn: Turn, trigger: HumanMessage) -> PromptInput: ...


@dataclass(frozen=True, slots=True)
class _DirectPrompts:
    """Give the model the newest messages of a direct chat, and the summary of older ones."""

    neighbours_to_load: int = 0

    def get_messages_to_load(self, deps: TurnDeps, profile: AgentProfile) -> int:
        return get_window_limit(deps.get_max_chat_history(profile))

    async def build_for_message(self, turn: Turn) -> PromptInput:
        message, anchor = turn.input.message, turn.links.anchor
        history = _build_direct_history(turn.input)
        if anchor is not None:
            history.append(render_preceding_message(message, replied_to=anchor, quote=quote_message))
        asker = get_author_id(message)
        return PromptInput(
            build_question(quote_message(message)),
            history,
            build_window_selection(turn.input.earlier, call=message, anchor=anchor),
            message.text,
            [
                earlier.text
                for earlier in turn.input.earlier
                if earlier.role == "user" and get_author_id(earlier) == asker
            ],
            _get_summary_id(turn.input),
        )

    def build_for_trigger(self, turn: Turn, trigger: HumanMessage) -> PromptInput:
        selection = build_window_selection(drop_empty_replies(turn.input.earlier))
        return PromptInput(
            trigger, _build_direct_history(turn.input), selection, summary_id=_get_summary_id(turn.input)
        )


@dataclass(frozen=True, slots=True)
class _GroupPrompts:
    """Give the model a quoted transcript of the messages that belong to the call, and tools to read more of them."""

    neighbours_to_load: int = 20

    def get_messages_to_load(self, deps: TurnDeps, profile: AgentProfile) -> int:
        return MAX_RECENT_MESSAGES

    async def build_for_message(self, turn: Turn) -> PromptInput:
        selector = turn.deps.context_selector
        owner_id = turn.event.owner_id
        options = choose_options(selector.options, turn.profile)
        context = await selector.select(owner_id, turn.input.message, turn.input.earlier, turn.links, options=options)
        calls_tools = turn.calls_tools
        renderer = TranscriptRenderer(
            turn.profile,
            context.call,
            quote=quote_message,
            numbered=calls_tools,
            zone=load_zone(turn.input.time_zone),
        )
        candidates = context.candidates
        prompt_input = PromptInput(
            history=renderer.render_history(context.selection, recent=candidates.recent, replied_to=candidates.anchor),
            message=renderer.render_call(),
            selection=context.selection,
            question=context.question,
            task=renderer.describe_task(),
            lookups=ChatTools(owner_id, context, selector, renderer) if calls_tools else None,
        )
        turn.timer.record("context")
        return prompt_input

    def build_for_trigger(self, turn: Turn, trigger: HumanMessage) -> PromptInput:
        selection = build_window_selection(drop_empty_replies(turn.input.earlier))
        zone = load_zone(turn.input.time_zone)
        renderer = TranscriptRenderer(turn.profile, turn.input.message, quote=quote_message, zone=zone)
        history = renderer.render_history(selection, recent=turn.input.earlier)
        return PromptInput(trigger, history, selection, summary_id=_get_summary_id(turn.input))


PROMPT_BUILDERS: Final[Mapping[ConversationKind, PromptBuilder]] = {
    "direct": _DirectPrompts(),
    "group": _GroupPrompts(),
}


def _build_direct_history(turn_input: TurnInput) -> list[BaseMessage]:
    return build_history(turn_input.summary, [quote_message(message) for message in fit_window(turn_input.earlier)])


def _get_summary_id(turn_input: TurnInput) -> str | None:
    return turn_input.summary.id if turn_input.summary else None
