"""What the model is given of a conversation for one turn, and the receipt that says so afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from rapport.context.prompt import build_history, build_question, build_window_selection
from rapport.context.question import drop_empty_replies, get_author_id
from rapport.context.situation import load_zone
from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.context.transcript import TranscriptRenderer, render_preceding_message
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.context_selection import RECENT, ContextSelection
from rapport.domain.conversation import Message
from rapport.domain.conversation_kind import ConversationTraits
from rapport.replies.quoting import quoted_message
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.chat_tools import ChatTools
from rapport.turns.group_context import ContextSelector, GroupContext


@dataclass(frozen=True, slots=True)
class PromptInput:
    """A prompt without its instructions, and what it was made from."""

    message: HumanMessage
    history: Sequence[BaseMessage]
    selection: ContextSelection
    question: str = ""
    """What the notes are asked."""
    earlier: Sequence[str] = ()
    """What was asked before it, by the same person."""
    summary_id: str | None = None
    lookups: ChatTools | None = None
    """How the model may see more of a group chat."""

    @property
    def receipt(self) -> dict[str, Any]:
        """What is kept beside the reply, under "context": ids, reasons and scores, and no words."""
        looked_up = {"looked_up": list(self.lookups.used)} if self.lookups and self.lookups.used else {}
        return {**self.selection.receipt, "summary_id": self.summary_id, **looked_up}


def messages_to_load(traits: ConversationTraits) -> int:
    """How many messages before the one that is asked a turn looks at."""
    return RECENT if traits.selects_context else MAX_CHAT_HISTORY


def given_to_one(material: TurnInput, anchor: Message | None) -> PromptInput:
    """The window of a direct chat, and what the message replies to, if it does."""
    history = build_history(material.summary, [quoted_message(one) for one in material.earlier])
    if anchor is not None:
        history.append(render_preceding_message(material.message, replied_to=anchor, quote=quoted_message))
    asker = get_author_id(material.message)
    return PromptInput(
        build_question(quoted_message(material.message)),
        history,
        build_window_selection(material.earlier, call=material.message, anchor=anchor),
        material.message.text,
        [one.text for one in material.earlier if one.role == "user" and get_author_id(one) == asker],
        material.summary.id if material.summary else None,
    )


def given_to_group(
    gathered: GroupContext,
    profile: AgentProfile,
    owner_id: str,
    chooser: ContextSelector,
    *,
    may_look_up: bool,
    time_zone: str | None = None,
) -> PromptInput:
    """The call and what was chosen for it, quoted; with the means to look up more where the model has any use for them."""
    zone = load_zone(time_zone)
    scribe = TranscriptRenderer(profile, gathered.call, quote=quoted_message, numbered=may_look_up, zone=zone)
    found = gathered.candidates
    return PromptInput(
        history=scribe.render_history(gathered.selection, recent=found.recent, replied_to=found.anchor),
        message=scribe.render_call(),
        selection=gathered.selection,
        question=gathered.question,
        lookups=ChatTools(owner_id, gathered, chooser, scribe) if may_look_up else None,
    )


def given_in_silence(
    material: TurnInput, profile: AgentProfile, traits: ConversationTraits, trigger: HumanMessage
) -> PromptInput:
    """What an agent that speaks unasked goes on from: the latest messages. The trigger itself is in no receipt."""
    selection = build_window_selection(drop_empty_replies(material.earlier))
    if traits.selects_context:
        scribe = TranscriptRenderer(profile, material.message, quote=quoted_message, zone=load_zone(material.time_zone))
        history = scribe.render_history(selection, recent=material.earlier)
    else:
        history = build_history(material.summary, [quoted_message(one) for one in material.earlier])
    return PromptInput(trigger, history, selection, summary_id=material.summary.id if material.summary else None)
