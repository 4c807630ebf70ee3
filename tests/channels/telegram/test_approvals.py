"""Test the buttons under a question about a tool call: who may decide, once, in time, after crashes, by polling and by webhook."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rapport.channels.telegram.approval_buttons import make_rows
from rapport.domain.ids import new_id
from rapport.domain.tool_call import ToolCall as StoredCall
from tests.channels.telegram import updates
from tests.channels.telegram.peer import Chat, Person, Posted, Press, flood, resets
from tests.channels.telegram.town import Impatient, Town, open_town, restarted, road
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, scripted_model
from tests.support.file_tools import FileTools
from tests.support.world import until

TAG = "@rapport_bot"
NOT_YOURS = "Only the person who called the agent, or an admin of the group, may decide about this call."


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
def files() -> FileTools:
    return FileTools()


@pytest.fixture
async def town(database_url: str, model: ScriptedModel, files: FileTools) -> AsyncGenerator[Town]:
    async with open_town(database_url, model=chat_model(model), tool_source=files) as opened:
        await hire_clerk(opened)
        yield opened


async def hire_clerk(town: Town) -> None:
    """Let an agent that may use the files, and asks first, answer in Ann's chat and in the team."""
    document = {"id": "clerk", "name": "Clerk", "persona": "You keep the files.", "tools": ["files__*"]}
    made = await town.world.http.post("/api/agents", json={**document, "for_everyone": True})
    assert made.status_code == 201, made.text
    for chat in (town.ann_alone, town.team):
        await town.hears(chat, town.ann, "/agent clerk")


def writes(*paths: str) -> Uses:
    return Uses([ToolCall("files__write", json.dumps({"path": path})) for path in paths])


async def ask(
    town: Town, model: ScriptedModel, *paths: str, chat: Chat | None = None, by: Person | None = None
) -> Posted:
    """Let the agent ask whether it may write these files, and return its question."""
    chat = chat or town.ann_alone
    model.answers += [writes(*paths or ("a.txt",)), "It is written."]
    await town.hears(chat, by or town.ann, f"{TAG} write it down")
    return town.peer.posted(chat)[-1]


def labels(message: Posted) -> list[str]:
    return [label for label, _ in message.buttons]


def data(message: Posted, label: str) -> str:
    return next(data for each, data in message.buttons if each == label)


async def press(town: Town, message: Posted, label: str, *, by: Person | None = None, chat: Chat | None = None) -> str:
    """Press a button, wait until it has had its effect, and return the notice."""
    pressed = (chat or town.ann_alone).presses(by or town.ann, message, data(message, label))
    await town.settled()
    return read_notice(pressed)


def read_notice(pressed: Press) -> str:
    assert pressed.answer is not None, "the press was not answered"
    return str(pressed.answer.get("text"))


async def states(town: Town) -> list[tuple[str, str | None]]:
    rows = await town.world.sql("SELECT state, decided_by FROM tool_calls ORDER BY message_id, key")
    return [(row[0], row[1]) for row in rows]


async def test_a_question_has_buttons_and_the_decision_goes_on_with_the_turn(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model)
    assert question.text == "May I use files__write with path = a.txt? I do it only if you allow it."
    assert labels(question) == ["Allow", "Don't allow"]
    assert files.written == []
    assert await press(town, question, "Allow") == "Allowed."
    assert files.written == ["a.txt"]
    assert town.peer.sent(town.ann_alone)[-1] == "It is written."
    assert await states(town) == [("done", f"user{town.ann.id}")]
    # What was decided stays below the question, and says itself when it is pressed.
    assert labels(question) == ["Allowed"]
    assert await press(town, question, "Allowed") == "Allowed."
    assert files.written == ["a.txt"]


async def test_what_is_not_allowed_is_not_done(town: Town, model: ScriptedModel, files: FileTools) -> None:
    question = await ask(town, model)
    model.answers[0] = "All right, I leave it."
    assert await press(town, question, "Don't allow") == "Not allowed: the call is not made."
    assert labels(question) == ["Not allowed"]
    assert town.peer.sent(town.ann_alone)[-1] == "All right, I leave it."
    assert files.written == []


async def test_in_a_group_only_the_asker_or_an_admin_decides(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model, chat=town.team, by=town.ben)
    assert await press(town, question, "Allow", by=town.dan, chat=town.team) == NOT_YOURS
    assert labels(question) == ["Allow", "Don't allow"]
    assert (files.written, await states(town)) == ([], [("asked", None)])
    asked = len(town.peer.calls("getChatMember"))
    assert await press(town, question, "Allow", by=town.ben, chat=town.team) == "Allowed."
    assert len(town.peer.calls("getChatMember")) == asked  # who asked needs no other right
    assert files.written == ["a.txt"]
    # Ann has created the group.
    question = await ask(town, model, "b.txt", chat=town.team, by=town.ben)
    assert await press(town, question, "Allow", by=town.ann, chat=town.team) == "Allowed."
    assert files.written == ["a.txt", "b.txt"]


async def test_a_late_press_says_so_and_does_nothing(town: Town, model: ScriptedModel, files: FileTools) -> None:
    question = await ask(town, model)
    await town.world.sql("UPDATE tool_calls SET expires_at = clock_timestamp()")
    notice = await press(town, question, "Allow")
    assert notice == "Nobody decided in time, so the call was not made. Ask the agent for it again."
    assert labels(question) == ["Too late"]
    assert await press(town, question, "Too late") == "Nobody decided in time."
    assert (files.written, len(town.peer.sent(town.ann_alone))) == ([], 2)


async def test_presses_that_come_twice_or_contradict_each_other_decide_once(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    town.peer.repeats_updates(3)
    question = await ask(town, model)
    yes, no = data(question, "Allow"), data(question, "Don't allow")
    presses = [town.ann_alone.presses(town.ann, question, each) for each in (yes, yes, no)]
    await town.settled()
    assert [read_notice(each) for each in presses] == ["Allowed.", "Allowed.", "This call was allowed before."]
    town.peer.redeliver(*presses)
    await town.settled()
    assert labels(question) == ["Allowed"]
    assert files.written == ["a.txt"]
    assert town.peer.sent(town.ann_alone)[1:] == [question.text, "It is written."]


async def test_several_questions_are_decided_one_by_one(town: Town, model: ScriptedModel, files: FileTools) -> None:
    question = await ask(town, model, *(f"{number}.txt" for number in range(1, 4)))
    assert question.text.startswith("1. May I use files__write with path = 1.txt?")
    assert labels(question) == ["Allow 1", "Don't allow 1", "Allow 2", "Don't allow 2", "Allow 3", "Don't allow 3"]
    assert all(len(each.encode()) <= 64 for _, each in question.buttons)
    await press(town, question, "Allow 2")
    await press(town, question, "Don't allow 1")
    assert labels(question) == ["Not allowed 1", "Allowed 2", "Allow 3", "Don't allow 3"]
    assert files.written == []
    await press(town, question, "Allow 3")
    assert labels(question) == ["Not allowed 1", "Allowed 2", "Allowed 3"]
    assert files.written == ["2.txt", "3.txt"]
    assert town.peer.sent(town.ann_alone)[-1] == "It is written."


async def test_a_call_that_is_too_long_for_the_question_is_shown_as_a_whole(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    path = "begin " + "x" * 400 + "\n```\n<b>the end</b> [link](http://example.org/)"
    question = await ask(town, model, path)
    assert "the end" not in question.text
    assert labels(question) == ["Allow", "Don't allow", "Show all"]
    await press(town, question, "Show all")
    [shown] = [each for each in town.peer.posted(town.ann_alone) if each.reply_to == question.message_id]
    assert shown.text == "files__write with:\n\n" + json.dumps({"path": path}, indent=2)
    assert shown.entity_texts("text_link") == []
    assert labels(question) == ["Allow", "Don't allow", "Show all"]
    assert await press(town, question, "Allow") == "Allowed."
    assert labels(question) == ["Allowed"]
    assert files.written == [path]


async def test_a_decision_over_the_api_shows_at_the_next_press(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model)
    [(conversation, approval)] = await town.world.sql("SELECT conversation_id, approval_id FROM tool_calls")
    core = town.world.app.core.approvals
    await core.decide(f"telegram:{town.ann.id}", conversation, approval, "deny")
    await town.settled()
    assert await press(town, question, "Allow") == "This call was denied before."
    assert labels(question) == ["Not allowed"]
    assert files.written == []


async def test_a_press_while_the_server_is_down_counts_after_its_start(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model)

    def press_meanwhile() -> None:
        town.ann_alone.presses(town.ann, question, data(question, "Allow"))

    async with restarted(town, meanwhile=press_meanwhile, model=chat_model(model), tool_source=files) as again:
        await again.peer.until(lambda: files.written)
        await again.peer.until_sent(town.ann_alone, 3)
        await again.settled()
        assert labels(question) == ["Allowed"]
        assert files.written == ["a.txt"]


async def test_an_update_that_is_handled_again_after_a_crash_decides_once(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model)
    pressed = town.ann_alone.presses(town.ann, question, data(question, "Allow"))
    await town.settled()
    # As if the process had died before it marked the update as done: it is handled once more.
    await town.world.sql("DELETE FROM telegram_updates WHERE update_id = %s", pressed.update_id)
    town.peer.redeliver(pressed)
    await town.settled()
    assert len(town.peer.calls("answerCallbackQuery")) == 2
    assert files.written == ["a.txt"]
    assert labels(question) == ["Allowed"]
    assert town.peer.sent(town.ann_alone)[-2:] == [question.text, "It is written."]


async def test_a_decision_counts_although_telegram_fails_to_show_it(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model)
    town.peer.will(resets(), on="answerCallbackQuery")
    town.peer.will(flood(1), on="editMessageReplyMarkup")
    town.ann_alone.presses(town.ann, question, data(question, "Allow"))
    await town.settled()
    assert files.written == ["a.txt"]
    assert labels(question) == ["Allow", "Don't allow"]
    assert await press(town, question, "Don't allow") == "This call was allowed before."
    assert labels(question) == ["Allowed"]


async def test_when_telegram_asks_to_wait_before_it_names_the_admins_the_press_waits(
    town: Town, model: ScriptedModel, files: FileTools
) -> None:
    question = await ask(town, model, chat=town.team, by=town.ben)
    town.peer.will(flood(1), on="getChatMember")
    assert await press(town, question, "Allow", by=town.ann, chat=town.team) == "Allowed."
    assert files.written == ["a.txt"]


@pytest.mark.parametrize("after", [True, False], ids=["arrived", "lost"])
async def test_a_question_whose_delivery_is_unconfirmed_keeps_its_buttons(
    impatient: Impatient, town: Town, model: ScriptedModel, files: FileTools, after: bool
) -> None:
    impatient.for_what_is_on_its_way(0.1)
    model.answers += [writes("a.txt"), "It is written."]
    town.peer.will(resets(after=after), on="sendMessage")
    town.ann_alone.says(town.ann, "write it down")

    async def sent() -> bool:
        return [state for state, _ in await town.outbox()] == ["sent", "sent", "sent"]

    await until(sent)
    [question] = [each for each in town.peer.posted(town.ann_alone) if each.buttons]
    assert labels(question) == ["Allow", "Don't allow"]
    assert await press(town, question, "Allow") == "Allowed."
    assert files.written == ["a.txt"]


async def test_a_press_in_another_chat_finds_no_question(town: Town, model: ScriptedModel, files: FileTools) -> None:
    question = await ask(town, model)
    stolen = data(question, "Allow")
    await town.hears(town.ben_alone, town.ben, "hello")
    under = town.peer.posted(town.ben_alone)[-1]
    update = updates.callback(stolen, under=under.raw, sender=town.ben.raw, update_id=600_000_000)
    forged = updates.callback("call:allow:x' OR 1=1", under=under.raw, sender=town.ben.raw, update_id=600_000_001)
    odd = updates.callback("call:", under=under.raw, sender=town.ben.raw, update_id=600_000_002)
    assert await town.inbox.store([update, forged, odd]) == 3
    await town.settled()
    assert (files.written, await states(town)) == ([], [("asked", None)])
    assert [one.params["text"] for one in town.peer.calls("answerCallbackQuery")] == [
        "This question is gone: its chat was erased."
    ] * 3


async def test_a_question_of_an_erased_chat_is_gone(town: Town, model: ScriptedModel, files: FileTools) -> None:
    question = await ask(town, model)
    await town.hears(town.ann_alone, town.ann, "/forget yes")
    assert await press(town, question, "Allow") == "This question is gone: its chat was erased."
    assert question.buttons == []
    assert files.written == []


async def test_a_decision_arrives_by_webhook_too(database_url: str, model: ScriptedModel, files: FileTools) -> None:
    settings: dict[str, Any] = {"model": chat_model(model), "tool_source": files}
    async with road() as here, open_town(database_url, telegram_webhook_url=f"{here.url}/", **settings) as town:
        here.leads_to(str(town.world.http.base_url))
        await hire_clerk(town)
        question = await ask(town, model)
        assert await press(town, question, "Allow") == "Allowed."
        assert town.peer.calls("getUpdates") == []
        assert labels(question) == ["Allowed"]
        assert files.written == ["a.txt"]


def test_buttons_fit_into_telegrams_limit() -> None:
    call = StoredCall("c", "m", "0.0", "o", "t" * 64, "s", {"a": "b" * 9_000}, "asked", approval_id=new_id())
    for row in make_rows([call] * 99):
        for button in row:
            assert len(button.data.encode()) <= 64
            assert len(button.label) <= 64
