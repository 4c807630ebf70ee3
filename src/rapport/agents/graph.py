"""The agent: a LangGraph graph that answers one message with a bounded window of the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, cast

import structlog
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel

from rapport.agents.failures import ModelFailed, classify_failure
from rapport.agents.health import ModelHealth
from rapport.agents.model_client import ModelClient, OnToken, log_failure
from rapport.agents.model_record import ModelRecord
from rapport.agents.rounds import Rounds
from rapport.agents.tools import (
    MAX_TOOL_ROUNDS,
    ChatToolbox,
    MaySave,
    PlannedFollowUp,
    Saved,
    Toolbox,
    has_calls,
    is_answered,
    make_repeatable,
)
from rapport.domain.event import FRESH
from rapport.domain.server_note import NO_NOTE, ServerNote, add_note

log = structlog.get_logger()

Form = TypeVar("Form", bound=BaseModel)

MIN_MESSAGES_TO_SHORTEN = 4
"""A prompt of fewer messages that is too long for the model is not asked again with half of them."""


class TurnState(TypedDict, total=False):
    """The graph state of a turn. `messages` is replaced as a whole, never appended to: a thread's cost stays flat."""

    system: str
    messages: list[BaseMessage]
    reply: AIMessage
    saved: list[Saved]
    follow_up: PlannedFollowUp | None


@dataclass(frozen=True, slots=True)
class RunContext:
    """Dependencies of a run that no checkpoint stores."""

    on_token: OnToken | None
    tools: Toolbox
    looks_up: bool = False
    note: ServerNote = NO_NOTE
    """The server's note that is added to the newest message."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's text, the facts it asked to remember, and the follow-up it asked for."""

    message: AIMessage
    saved: Sequence[Saved] = ()
    follow_up: PlannedFollowUp | None = None

    @property
    def text(self) -> str:
        return str(self.message.text)


class LangGraphAgent:
    """Runs a model on a window of messages; safe to repeat after a crash, because its nodes have no side effects."""

    def __init__(
        self,
        model: BaseChatModel,
        saver: BaseCheckpointSaver[Any],
        *,
        deadline: float,
        health: ModelHealth | None = None,
        record: ModelRecord | None = None,
    ) -> None:
        self._model = model
        self.record = record or ModelRecord()
        self._client = ModelClient(model, self.record)
        self._forms: dict[type[BaseModel], Runnable[LanguageModelInput, Any]] = {}
        self._deadline = deadline
        self._health = health or ModelHealth()
        builder = StateGraph(TurnState, context_schema=RunContext)
        builder.add_node("answer", self._answer)  # pyright: ignore[reportUnknownMemberType]
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.graph: Any = builder.compile(checkpointer=saver)  # pyright: ignore[reportUnknownMemberType]

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str,
        history: Sequence[BaseMessage] = (),
        on_token: OnToken | None = None,
        fresh: bool = False,
        may_save: MaySave | None = None,
        may_plan: bool = False,
        lookups: ChatToolbox | None = None,
        note: ServerNote = NO_NOTE,
        tags: dict[str, str] | None = None,
    ) -> Answer:
        """Return the model's answer to `message` after `history`. `on_token` is called for each streamed token.

        With `may_save` the model may save facts that this function accepts; with `may_plan` it may plan a follow-up; with
        `lookups` it may read more of a chat. `note` is added to the message for the model and not stored in a checkpoint.
        Raise ModelFailed after the retries, or when the deadline has passed.
        """
        current = HumanMessage(message) if isinstance(message, str) else message
        config: RunnableConfig = {
            "configurable": {"thread_id": thread_id, FRESH: fresh},
            "metadata": dict(tags or {}),
        }
        tools = Toolbox(may_save=may_save, may_plan=may_plan, lookups=lookups)
        try:
            async with self._within_deadline():
                state = await self.graph.ainvoke(
                    TurnState(system=system, messages=[*history, current]),
                    config,
                    context=RunContext(on_token, tools, lookups is not None, note),
                    # The graph has one step, so one checkpoint at its end is enough.
                    durability="exit",
                )
        except ModelFailed as failure:
            self._health.record_failure(failure)
            raise
        self._health.record_success()
        return Answer(cast("AIMessage", state["reply"]), state.get("saved") or (), state.get("follow_up"))

    @property
    def calls_tools(self) -> bool:
        """Return True if the model may be offered tools: to save facts, to plan a follow-up, to read more of a group chat."""
        return self._client.calls_tools

    async def decide(self, system: str, text: str, form: type[Form]) -> Form:
        """Return the model's decision in the given form. Raise ModelFailed, also if its answer does not have the form."""
        try:
            if (
                bound_model := self._forms.get(form)
            ) is None:  # cached: building the schema takes longer than the rest of a call
                bound_model = self._forms[form] = self._model.with_structured_output(form, method="function_calling")
            async with self._within_deadline():
                decision = await bound_model.ainvoke([SystemMessage(system), HumanMessage(text)])
        except Exception as error:  # noqa: BLE001 - a model may fail in any way it likes
            failure = log_failure(classify_failure(error))
            # A model without structured output may answer other requests well.
            self._health.count(failure)
            raise failure from None
        if not isinstance(decision, form):
            raise ModelFailed("malformed", "the model did not keep to the form it was given")
        return decision

    async def ask(self, system: str, text: str) -> str:
        """Return one plain answer outside any turn. Raises ModelFailed."""
        try:
            async with self._within_deadline():
                asked = await self._client.ask([SystemMessage(system), HumanMessage(text)], None)
                return str(asked.message.text)
        except ModelFailed as failure:
            self._health.record_failure(failure)
            raise

    @asynccontextmanager
    async def _within_deadline(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._deadline):
                yield
        except TimeoutError:
            raise ModelFailed("timeout", f"no answer within {self._deadline:g} s") from None

    async def _answer(self, state: TurnState, runtime: Runtime[RunContext]) -> TurnState:
        system, messages = SystemMessage(state["system"]), list(state["messages"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
        context = runtime.context
        messages[-1] = add_note(messages[-1], context.note)
        rounds = Rounds(context.on_token, looks_up=context.looks_up)
        try:
            reply = await self._ask_in_rounds([system, *messages], context.tools, rounds)
        except ModelFailed as failure:
            if failure.problem != "too_long" or len(messages) < MIN_MESSAGES_TO_SHORTEN:
                raise
            log.warning("agent.prompt_shortened", reason=str(failure))
            reply = await self._ask_in_rounds([system, *messages[len(messages) // 2 :]], context.tools, rounds)
        return {"reply": reply, "saved": context.tools.saved, "follow_up": context.tools.follow_up}

    async def _ask_in_rounds(self, messages: list[BaseMessage], tools: Toolbox, rounds: Rounds) -> AIMessage:
        """Return the model's answer. Another call is made only for the result of a look-up, or if there is no text yet."""
        try:
            offered = tools.list_tools()
            for _ in range(MAX_TOOL_ROUNDS):
                if not self.calls_tools or not offered:
                    break
                asked = await self._client.ask_with_tools(messages, rounds.on_token, offered)
                reply = asked.message
                if asked.written:  # it can't call tools in the provider's form: it is not asked to go on with them
                    self.record.text_calls += 1
                    await tools.use_written(asked.written)
                if not has_calls(reply):
                    if not str(reply.text).strip():
                        break
                    return rounds.join_rounds(reply)
                self.record.tool_calls += 1
                results = await tools.use(reply)
                if is_answered(reply):
                    return rounds.join_rounds(reply)
                rounds.end_round(str(reply.text))
                messages += [make_repeatable(reply), *results]
            rounds.begin_last_round()
            return rounds.join_rounds((await self._client.ask(messages, rounds.on_token)).message)
        except ModelFailed as failure:
            if failure.kind != "empty" or not rounds.text:
                raise
            return AIMessage(rounds.text)  # all of its text was beside tool calls
