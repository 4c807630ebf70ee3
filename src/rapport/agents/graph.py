"""The agent: a LangGraph graph that answers one message with a bounded window of the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, cast

import structlog
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels import EphemeralValue, LastValue
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.runtime import Runtime
from pydantic import BaseModel

from rapport.agents.call_usage import MeteredCall, OnCall, ignore_call
from rapport.agents.failures import ModelFailed, classify_failure
from rapport.agents.health import ModelHealth
from rapport.agents.model_client import ModelClient, OnToken, log_failure
from rapport.agents.model_record import ModelRecord
from rapport.agents.models import BUILTIN, close_model
from rapport.agents.rounds import Rounds
from rapport.agents.tools import (
    MAX_TOOL_ROUNDS,
    ChatToolbox,
    MaySave,
    PlannedFollowUp,
    SavedFact,
    Toolbox,
    has_calls,
    is_answered,
    make_repeatable,
)
from rapport.domain.event import FRESH
from rapport.domain.follow_up import TriggerType
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
    saved: list[SavedFact]
    follow_up: PlannedFollowUp | None


@dataclass(frozen=True, slots=True)
class RunContext:
    """Dependencies of a run that no checkpoint stores."""

    on_token: OnToken | None
    tools: Toolbox
    looks_up: bool = False
    note: ServerNote = NO_NOTE
    """The server's note that is added to the newest message."""
    on_call: OnCall = ignore_call


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's text, the facts it asked to remember, and the follow-up it asked for."""

    message: AIMessage
    saved: Sequence[SavedFact] = ()
    follow_up: PlannedFollowUp | None = None
    model: str = ""
    """The name of the model that answered."""

    @property
    def text(self) -> str:
        return str(self.message.text)


Node = Callable[[TurnState, Runtime[RunContext]], Coroutine[Any, Any, TurnState]]


def _make_graph_without_checkpoints(node: Node) -> Any:
    """Return a graph with the one node. Its input is the node's and not copied by a step of its own (ADR 71)."""
    builder: Any = NodeBuilder()
    pregel: Any = Pregel
    return pregel(
        nodes={"answer": builder.subscribe_only("input").do(node).write_to("output")},
        channels={"input": EphemeralValue(Any), "output": LastValue(Any)},
        input_channels="input",
        output_channels="output",
        context_schema=RunContext,
    )


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
        name: str = "",
        server: str = "",
    ) -> None:
        """`name` is the model's, `server` its host and port; empty for the provider's own."""
        self.name = name
        self.server = server
        self._model = model
        self._running = 0
        self._is_free = name == BUILTIN
        self.record = record or ModelRecord()
        self._client = ModelClient(model, self.record, name=name, is_free=self._is_free)
        self._forms: dict[type[BaseModel], Runnable[LanguageModelInput, dict[str, Any]]] = {}
        self._deadline = deadline
        self.health = health or ModelHealth()
        builder = StateGraph(TurnState, context_schema=RunContext)
        builder.add_node("answer", self._answer)  # pyright: ignore[reportUnknownMemberType]
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.graph: Any = builder.compile(checkpointer=saver)  # pyright: ignore[reportUnknownMemberType]
        self._graph_without_checkpoints = _make_graph_without_checkpoints(self._answer)

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str,
        history: Sequence[BaseMessage] = (),
        on_token: OnToken | None = None,
        on_call: OnCall = ignore_call,
        fresh: bool = False,
        checkpoint: bool = True,
        may_save: MaySave | None = None,
        may_plan: Sequence[TriggerType] = (),
        lookups: ChatToolbox | None = None,
        note: ServerNote = NO_NOTE,
        tags: dict[str, str] | None = None,
        allowed_tools: Collection[str] | None = None,
        deadline_share: float = 1.0,
    ) -> Answer:
        """Return the model's answer to `message` after `history`. `on_token` is called for each streamed token, `on_call` for
        each request to the model.

        With `may_save` the model may save facts that this function accepts; with `may_plan` it may plan a follow-up of one of these types; with
        `lookups` it may read more of a chat. `note` is added to the message for the model and not stored in a checkpoint.
        With `checkpoint` the state of the run is stored. `allowed_tools` are the names of the tools that the agent may use; None:
        all. With a `deadline_share` below 1 the rest of the deadline is left to another model. Raise ModelFailed after the retries, or when the deadline has passed.
        """
        current = HumanMessage(message) if isinstance(message, str) else message
        config: RunnableConfig = {
            "configurable": {"thread_id": thread_id, FRESH: fresh},
            "metadata": dict(tags or {}),
        }
        tools = Toolbox(may_save=may_save, may_plan=may_plan, lookups=lookups, allowed=allowed_tools)
        self._running += 1
        try:
            async with self._within_deadline(deadline_share):
                graph = self.graph if checkpoint else self._graph_without_checkpoints
                state = await graph.ainvoke(
                    TurnState(system=system, messages=[*history, current]),
                    config,
                    context=RunContext(on_token, tools, lookups is not None, note, on_call),
                    # The graph has one step, so one checkpoint at its end is enough.
                    durability="exit" if checkpoint else None,
                )
        except ModelFailed as failure:
            self.health.record_failure(failure)
            raise
        finally:
            self._running -= 1
        self.health.record_success()
        reply = cast("AIMessage", state["reply"])
        return Answer(reply, state.get("saved") or (), state.get("follow_up"), self.name)

    @property
    def is_idle(self) -> bool:
        """Return True if no turn waits for this model."""
        return self._running == 0

    async def close(self) -> None:
        """Close the model's connections."""
        await close_model(self._model)

    @property
    def calls_tools(self) -> bool:
        """Return True if the model may be offered tools: to save facts, to plan a follow-up, to read more of a group chat."""
        return self._client.calls_tools

    async def decide(self, system: str, text: str, form: type[Form], *, on_call: OnCall = ignore_call) -> Form:
        """Return the model's decision in the given form. Raise ModelFailed, also if its answer does not have the form."""
        try:
            if (
                bound_model := self._forms.get(form)
            ) is None:  # cached: building the schema takes longer than the rest of a call
                structured: Any = self._model.with_structured_output(form, method="function_calling", include_raw=True)
                bound_model = self._forms[form] = cast("Runnable[LanguageModelInput, dict[str, Any]]", structured)
            messages: list[BaseMessage] = [SystemMessage(system), HumanMessage(text)]
            async with self._within_deadline():
                with MeteredCall(self.name, messages, {}, on_call, is_free=self._is_free) as call:
                    result = await bound_model.ainvoke(messages)
                    call.received = result["raw"]
            if (refusal := result["parsing_error"]) is not None:
                raise refusal
        except Exception as error:  # noqa: BLE001 - a model may fail in any way it likes
            failure = log_failure(classify_failure(error))
            # A model without structured output may answer other requests well.
            self.health.count(failure)
            raise failure from None
        decision = result["parsed"]
        if not isinstance(decision, form):
            raise ModelFailed("malformed", "the model did not keep to the form it was given")
        return decision

    async def ask(self, system: str, text: str, *, on_call: OnCall = ignore_call) -> str:
        """Return one plain answer outside any turn. Raises ModelFailed."""
        try:
            async with self._within_deadline():
                messages: list[BaseMessage] = [SystemMessage(system), HumanMessage(text)]
                asked = await self._client.ask(messages, None, on_call=on_call)
                return str(asked.message.text)
        except ModelFailed as failure:
            self.health.record_failure(failure)
            raise

    @asynccontextmanager
    async def _within_deadline(self, share: float = 1.0) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._deadline * share):
                yield
        except TimeoutError:
            raise ModelFailed("timeout", f"no answer within {self._deadline * share:g} s") from None

    async def _answer(self, state: TurnState, runtime: Runtime[RunContext]) -> TurnState:
        system, messages = SystemMessage(state["system"]), list(state["messages"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
        context = runtime.context
        messages[-1] = add_note(messages[-1], context.note)
        rounds = Rounds(context.on_token, looks_up=context.looks_up)
        try:
            reply = await self._ask_in_rounds([system, *messages], context, rounds)
        except ModelFailed as failure:
            if failure.problem != "too_long" or len(messages) < MIN_MESSAGES_TO_SHORTEN:
                raise
            log.warning("agent.prompt_shortened", reason=str(failure))
            reply = await self._ask_in_rounds([system, *messages[len(messages) // 2 :]], context, rounds)
        return {"reply": reply, "saved": context.tools.saved, "follow_up": context.tools.follow_up}

    async def _ask_in_rounds(self, messages: list[BaseMessage], context: RunContext, rounds: Rounds) -> AIMessage:
        """Return the model's answer. Another call is made only for the result of a look-up, or if there is no text yet."""
        tools, on_call = context.tools, context.on_call
        try:
            offered = tools.list_tools()
            for _ in range(MAX_TOOL_ROUNDS):
                if not self.calls_tools or not offered:
                    break
                asked = await self._client.ask_with_tools(messages, rounds.on_token, offered, on_call=on_call)
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
            return rounds.join_rounds((await self._client.ask(messages, rounds.on_token, on_call=on_call)).message)
        except ModelFailed as failure:
            if failure.kind != "empty" or not rounds.text:
                raise
            return AIMessage(rounds.text)  # all of its text was beside tool calls
