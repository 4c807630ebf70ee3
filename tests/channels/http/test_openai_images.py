"""Test that images of OpenAI clients reach the model's server, which reads them or refuses them (CHAN)."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import web

from rapport.agents.pictures import NOT_SEEN
from tests.e2e.scripted import ScriptedModel, chat_model, scripted_model
from tests.support.cases import every_case
from tests.support.world import World, open_world

PIXEL = f"data:image/png;base64,{base64.b64encode(b'PNG, not really').decode()}"
OTHER = f"data:image/jpeg;base64,{base64.b64encode(b'JPEG, not really').decode()}"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
CALL: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
}

KINDS: list[dict[str, Any]] = [{}, {"user": "anna"}, {"tools": [TOOL]}]
WAYS: list[dict[str, Any]] = [
    *KINDS,
    {"stream": True},
    {"user": "ben", "stream": True},
    {"tools": [TOOL], "stream": True},
]
"""Stateless, stored and with tools; at once and streamed."""


@asynccontextmanager
async def open_scene(database_url: str) -> AsyncGenerator[tuple[World, ScriptedModel, openai.AsyncOpenAI]]:
    async with (
        scripted_model() as model,
        open_world(database_url, model=chat_model(model)) as world,
        openai.AsyncOpenAI(base_url=f"{world.http.base_url}/v1", api_key="none", max_retries=0) as ai,
    ):
        yield world, model, ai


def picture(url: str, text: str = "") -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url, "detail": "high"}}]
    return {"role": "user", "content": [*([{"type": "text", "text": text}] if text else []), *parts]}


async def ask(ai: openai.AsyncOpenAI, messages: list[Any], **more: Any) -> str:
    """Return the text of the answer, streamed or not."""
    create: Any = ai.chat.completions.create
    answer = await create(model="companion", messages=messages, **more)
    if not more.get("stream"):
        return answer.choices[0].message.content
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])


def pictures_in(model: ScriptedModel) -> list[list[str]]:
    """Return the URLs of the pictures in each message of the last request that has any."""
    messages = json.loads(model.calls[-1].body)["messages"]
    parts = [message["content"] for message in messages if isinstance(message["content"], list)]
    found = [[part["image_url"]["url"] for part in part_list if part["type"] == "image_url"] for part_list in parts]
    return [urls for urls in found if urls]


@every_case("way", WAYS)
async def test_an_image_reaches_a_model_that_reads_it(database_url: str, way: dict[str, Any]) -> None:
    async with open_scene(database_url) as (_, model, ai):
        model.answers.append("A pixel.")
        assert await ask(ai, [picture(PIXEL, "What is this?")], **way) == "A pixel."
        assert pictures_in(model) == [[PIXEL]]
        model.answers.append("Another one.")
        assert await ask(ai, [picture(OTHER)], **way) == "Another one."  # no text beside it
        assert pictures_in(model)[-1] == [OTHER]


@every_case("way", [way for way in WAYS if "user" not in way])
async def test_images_of_earlier_messages_reach_it_too(database_url: str, way: dict[str, Any]) -> None:
    async with open_scene(database_url) as (_, model, ai):
        talk = [picture(PIXEL, "This is ours."), {"role": "assistant", "content": "I see."}]
        await ask(ai, [*talk, picture(OTHER, "And this is theirs.")], **way)
        assert pictures_in(model) == [[PIXEL], [OTHER]]
        await ask(ai, [*talk, {"role": "user", "content": "What was it?"}], **way)
        assert pictures_in(model) == [[PIXEL]]


async def test_an_image_of_a_stored_conversation_is_given_again(database_url: str) -> None:
    async with open_scene(database_url) as (_, model, ai):
        await ask(ai, [picture(PIXEL, "This is ours.")], user="anna")
        await ask(ai, [{"role": "user", "content": "What was it?"}], user="anna")
        assert pictures_in(model) == [[PIXEL]]


async def test_an_image_before_a_round_of_tools_reaches_it(database_url: str) -> None:
    async with open_scene(database_url) as (_, model, ai):
        talk = [picture(PIXEL, "Where is this?"), CALL, {"role": "tool", "tool_call_id": "a", "content": "Lisbon"}]
        await ask(ai, talk, tools=[TOOL])
        assert pictures_in(model) == [[PIXEL]]
        assert [message["role"] for message in json.loads(model.calls[-1].body)["messages"]] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]


@every_case("way", WAYS)
async def test_a_model_that_refuses_images_gets_the_text(database_url: str, way: dict[str, Any]) -> None:
    async with open_scene(database_url) as (_, model, ai):
        model.refuses_pictures = True
        await ask(ai, [picture(PIXEL, "What is this?")], **way)
        assert pictures_in(model) == []
        assert NOT_SEEN in model.calls[-1].body
        assert "What is this?" in model.calls[-1].text
        if "tools" in way:
            assert model.calls[-1].tools == ["get_weather"]  # the picture was refused, and not the tools
        asked = len(model.calls)
        await ask(ai, [picture(PIXEL, "And now?")], **way)
        assert len(model.calls) == asked + 1  # from now on it is asked once, without the picture


@every_case("way", WAYS)
async def test_the_server_never_fetches_an_address(database_url: str, way: dict[str, Any]) -> None:
    requests: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(body=b"PNG", content_type="image/png")

    app = web.Application()
    app.router.add_get("/cat.png", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/cat.png"
        async with open_scene(database_url) as (_, model, ai):
            await ask(ai, [picture(url, "What is this?")], **way)
            assert pictures_in(model) == [[url]]
    finally:
        await runner.cleanup()
    assert requests == []


@every_case("url", ["file:///etc/passwd", "data:text/html;base64,aGk=", "ftp://example.org/cat.png", "cat.png", ""])
async def test_other_addresses_are_refused_with_tools_too(database_url: str, url: str) -> None:
    async with open_scene(database_url) as (_, model, ai):
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(ai, [picture(url, "What is this?")], tools=[TOOL])
        assert refused.value.param == "messages.0"
        assert model.calls == []
