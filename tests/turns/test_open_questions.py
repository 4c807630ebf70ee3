"""Test questions about tool calls whose agent, server, siblings or time are gone when they are decided (TOOL-3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rapport.domain.errors import Transient
from rapport.domain.tool import ToolSpec
from rapport.turns.outside_calls import DONE_ONCE
from rapport.turns.turn import MAX_ATTEMPTS
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, scripted_model
from tests.support.file_tools import READ, WRITE, FileTools
from tests.support.listening import listening
from tests.support.world import World, open_world, until
from tests.turns.test_outside_calls import answers, approvals, begin, calls, decide, spoken

GONE = "Not done: you may not use this tool any more."


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening_model:
        yield listening_model


@pytest.fixture
def files() -> FileTools:
    return FileTools()


@pytest.fixture
async def world(database_url: str, model: ScriptedModel, files: FileTools) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model), tool_source=files) as opened:
        yield opened


async def ask(world: World, model: ScriptedModel, *paths: str) -> tuple[str, list[dict[str, Any]]]:
    """Let the agent ask about these files; return the conversation and the questions in their order."""
    conversation = await begin(world)
    model.answers.append(calls(*paths))
    await world.says(conversation, "Write it down.")
    return conversation, sorted(await approvals(world, conversation), key=lambda one: one["arguments"]["path"])


async def expire(world: World, *approval_ids: str) -> None:
    await world.sql(
        "UPDATE tool_calls SET expires_at = clock_timestamp() WHERE approval_id = ANY(%s)", list(approval_ids)
    )


async def state_of(world: World, conversation: str, approval_id: str) -> str:
    [found] = [one for one in await approvals(world, conversation) if one["id"] == approval_id]
    return found["state"]


def tool_results(model: ScriptedModel) -> list[str]:
    return [text for role, text in model.calls[-1].window if role == "tool"]


async def test_an_allowed_call_is_made_when_the_other_question_expires(
    world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation, [first, second] = await ask(world, model, "a.txt", "b.txt")
    model.answers.append("One of two.")
    assert (await decide(world, conversation, first["id"], "allow"))["state"] == "allowed"
    assert files.written == []
    await expire(world, second["id"])
    assert (await answers(world, conversation, 2))[1] == "One of two."
    assert files.written == ["a.txt"]
    assert tool_results(model)[1] == "Not done: nobody allowed it in time."
    last = (await world.history(conversation))[-1]
    receipt = (await world.http.get(f"/api/threads/{conversation}/context", params={"message_id": last["id"]})).json()
    assert [tool["state"] for tool in receipt["tools"]] == ["done", "expired"]
    await world.drain()
    assert len(await spoken(world, conversation)) == 2


async def test_a_question_that_nobody_allowed_expires_without_a_further_model_call(
    world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation, [first, second] = await ask(world, model, "a.txt", "b.txt")
    await decide(world, conversation, first["id"], "deny")
    await expire(world, second["id"])
    model.answers.append("Talk goes on.")
    await world.says(conversation, "How are you?")
    assert sorted(one["state"] for one in await approvals(world, conversation)) == ["denied", "expired"]
    assert len(model.calls) == 2
    assert files.written == []


async def test_the_same_question_is_not_asked_twice_while_it_is_open(
    world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    model.answers += [calls("a.txt"), "Please use the buttons."]
    reply = await world.says(conversation, "yes, do it")
    assert reply["content"] == "Please use the buttons."
    assert "May I use `files__write` with path = `a.txt`?" in model.calls[-1].note
    assert "by their buttons" in model.calls[-1].note
    assert [text.startswith("Not done: that question is open already.") for text in tool_results(model)] == [True]
    assert [one["id"] for one in await approvals(world, conversation)] == [asked["id"]]
    # Another question is asked, and the two calls of one message are one question.
    model.answers.append(calls("b.txt", "b.txt", "a.txt"))
    await world.says(conversation, "And b.txt.")
    [second] = [one for one in await approvals(world, conversation) if one["id"] != asked["id"]]
    model.answers += ["a is written.", "b is written."]
    await decide(world, conversation, asked["id"], "allow")
    await answers(world, conversation, 4)
    await decide(world, conversation, second["id"], "allow")
    await answers(world, conversation, 5)
    assert files.written == ["a.txt", "b.txt"]
    assert tool_results(model)[1].startswith("Not done again: the same call was done just before")
    assert "Open questions" not in model.calls[-1].note
    assert len(await approvals(world, conversation)) == 2


async def test_a_question_about_a_call_that_was_done_in_the_same_answer_says_so(
    world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    model.answers.append(calls("a.txt"))
    await decide(world, conversation, asked["id"], "allow")
    assert (await answers(world, conversation, 2))[1].endswith(f"I do it only if you allow it.{DONE_ONCE}")
    assert files.written == ["a.txt"]


async def test_a_tool_that_the_agent_has_lost_is_not_called_and_the_model_is_told(
    world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    changed = await world.http.patch("/api/agents/clerk", json={"tools": ["current_time"]})
    assert changed.status_code == 200, changed.text
    model.answers.append("I may not do that any more.")
    await decide(world, conversation, asked["id"], "allow")
    assert (await answers(world, conversation, 2))[1] == "I may not do that any more."
    assert tool_results(model) == [GONE]
    assert set(model.calls[-1].tools) == {"current_time"}
    assert files.written == []
    assert await state_of(world, conversation, asked["id"]) == "failed"


async def test_a_call_of_a_deleted_agent_is_not_made(world: World, model: ScriptedModel, files: FileTools) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    assert (await world.http.delete("/api/agents/clerk")).status_code == 204
    model.answers.append("It is not done.")
    await decide(world, conversation, asked["id"], "allow")
    assert (await answers(world, conversation, 2))[1].endswith("It is not done.")
    assert tool_results(model) == [GONE]
    assert files.written == []
    assert await state_of(world, conversation, asked["id"]) == "failed"


async def test_a_question_of_a_deleted_conversation_is_gone(world: World, model: ScriptedModel) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    assert (await world.http.delete(f"/chat/conversations/{conversation}")).status_code == 204
    assert (await decide(world, conversation, asked["id"], "allow"))["status_code"] == 404
    assert await world.sql("SELECT * FROM tool_calls") == []


async def test_a_call_waits_until_its_server_is_connected_after_a_restart(
    database_url: str, model: ScriptedModel, files: FileTools
) -> None:
    async with open_world(database_url, model=chat_model(model), tool_source=files) as world:
        conversation, [asked] = await ask(world, model, "a.txt")
    connecting = Connecting(files)
    model.answers.append("It is written.")
    async with open_world(database_url, model=chat_model(model), tool_source=connecting) as world:
        await decide(world, conversation, asked["id"], "allow")
        await until(lambda: connecting.lists > 2)
        assert files.written == []
        assert len(model.calls) == 1
        connecting.is_connected = True
        assert (await answers(world, conversation, 2))[1] == "It is written."
        assert files.written == ["a.txt"]


class Connecting(FileTools):
    """Tools whose server is not connected at first."""

    def __init__(self, files: FileTools) -> None:
        super().__init__(written=files.written)
        self.is_connected = False
        self.lists = 0

    def list_tools(self) -> list[ToolSpec]:
        self.lists += 1
        return [READ, WRITE] if self.is_connected else []


async def test_a_server_that_can_not_be_reached_is_told(world: World, model: ScriptedModel, files: FileTools) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    files.answers.append(Transient("not connected"))
    model.answers.append("The server is away.")
    await decide(world, conversation, asked["id"], "allow")
    assert (await answers(world, conversation, 2))[1] == "The server is away."
    assert tool_results(model) == ["Not done: its server can't be reached right now."]
    assert await state_of(world, conversation, asked["id"]) == "failed"


async def test_a_turn_that_can_not_go_on_says_that_the_call_was_not_made(
    world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation, [asked] = await ask(world, model, "a.txt")
    await world.sql(
        "CREATE FUNCTION too_often() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN NEW.attempts = {MAX_ATTEMPTS}; RETURN NEW; END $$"
    )
    await world.sql("CREATE TRIGGER too_often BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION too_often()")
    await decide(world, conversation, asked["id"], "allow")
    assert (await answers(world, conversation, 2))[1].endswith("(`files__write` was not called.)")
    assert files.written == []
    assert await state_of(world, conversation, asked["id"]) == "failed"


async def test_an_open_page_hears_of_each_question_decision_and_result(world: World, model: ScriptedModel) -> None:
    conversation = await begin(world)
    async with listening(world.http, conversation) as listener:
        model.answers += [calls("a.txt", "b.txt"), "Done."]
        await world.says(conversation, "Write it down.")
        await listener.until(lambda: listener.named("approvals"))
        first, second = await approvals(world, conversation)
        number = len(listener.named("approvals"))
        await decide(world, conversation, first["id"], "deny")
        await listener.until(lambda: len(listener.named("approvals")) > number)
        number = len(listener.named("approvals"))
        await decide(world, conversation, second["id"], "deny")
        await listener.until(lambda: len(listener.named("approvals")) > number)
        await answers(world, conversation, 2)
    # Whoever connects later learns that there are questions, without any change.
    async with listening(world.http, conversation) as late:
        await late.until(lambda: late.named("approvals"))
    quiet = await world.conversation()
    async with listening(world.http, quiet) as listener:
        await world.http.post(f"/chat/conversations/{quiet}/messages", json={"content": "hello"})
        await listener.until(lambda: len(listener.named("message")) == 2)
        assert listener.named("approvals") == []


async def test_names_of_arguments_stay_text_on_one_line(world: World, model: ScriptedModel) -> None:
    conversation = await begin(world)
    model.answers.append(Uses([ToolCall("files__write", '{"path": "a", "x\\n\\n# `Allow` this": 1}')]))
    question = await world.says(conversation, "Write it down.")
    assert "\n" not in question["content"]
    assert "`x # 'Allow' this` = `1`" in question["content"]
