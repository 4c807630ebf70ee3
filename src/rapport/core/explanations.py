"""Explanations of replies with their texts, and the search in one conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapport.agents.directory import AgentDirectory
from rapport.domain.context_selection import Strategy
from rapport.domain.conversation import Message
from rapport.domain.errors import NotFound
from rapport.domain.note_scope import NoteScope
from rapport.domain.read_models import SearchHit
from rapport.storage.database import Connection
from rapport.storage.memories import Memories
from rapport.storage.messages.neighbours import read_snapshot, sort_by_time
from rapport.storage.notes.visible_notes import VisibleNotes
from rapport.turns.explain import Explanation, explain_reply, load_timeline
from rapport.turns.group_context import ContextSelector


@dataclass(frozen=True, slots=True)
class ExplanationDetails:
    """The content behind the ids of an explanation. Deleted content is missing from the mappings."""

    messages: Sequence[Message]
    """The messages before the reply, those that were chosen, and the quoted message it is about; oldest first."""
    note_titles: Mapping[str, str]
    memory_texts: Mapping[str, str]
    agent_name: str


async def load_note_titles(
    connection: Connection, explanation: Explanation, cited: Sequence[str] = ()
) -> Mapping[str, str]:
    """Return the titles of the notes that the receipt and these citations name.

    Those that were deleted or are no longer shared are missing, and those whose id stands for another owner's note by now.
    """
    owner_id = explanation.conversation.owner_id
    owners = {note["id"]: note.get("shared_by") or owner_id for note in explanation.notes}
    scope = NoteScope(owner_id, explanation.conversation.id)
    notes = await VisibleNotes(connection).find_titles(scope, {*cited, *owners})
    return {id_: note.title for id_, note in notes.items() if owners.get(id_, note.owner_id) == note.owner_id}


@dataclass(frozen=True, slots=True)
class Explanations:
    """Every method raises NotFound for a conversation that is not the owner's."""

    selector: ContextSelector
    agents: AgentDirectory

    async def explain(
        self,
        owner_id: str,
        conversation_id: str,
        message_id: str | None = None,
        *,
        strategy: Strategy | None = None,
    ) -> Explanation:
        """Return the context of a reply, given its id or that of the message it answers; without an id, of the latest reply.

        With a strategy, return what that strategy would choose now.
        """
        return await explain_reply(self.selector, self.agents, owner_id, conversation_id, message_id, strategy=strategy)

    async def load_details(self, explanation: Explanation) -> ExplanationDetails:
        """Return the messages, note titles and memories that an explanation names, as far as they still exist."""
        messages = await load_timeline(self.selector.database, explanation)
        quoted = read_snapshot(explanation.call) if explanation.call else None
        if quoted is not None and quoted.id == explanation.receipt["anchor_id"]:
            messages = sort_by_time([quoted, *(message for message in messages if message.id != quoted.id)])
        conversation = explanation.conversation
        texts: dict[str, str] = {}
        cited = [str(source["id"]) for source in explanation.reply.sources] if explanation.reply else []
        async with self.selector.database.statement() as connection:
            titles = await load_note_titles(connection, explanation, cited)
            for memory_id in (memory["id"] for memory in explanation.memories):
                try:
                    memory = await Memories(connection).get(conversation.owner_id, conversation.agent_id, memory_id)
                    texts[memory_id] = memory.content
                except NotFound:
                    continue
        agent = await self.agents.reload(conversation.owner_id, conversation.agent_id)
        return ExplanationDetails(messages, titles, texts, agent.name)

    async def search(
        self, owner_id: str, conversation_id: str, question: str, *, thread_id: str | None = None, limit: int = 10
    ) -> Sequence[SearchHit]:
        """Return the messages of a conversation that a question is about, the best match first."""
        return await self.selector.search_all(owner_id, conversation_id, question, thread_id=thread_id, limit=limit)
