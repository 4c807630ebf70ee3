"""`/why`: what the agent looked at before it said something, in words for people who know nothing of how it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rapport.channels.telegram.commands.notice_text import WallClock, quote
from rapport.domain.context_selection import RECENT
from rapport.domain.conversation import Author, Conversation, Message
from rapport.domain.errors import NotFound
from rapport.domain.follow_up_requests import FOREVER
from rapport.storage.database import Connection
from rapport.storage.memories import Memories
from rapport.storage.messages.neighbours import from_snapshot, in_order, recent
from rapport.storage.notes.notes import Notes
from rapport.turns.explain import Explanation, explain_reply, load_timeline
from rapport.turns.group_context import ContextSelector

HOW_TO_ASK = "Reply with /why to something that I said, and I'll show you what I looked at for it."
NOTHING_SAID = "I haven't said anything here lately that I could explain."

MAX_MESSAGES = 10
MAX_SOURCES = 3
"""So many notes, and so many memories."""
MAX_NAME_CHARACTERS = 32

UNASKED: Mapping[str, str] = {
    "check_in": "to pick up our conversation again",
    "question_unanswered": "because a question of mine was still open",
    "task_incomplete": "to ask about something that was still to be done",
    "waiting_for_decision": "because a decision was still open",
}
_REASONS: Mapping[str, str] = {
    "reply_chain": "linked by replies",
    "addressed": "said to somebody who takes part",
    "semantic": "similar in meaning",
    "topic": "about the same thing",
    "session": "part of the same talk",
    "neighbour": "said right beside it",
}
_CIRCUMSTANCES: Mapping[str, str] = {
    "guard_used": "Nothing in the notes was close enough to the question, so I didn't try to answer it.",
    "fallback_used": "Something went wrong when I tried to answer, so I only said what I had found.",
    "cancelled": "I was stopped before I had finished.",
}


@dataclass(frozen=True, slots=True)
class _ChosenMessage:
    """A message that was looked at, and why."""

    message: Message
    reasons: Sequence[str]
    score: float


async def render_explanation(
    chooser: ContextSelector,
    conversation: Conversation,
    asker: Author,
    message: Message | None,
    *,
    thread_id: str | None,
    clock: WallClock,
) -> str:
    """What a message of the agent's was made from; without one, its latest, in a topic the latest there. As Markdown.

    Nothing that nobody said is in it, nor, in a group, what is remembered about anybody.
    """
    if message is not None and message.role != "assistant":
        return HOW_TO_ASK
    where = (conversation.owner_id, conversation.id)
    if message is None and thread_id is not None:
        async with chooser.database.statement() as connection:
            message = await _find_latest_reply(connection, conversation, thread_id)
        if message is None:
            return NOTHING_SAID
    try:
        explanation = await explain_reply(chooser, *where, None if message is None else message.id)
    except NotFound:
        return NOTHING_SAID
    shown = await _list_chosen(chooser, explanation)
    async with chooser.database.statement() as connection:
        notes = await _list_notes(connection, explanation)
        memories = await _list_memories(connection, explanation)
    told = _ExplanationText(explanation, asker, clock)
    return "\n\n".join(
        part
        for part in (told.render_opening(shown), told.render_messages(shown), *told.render_rest(notes, memories))
        if part
    )


@dataclass(frozen=True, slots=True)
class _ExplanationText:
    explanation: Explanation
    asker: Author
    clock: WallClock

    def render_opening(self, shown: Sequence[_ChosenMessage]) -> str:
        """What was said, on which occasion, and what the list that follows is."""
        explanation = self.explanation
        reply, call = explanation.reply, explanation.call
        facts: Mapping[str, Any] = reply.metadata if reply else {}
        sentences: list[str] = []
        if facts.get("autonomous") is True:
            sentences.append(
                f"I wrote that on my own, {UNASKED.get(str(facts.get('trigger_type')), UNASKED['check_in'])}."
            )
        elif call is not None:
            whose = "you" if self._is_asker(call) else self._name_speaker(call)
            sentences.append(f"That was my answer to what {whose} said: “{_quote_message(call)}”.")
        sentences += [sentence for flag, sentence in _CIRCUMSTANCES.items() if facts.get(flag) is True]
        if not shown:
            sentences.append("I looked at nothing else that was said here.")
        elif not explanation.is_stored:
            sentences.append("I don't know any more what I looked at. Now it would be:")
        elif explanation.receipt["strategy"] == "recent":
            sentences.append("I looked at the latest messages:")
        else:
            sentences.append("I looked at these messages:")
        return " ".join(sentences)

    def render_messages(self, shown: Sequence[_ChosenMessage]) -> str:
        """The surest of what was looked at, as it was said one after the other."""
        surest = sorted(
            shown, key=lambda one: ("anchor" not in one.reasons, -one.score, -one.message.created_at.timestamp())
        )
        kept = {one.message.id for one in surest[:MAX_MESSAGES]}
        lines = [self._render_line(one) for one in shown if one.message.id in kept]
        if len(shown) > len(lines):
            lines.append(f"- … and {len(shown) - len(lines):,} more")
        return "\n".join(lines)

    def render_rest(self, notes: Sequence[str], memories: Sequence[str]) -> Iterator[str]:
        receipt = self.explanation.receipt
        if receipt.get("summary_id") is not None:
            yield "I also had a summary of what was said before."
        if receipt.get("looked_up"):
            yield "I looked for more in this chat by myself, too."
        if notes:
            yield f"Notes I looked at: {', '.join(notes)}."
        if memories:
            yield f"What I remembered: {', '.join(memories)}."
        if any("trigger" not in one["reasons"] for one in receipt["messages"]):
            yield f"Times are {self.clock.name}."

    def _render_line(self, one: _ChosenMessage) -> str:
        reason = self._describe_reason(one)
        at = self.clock.format_time(one.message.created_at)
        return f"- **{self._name_speaker(one.message)}**, {at}: “{_quote_message(one.message)}”{f' – {reason}' if reason else ''}"

    def _describe_reason(self, one: _ChosenMessage) -> str:
        if "anchor" not in one.reasons:
            return next((_REASONS[reason] for reason in one.reasons if reason in _REASONS), "")
        call = self.explanation.call
        if call is not None and (call.reply_to_id == one.message.id or call.context_snapshot):
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


async def _find_latest_reply(connection: Connection, conversation: Conversation, thread_id: str) -> Message | None:
    where = (conversation.owner_id, conversation.id)
    said = await recent(connection, *where, before=(FOREVER, ""), limit=RECENT, thread_id=thread_id)
    return next((one for one in reversed(said) if one.role == "assistant"), None)


async def _list_chosen(chooser: ContextSelector, explanation: Explanation) -> list[_ChosenMessage]:
    """What was looked at beside the call itself, as far as it is still there; oldest first."""
    said = {one.id: one for one in await load_timeline(chooser.database, explanation)}
    brought = from_snapshot(explanation.call) if explanation.call else None
    if brought is not None:  # it was never stored, and is as much looked at
        said[brought.id] = brought
    chosen: Mapping[str, Mapping[str, Any]] = {
        one["id"]: one for one in explanation.receipt["messages"] if "trigger" not in one["reasons"]
    }
    kept = in_order([message for id_, message in said.items() if id_ in chosen])
    return [_ChosenMessage(one, chosen[one.id]["reasons"], chosen[one.id]["score"]) for one in kept]


async def _list_notes(connection: Connection, explanation: Explanation) -> list[str]:
    """By their titles; those that the answer cites are marked, and come first.

    A group hears only of those: what else was found may be somebody's own, and have nothing to do with the question.
    """
    cited = [str(source["id"]) for source in explanation.reply.sources] if explanation.reply else []
    shows_all = explanation.conversation.traits.shows_personal_data
    also = [str(one["id"]) for one in explanation.notes] if shows_all else []
    ids = dict.fromkeys([*cited, *also])
    titles: list[str] = []
    for id_ in list(ids)[:MAX_SOURCES]:
        try:
            note = await Notes(connection).get(explanation.conversation.owner_id, id_)
        except NotFound:  # deleted since
            continue
        titles.append(f"“{quote(note.title or id_)}”{' (quoted in the answer)' if id_ in cited else ''}")
    return titles


async def _list_memories(connection: Connection, explanation: Explanation) -> list[str]:
    conversation = explanation.conversation
    contents: list[str] = []
    if not conversation.traits.shows_personal_data:
        return contents
    for one in explanation.memories[:MAX_SOURCES]:
        try:
            memory = await Memories(connection).get(conversation.owner_id, conversation.agent_id, one["id"])
        except NotFound:  # forgotten since
            continue
        contents.append(f"“{quote(memory.content, limit=120)}”")
    return contents


def _quote_message(message: Message) -> str:
    return quote(message.text) or "a picture"
