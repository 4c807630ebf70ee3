"""Test how a model is asked with a client's tools, whatever its provider's class takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

from rapport.agents.call_usage import ignore_call
from rapport.agents.client_tools import ClientToolModel
from rapport.agents.failures import ModelFailed
from rapport.agents.health import ModelHealth
from rapport.agents.model_record import ModelRecord
from rapport.domain.client_tools import ToolOffer
from tests.support.cases import every_case
from tests.support.waiting import LIMIT_SECONDS

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "get_weather"}}


class PortableModel(BaseChatModel):
    """A model of a provider that knows neither parallel calls nor the choice "none", as LangChain's class for Ollama."""

    _answers: list[AIMessage] = PrivateAttr(default_factory=list[AIMessage])
    _bound: list[dict[str, Any]] = PrivateAttr(default_factory=list[dict[str, Any]])

    @property
    def _llm_type(self) -> str:
        return "portable"

    @property
    def answers(self) -> list[AIMessage]:
        return self._answers

    @property
    def bound(self) -> list[dict[str, Any]]:
        return self._bound

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any) -> Any:
        self._bound.append({"tool_choice": tool_choice, **kwargs})
        return self.bind(tools=list(tools))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answers.pop(0))])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("the app is asynchronous throughout")


def served(model: BaseChatModel, *, deadline: float = LIMIT_SECONDS) -> ClientToolModel:
    return ClientToolModel(model, ModelRecord(), ModelHealth(), name="portable", deadline=deadline)


def calling(arguments: dict[str, Any], id_: str | None = None) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "get_weather", "args": arguments, "id": id_}])


async def ask(model: PortableModel, offer: ToolOffer) -> Any:
    return await served(model).ask([HumanMessage("hello")], offer, on_token=None, on_call=ignore_call)


@every_case(
    ("offer", "choice"),
    [
        (ToolOffer([TOOL]), None),
        (ToolOffer([TOOL], "required"), "any"),
        (ToolOffer([TOOL], "required", "get_weather"), "get_weather"),
        (ToolOffer([TOOL], "none"), None),
        (ToolOffer([TOOL], parallel=False), None),
    ],
)
async def test_a_class_gets_only_the_options_that_it_has(offer: ToolOffer, choice: str | None) -> None:
    model = PortableModel()
    model.answers.extend([calling({"city": "Oslo"}), AIMessage("words")])
    answer = await ask(model, offer)
    assert model.bound[1:] == [
        {"tool_choice": choice}
    ]  # the first is made with the client, to see whether it takes tools
    assert (answer.text, len(answer.calls)) == (("words", 0) if offer.mode == "none" else ("", 1))


async def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    model = PortableModel()
    model.answers.append(AIMessage("", tool_calls=[{"name": "get_weather", "args": {}, "id": None} for _ in range(2)]))
    first, second = (await ask(model, ToolOffer([TOOL]))).calls
    assert first.id.startswith("call_")
    assert first.id != second.id


async def test_a_class_that_can_not_stream_is_read_whole() -> None:
    model = PortableModel()
    model.answers.append(calling({"city": "Oslo"}, "a"))
    tokens: list[str] = []
    answer = await served(model).ask(
        [HumanMessage("hello")], ToolOffer([TOOL]), on_token=tokens.append, on_call=ignore_call
    )
    assert [(call.id, call.name, call.arguments) for call in answer.calls] == [("a", "get_weather", '{"city": "Oslo"}')]
    assert tokens == []


@every_case(
    ("value", "read"),
    [("Zürich", "Zürich"), ("\ud800", "\ud800"), (float("nan"), None), (2**70, 2**70), ({"a": [1.5]}, {"a": [1.5]})],
)
async def test_arguments_are_always_json_that_can_be_sent(value: Any, read: Any) -> None:
    model = PortableModel()
    model.answers.append(calling({"city": value}, "a"))
    [call] = (await ask(model, ToolOffer([TOOL]))).calls
    call.arguments.encode()
    assert "NaN" not in call.arguments
    assert json.loads(call.arguments) == {"city": read}


async def test_the_deadline_ends_a_call_that_hangs() -> None:
    model = PortableModel()
    with pytest.raises(ModelFailed) as failed:
        await served(model, deadline=0.0).ask(
            [HumanMessage("hello")], ToolOffer([TOOL]), on_token=None, on_call=ignore_call
        )
    assert failed.value.kind == "timeout"
