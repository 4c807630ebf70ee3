"""Test the limits of the tools that a model may call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from rapport.agents.tools.recorded import Requests, bind_follow_up, bind_upsert_memory
from rapport.agents.tools.registry import CHAT_TOOL_NAMES, CHAT_TOOLS
from rapport.agents.tools.toolbox import MAX_CALLS_PER_MESSAGE, MAX_LOOKUPS, BoundTool, Toolbox
from tests.support.file_tools import READ


class Heard:
    """Chat tools that find nothing and record their calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def use(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.asked.append((name, arguments))
        return f"found {len(self.asked)}"

    @property
    def tools(self) -> list[BoundTool]:
        return [BoundTool(spec, partial(self.use, spec.name)) for spec in CHAT_TOOLS]


def saving(requests: Requests) -> list[BoundTool]:
    return [bind_upsert_memory(lambda _: True, requests)]


def calling(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    named = [{"name": name, "args": arguments, "id": str(number)} for number, (name, arguments) in enumerate(calls)]
    return AIMessage("", tool_calls=named)


async def test_saving_too_many_facts_is_refused() -> None:
    requests = Requests()
    tools = Toolbox(saving(requests))
    calls = [("upsert_memory", {"content": f"The user likes {number}."}) for number in range(1_000)]
    answers = await tools.use(calling(*calls))
    assert len(requests.saved) == MAX_CALLS_PER_MESSAGE
    assert [answer.tool_call_id for answer in answers] == [str(number) for number in range(1_000)]
    assert {str(answer.text) for answer in answers[MAX_CALLS_PER_MESSAGE:]} == {"Not done: too many calls."}


async def test_a_model_that_calls_chat_tools_too_often_must_answer() -> None:
    heard = Heard()
    tools = Toolbox(heard.tools)
    said: list[str] = []
    earlier: list[BaseMessage] = []
    for number in range(3):
        message = calling(*[("get_message", {"id": "#1"})] * 4)
        answers = await tools.use(message, number=number, earlier=earlier)
        said += [str(answer.text) for answer in answers]
        earlier += [message, *answers]
    assert said[:MAX_LOOKUPS] == [f"found {number}" for number in range(1, MAX_LOOKUPS + 1)]
    assert set(said[MAX_LOOKUPS:]) == {"Not done: enough was looked up. Answer with what there is."}
    assert len(heard.asked) == MAX_LOOKUPS


async def test_a_foreign_tool_that_hangs_may_have_done_its_work() -> None:
    hanging = BoundTool(replace(READ, time_limit_seconds=0.0), lambda _: asyncio.get_running_loop().create_future())
    [answer] = await Toolbox([hanging]).use(calling((READ.name, {"path": "a.txt"})))
    assert "it may have been done" in str(answer.text)
    assert "Not done" not in str(answer.text)


async def test_a_tool_that_was_not_offered_does_not_exist() -> None:
    heard = Heard()
    fact = ("upsert_memory", {"content": "The user likes tea."})
    search = ("search_conversation", {"query": "tea"})
    for tools in (Toolbox(), Toolbox(saving(Requests())), Toolbox(heard.tools)):
        answers = await tools.use(calling(fact, search, ("drop_tables", {})))
        assert str(answers[2].text) == "There is no such tool."
    assert [name for name, _ in heard.asked] == ["search_conversation"]
    assert str((await Toolbox(heard.tools).use(calling(fact)))[0].text) == "There is no such tool."
    assert str((await Toolbox(saving(Requests())).use(calling(search)))[0].text) == "There is no such tool."


def test_the_tools_are_those_of_the_specification() -> None:
    parameters = {tool.name: list(tool.parameters["properties"]) for tool in CHAT_TOOLS}
    assert parameters == {
        "get_smart_context": ["max_gap_minutes", "anchor_id"],
        "get_conversation_history": ["limit"],
        "get_message": ["id"],
        "search_conversation": ["query"],
    }
    assert frozenset(parameters) == CHAT_TOOL_NAMES


async def test_a_model_is_offered_only_the_types_that_the_agent_allows() -> None:
    requests = Requests()
    tools = Toolbox([bind_follow_up(("check_in", "task_incomplete"), lambda _: True, requests)])
    [offered] = tools.schemas
    kinds = offered["function"]["parameters"]["properties"]["trigger_type"]
    assert kinds["enum"] == ["check_in", "task_incomplete"]
    assert "waiting_for_decision" not in kinds["description"]
    call = {"trigger_type": "waiting_for_decision", "delay_seconds": 300, "matter": "the bike"}
    [answer] = await tools.use(calling(("follow_up", call)))
    assert str(answer.text) == "Not planned: `trigger_type` must be one of check_in, task_incomplete."
    assert requests.follow_up is None
    await tools.use(calling(("follow_up", {**call, "trigger_type": "task_incomplete"})))
    assert requests.follow_up is not None
    assert Toolbox().schemas == []
