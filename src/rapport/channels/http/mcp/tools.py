"""Define the tools: what each is called, takes and returns, and what it does for the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

from mcp import types
from pydantic import BaseModel

from rapport.channels.http.mcp.asking import ask
from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.context_tool import get_smart_context
from rapport.channels.http.mcp.schemas import (
    AddedNoteResult,
    AddNoteArguments,
    AskArguments,
    AskResult,
    ConversationsResult,
    FoundMessagesResult,
    ListConversationsArguments,
    MemoriesResult,
    PassagesResult,
    SearchConversationArguments,
    SearchMemoriesArguments,
    SearchNotesArguments,
    SmartContextArguments,
    SmartContextResult,
)
from rapport.channels.http.mcp.search_tools import (
    add_note,
    list_conversations,
    search_conversation,
    search_memories,
    search_notes,
)
from rapport.channels.http.requests.json_bodies import Body, parse_body
from rapport.domain.agent_profile import AgentProfile

Arguments = TypeVar("Arguments", bound=Body)

READS = types.ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False)
ADDS = types.ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True, openWorldHint=False)
ASKS = types.ToolAnnotations(readOnlyHint=False, destructiveHint=True, idempotentHint=False, openWorldHint=True)
"""An agent may have tools that change something, and may use models and tools elsewhere."""


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """A tool and the function that runs it."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: type[BaseModel]
    annotations: types.ToolAnnotations
    run: Callable[[CallerAccess, Arguments], Awaitable[BaseModel]]

    async def call(self, access: CallerAccess, arguments: Mapping[str, Any]) -> BaseModel:
        """Check the arguments and run the tool. Raise RequestValidationError for arguments that do not fit its schema."""
        return await self.run(access, parse_body(self.arguments, dict(arguments)))

    def describe(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            inputSchema=_shorten(self.arguments.model_json_schema()),
            outputSchema=_shorten(self.result.model_json_schema(mode="serialization")),
            annotations=self.annotations,
        )


_TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "ask",
        "Ask an agent",
        "Ask one of your Rapport agents, which knows your notes and what it remembers about you. Give `conversation_id`"
        " to go on with a conversation, or `keep: true` to begin one.",
        AskArguments,
        AskResult,
        ASKS,
        ask,
    ),
    Tool(
        "search_notes",
        "Search notes",
        "Find the passages of your notes that a question is about, the best first.",
        SearchNotesArguments,
        PassagesResult,
        READS,
        search_notes,
    ),
    Tool(
        "add_note",
        "Add a note",
        "Keep a text as a note, which agents cite and `search_notes` finds. The same text again changes nothing.",
        AddNoteArguments,
        AddedNoteResult,
        ADDS,
        add_note,
    ),
    Tool(
        "search_conversation",
        "Search a conversation",
        "Find the messages of one conversation that a question is about, however old they are, the best first.",
        SearchConversationArguments,
        FoundMessagesResult,
        READS,
        search_conversation,
    ),
    Tool(
        "get_smart_context",
        "Get smart context",
        "Choose the messages of a chat that belong to a question, with the reasons. The chat is a stored conversation"
        " (`conversation_id`) or comes with the call (`messages`); then nothing of it is stored.",
        SmartContextArguments,
        SmartContextResult,
        READS,
        get_smart_context,
    ),
    Tool(
        "search_memories",
        "Search memories",
        "Find what an agent remembers about you, the closest first.",
        SearchMemoriesArguments,
        MemoriesResult,
        READS,
        search_memories,
    ),
    Tool(
        "list_conversations",
        "List conversations",
        "List your conversations, the latest first.",
        ListConversationsArguments,
        ConversationsResult,
        READS,
        list_conversations,
    ),
)
TOOLS: Mapping[str, Tool[Any]] = {tool.name: tool for tool in _TOOLS}


def describe_tools(agents: Sequence[AgentProfile]) -> list[types.Tool]:
    """Return the tools as a client sees them. The description of `ask` names the caller's agents."""
    names = ", ".join(sorted(f"`{agent.id}`" for agent in agents))
    asking, *others = _describe_all()
    return [asking.model_copy(update={"description": f"{asking.description} Your agents: {names}."}), *others]


@cache
def _describe_all() -> Sequence[types.Tool]:
    return [tool.describe() for tool in _TOOLS]


def _shorten(schema: Any) -> Any:
    """Return the schema without titles, which repeat the names, and without null as an alternative of optional arguments.

    Every request of the client's model pays for the schemas.
    """
    if isinstance(schema, list):
        return [_shorten(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = {
        name: _shorten(value)
        for name, value in cast("dict[str, Any]", schema).items()
        if name != "title" or not isinstance(value, str)
    }
    kinds = fields.get("anyOf")
    if kinds and "default" in fields and fields["default"] is None:
        kinds = [kind for kind in kinds if kind != {"type": "null"}]
        del fields["anyOf"], fields["default"]
        fields |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return fields
