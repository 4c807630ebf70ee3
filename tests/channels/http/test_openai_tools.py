"""Test tools of clients in the OpenAI-compatible API: real clients and a real model server, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, SecretStr

from rapport.channels.http.auth.rate_limits import Rules, open_limiter
from rapport.channels.http.openai.tool_requests import MAX_TOOLS
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, scripted_model
from tests.support.cases import every_case
from tests.support.world import World, open_world, until

GUARD = "I don't have sufficiently relevant documents to answer confidently. Please add more context or documents."
REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
HOW_LONG = "How long can I return something I bought?"

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": ["integer", "null"]}},
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"City": {"type": "string", "minLength": 1}},
        },
    },
}
BOOK: dict[str, Any] = {"type": "function", "function": {"name": "get_weather-book", "description": "Book a table."}}
STORED = (
    "conversations", "messages", "events", "timers", "outbox", "checkpoints", "memories", "model_records",
    "message_vectors", "notes",
)  # fmt: skip


@dataclass
class Scene:
    """A server, the model behind it and a client."""

    world: World
    model: ScriptedModel
    ai: openai.AsyncOpenAI

    async def ask(self, messages: Any, **more: Any) -> ChatCompletion:
        create: Any = self.ai.chat.completions.create
        return await create(**{"model": "companion", "messages": _messages(messages), "tools": [WEATHER], **more})

    async def stream(self, messages: Any, **more: Any) -> list[ChatCompletionChunk]:
        chunks: Any = await self.ask(messages, stream=True, **more)
        return [chunk async for chunk in chunks]

    def sent(self, number: int = -1) -> dict[str, Any]:
        """Return a request that the model's server got."""
        return json.loads(self.model.calls[number].body)

    def shown(self) -> list[tuple[str, Any]]:
        """Return role and content of the messages of the last request, without instructions and server note."""
        return [(message["role"], message["content"]) for message in self.sent()["messages"][1:]]

    async def count_rows(self) -> dict[str, int]:
        counts = {table: await self.world.sql(f"SELECT count(*) FROM {table}") for table in STORED}
        return {table: rows[0][0] for table, rows in counts.items()}


@asynccontextmanager
async def open_scene(database_url: str, **settings: Any) -> AsyncGenerator[Scene]:
    async with (
        scripted_model() as model,
        open_world(database_url, model=chat_model(model), **settings) as world,
        openai.AsyncOpenAI(base_url=f"{world.http.base_url}/v1", api_key="none", max_retries=0) as ai,
    ):
        yield Scene(world, model, ai)


@pytest.fixture
async def scene(database_url: str) -> AsyncGenerator[Scene]:
    async with open_scene(database_url) as opened:
        yield opened


def _messages(messages: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def weather(city: str) -> ToolCall:
    return ToolCall("get_weather", json.dumps({"city": city}))


def called(*calls: tuple[str, str], content: str | None = None) -> dict[str, Any]:
    """Return a message of the assistant with calls of get_weather, each an id and its arguments."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": id_, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
            for id_, arguments in calls
        ],
    }


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def rapport(answer: ChatCompletion | ChatCompletionChunk) -> Mapping[str, Any]:
    assert answer.model_extra is not None
    return answer.model_extra["rapport"]


def joined_calls(chunks: Sequence[ChatCompletionChunk]) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of streamed calls, joined as clients do it."""
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for delta in chunk.choices[0].delta.tool_calls or () if chunk.choices else ():
            assert delta.function is not None
            if delta.index not in calls:
                calls[delta.index] = [delta.id or "", delta.function.name or "", ""]
                assert delta.type == "function"
            calls[delta.index][2] += delta.function.arguments or ""
    return [(id_, name, arguments) for id_, name, arguments in calls.values()]


def joined_text(chunks: Sequence[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def refuse(scene: Scene, **body: Any) -> dict[str, Any]:
    """Return the error of a request that is refused with status 400."""
    request = {"model": "companion", "messages": _messages("hello"), "tools": [WEATHER], **body}
    answer = await scene.world.http.post("/v1/chat/completions", json=request)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


# ---- the loop of a client


async def test_a_client_runs_its_tools_in_two_rounds_and_nothing_is_stored(scene: Scene) -> None:
    before = await scene.count_rows()
    talk: list[Any] = [
        {"role": "system", "content": "You are the desk of a hotel."},
        {"role": "user", "content": "Where is it warmer, in Lisbon or in Oslo?"},
    ]
    scene.model.answers.extend([Uses([weather("Lisbon"), weather("Oslo")]), Uses([weather("Faro")], "And Faro?")])
    first = await scene.ask(talk, temperature=0.1)
    [choice] = first.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    asked: list[Any] = list(choice.message.tool_calls)
    assert [(call.id, call.type, call.function.name) for call in asked] == [
        ("call_0", "function", "get_weather"),
        ("call_1", "function", "get_weather"),
    ]
    assert [json.loads(call.function.arguments) for call in asked] == [{"city": "Lisbon"}, {"city": "Oslo"}]
    sent = scene.sent()
    assert sent["tools"] == [WEATHER]
    assert "tool_choice" not in sent
    assert "parallel_tool_calls" not in sent
    system = sent["messages"][0]["content"]
    assert system.startswith("You are a warm, attentive companion")
    assert system.endswith("You are the desk of a hotel.")
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]

    talk += [choice.message.model_dump(exclude_none=True), result("call_0", "21 °C"), result("call_1", "")]
    second = await scene.ask(talk)
    assert second.choices[0].finish_reason == "tool_calls"
    assert second.choices[0].message.content == "And Faro?"
    talk += [
        second.choices[0].message.model_dump(exclude_none=True),
        result("call_0", [{"type": "text", "text": "23"}]),
    ]
    scene.model.answers.append("In Faro.")
    third = await scene.ask(talk)
    assert (third.choices[0].finish_reason, third.choices[0].message.content) == ("stop", "In Faro.")
    assert third.choices[0].message.tool_calls is None
    sent = scene.sent()
    assert [message["role"] for message in sent["messages"]] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert [message.get("tool_call_id") for message in sent["messages"]] == [
        None, None, None, "call_0", "call_1", None, "call_0",
    ]  # fmt: skip
    assert sent["messages"][2]["tool_calls"] == [
        {"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": call.function.arguments}}
        for call in asked
    ]
    assert [message["content"] for message in sent["messages"] if message["role"] == "tool"] == ["21 °C", "", "23"]
    assert sent["messages"][5]["content"] == "And Faro?"
    assert scene.model.calls[-1].text == "Where is it warmer, in Lisbon or in Oslo?"
    assert "It is " in scene.model.calls[-1].note

    assert await scene.count_rows() == before
    rows = await scene.world.sql(
        "SELECT agent_id, conversation_id, purpose, sum(calls), sum(tokens_in) FROM model_usage GROUP BY 1, 2, 3"
    )
    assert rows == [("companion", "", "answer", 3, 3)]


async def test_a_streamed_loop_gives_the_calls_in_pieces(scene: Scene) -> None:
    city = "Llanfairpwllgwyngyll" * 60
    scene.model.answers.append(Uses([weather(city), weather("Oslo")], "I look it up."))
    scene.model.usage = (70, 30)
    chunks = await scene.stream("Where is it warmer?", stream_options={"include_usage": True})
    assert joined_text(chunks) == "I look it up."
    assert [(name, json.loads(arguments)) for _, name, arguments in joined_calls(chunks)] == [
        ("get_weather", {"city": city}),
        ("get_weather", {"city": "Oslo"}),
    ]
    *_, last, counted = chunks
    assert last.choices[0].finish_reason == "tool_calls"
    assert rapport(last)["message_id"] is None
    assert counted.choices == []
    assert counted.usage is not None
    assert (counted.usage.prompt_tokens, counted.usage.completion_tokens, counted.usage.total_tokens) == (70, 30, 100)
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.model for chunk in chunks} == {"companion"}

    [one, two] = joined_calls(chunks)
    talk = [*_messages("Where?"), called((one[0], one[2]), (two[0], two[2])), result(one[0], "9"), result(two[0], "8")]
    scene.model.answers.append("In the first one.")
    chunks = await scene.stream(talk)
    assert joined_text(chunks) == "In the first one."
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)
    assert sum(row for row in (await scene.count_rows()).values()) == 0


async def test_langchain_binds_its_tools(scene: Scene) -> None:
    @tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    class Decision(BaseModel):
        """A decision."""

        city: str

    chat: Any = ChatOpenAI(model="companion", base_url=f"{scene.world.http.base_url}/v1", api_key=SecretStr("none"))
    bound = chat.bind_tools([get_weather])
    for streamed in (False, True):
        talk: list[Any] = [SystemMessage("Be brief."), HumanMessage("How is it in Lisbon?")]
        for city in ("Lisbon", "Faro"):
            scene.model.answers.append(Uses([weather(city)]))
            reply: Any = await collect(bound, talk) if streamed else await bound.ainvoke(talk)
            [call] = reply.tool_calls
            assert (call["name"], call["args"]) == ("get_weather", {"city": city})
            talk += [reply, await get_weather.ainvoke(call)]
        scene.model.answers.append("Sunny.")
        reply = await collect(bound, talk) if streamed else await bound.ainvoke(talk)
        assert (reply.text, reply.tool_calls) == ("Sunny.", [])
        assert [role for role, _ in scene.shown()] == ["user", "assistant", "tool", "assistant", "tool"]
        assert [content for role, content in scene.shown() if role == "tool"] == ["sunny in Lisbon", "sunny in Faro"]
    scene.model.answers.append(Uses([ToolCall("Decision", '{"city": "Faro"}')]))
    decide = chat.with_structured_output(Decision, method="function_calling")
    assert await decide.ainvoke("Where to?") == Decision(city="Faro")
    assert scene.sent()["tool_choice"] == {"type": "function", "function": {"name": "Decision"}}


async def collect(bound: Any, talk: Sequence[Any]) -> AIMessage:
    whole: AIMessageChunk | None = None
    async for chunk in bound.astream(talk):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return AIMessage(whole.content, tool_calls=whole.tool_calls)  # pyright: ignore[reportUnknownMemberType]


async def test_all_earlier_messages_are_given_in_their_order(scene: Scene) -> None:
    talk: list[Any] = [{"role": "developer", "content": "Speak Latin."}]
    for number in range(6):
        talk += [
            {"role": "user", "content": f"question {number}"},
            called((f"c{number}", f'{{"city": "{number}"}}'), content=f"a moment {number}"),
            result(f"c{number}", f"result {number}"),
        ]
    talk += [{"role": "assistant", "content": "done"}, {"role": "system", "content": "Be brief."}]
    talk.append({"role": "user", "name": "anna", "content": "the last"})
    assert len(talk) == 22
    assert (await scene.ask(talk)).choices[0].message.content == "re: the last"
    roles = [role for role, _ in scene.shown()]
    assert roles == [*["user", "assistant", "tool"] * 6, "assistant", "user"]
    assert [content for _, content in scene.shown()[:-1]] == [
        *[text for n in range(6) for text in (f"question {n}", f"a moment {n}", f"result {n}")],
        "done",
    ]
    assert scene.sent()["messages"][0]["content"].endswith("Speak Latin.\n\nBe brief.")
    assert "Their name is anna." in scene.model.calls[-1].note


# ---- the choice of tools


@every_case(
    ("choice", "sent"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        (
            {"type": "function", "function": {"name": "get_weather"}},
            {"type": "function", "function": {"name": "get_weather"}},
        ),
    ],
)
async def test_the_choice_reaches_the_model(scene: Scene, choice: Any, sent: Any) -> None:
    scene.model.answers.append("done" if choice == "none" else Uses([weather("Oslo")]))
    answer = await scene.ask("hello", tools=[WEATHER, BOOK], tool_choice=choice)
    assert scene.sent().get("tool_choice") == sent
    assert scene.sent()["tools"] == [WEATHER, BOOK]
    assert answer.choices[0].finish_reason == ("stop" if choice == "none" else "tool_calls")


async def test_only_calls_that_the_request_allows_are_returned(scene: Scene) -> None:
    scene.model.answers.append(Uses([weather("Oslo"), weather("Faro")]))
    answer = await scene.ask("one at a time", parallel_tool_calls=False)
    assert scene.sent()["parallel_tool_calls"] is False
    assert len(answer.choices[0].message.tool_calls or ()) == 1
    for more in ({"tool_choice": "none"}, {"tools": [BOOK]}):
        scene.model.answers.extend([Uses([weather("Oslo")]), "words"])
        answer = await scene.ask("not that one", **more)
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", "words")
    assert "tools" not in scene.sent()


@every_case("streamed", [False, True])
@every_case(
    "arguments",
    [
        '{ "city":"Z\\u00fcrich",  "days": 1.0 }',
        '{"city": "Lisb',
        '{"city": "Oslo"} trailing',
        '{"city": "Oslo"}{"city": "Faro"}',
        "[]",
        "",
    ],
)
async def test_arguments_come_back_exactly_as_the_model_wrote_them(
    scene: Scene, arguments: str, *, streamed: bool
) -> None:
    scene.model.answers.append(Uses([ToolCall("get_weather", arguments), weather("Faro")]))
    if streamed:
        chunks = await scene.stream("hello")
        told = [(name, sent) for _, name, sent in joined_calls(chunks)]
    else:
        calls = (await scene.ask("hello")).choices[0].message.tool_calls or []
        told = [(call.function.name, call.function.arguments) for call in calls if call.type == "function"]
    assert told == [("get_weather", arguments), ("get_weather", '{"city": "Faro"}')]


async def test_malformed_arguments_are_passed_on_as_the_model_wrote_them(scene: Scene) -> None:
    scene.model.answers.append(Uses([ToolCall("get_weather", '{"city": ')]))
    [call] = (await scene.ask("hello")).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": ')
    await scene.ask([*_messages("hello"), called((call.id, call.function.arguments)), result(call.id, "bad arguments")])
    [again] = scene.sent()["messages"][2]["tool_calls"]
    assert again["function"]["arguments"] == "{}"


async def test_the_servers_own_tools_are_not_offered(scene: Scene) -> None:
    scene.model.answers.append(
        Uses([ToolCall("upsert_memory", '{"content": "The user is called Ada."}'), weather("Oslo")])
    )
    answer = await scene.ask("I am Ada. Remember that, and remind me tomorrow.")
    assert scene.model.calls[-1].tools == ["get_weather"]
    assert [call.function.name for call in answer.choices[0].message.tool_calls or () if call.type == "function"] == [
        "get_weather"
    ]
    assert sum((await scene.count_rows()).values()) == 0


# ---- models that write calls as text, or can't call tools


@every_case(
    "written",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        '```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```',
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
        "get_weather(city='Oslo')",
    ],
)
async def test_a_call_written_as_text_becomes_a_real_one(scene: Scene, written: str) -> None:
    for text in ("", "I look it up.\n"):
        scene.model.answers.append(f"{text}{written}")
        message = (await scene.ask("And in Oslo?", tools=[WEATHER, BOOK])).choices[0].message
        [call] = message.tool_calls or []
        assert call.type == "function"
        assert call.id.startswith("call_")
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
        assert (message.content or "") in ("", text.strip())
        scene.model.answers.append(f"{text}{written}")
        chunks = await scene.stream("And in Oslo?", tools=[WEATHER, BOOK])
        assert joined_text(chunks).strip() in ("", text.strip())
        [(_, name, arguments)] = joined_calls(chunks)
        assert (name, json.loads(arguments)) == ("get_weather", {"city": "Oslo"})
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_the_name_of_one_tool_may_begin_that_of_another(scene: Scene) -> None:
    scene.model.answers.append('<tool_call>{"name": "get_weather-book", "arguments": {}}</tool_call>')
    message = (await scene.ask("A table!", tools=[WEATHER, BOOK])).choices[0].message
    assert [call.function.name for call in message.tool_calls or () if call.type == "function"] == ["get_weather-book"]


async def test_machinery_that_is_no_call_never_shows(scene: Scene) -> None:
    scene.model.answers.extend(['<tool_call>{"name": "launch", "arguments": {}}</tool_call>', "Just words."])
    chunks = await scene.stream("hello")
    assert (joined_text(chunks), joined_calls(chunks)) == ("Just words.", [])
    scene.model.answers.append("<think>Which tool?</think>None is needed.")
    assert (await scene.ask("hello")).choices[0].message.content == "None is needed."


async def test_a_model_that_refuses_tools_answers_with_text(scene: Scene) -> None:
    scene.model.refuses_tools = 400
    talk = [*_messages("Where?"), called(("a", '{"city": "Oslo"}')), result("a", "9 °C"), *_messages("And now?")]
    for _ in range(2):  # the next request offers its tools again: they may have been the cause
        answer = await scene.ask(talk)
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", "re: And now?")
        assert rapport(answer)["tools_refused"] is True
        assert scene.shown()[:-1] == [
            ("user", "Where?"),
            ("assistant", '(I call get_weather with {"city": "Oslo"}.)'),
            ("user", "(The result of get_weather, which is data: 9 °C)"),
        ]
    assert len(scene.model.calls) == 4
    error = await refuse(scene, tool_choice="required")
    assert (error["param"], error["code"]) == ("tool_choice", "unsupported_value")


async def test_the_demo_model_answers_with_text(database_url: str) -> None:
    async with open_world(database_url, model_name="builtin", model=None) as world:
        body = {"model": "companion", "messages": _messages("Good morning!"), "tools": [WEATHER]}
        answer = (await world.http.post("/v1/chat/completions", json=body)).json()
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["choices"][0]["message"]["content"]
        assert answer["rapport"]["tools_refused"] is True
        assert answer["usage"]["completion_tokens"] > 0


# ---- what the server keeps to


async def test_a_strict_agent_refuses_before_the_model_is_called(scene: Scene) -> None:
    for talk in ("What is the weather?", [*_messages("Where?"), called(("a", "{}")), result("a", REFUNDS)]):
        answer = await scene.ask(talk, model="librarian")
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", GUARD)
        assert rapport(answer)["guard_used"] is True
        assert joined_text(await scene.stream(talk, model="librarian")) == GUARD
    assert scene.model.calls == []


async def test_a_strict_agent_cites_its_notes_beside_tools(scene: Scene) -> None:
    await scene.world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    scene.model.answers.append(Uses([weather("Oslo")]))
    answer = await scene.ask(HOW_LONG, model="librarian")
    assert answer.choices[0].finish_reason == "tool_calls"
    assert REFUNDS in scene.model.calls[-1].system
    scene.model.answers.append("Within 30 days [source: refunds], they say [source: nowhere].")
    talk = [*_messages(HOW_LONG), called(("a", "{}")), result("a", "60 days, says [source: refunds]")]
    answer = await scene.ask(talk, model="librarian")
    assert answer.choices[0].message.content == (
        "Within 30 days [source: refunds], they say. (Removed invalid citation)\n\nSources: refunds"
    )
    assert rapport(answer)["sources"] == [{"id": "refunds", "text": REFUNDS}]
    assert scene.shown()[-1] == ("tool", "60 days, says (source: refunds)")


async def test_notes_and_memories_stand_beside_the_users_newest_message(scene: Scene) -> None:
    await scene.world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    fact = "The user bought a red kettle in Lisbon."
    made = await scene.world.http.post("/api/memories", json={"content": fact, "key": "kettle"})
    assert made.status_code == 201, made.text
    question = "How long can I return the red kettle I bought?"
    await scene.ask([*_messages(question), called(("a", "{}")), result("a", "shops close at six")])
    assert REFUNDS in scene.model.calls[-1].note
    assert fact in scene.model.calls[-1].note
    assert scene.shown()[-1] == ("tool", "shops close at six")
    assert "can't" not in scene.model.calls[-1].system  # the client's tools may do what the agent alone can't


async def test_a_spent_budget_refuses_before_the_model_is_called(scene: Scene) -> None:
    scene.model.usage = (30, 20)
    answer = await scene.world.http.put("/api/usage/budgets/local", json={"monthly_tokens": 40})
    assert answer.status_code == 200
    assert (await scene.ask("hello")).usage is not None
    with pytest.raises(openai.RateLimitError, match="used up") as refused:
        await scene.ask("hello")
    assert refused.value.code == "insufficient_quota"
    assert refused.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(openai.APIError, match="used up"):
        await scene.stream("hello")
    assert len(scene.model.calls) == 1


async def test_a_model_that_fails_is_an_error_and_no_answer(scene: Scene) -> None:
    scene.model.fails = True
    with pytest.raises(openai.InternalServerError, match="Nothing of the request is kept") as failed:
        await scene.ask("hello")
    assert failed.value.status_code == 503
    assert int(failed.value.response.headers["retry-after"]) >= 1
    with pytest.raises(openai.APIError, match="Nothing of the request is kept"):
        await scene.stream("hello")
    scene.model.fails = False
    scene.model.max_messages = 3
    talk = [*_messages("one"), {"role": "assistant", "content": "two"}, *_messages("three")]
    error = await refuse(scene, messages=talk)
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


async def test_the_agents_own_model_and_fallback_model_are_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_model() as other:
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        options = {"base_url": scene.model.url, "temperature": 0.25}
        agent = {
            "id": "chef", "name": "Chef", "persona": "You cook.", "model": "openai:mock", "model_options": options,
            "fallback_model": "openai:mock",
        }  # fmt: skip
        assert (await scene.world.http.post("/api/agents", json=agent)).status_code == 201
        await scene.ask("hello", model="chef", temperature=0.9)
        assert scene.sent()["temperature"] == 0.25
        assert scene.sent()["messages"][0]["content"].startswith("You cook.")
        scene.model.fails = True
        other.answers.append(Uses([weather("Oslo")]))
        assert (await scene.ask("hello", model="chef")).choices[0].finish_reason == "tool_calls"
        assert other.calls[-1].tools == ["get_weather"]


async def test_rate_limits_hold(database_url: str) -> None:
    async with (
        open_limiter(rules=Rules(requests=2, window=60, flood_messages=3)) as limiter,
        open_scene(database_url, limiter=limiter) as scene,
    ):
        await scene.ask("hello")
        await scene.ask("hello")
        with pytest.raises(openai.RateLimitError) as limited:
            await scene.ask("hello")
        assert limited.value.code == "rate_limit_exceeded"


async def test_a_client_that_leaves_stops_the_model_and_its_usage_is_counted(scene: Scene) -> None:
    scene.model.delay = lambda _text: 60.0
    stream: Any = await scene.ask("a long one please", stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await until(lambda: scene.model.calls[0].broken)

    async def is_counted() -> bool:
        return await scene.world.sql("SELECT calls, estimated_calls FROM model_usage") == [(1, 1)]

    await until(is_counted)


async def test_no_more_requests_run_at_once_than_turns_may(database_url: str) -> None:
    async with open_scene(database_url, max_turns=1) as scene:
        scene.model.delay = lambda _text: 60.0
        first: Any = await scene.ask("one", stream=True)
        await scene.model.until_asked("one")
        with pytest.raises(openai.InternalServerError, match="busy") as refused:
            await scene.ask("two")
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "2"
        await first.close()
        await until(lambda: scene.model.calls[0].broken)
        scene.model.delay = lambda _text: 0.0

        async def has_room() -> bool:
            try:
                return bool(await scene.ask("three"))
            except openai.InternalServerError:
                return False

        await until(has_room)


# ---- what is refused


def _tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


@every_case(
    ("body", "param"),
    [
        ({"tools": [_tool(name=f"f{number}") for number in range(MAX_TOOLS + 1)]}, "tools"),
        ({"tools": ["get_weather"]}, "tools[0]"),
        ({"tools": [WEATHER, {"type": "custom", "custom": {"name": "f"}}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [_tool(name="get weather")]}, "tools[0].function.name"),
        ({"tools": [_tool(name="f" * 65)]}, "tools[0].function.name"),
        ({"tools": [_tool(), _tool()]}, "tools[1].function.name"),
        ({"tools": [_tool(description=7)]}, "tools[0].function.description"),
        ({"tools": [_tool(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [_tool(parameters="{}")]}, "tools[0].function.parameters"),
        ({"tools": [_tool(parameters={"type": "string"})]}, "tools[0].function.parameters"),
        ({"tools": [_tool(parameters={"properties": []})]}, "tools[0].function.parameters"),
        ({"tools": [_tool(parameters={"required": [1]})]}, "tools[0].function.parameters"),
        ({"tools": [_tool(strict="yes")]}, "tools[0].function.strict"),
        ({"tools": {"f": 1}}, "tools"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "launch"}}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"user": "anna"}, "tools"),
    ],
)
async def test_malformed_tools_are_refused_by_their_place(scene: Scene, body: dict[str, Any], param: str) -> None:
    assert (await refuse(scene, **body))["param"] == param
    assert scene.model.calls == []


@every_case(
    ("messages", "param"),
    [
        ([result("a", "x")], "messages.0.tool_call_id"),
        ([*_messages("hi"), result("a", "x")], "messages.1.tool_call_id"),
        ([*_messages("hi"), called(("a", "{}")), result("b", "x")], "messages.2.tool_call_id"),
        ([*_messages("hi"), called(("a", "{}")), result("a", "x"), result("a", "x")], "messages.3.tool_call_id"),
        ([*_messages("hi"), called(("a", "{}"))], "messages.1.tool_calls"),
        (
            [*_messages("hi"), called(("a", "{}"), ("b", "{}")), result("a", "x"), *_messages("so?")],
            "messages.1.tool_calls",
        ),
        ([*_messages("hi"), called(("a", "{}"), ("a", "{}"))], "messages.1.tool_calls[1].id"),
        ([*_messages("hi"), {"role": "assistant", "tool_calls": ["a"]}], "messages.1.tool_calls[0]"),
        ([*_messages("hi"), {"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages.1.tool_calls[0].function"),
        ([*_messages("hi"), {"role": "assistant", "content": "hello"}], "messages"),
        ([{"role": "system", "content": "Be brief."}], "messages"),
        ([called(("a", "{}")), result("a", "x")], "messages"),
        ([*_messages("hi"), {"role": "function", "name": "f", "content": "x"}], "messages.1.role"),
        ([{"role": "user", "content": " "}], "messages.0"),
        ([*_messages("hi"), {"role": "assistant"}, *_messages("hi")], "messages.1"),
    ],
)
async def test_messages_out_of_order_are_refused_by_their_place(scene: Scene, messages: Any, param: str) -> None:
    assert (await refuse(scene, messages=messages))["param"] == param
    assert scene.model.calls == []


async def test_a_stored_conversation_takes_no_tools_and_says_what_to_do(scene: Scene) -> None:
    conversation = (await scene.world.http.post("/api/threads", json={"agent": "companion"})).json()["id"]
    with pytest.raises(openai.BadRequestError, match="leave out `user` and `X-Conversation-Id`") as refused:
        await scene.ask("hello", extra_headers={"X-Conversation-Id": conversation})
    assert (refused.value.param, refused.value.code) == ("tools", "unsupported_parameter")


async def test_a_deeply_nested_schema_is_refused_or_passed_on(scene: Scene) -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"type": "object", "properties": {"x": schema}}
    tool_ = _tool(parameters=schema)
    answer = await scene.world.http.post(
        "/v1/chat/completions", json={"model": "companion", "messages": _messages("hello"), "tools": [tool_]}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools[0].function.parameters"
