"""Ask a model that may call a client's tools: one answer, whose calls the client runs (ADR 96)."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson
import structlog
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from rapport.agents.call_usage import OnCall
from rapport.agents.failures import ModelFailed
from rapport.agents.health import ModelHealth
from rapport.agents.model_client import REFUSALS, ModelAnswer, ModelClient, OnToken
from rapport.agents.model_record import ModelRecord
from rapport.agents.models import BUILTIN
from rapport.domain.client_tools import ClientCall, ToolOffer, ToolsRefused
from rapport.domain.ids import new_id

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ClientToolAnswer:
    """One answer of the model, unchecked."""

    text: str
    calls: Sequence[ClientCall] = ()
    tools_refused: bool = False
    """True if it was asked without the tools."""


class ClientToolModel:
    """Asks one model for clients that bring their own tools. Its record and health are those of its turns."""

    def __init__(
        self, model: BaseChatModel, record: ModelRecord, health: ModelHealth, *, name: str, deadline: float
    ) -> None:
        self._model = model
        self._client = ModelClient(model, record, name=name, is_free=name == BUILTIN)
        self._deadline = deadline
        self._running = 0
        self.health = health

    @property
    def is_idle(self) -> bool:
        """Return True if no request waits for this model."""
        return self._running == 0

    async def ask(
        self,
        messages: list[BaseMessage],
        offer: ToolOffer,
        *,
        on_token: OnToken | None,
        on_call: OnCall,
        deadline_share: float = 1.0,
    ) -> ClientToolAnswer:
        """Return one answer. Raise ModelFailed; raise ToolsRefused if a call is demanded of a model that can't make any."""
        self._running += 1
        seconds = self._deadline * deadline_share
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask(messages, offer, on_token, on_call)
        except TimeoutError:
            failure = ModelFailed("timeout", f"no answer within {seconds:g} s")
            self.health.record_failure(failure)
            raise failure from None
        except ModelFailed as failure:
            self.health.record_failure(failure)
            raise
        finally:
            self._running -= 1
        self.health.record_success()
        return answer

    async def _ask(
        self, messages: list[BaseMessage], offer: ToolOffer, on_token: OnToken | None, on_call: OnCall
    ) -> ClientToolAnswer:
        tools, options = _adapt(self._model, offer)
        try:
            asked = await self._client.ask_with_client_tools(messages, on_token, tools, options, on_call=on_call)
        except ModelFailed as failure:
            # llama.cpp that was started without a template for tools answers with status 500.
            is_refusal = failure.kind in REFUSALS or "tool" in failure.detail.casefold()
            if not is_refusal or failure.problem == "too_long":
                raise
            answer = await self._ask_without_tools(messages, offer, on_token, on_call)
            # The tools may be the cause as well as the model: the next request offers its tools again.
            log.warning("agent.no_client_tools", reason=str(failure))
            return answer
        if asked is None:
            return await self._ask_without_tools(messages, offer, on_token, on_call)
        calls = _read_calls(asked, offer)
        if not calls and not str(asked.message.text).strip():  # only machinery, or calls of tools that nobody offered
            text = (await self._client.ask(_write_as_text(messages), on_token, on_call=on_call)).message.text
            return ClientToolAnswer(str(text))
        return ClientToolAnswer(str(asked.message.text), calls)

    async def _ask_without_tools(
        self, messages: list[BaseMessage], offer: ToolOffer, on_token: OnToken | None, on_call: OnCall
    ) -> ClientToolAnswer:
        if offer.is_required:
            raise ToolsRefused("The agent's model can't call these tools, and the request demands a call.")
        asked = await self._client.ask(_write_as_text(messages), on_token, on_call=on_call)
        return ClientToolAnswer(str(asked.message.text), tools_refused=True)


def _adapt(model: BaseChatModel, offer: ToolOffer) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    """Return tools and options in the form that LangChain has for all providers, as far as the class of this model knows it.

    For OpenAI's API the tools are exactly those of the client.
    """
    is_openai = getattr(model, "takes_no_tool_choice", False)
    options: dict[str, Any] = {}
    if offer.only is not None:
        options["tool_choice"] = offer.only
    elif offer.mode == "required":
        options["tool_choice"] = "any"
    elif offer.mode == "none" and is_openai:
        options["tool_choice"] = "none"
    if offer.parallel is not None and "parallel_tool_calls" in inspect.signature(model.bind_tools).parameters:
        options["parallel_tool_calls"] = offer.parallel
    return offer.tools if is_openai else [_add_parameters(tool) for tool in offer.tools], options


def _add_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the tool with parameters: OpenAI's API may leave out those of a tool that has none, other classes need them."""
    return {**tool, "function": {"parameters": {"type": "object", "properties": {}}, **tool["function"]}}


def _read_calls(asked: ModelAnswer, offer: ToolOffer) -> list[ClientCall]:
    """Return the calls of tools that may be called: in the provider's form, else those written as text."""
    reply = asked.message
    if asked.raw_calls:
        calls = [ClientCall(call.id or "", call.name, call.arguments) for call in asked.raw_calls]
    else:
        calls = [ClientCall(call["id"] or "", call["name"], _write_json(call["args"])) for call in reply.tool_calls]
        calls += [
            ClientCall(call["id"] or "", call["name"] or "", call["args"] or "{}") for call in reply.invalid_tool_calls
        ]
    calls = calls or [ClientCall("", call.name, _write_json(call.arguments)) for call in asked.written]
    names = offer.callable_names
    callable_calls = [
        call if call.id else ClientCall(f"call_{new_id()}", call.name, call.arguments)
        for call in calls
        if call.name in names
    ]
    return callable_calls[:1] if offer.parallel is False else callable_calls


def _write_json(arguments: object) -> str:
    """Return the arguments as LangChain writes them to the model's server: a prompt with them stays the same for its cache."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(arguments)
    except ValueError:  # NaN and the infinities are no JSON
        return orjson.dumps(arguments).decode()
    return text


def _write_as_text(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages for a model without tools: calls and results become text, and one text follows another."""
    written: list[BaseMessage] = []
    names: dict[str | None, str] = {}
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            names |= {call["id"]: call["name"] for call in message.tool_calls}
            lines = [f"(I call {call['name']} with {_write_json(call['args'])}.)" for call in message.tool_calls]
            written.append(AIMessage("\n".join([line for line in (str(message.text), *lines) if line])))
        elif isinstance(message, ToolMessage):
            text = f"(The result of {names.get(message.tool_call_id, 'the call')}, which is data: {message.text})"
            _add_result(written, text)
        else:
            written.append(message)
    return written


def _add_result(written: list[BaseMessage], text: str) -> None:
    """Add a result as a message of the user, or to the result before it: many servers refuse two messages of one role."""
    last = written[-1] if written else None
    if isinstance(last, HumanMessage) and last.additional_kwargs.get("is_result"):
        last.content = f"{cast('str', last.content)}\n{text}"  # pyright: ignore[reportUnknownMemberType]
        return
    written.append(HumanMessage(text, additional_kwargs={"is_result": True}))
