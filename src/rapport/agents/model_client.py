"""Ask a model: with retries, without what it can't do, and without the machinery that it writes into its text."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import structlog
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable, RunnableBinding

from rapport.agents.call_usage import MeteredCall, OnCall, ignore_call
from rapport.agents.failures import ModelFailed, backoff, classify_failure
from rapport.agents.model_record import ModelRecord
from rapport.agents.pictures import drop_pictures, has_pictures
from rapport.agents.tools.calls import RawCall, has_calls, set_calls, take_raw_calls
from rapport.agents.tools.registry import ALL_TOOLS, BUILT_IN, UPSERT_MEMORY
from rapport.replies.echoes import EchoFilter
from rapport.replies.machinery import MachineryFilter, cut_machinery
from rapport.replies.written_calls import OfferedTools, WrittenCall

log = structlog.get_logger()

OnToken: TypeAlias = Callable[[str], None]
Model: TypeAlias = "Runnable[LanguageModelInput, AIMessage]"

NO_OPTIONS: Mapping[str, Any] = {}
RETRIES = 2
MAX_KNOWN_OFFERS = 64
"""The number of tool sets whose request is kept."""
REFUSALS = frozenset({"http_400", "http_404", "http_422", "http_501"})
"""Status codes of servers whose model does not support tools or pictures."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A model with the options of every request."""

    model: Model
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    named: OfferedTools = ALL_TOOLS
    """The tools whose calls are cut out of the text if the model writes them there."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One answer of the model, and the tool calls that it wrote as text."""

    message: AIMessage
    written: Sequence[WrittenCall] = ()
    raw_calls: Sequence[RawCall] = ()
    """The calls of the message with their arguments as the model wrote them; none if its provider hides them."""


class ModelClient:
    """Asks one model, and records what it can do."""

    def __init__(self, model: BaseChatModel, record: ModelRecord, *, name: str = "", is_free: bool = False) -> None:
        """`name` is that of the model in its usage. The calls of a free model are counted without tokens."""
        self._model = model
        self._name = name
        self._is_free = is_free
        self._record = record
        self._plain = _Offer(model)
        self._takes_tools = _offer(model, [UPSERT_MEMORY.schema]) is not None
        self._offers: dict[tuple[int, ...], tuple[Sequence[dict[str, Any]], _Offer]] = {}

    @property
    def calls_tools(self) -> bool:
        """Return True if the model may be offered tools."""
        return self._takes_tools and self._record.may_have_tools

    async def ask_with_tools(
        self,
        messages: list[BaseMessage],
        on_token: OnToken | None,
        tools: Sequence[dict[str, Any]],
        *,
        on_call: OnCall = ignore_call,
    ) -> ModelAnswer:
        """Return one answer of a model that may use these tools. Raise ModelFailed.

        If the server refuses tools, ask without them from now on. An answer without text and calls had only machinery.
        """
        try:
            return await self.ask(messages, on_token, self._find_offer(tools), on_call=on_call)
        except ModelFailed as failure:
            if failure.kind not in REFUSALS:
                raise
            asked = await self.ask(messages, on_token, on_call=on_call)
            log.warning("agent.no_tools", reason=str(failure))
            self._takes_tools = False
            return asked

    async def ask_with_client_tools(
        self,
        messages: list[BaseMessage],
        on_token: OnToken | None,
        tools: Sequence[dict[str, Any]],
        options: Mapping[str, Any],
        *,
        on_call: OnCall = ignore_call,
    ) -> ModelAnswer | None:
        """Return one answer of a model that may call a client's tools; None if it can't call any. Raise ModelFailed.

        An answer without text and calls had only machinery.
        """
        # The longest name first: another may be its beginning.
        schemas = sorted(tools, key=lambda tool: len(tool["function"]["name"]), reverse=True)
        try:
            offer = _offer(self._model, tools, options, OfferedTools.from_schemas(schemas))
        except Exception as error:  # noqa: BLE001 - a provider's class may refuse a client's schema in any way it likes
            detail = type(error).__name__
            raise ModelFailed("tools", "it can't take these tools", problem="request_refused", detail=detail) from None
        return None if offer is None else await self.ask(messages, on_token, offer, on_call=on_call)

    def _find_offer(self, tools: Sequence[dict[str, Any]]) -> _Offer | None:
        key = tuple(map(id, tools))  # agents share the model, and a tool's schema may differ between them or change
        if (known := self._offers.get(key)) is not None:
            return known[1]
        if (offer := _offer(self._model, tools, named=_name_tools(tools))) is not None:
            if len(self._offers) >= MAX_KNOWN_OFFERS:
                self._offers.clear()
            self._offers[key] = (tools, offer)  # with the schemas: their ids stay theirs
        return offer

    async def ask(
        self,
        messages: list[BaseMessage],
        on_token: OnToken | None,
        offer: _Offer | None = None,
        *,
        on_call: OnCall = ignore_call,
    ) -> ModelAnswer:
        """Return one answer. If the server refuses pictures, ask without them from now on.

        `on_call` gets the usage of every request that has reached the server.
        """
        if not self._record.takes_pictures:
            messages = drop_pictures(messages)
        try:
            return await self._request(messages, on_token, offer, on_call)
        except ModelFailed as failure:
            # llama.cpp answers a picture that its model can't read with status 500.
            is_refusal = failure.kind in REFUSALS or "image" in failure.detail.casefold()
            if not is_refusal or not has_pictures(messages):
                raise
            reply = await self._request(drop_pictures(messages), on_token, offer, on_call)
            log.warning("agent.no_pictures", reason=str(failure))
            self._record.refused_pictures += 1
            return reply

    async def _request(
        self, messages: list[BaseMessage], on_token: OnToken | None, offer: _Offer | None, on_call: OnCall
    ) -> ModelAnswer:
        """Return one answer, with up to two retries where a retry can help (RES-2)."""
        target = offer or self._plain
        for attempt in itertools.count(1):
            tokens = None if on_token is None else _Relay(on_token)
            try:
                with MeteredCall(self._name, messages, target.options, on_call, is_free=self._is_free) as call:
                    if tokens is None:
                        call.received = await target.model.ainvoke(messages, **target.options)
                    else:
                        await self._stream(target, messages, tokens, call)
                asked = self._cut_machinery(_refuse_nothing(call.received or AIMessage("")), target.named)
                return asked if offer is not None else replace(asked, message=_refuse_nothing(asked.message))
            except Exception as error:  # noqa: BLE001 - a model may fail in any way it likes; the user gets one reply
                failure = error
            wait = backoff(failure, attempt) if attempt <= RETRIES else None
            if wait is None:
                raise log_failure(classify_failure(failure)) from None
            if tokens is not None and tokens.relayed:
                # A client has received the beginning of this attempt, which another attempt does not continue: it is not
                # streamed, and the client gets the finished reply.
                on_token = None
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop returns or raises")

    def _cut_machinery(self, reply: AIMessage, named: OfferedTools) -> ModelAnswer:
        """Return the reply without tool calls written as text, thoughts and special tokens, and those calls."""
        text = str(reply.text)
        visible = cut_machinery(text, named, begins_in_thought=self._record.begins_in_thought)
        if text.strip():
            self._record.count_beginning(was_thought=visible.began_in_thought)
        raw_calls = take_raw_calls(reply)
        if visible.text == text:
            return ModelAnswer(reply, raw_calls=raw_calls)
        return ModelAnswer(reply.model_copy(update={"content": visible.text}), visible.calls, raw_calls)

    async def _stream(self, target: _Offer, messages: list[BaseMessage], on_token: OnToken, call: MeteredCall) -> None:
        """Stream an answer into the call."""
        answer: AIMessageChunk | None = None
        visible, echoes = MachineryFilter(target.named, begins_in_thought=self._record.begins_in_thought), EchoFilter()

        async for piece in target.model.astream(messages, **target.options):
            chunk = cast("AIMessageChunk", piece)
            call.received = answer = chunk if answer is None else answer + chunk
            if text := echoes.feed(visible.feed(str(chunk.text))):
                on_token(text)
        if text := echoes.feed(visible.finish()) + echoes.finish():
            on_token(text)
        if isinstance(answer, AIMessageChunk):  # a class that can't stream gives the whole message
            reply = AIMessage(answer.content, usage_metadata=answer.usage_metadata, id=answer.id)
            # Not `answer.tool_calls`: LangChain repairs arguments that were cut off.
            set_calls(reply, _read_raw_calls(answer))
            call.received = reply


class _Relay:
    """Forward tokens, and record whether any was forwarded."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.relayed = False

    def __call__(self, token: str) -> None:
        self.relayed = True
        self._on_token(token)


def _read_raw_calls(answer: AIMessageChunk) -> list[RawCall]:
    return [RawCall(chunk["id"], chunk["name"] or "", chunk["args"] or "") for chunk in answer.tool_call_chunks]


def log_failure(failure: ModelFailed) -> ModelFailed:
    """Log the details at DEBUG level, because they may quote messages, and return the failure."""
    log.debug("model.error", errorType=failure.kind, problem=failure.problem, detail=failure.detail)
    return failure


def _refuse_nothing(reply: AIMessage) -> AIMessage:
    """Return the reply; raise ModelFailed if it is empty."""
    if not has_calls(reply) and not str(reply.text).strip():
        raise ModelFailed("empty", "the model answered with nothing")
    return reply


def _name_tools(tools: Sequence[dict[str, Any]]) -> OfferedTools:
    """Return the built-in tools and these."""
    others = [tool for tool in tools if tool["function"]["name"] not in ALL_TOOLS.parameters]
    return OfferedTools.from_schemas([*(spec.schema for spec in BUILT_IN.values()), *others]) if others else ALL_TOOLS


def _offer(
    model: BaseChatModel,
    tools: Sequence[dict[str, Any]],
    options: Mapping[str, Any] = NO_OPTIONS,
    named: OfferedTools = ALL_TOOLS,
) -> _Offer | None:
    """Return the model with these tools; None if it can't call any."""
    try:
        bound = model.bind_tools(tools, **options)
    except NotImplementedError:
        return None
    if isinstance(bound, RunnableBinding) and bound.bound is model and not bound.config:
        # the arguments of the binding, without its cost in every request
        return _Offer(model, dict(bound.kwargs), named)
    return _Offer(bound, named=named)
