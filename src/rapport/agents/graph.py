"""The agent: a LangGraph graph that answers one message with a bounded window of the conversation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, TypeVar, cast

import structlog
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel

from rapport.agents.failures import ModelFailed, backoff, classify_failure
from rapport.agents.health import ModelHealth
from rapport.agents.model_record import ModelRecord
from rapport.agents.tools import (
    MAX_TOOL_ROUNDS,
    UPSERT_MEMORY,
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

OnToken: TypeAlias = Callable[[str], None]
Model: TypeAlias = "Runnable[LanguageModelInput, AIMessage]"
Form = TypeVar("Form", bound=BaseModel)

RETRIES = 2
REFUSALS = frozenset({"http_400", "http_404", "http_422", "http_501"})
"""Status codes of servers whose model does not support tools."""
MAX_HELD_CHARACTERS = 200
"""Number of characters to hold back while a round may still end with a chat tool call."""


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


@dataclass(frozen=True, slots=True)
class _Offer:
    """A model with the options of every request."""

    model: Model
    options: dict[str, Any] = field(default_factory=dict[str, Any])


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
        self._plain = _Offer(model)
        self.record = record or ModelRecord()
        self._takes_tools = _offer(model, [UPSERT_MEMORY]) is not None
        self._offers: dict[tuple[str, ...], _Offer] = {}
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
        return self._takes_tools and self.record.may_have_tools

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
            failure = _log_failure(classify_failure(error))
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
                return str((await self._ask([SystemMessage(system), HumanMessage(text)], None)).text)
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
        messages: list[BaseMessage] = [SystemMessage(state["system"]), *state["messages"]]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        context = runtime.context
        messages[-1] = add_note(messages[-1], context.note)
        rounds = _Rounds(context.on_token, looks_up=context.looks_up)
        reply = await self._ask_in_rounds(messages, context.tools, rounds)
        return {"reply": reply, "saved": context.tools.saved, "follow_up": context.tools.follow_up}

    async def _ask_in_rounds(self, messages: list[BaseMessage], tools: Toolbox, rounds: _Rounds) -> AIMessage:
        """Return the model's answer. Another call is made only for the result of a look-up, or if there is no text yet."""
        try:
            for _ in range(MAX_TOOL_ROUNDS):
                if (offer := self._offer(tools)) is None:
                    break
                reply = await self._ask_with_tools(messages, rounds.on_token, offer)
                if not has_calls(reply):
                    return rounds.join_rounds(reply)
                self.record.tool_calls += 1
                results = await tools.use(reply)
                if is_answered(reply):
                    return rounds.join_rounds(reply)
                rounds.end_round(str(reply.text))
                messages += [make_repeatable(reply), *results]
            rounds.begin_last_round()
            return rounds.join_rounds(await self._ask(messages, rounds.on_token))
        except ModelFailed as failure:
            if failure.kind != "empty" or not rounds.text:
                raise
            return AIMessage(rounds.text)  # all of its text was beside tool calls

    def _offer(self, tools: Toolbox) -> _Offer | None:
        """Return the model with the tools that it may use in this run; None without any."""
        if not self.calls_tools or not (offered := tools.list_tools()):
            return None
        names = tuple(str(tool["function"]["name"]) for tool in offered)
        if names not in self._offers and (offer := _offer(self._model, offered)) is not None:
            self._offers[names] = offer
        return self._offers.get(names)

    async def _ask_with_tools(self, messages: list[BaseMessage], on_token: OnToken | None, offer: _Offer) -> AIMessage:
        """Return one answer of a model that may use tools. If the server refuses tools, ask without them from now on."""
        try:
            return await self._ask(messages, on_token, offer)
        except ModelFailed as failure:
            if failure.kind not in REFUSALS:
                raise
            reply = await self._ask(messages, on_token)
            log.warning("agent.no_tools", reason=str(failure))
            self._takes_tools = False
            return reply

    async def _ask(
        self, messages: list[BaseMessage], on_token: OnToken | None, offer: _Offer | None = None
    ) -> AIMessage:
        """Return one answer, with up to two retries where a retry can help (RES-2)."""
        target = offer or self._plain
        for attempt in itertools.count(1):
            tokens = None if on_token is None else _Relay(on_token)
            try:
                if tokens is None:
                    return _refuse_empty(await target.model.ainvoke(messages, **target.options))
                return await self._stream(target, messages, tokens)
            except Exception as error:  # noqa: BLE001 - a model may fail in any way it likes; the user gets one reply
                failure = error
            wait = backoff(failure, attempt) if attempt <= RETRIES else None
            if wait is None:
                raise _log_failure(classify_failure(failure)) from None
            if tokens is not None and tokens.relayed:
                # A client has received the beginning of this attempt, which another attempt does not continue: it is not
                # streamed, and the client gets the finished reply.
                on_token = None
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop returns or raises")

    async def _stream(self, target: _Offer, messages: list[BaseMessage], on_token: OnToken) -> AIMessage:
        answer: AIMessageChunk | None = None
        async for piece in target.model.astream(messages, **target.options):
            chunk = cast("AIMessageChunk", piece)
            answer = chunk if answer is None else answer + chunk
            if text := str(chunk.text):
                on_token(text)
        if answer is None:
            return _refuse_empty(AIMessage(""))
        return _refuse_empty(
            AIMessage(
                answer.content,
                usage_metadata=answer.usage_metadata,
                id=answer.id,
                tool_calls=answer.tool_calls,
                invalid_tool_calls=answer.invalid_tool_calls,
            )
        )


class _Rounds:
    """Join the text of all tool rounds of one answer, with a blank line between rounds.

    Text beside a call that saves a fact is part of the answer. Text beside a chat tool call only announces the call and counts
    if there is no other text: so the beginning of a round is held back while it may still end with such a call.
    """

    def __init__(self, on_token: OnToken | None, *, looks_up: bool) -> None:
        self._on_token = on_token
        self._looks_up = looks_up
        self._parts: list[str] = []
        self._held: str | None = "" if looks_up else None
        self._has_relayed = False
        self._owes_break = False

    @property
    def text(self) -> str:
        return "\n\n".join(self._parts)

    @property
    def on_token(self) -> OnToken | None:
        return None if self._on_token is None else self._relay

    def end_round(self, text: str) -> None:
        """Record the text of a round that ended with a tool call."""
        if stripped := text.strip():
            self._parts.append(stripped)
            self._owes_break = self._has_relayed
        self._held = "" if self._looks_up else None

    def begin_last_round(self) -> None:
        """Stop holding text back: the last round can't call tools."""
        self._held = None

    def join_rounds(self, reply: AIMessage) -> AIMessage:
        """Return the last round's reply with the text of earlier rounds, unless it repeats that text."""
        last = str(reply.text).strip()
        earlier = [] if self._looks_up and last else [part for part in self._parts if part not in last]
        if not earlier:
            return reply
        return AIMessage(
            "\n\n".join([*earlier, last] if last else earlier), usage_metadata=reply.usage_metadata, id=reply.id
        )

    def _relay(self, token: str) -> None:
        assert self._on_token is not None
        if self._held is not None:
            self._held += token
            if len(self._held) <= MAX_HELD_CHARACTERS:
                return
            token, self._held = self._held, None
        self._on_token(f"\n\n{token}" if self._owes_break else token)
        self._owes_break = False
        self._has_relayed = True


class _Relay:
    """Forward tokens, and record whether any was forwarded."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.relayed = False

    def __call__(self, token: str) -> None:
        self.relayed = True
        self._on_token(token)


def _log_failure(failure: ModelFailed) -> ModelFailed:
    """Log the details at DEBUG level, because they may quote messages, and return the failure."""
    log.debug("model.error", errorType=failure.kind, problem=failure.problem, detail=failure.detail)
    return failure


def _refuse_empty(reply: AIMessage) -> AIMessage:
    """Return the reply; raise ModelFailed if it is empty."""
    if not has_calls(reply) and not str(reply.text).strip():
        raise ModelFailed("empty", "the model answered with nothing")
    return reply


def _offer(model: BaseChatModel, tools: Sequence[dict[str, Any]]) -> _Offer | None:
    """Return the model with these tools; None if it can't call any."""
    try:
        bound = model.bind_tools(tools)
    except NotImplementedError:
        return None
    if isinstance(bound, RunnableBinding) and bound.bound is model and not bound.config:
        return _Offer(model, dict(bound.kwargs))  # the arguments of the binding, without its cost in every request
    return _Offer(bound)
