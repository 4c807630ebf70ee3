"""Define what one run of the graph gets, keeps between its nodes, and returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from rapport.agents.call_usage import OnCall, ignore_call
from rapport.agents.model_client import OnToken
from rapport.agents.rounds import Rounds
from rapport.agents.tools.recorded import PlannedFollowUp, RequestedReminder, Requests, SavedFact
from rapport.agents.tools.toolbox import OutsideCall, Toolbox
from rapport.domain.server_note import NO_NOTE, ServerNote

Entry: TypeAlias = Literal["recall", "retrieve", "model"]
Keep: TypeAlias = Literal["nothing", "end", "steps"]
"""The checkpoints of a run: none (ADR 71), one at its end, or one after each step, from which it goes on after a crash."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a run, and the client that reads along."""

    message: str | HumanMessage
    system: str = ""
    history: Sequence[BaseMessage] = ()
    note: ServerNote = NO_NOTE
    """The server's note that is added to the newest message. No checkpoint stores it."""
    on_token: OnToken | None = None

    @property
    def messages(self) -> list[BaseMessage]:
        current = HumanMessage(self.message) if isinstance(self.message, str) else self.message
        return [*self.history, current]


class PromptSource(Protocol):
    """Searches for a turn and makes its prompt. Each search runs once, however often a node is run."""

    @property
    def entry(self) -> Entry:
        """Return the first node that has something to do."""
        ...

    async def recall(self) -> Sequence[str]:
        """Recall memories; return their ids."""
        ...

    async def retrieve(self) -> Sequence[str]:
        """Retrieve passages; return the ids of their notes."""
        ...

    async def compose(self) -> Prompt | None:
        """Return the prompt; None if the model is not to be asked."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPrompt:
    """A prompt that needs no search."""

    prompt: Prompt
    entry: Entry = "model"

    async def recall(self) -> Sequence[str]:
        return ()

    async def retrieve(self) -> Sequence[str]:
        return ()

    async def compose(self) -> Prompt | None:
        return self.prompt


class TurnState(TypedDict, total=False):
    """The graph state of a turn. Lists are replaced as a whole, never appended to: a thread's cost stays flat."""

    memories: list[str]
    passages: list[str]
    system: str
    messages: list[BaseMessage]
    rounds: list[BaseMessage]
    """The model's messages with tool calls, and the results."""
    reply: AIMessage
    saved: list[SavedFact]
    follow_up: PlannedFollowUp | None
    reminders: list[RequestedReminder]
    refusals: list[str]
    """Why reminders were not set, if the model has not read it."""


@dataclass(slots=True)
class RunContext:
    """Dependencies of a run that no checkpoint stores."""

    source: PromptSource
    tools: Toolbox
    requests: Requests
    deadline: float
    on_call: OnCall = ignore_call
    prompt: Prompt | None = None
    rounds: Rounds = field(default_factory=lambda: Rounds(None, looks_up=False))
    undecided: Sequence[OutsideCall] = ()
    ends_at: float = 0.0

    async def begin(self, state: TurnState) -> bool:
        """Make the prompt at the first step with a model or tools; return False if the model is not to be asked."""
        if self.prompt is not None:
            return True
        self.prompt = await self.source.compose()
        if self.prompt is None:
            return False
        self.ends_at = asyncio.get_running_loop().time() + self.deadline
        self.rounds = Rounds(self.prompt.on_token, looks_up=bool(self.tools.names_with_results))
        done = state.get("rounds") or []
        for message in done[:-1] if done and isinstance(done[-1], AIMessage) else done:  # of a run that goes on
            if isinstance(message, AIMessage):
                self.rounds.end_round(str(message.text))
        self.requests.saved = list(state.get("saved") or ())
        self.requests.follow_up = state.get("follow_up")
        self.requests.reminders = list(state.get("reminders") or ())
        return True

    def allow_for_tools(self, seconds: float) -> None:
        """Give the model the time back that tools have taken, up to as much as it had."""
        self.ends_at += min(seconds, self.deadline)


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's text, the facts it asked to remember, and the follow-up and the reminders it asked for."""

    message: AIMessage
    saved: Sequence[SavedFact] = ()
    follow_up: PlannedFollowUp | None = None
    model: str = ""
    """The name of the model that answered."""
    undecided: Sequence[OutsideCall] = ()
    """The calls that wait for a person's decision: the run has stopped there."""
    reminders: Sequence[RequestedReminder] = ()
    refusals: Sequence[str] = ()
    """Why reminders were not set, if the model has not read it."""

    @property
    def text(self) -> str:
        return str(self.message.text)
