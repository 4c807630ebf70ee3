"""Run `/why`: explain which messages, notes and memories a reply was made from, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rapport.channels.telegram.commands.notice_text import PURPOSES, WallClock, quote
from rapport.core.core import Core
from rapport.core.explanations import ExplanationDetails
from rapport.domain.conversation import Author, Conversation, Message
from rapport.domain.errors import NotFound
from rapport.turns.explain import Explanation, describe_tool

HOW_TO_ASK = "Reply with /why to one of my messages, and I'll show you what I used for it."
NOTHING_SAID = "I haven't written anything here lately that I could explain."

MAX_MESSAGES = 10
MAX_SOURCES = 3
"""At most this many notes, and this many memories."""
MAX_NAME_CHARACTERS = 32

_REASONS: Mapping[str, str] = {
    "reply_chain": "linked by replies",
    "addressed": "addressed to a participant",
    "semantic": "similar in meaning",
    "topic": "about the same topic",
    "session": "part of the same discussion",
    "neighbour": "next to it in the chat",
}
_CIRCUMSTANCES: Mapping[str, str] = {
    "guard_used": "No note was close enough to the question, so I didn't answer it.",
    "fallback_used": "The model failed, so I only listed what I had found.",
    "cancelled": "Somebody stopped me before I had finished.",
}


@dataclass(frozen=True, slots=True)
class _ChosenMessage:
    """A message that was chosen for a reply, with the reasons."""

    message: Message
    reasons: Sequence[str]
    score: float


async def render_explanation(
    core: Core,
    conversation: Conversation,
    asker: Author,
    message: Message | None,
    *,
    thread_id: str | None,
    clock: WallClock,
) -> str:
    """Return, as Markdown, what a reply was made from: `message`, or the latest reply of the chat or the topic.

    Synthetic messages are left out, and in a group also memories.
    """
    if message is not None and message.role != "assistant":
        return HOW_TO_ASK
    ids = (conversation.owner_id, conversation.id)
    if message is None and thread_id is not None:
        message = await core.history.find_latest_reply(*ids, thread_id=thread_id)
        if message is None:
            return NOTHING_SAID
    try:
        explanation = await core.explanations.explain(*ids, None if message is None else message.id)
    except NotFound:
        return NOTHING_SAID
    details = await core.explanations.load_details(explanation)
    chosen = _list_chosen(explanation, details)
    text = _ExplanationText(explanation, asker, clock)
    rest = text.render_rest(_list_notes(explanation, details), _list_memories(explanation, details))
    return "\n\n".join(part for part in (text.render_opening(chosen), text.render_messages(chosen), *rest) if part)


@dataclass(frozen=True, slots=True)
class _ExplanationText:
    explanation: Explanation
    asker: Author
    clock: WallClock

    def render_opening(self, shown: Sequence[_ChosenMessage]) -> str:
        """Return the first lines: which message the reply answers, and what the list below contains."""
        explanation = self.explanation
        reply, call = explanation.reply, explanation.call
        facts: Mapping[str, Any] = reply.metadata if reply else {}
        sentences: list[str] = []
        if facts.get("autonomous") is True:
            sentences.append(
                f"I wrote that on my own, {PURPOSES.get(str(facts.get('trigger_type')), PURPOSES['check_in'])}."
            )
        elif call is not None:
            speaker = "you" if self._is_asker(call) else self._name_speaker(call)
            sentences.append(f"That was my answer to what {speaker} said: “{_quote_message(call)}”.")
        sentences += [sentence for flag, sentence in _CIRCUMSTANCES.items() if facts.get(flag) is True]
        if not shown:
            sentences.append("I used no other messages.")
        elif not explanation.is_stored:
            sentences.append("I have no record of the messages that I used. Now I would use:")
        elif explanation.receipt["strategy"] == "recent":
            sentences.append("I used the latest messages:")
        else:
            sentences.append("I used these messages:")
        return " ".join(sentences)

    def render_messages(self, shown: Sequence[_ChosenMessage]) -> str:
        """Return the messages with the highest scores as a list, oldest first."""
        by_score = sorted(
            shown,
            key=lambda entry: ("anchor" not in entry.reasons, -entry.score, -entry.message.created_at.timestamp()),
        )
        shown_ids = {entry.message.id for entry in by_score[:MAX_MESSAGES]}
        lines = [self._render_line(entry) for entry in shown if entry.message.id in shown_ids]
        if len(shown) > len(lines):
            lines.append(f"- … and {len(shown) - len(lines):,} more")
        return "\n".join(lines)

    def render_rest(self, notes: Sequence[str], memories: Sequence[str]) -> Iterator[str]:
        receipt = self.explanation.receipt
        if receipt.get("summary_id") is not None:
            yield "I also used a summary of the older messages."
        if receipt.get("looked_up"):
            yield "I also searched this chat."
        if tools := self.explanation.tools:
            yield f"Tools that I used: {', '.join(describe_tool(tool) for tool in tools)}."
        if notes:
            yield f"Notes that I used: {', '.join(notes)}."
        if memories:
            yield f"Memories that I used: {', '.join(memories)}."
        if any("trigger" not in entry["reasons"] for entry in receipt["messages"]):
            yield f"Times are {self.clock.name}."

    def _render_line(self, entry: _ChosenMessage) -> str:
        reason = self._describe_reason(entry)
        time = self.clock.format_time(entry.message.created_at)
        return f"- **{self._name_speaker(entry.message)}**, {time}: “{_quote_message(entry.message)}”{f' – {reason}' if reason else ''}"

    def _describe_reason(self, entry: _ChosenMessage) -> str:
        if "anchor" not in entry.reasons:
            return next((_REASONS[reason] for reason in entry.reasons if reason in _REASONS), "")
        call = self.explanation.call
        if call is not None and (call.reply_to_id == entry.message.id or call.context_snapshot):
            return f"{self._name_speaker(call)} replied to it"
        return "what the question was about"

    def _name_speaker(self, message: Message) -> str:
        if message.role == "assistant":
            return "me"
        if self._is_asker(message):
            return "you"
        name = quote(message.author.name, limit=MAX_NAME_CHARACTERS) if message.author else ""
        return (name or "somebody") + (" (a bot)" if message.is_bot else "")

    def _is_asker(self, message: Message) -> bool:
        if message.author is None:
            return not self.explanation.conversation.traits.has_many_speakers
        return message.author.id == self.asker.id


def _list_chosen(explanation: Explanation, details: ExplanationDetails) -> list[_ChosenMessage]:
    """Return the messages that were chosen beside the call itself, as far as they still exist; oldest first."""
    chosen: Mapping[str, Mapping[str, Any]] = {
        entry["id"]: entry for entry in explanation.receipt["messages"] if "trigger" not in entry["reasons"]
    }
    return [
        _ChosenMessage(message, chosen[message.id]["reasons"], chosen[message.id]["score"])
        for message in details.messages
        if message.id in chosen
    ]


def _list_notes(explanation: Explanation, details: ExplanationDetails) -> list[str]:
    """Return the titles of notes; those that the answer cites are marked, and come first.

    A group sees only the cited ones: the others may be private and unrelated to the question.
    """
    cited = [str(source["id"]) for source in explanation.reply.sources] if explanation.reply else []
    shows_all = explanation.conversation.traits.shows_personal_data
    also = [str(note["id"]) for note in explanation.notes] if shows_all else []
    ids = list(dict.fromkeys([*cited, *also]))[:MAX_SOURCES]
    return [
        f"“{quote(details.note_titles[note_id] or note_id)}”{' (quoted in the answer)' if note_id in cited else ''}"
        for note_id in ids
        if note_id in details.note_titles
    ]


def _list_memories(explanation: Explanation, details: ExplanationDetails) -> list[str]:
    if not explanation.conversation.traits.shows_personal_data:
        return []
    ids = [memory["id"] for memory in explanation.memories[:MAX_SOURCES]]
    texts = [details.memory_texts[memory_id] for memory_id in ids if memory_id in details.memory_texts]
    return [f"“{quote(text, limit=120)}”" for text in texts]


def _quote_message(message: Message) -> str:
    return quote(message.text) or "a picture"
