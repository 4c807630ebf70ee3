"""Explain a reply by its context: the stored receipt, or the selection that would be made now (CTX-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rapport.agents.directory import AgentDirectory
from rapport.context.prompt import build_window_selection
from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, Strategy
from rapport.domain.conversation import Conversation, Message
from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id
from rapport.domain.tool import SERVER_SEPARATOR
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Connection, Database
from rapport.storage.messages.messages import Messages
from rapport.storage.messages.neighbours import load_linked, load_recent, sort_by_time
from rapport.turns.group_context import ContextSelector, GroupContext, choose_options

_CALL_STATES: Mapping[str, str] = {
    "denied": "not allowed",
    "expired": "nobody decided in time",
    "unknown": "outcome not known",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The context of one message of a conversation."""

    conversation: Conversation
    call: Message | None
    """The answered message; None for a follow-up."""
    reply: Message | None
    """The agent's reply, if there is one."""
    receipt: Mapping[str, Any]
    """`{strategy, anchor_id, messages: [{id, reasons, score}], summary_id, looked_up?}`."""
    is_stored: bool
    """True if this is the context that the model got; False if it is what would be selected now."""
    context: GroupContext | None = None
    """The group context of a selection that was made now."""

    @property
    def memories(self) -> list[dict[str, Any]]:
        return _read_scores(self.reply, "memories")

    @property
    def agent_version(self) -> Mapping[str, Any] | None:
        """Return id and version of the agent that made the reply; None if that was not recorded."""
        return self.reply.metadata.get("agent") if self.reply else None

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Return the tools of other programs that were used for the reply: name, server and state."""
        return self.reply.metadata.get("tools", ()) if self.reply else ()

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """Return the model calls and tokens of the turn; None if no model was called, or before it was counted."""
        return self.reply.metadata.get("usage") if self.reply else None

    @property
    def notes(self) -> list[dict[str, Any]]:
        """Return each note once, with the score of its best passage; `given` is False if no passage was relevant
        enough. `shared_by` is the owner of somebody else's note."""
        facts: Mapping[str, Any] = self.reply.metadata if self.reply else {}
        was_given = bool(facts.get("notes_given", not facts.get("guard_used")))
        best: dict[str, float] = {}
        shared: dict[str, dict[str, str]] = {}
        for scored in _read_scores(self.reply, "retrieved"):
            best[scored["id"]] = max(scored["score"], best.get(scored["id"], scored["score"]))
            if owner := scored.get("shared_by"):
                shared[scored["id"]] = {"shared_by": owner}
        return [{"id": id_, "score": score, "given": was_given, **shared.get(id_, {})} for id_, score in best.items()]


def describe_tool(tool: Mapping[str, Any]) -> str:
    """Return a tool of a receipt in words: its name, its server, and what became of the call."""
    name = tool["name"].removeprefix(f"{tool['server']}{SERVER_SEPARATOR}")
    return f"`{name}` of {tool['server']} ({_CALL_STATES.get(tool['state'], tool['state'])})"


async def explain_reply(
    selector: ContextSelector,
    agents: AgentDirectory,
    owner_id: str,
    conversation_id: str,
    message_id: str | None = None,
    *,
    strategy: Strategy | None = None,
) -> Explanation:
    """Explain the reply with this id or to the message with this id; without an id, the latest reply.

    With a strategy, or for a message without a reply, return what would be selected for it now. Raise NotFound, also
    for another owner's message and for a trigger.
    """
    async with selector.database.statement() as connection:
        conversation = await Conversations(connection).get(owner_id, conversation_id)
        if message_id is None:
            call, reply = await _find_latest_exchange(connection, conversation)
        else:
            call, reply = await _find_exchange(connection, conversation, message_id)
    stored: Mapping[str, Any] | None = reply.metadata.get("context") if reply else None
    if stored and strategy is None:
        return Explanation(conversation, call, reply, stored, is_stored=True)
    subject = call or reply
    assert subject is not None
    if call is not None and (conversation.traits.selects_context or strategy is not None):
        scoped_call = call if conversation.traits.has_topics else replace(call, thread_id=None)
        profile = await agents.reload(conversation.owner_id, conversation.agent_id)
        options = choose_options(selector.options, profile, strategy=strategy)
        context = await selector.load_and_select(owner_id, scoped_call, options=options)
        receipt = {**context.selection.receipt, "summary_id": None}
        return Explanation(conversation, call, reply, receipt, is_stored=False, context=context)
    receipt = await _select_window(selector.database, conversation, subject, call=call)
    return Explanation(conversation, call, reply, receipt, is_stored=False)


async def load_timeline(database: Database, explanation: Explanation) -> list[Message]:
    """Return the messages before the call, everything else that was selected for it, and the call; oldest first."""
    conversation, subject = explanation.conversation, explanation.call or explanation.reply
    assert subject is not None
    ids = (conversation.owner_id, conversation.id)
    async with database.statement() as connection:
        before = await load_recent(
            connection,
            *ids,
            before=(subject.created_at, subject.id),
            limit=MAX_RECENT_MESSAGES,
            thread_id=subject.thread_id if conversation.traits.has_topics else None,
        )
        timeline = {entry.id: entry for entry in [*before, *([explanation.call] if explanation.call else [])]}
        for entry in explanation.receipt["messages"]:
            if (
                entry["id"] not in timeline
                and (message := await Messages(connection).get(*ids, entry["id"])) is not None
            ):
                timeline[message.id] = message
    return sort_by_time(list(timeline.values()))


async def _find_exchange(
    connection: Connection, conversation: Conversation, message_id: str
) -> tuple[Message | None, Message | None]:
    messages = Messages(connection)
    ids = (conversation.owner_id, conversation.id)
    message = await messages.get(*ids, message_id) if is_id(message_id) else None
    if message is None or message.role == "system-summary":
        raise NotFound(f"There is no message {message_id[:64]!r} in this conversation.")
    if message.role == "assistant":
        return await _find_call(connection, conversation, message), message
    return message, await messages.find_reply(*ids, message.id)


async def _find_latest_exchange(connection: Connection, conversation: Conversation) -> tuple[Message | None, Message]:
    reply = await Messages(connection).find_latest_reply(conversation.owner_id, conversation.id)
    if reply is not None:
        return await _find_call(connection, conversation, reply), reply
    raise NotFound("Nothing has been answered in this conversation lately; say which message with `message_id`.")


async def _find_call(connection: Connection, conversation: Conversation, reply: Message) -> Message | None:
    """Return the message that a reply answers; None for a follow-up, because a trigger is no person's message."""
    if reply.event_id is None:
        return None
    return await Messages(connection).get(conversation.owner_id, conversation.id, reply.event_id)


async def _select_window(
    database: Database, conversation: Conversation, subject: Message, *, call: Message | None
) -> dict[str, Any]:
    ids = (conversation.owner_id, conversation.id)
    async with database.statement() as connection:
        before: Sequence[Message] = await load_recent(
            connection, *ids, before=(subject.created_at, subject.id), limit=MAX_CHAT_HISTORY
        )
        anchor = None if call is None else (await load_linked(connection, *ids, call, depth=0, neighbours=0)).anchor
    return {**build_window_selection(before, call=call, anchor=anchor).receipt, "summary_id": None}


def _read_scores(reply: Message | None, name: str) -> list[dict[str, Any]]:
    stored: Any = reply.metadata.get(name) if reply else None
    return [{key: entry[key] for key in ("id", "score", "shared_by") if key in entry} for entry in stored or ()]
