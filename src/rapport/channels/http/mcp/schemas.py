"""Define the arguments and the results of the tools. Their JSON schemas are what an MCP client shows to its model."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, Field

from rapport.channels.http.requests.json_bodies import Body
from rapport.domain.context_selection import Strategy
from rapport.memory.memory_store import MAX_QUERY_CHARACTERS as MAX_MEMORY_QUERY_CHARACTERS
from rapport.retrieval.library import MAX_NOTE_CHARACTERS
from rapport.turns.group_context import MAX_QUERY_CHARACTERS

MAX_SENT_MESSAGES = 2_000
MAX_SENT_CHARACTERS = 32_000
MAX_NOTE_QUERY_CHARACTERS = 4_000
MAX_ID_CHARACTERS = 200

Name: TypeAlias = Annotated[str, Field(max_length=MAX_ID_CHARACTERS)]
SentId: TypeAlias = Annotated[str, Field(min_length=1, max_length=120)] | int
SentTime: TypeAlias = Annotated[str, Field(max_length=40)] | float
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS)]


class AskArguments(Body):
    message: Annotated[str, Field(description="What to say to the agent.")]
    agent: Annotated[str | None, Field(max_length=64, description="The agent's id; `companion` by default.")] = None
    conversation_id: Annotated[
        Id | None, Field(description="A conversation to go on with. The message and the reply are stored in it.")
    ] = None
    keep: Annotated[
        bool,
        Field(
            description="Without `conversation_id`: true begins a conversation that is kept, and returns its id;"
            " false keeps nothing but the reply that you get."
        ),
    ] = False
    client_message_id: Annotated[
        Id | None,
        Field(
            description="With `conversation_id` or `keep`: your id of this message. The same call again with it is stored"
            " and answered once, and returns the same reply."
        ),
    ] = None


class AskResult(BaseModel):
    reply: str
    agent: str
    conversation_id: Annotated[str | None, Field(description="Null if nothing was kept.")]
    sources: Annotated[list[dict[str, Any]], Field(description="The notes that the reply cites.")]
    guard_used: Annotated[bool, Field(description="The notes do not answer the question, and the agent says so.")]
    fallback_used: Annotated[bool, Field(description="The model could not answer; the reply says so.")]
    approvals: Annotated[list[str], Field(description="Questions that a person must decide before the agent goes on.")]


class SearchNotesArguments(Body):
    query: Annotated[str, Field(max_length=MAX_NOTE_QUERY_CHARACTERS, description="A question, or a few words.")]
    limit: Annotated[int, Field(ge=1, le=20)] = 5


class PassageResult(BaseModel):
    note_id: str
    title: str
    heading: str
    text: str
    similarity: float
    shared_by: Annotated[str | None, Field(description="The owner of somebody else's note.")]


class PassagesResult(BaseModel):
    passages: list[PassageResult]


class AddNoteArguments(Body):
    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE_CHARACTERS, description="Plain text or Markdown.")]
    title: Annotated[str | None, Field(max_length=200)] = None
    collections: Annotated[list[str] | None, Field(description="Names of collections to put it into.")] = None


class AddedNoteResult(BaseModel):
    id: str
    title: str
    unchanged: Annotated[bool, Field(description="The same note existed already.")]
    uri: str


class SearchConversationArguments(Body):
    conversation_id: Id
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS, description="A question, or a few words.")]
    limit: Annotated[int, Field(ge=1, le=50)] = 10


class MessageResult(BaseModel):
    id: str
    author: str | None
    role: str
    text: str
    created_at: str


class FoundMessagesResult(BaseModel):
    messages: list[MessageResult]


class SentMessage(Body):
    """A message that comes with the call and is not stored."""

    id: SentId
    author: Name | None = None
    time: Annotated[SentTime, Field(description="ISO 8601, or seconds since 1970.")]
    text: Annotated[str, Field(max_length=MAX_SENT_CHARACTERS)]
    mentions: Annotated[list[Name], Field(max_length=50)] | None = None
    reply_to: Annotated[SentId | None, Field(description="The id of a message.")] = None
    is_agent: bool = False


class SmartContextArguments(Body):
    question: Annotated[str, Field(min_length=1, max_length=MAX_SENT_CHARACTERS, description="What is asked.")]
    conversation_id: Annotated[Id | None, Field(description="A stored conversation. Or send `messages`.")] = None
    messages: Annotated[
        list[SentMessage] | None,
        Field(max_length=MAX_SENT_MESSAGES, description="The messages to choose from. Nothing of them is stored."),
    ] = None
    anchor_id: Annotated[
        SentId | None,
        Field(description="The message that the question replies to, however old it is."),
    ] = None
    author: Annotated[
        Name | None,
        Field(description="With `messages`: the name of the person who asks."),
    ] = None
    time: Annotated[
        SentTime | None,
        Field(description="With `messages`: when it is asked; by default right after the latest message."),
    ] = None
    strategy: Annotated[Strategy | None, Field(description="How to choose; `relevant` fits most questions.")] = None


class ChosenResult(BaseModel):
    id: str | int
    author: str | None
    text: str
    created_at: str
    reasons: list[str]
    score: float


class SmartContextResult(BaseModel):
    strategy: str
    anchor_id: str | int | None
    messages: Annotated[list[ChosenResult], Field(description="Oldest first.")]


class SearchMemoriesArguments(Body):
    query: Annotated[str, Field(max_length=MAX_MEMORY_QUERY_CHARACTERS)]
    agent: Annotated[
        str | None, Field(max_length=64, description="The agent whose memories these are; `companion` by default.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=50)] = 10


class MemoryResult(BaseModel):
    id: str
    content: str
    key: str | None
    similarity: float
    created_at: str


class MemoriesResult(BaseModel):
    memories: list[MemoryResult]


class ListConversationsArguments(Body):
    query: Annotated[
        str | None,
        Field(max_length=200, description="Only those whose title or latest messages have all these words."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    before: Annotated[str | None, Field(max_length=MAX_ID_CHARACTERS, description="`next` of the previous page.")] = (
        None
    )


class ConversationResult(BaseModel):
    id: str
    title: str | None
    agent: str
    kind: str
    channel: str
    last_at: str
    last_message: Annotated[str | None, Field(description="The beginning of the latest message.")]
    uri: str


class ConversationsResult(BaseModel):
    conversations: list[ConversationResult]
    next: Annotated[str | None, Field(description="`before` of the next page; null at the end.")]
