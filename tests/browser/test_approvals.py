"""Test the cards by which a person decides about tool calls: live, after a reload, too late, elsewhere, by keyboard (TOOL-3)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Route, expect

from rapport.domain.tool import ToolOutcomeUnknown
from tests.browser.test_accessibility import axe, problems
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, scripted_model
from tests.support.file_tools import FileTools
from tests.support.world import World, open_world, until
from tests.turns.test_outside_calls import approvals, begin, calls, decide

from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Screen, Visitor, visit

__all__ = ["axe"]
pytestmark = IN_A_BROWSER

EVIL = "<img src=x onerror=alert(1)>"


@pytest_asyncio.fixture(loop_scope="session")
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
def files() -> FileTools:
    return FileTools()


@pytest_asyncio.fixture(loop_scope="session")
async def world(database_url: str, model: ScriptedModel, files: FileTools) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model), tool_source=files) as opened:
        yield opened


def cards(visitor: Visitor) -> Locator:
    return visitor.page.locator("[data-approval][data-state]")


def allow(card: Locator) -> Locator:
    return card.get_by_role("button", name="Allow", exact=True)


def deny(card: Locator) -> Locator:
    return card.get_by_role("button", name="Don't allow")


def writes(text: str = "", /, **arguments: Any) -> Uses:
    return Uses([ToolCall("files__write", json.dumps(arguments))], text)


async def opened(visitor: Visitor, world: World, **more: Any) -> str:
    conversation = await begin(world, **more)
    await visitor.open(f"c/{conversation}")
    return conversation


async def test_a_person_sees_the_whole_call_and_allows_it(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    await opened(visitor, world)
    text = "\n".join(f"line {number}" for number in range(60))
    model.answers += [writes("I can do that.", path="a.txt", text=text, options={"mode": 7}), "It is written."]
    await visitor.say("Write it down.")
    card = cards(visitor)
    await expect(card.get_by_role("heading")).to_have_text("May I use write of the server files?")
    await expect(card.locator("dt")).to_have_text(["path", "text", "options"])
    path, long, options = card.locator("dd").nth(0), card.locator("dd .long"), card.locator("dd").nth(2)
    assert [await one.text_content() for one in (path, long, options)] == ["a.txt", text, '{\n  "mode": 7\n}']
    await expect(card.locator(".more")).to_contain_text("There is more")
    await expect(card).to_contain_text("left to decide")
    # The card is the question: the reply's text does not ask a second time.
    await expect(visitor.replies.first.locator(".words")).to_have_text("I can do that.")
    assert files.written == []
    await allow(card).click()
    await expect(visitor.replies).to_have_count(2)
    await expect(visitor.replies.last).to_contain_text("It is written.")
    await expect(card).to_contain_text("Allowed and done.")
    await expect(visitor.page.locator("li.draft")).to_have_count(0)
    await expect(allow(card)).to_be_hidden()
    assert files.written == ["a.txt"]
    await visitor.page.reload()
    await expect(cards(visitor)).to_contain_text("Allowed and done.")
    await expect(allow(cards(visitor))).to_be_hidden()


async def test_several_calls_are_decided_one_by_one_after_a_reload(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    await opened(visitor, world)
    model.answers += [calls("a.txt", "b.txt"), "One of two."]
    await visitor.say("Write them down.")
    await expect(cards(visitor)).to_have_count(2)
    await visitor.page.reload()
    first, second = cards(visitor).nth(0), cards(visitor).nth(1)
    await expect(first.locator("dd")).to_have_text("a.txt")
    await allow(first).click()
    await expect(first).to_contain_text("It waits for the other decisions.")
    assert files.written == []
    await deny(second).click()
    await expect(visitor.replies.last).to_contain_text("One of two.")
    await expect(first).to_contain_text("Allowed and done.")
    await expect(second).to_contain_text("Not allowed, so it was not done.")
    assert files.written == ["a.txt"]
    # Without a text of the model nothing is left of the bubble.
    await expect(visitor.replies.first.locator(".bubble")).to_be_hidden()


@ON_A_DESKTOP
async def test_what_another_tab_decides_is_shown_here(
    visitor: Visitor, world: World, model: ScriptedModel, browser: Browser, screen: Screen
) -> None:
    conversation = await opened(visitor, world)
    context, other = await visit(browser, visitor.address, screen)
    await other.open(f"c/{conversation}")
    model.answers += [calls("a.txt"), "It is written."]
    await visitor.say("Write it down.")
    await expect(allow(cards(other))).to_be_visible()
    await allow(cards(other)).click()
    await expect(cards(visitor)).to_contain_text("Allowed and done.")
    await expect(visitor.replies.last).to_contain_text("It is written.")
    await expect(visitor.page.locator("li.draft")).to_have_count(0)
    other.assert_clean()
    await context.close()


@ON_A_DESKTOP
async def test_a_decision_that_comes_too_late_says_why(visitor: Visitor, world: World, model: ScriptedModel) -> None:
    """Here the page does not hear of the other decision: its stream is held back."""
    conversation = await begin(world)
    model.answers += [calls("a.txt"), "All right."]
    await world.says(conversation, "Write it down.")
    await visitor.page.route("**/events*", lambda route: _never(route))
    await visitor.open(f"c/{conversation}")
    card = cards(visitor)
    await expect(allow(card)).to_be_visible()
    [asked] = await approvals(world, conversation)
    await decide(world, conversation, asked["id"], "deny")
    await allow(card).click()
    await expect(card.get_by_role("alert")).to_have_text("This call was denied before.")
    await expect(card).to_contain_text("Not allowed, so it was not done.")
    await visitor.page.unroute_all(behavior="ignoreErrors")


async def _never(_route: Route) -> None:
    """Leave the request without an answer."""


async def test_a_question_that_expires_while_it_is_shown_says_so(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    await opened(visitor, world)
    model.answers.append(calls("a.txt"))
    await visitor.say("Write it down.")
    await expect(allow(cards(visitor))).to_be_visible()
    await world.sql("UPDATE tool_calls SET expires_at = clock_timestamp() + interval '1 s'")
    await visitor.page.reload()
    await expect(cards(visitor)).to_contain_text("Nobody decided in time, so it was not done.")
    await expect(allow(cards(visitor))).to_be_hidden()
    assert files.written == []


@ON_A_PHONE
async def test_an_error_of_the_connection_is_told_and_the_decision_can_be_sent_again(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    await opened(visitor, world)
    model.answers += [calls("a.txt"), "It is written."]
    await visitor.say("Write it down.")
    card = cards(visitor)
    await expect(allow(card)).to_be_visible()
    await visitor.page.route("**/approvals/*", lambda route: route.abort())
    await allow(card).click()
    await expect(card.get_by_role("alert")).to_have_text("The server can't be reached.")
    await visitor.page.unroute("**/approvals/*")
    await allow(card).click()
    await expect(card).to_contain_text("Allowed and done.")
    await expect(card.locator(".approval-problem")).to_be_empty()
    assert files.written == ["a.txt"]


@ON_A_DESKTOP
async def test_it_is_decided_by_keyboard(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    await opened(visitor, world)
    model.answers += [calls("a.txt"), "It is written."]
    await visitor.say("Write it down.")
    await expect(allow(cards(visitor))).to_be_visible()
    for _ in range(40):
        await visitor.page.keyboard.press("Shift+Tab")
        if await allow(cards(visitor)).evaluate("one => one === document.activeElement"):
            break
    await visitor.page.keyboard.press("Enter")
    await expect(cards(visitor)).to_be_focused()
    await expect(cards(visitor)).to_contain_text("Allowed and done.")
    assert files.written == ["a.txt"]


@ON_A_DESKTOP
async def test_an_outcome_that_nobody_knows_and_a_failure_are_told(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    await opened(visitor, world)
    files.answers += [ToolOutcomeUnknown("no answer")]
    model.answers += [calls("a.txt"), "I am not sure."]
    await visitor.say("Write it down.")
    await allow(cards(visitor)).click()
    await expect(cards(visitor)).to_contain_text("it may be done or not")
    await visitor.replies.last.get_by_role("button", name="Why this answer?").click()
    await expect(visitor.shown("why").locator(".why-tools li")).to_have_text(
        "write of the server files: outcome not known"
    )


async def test_arguments_are_text_and_hidden_characters_are_seen(
    visitor: Visitor, world: World, model: ScriptedModel
) -> None:
    await opened(visitor, world)
    model.answers.append(writes(path=f"safe\u202etxt.exe {EVIL}", **{EVIL: "**bold**"}))
    await visitor.say("Write it down.")
    card = cards(visitor)
    await expect(card.locator("dd")).to_have_count(2)
    assert await card.locator("dd").all_text_contents() == [f"safe\\u{{202e}}txt.exe {EVIL}", "**bold**"]
    await expect(card.locator("dt").last).to_have_text(EVIL)
    assert await visitor.page.locator("img[src='x']").count() == 0


@ON_A_DESKTOP
async def test_a_value_that_is_not_shown_as_a_whole_says_so(
    visitor: Visitor, world: World, model: ScriptedModel
) -> None:
    await opened(visitor, world)
    model.answers.append(writes(mode="a\n" * 11, path="line\n" * 40))
    await visitor.say("Write it down.")
    fitting, long = cards(visitor).locator("dd").nth(0), cards(visitor).locator("dd").nth(1)
    await expect(long.locator(".more")).to_have_text("There is more: scroll in this box to read all 200 characters.")
    await expect(fitting.locator(".long")).to_be_visible()
    await expect(fitting.locator(".more")).to_be_hidden()


@ON_A_DESKTOP
async def test_in_a_group_the_page_decides_as_the_admin(
    visitor: Visitor, world: World, model: ScriptedModel, files: FileTools
) -> None:
    conversation = await begin(world, kind="group")
    model.answers += [calls("a.txt"), "Written."]
    await world.says(conversation, "@clerk write it down", author={"id": "ann", "name": "Ann"})
    await visitor.open(f"c/{conversation}")
    await allow(cards(visitor)).click()
    await expect(cards(visitor)).to_contain_text("Allowed and done.")
    assert files.written == ["a.txt"]


async def test_the_code_is_loaded_with_the_first_question_and_old_questions_say_that_they_are(
    visitor: Visitor, world: World, model: ScriptedModel
) -> None:
    conversation = await opened(visitor, world)
    loaded = "() => performance.getEntriesByType('resource').filter(one => one.name.includes('/approvals/')).length"
    model.answers += ["Hello.", calls("a.txt")]
    await visitor.asks("Hi.", "Hello.")
    assert await visitor.page.evaluate(loaded) == 0
    await visitor.say("Write it down.")
    await expect(allow(cards(visitor))).to_be_visible()
    assert await visitor.page.evaluate(loaded) > 0
    await world.sql("DELETE FROM tool_calls WHERE conversation_id = %s", conversation)
    await visitor.page.reload()
    await expect(cards(visitor)).to_contain_text("This question is too old")
    await expect(visitor.replies.last.locator(".words")).to_contain_text("May I use files__write")


async def test_axe_finds_nothing_serious_on_a_card(
    visitor: Visitor, world: World, model: ScriptedModel, axe: str
) -> None:
    await opened(visitor, world)
    model.answers += [writes(path="a.txt", text="long " * 400), "No."]
    await visitor.say("Write it down.")
    await expect(allow(cards(visitor))).to_be_visible()
    for colours in ("light", "dark"):
        await visitor.page.emulate_media(color_scheme=colours)
        assert await problems(visitor.page, axe) == []
    await deny(cards(visitor)).click()
    await expect(cards(visitor)).to_contain_text("Not allowed")
    await until(lambda: not model.answers)
    assert await problems(visitor.page, axe) == []
