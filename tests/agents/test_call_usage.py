"""Test what is counted of a call: the provider's usage, or what stands for it where it is missing or wrong."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp import web
from langchain_core.messages import AIMessage, HumanMessage

from rapport.agents.call_usage import PICTURE_TOKENS, MeteredCall, read_usage
from rapport.agents.openai import ProviderError
from rapport.domain.usage import MAX_TOKENS_PER_CALL, CallUsage
from tests.agents.test_models import DONE, Provider, completion, event, model_at, provider, refusal, stream, streamed
from tests.support.cases import every_case

__all__ = ["provider"]


def usage_of(tokens_in: int, tokens_out: int) -> dict[str, int]:
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def with_usage(frame: bytes, usage: Any) -> bytes:
    return b"data: " + json.dumps({**json.loads(frame[5:]), "usage": usage}).encode() + b"\n\n"


async def test_usage_that_comes_with_every_chunk_is_counted_once(provider: Provider) -> None:
    frames = [with_usage(event({"content": f"word {n} "}), usage_of(10, n)) for n in range(1, 6)]
    provider.will.append(stream([*frames, event({}, "stop"), DONE]))
    async with model_at(provider.url) as model:
        whole = await streamed(model, [HumanMessage("hello")])
    assert read_usage(AIMessage("", usage_metadata=whole.usage_metadata)) == (10, 5)
    assert whole.text == "word 1 word 2 word 3 word 4 word 5 "


async def test_a_refusal_that_names_another_part_of_the_request_is_not_about_usage(provider: Provider) -> None:
    provider.will.append(refusal(400, "the messages are longer than the context"))
    async with model_at(provider.url) as model:
        with pytest.raises(ProviderError, match="longer than the context"):
            await streamed(model, [HumanMessage("hello")])
        assert len(provider.bodies) == 1
        await streamed(model, [HumanMessage("hello")])
    assert provider.bodies[-1]["stream_options"] == {"include_usage": True}


WRONG = ["many", [1], 5, {"prompt_tokens": "3"}, {"prompt_tokens": 1, "prompt_tokens_details": 7}, {}, None]


@pytest.mark.parametrize("usage", WRONG, ids=str)
async def test_a_wrong_usage_does_not_cost_the_answer(provider: Provider, usage: Any) -> None:
    async def answer(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({**completion({"content": "Hello."}), "usage": usage})

    provider.will += [answer, stream([with_usage(event({"content": "Hello."}, "stop"), usage), DONE])]
    async with model_at(provider.url) as model:
        reply = await model.ainvoke([HumanMessage("hello")])
        whole = await streamed(model, [HumanMessage("hello")])
    for one in (reply, whole):
        assert one.text == "Hello."
        assert one.usage_metadata is None


def counted(error: BaseException | None, received: AIMessage | None, **more: Any) -> list[CallUsage]:
    calls: list[CallUsage] = []
    expected = contextlib.nullcontext() if error is None else contextlib.suppress(type(error))
    with expected, MeteredCall("m", [HumanMessage("two words")], {}, calls.append, **more) as call:
        call.received = received
        if error is not None:
            raise error
    return calls


SPOKEN = AIMessage("three words here", usage_metadata={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10})
ZEROS = AIMessage("three words here", usage_metadata={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0})
HUGE = AIMessage("x", usage_metadata={"input_tokens": 10**30, "output_tokens": 1, "total_tokens": 1})
PICTURE = AIMessage([{"type": "text", "text": "one"}, {"type": "image", "url": "https://example.org/cat.png"}])


@every_case(
    ("error", "received", "usage"),
    [
        (None, SPOKEN, [CallUsage("m", 7, 3)]),
        (None, AIMessage("three words here"), [CallUsage("m", 2, 3, is_estimated=True)]),
        (None, ZEROS, [CallUsage("m", 2, 3, is_estimated=True)]),
        (None, HUGE, [CallUsage("m", MAX_TOKENS_PER_CALL, 1)]),
        (None, PICTURE, [CallUsage("m", 2, 1 + PICTURE_TOKENS, is_estimated=True)]),
        (ValueError("broken"), None, [CallUsage("m")]),
        (ValueError("broken"), SPOKEN, [CallUsage("m", 7, 3)]),
        (KeyboardInterrupt(), AIMessage("three words"), [CallUsage("m", 2, 2, is_estimated=True)]),
        (httpx.ConnectError("no route"), None, []),
        (aiohttp.ServerDisconnectedError(), None, [CallUsage("m")]),
        (ConnectionRefusedError(), None, []),
    ],
)
def test_a_call_is_counted_by_how_it_ended(
    error: BaseException | None, received: AIMessage | None, usage: list[CallUsage]
) -> None:
    assert counted(error, received) == usage


def test_a_free_model_has_no_tokens() -> None:
    assert counted(None, AIMessage("three words here"), is_free=True) == [CallUsage("m")]


def test_an_error_that_wraps_a_refused_connection_is_no_call() -> None:
    wrapped = RuntimeError("the SDK's own error")
    wrapped.__cause__ = httpx.ConnectError("no route")
    assert counted(wrapped, None) == []
