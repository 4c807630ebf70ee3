"""Measure the page: long conversations, fast answers, few bytes. `pytest -rP` shows the figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from playwright.async_api import Browser, expect

import rapport
from tests.support.world import ScriptedModel, World, open_world

from .conftest import Figures
from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Screen, Visitor, visit

pytestmark = IN_A_BROWSER

PAGE = Path(rapport.__file__).parent / "page"
HEAVIEST_AT_FIRST = 156_000
HEAVIEST = 226_000
"""The most bytes of all files. The editor of agents has some 30 fields with help, a try, versions and the tools of every server;
the cards of questions about tool calls come with the first question, reminders with the panel that lists them. Few visitors load them."""
LATER = ("agents/", "approvals/", "insight/", "reminders/")
LOADED = """() => performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)
    .filter(path => path.startsWith('/page/')).map(path => path.slice('/page/'.length))"""
LONG = 10_000
A_PAGE = 200
"""The most messages that are shown before somebody scrolls back."""
TOKENS = 600
A_SECOND = 200

FRAMES = """() => {
    window.frames_ = [];
    window.shown_ = [];
    let before = performance.now();
    const tick = now => {
        window.frames_.push(now - before);
        before = now;
        const draft = document.querySelector("li.draft .words");
        if (draft) window.shown_.push(draft.textContent);
        if (!window.stop_) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
}"""


@ON_A_DESKTOP
async def test_the_page_is_light(visitor: Visitor, world: World, figures: Figures) -> None:
    """The first visit loads the chat and the panels beside it. The others are loaded when somebody needs them."""
    weights = {path.relative_to(PAGE).as_posix(): path.stat().st_size for path in PAGE.rglob("*") if path.is_file()}
    thread = await world.conversation()
    await visitor.open(f"c/{thread}/why")
    await expect(visitor.box).to_be_visible()
    loaded: list[str] = await visitor.page.evaluate(LOADED)
    first = sum(weights[name] for name in {"index.html", *loaded})
    everything = sum(weights.values())
    figures(f"{first:,} bytes at the first visit, {everything:,} in all {len(weights)} files")
    assert first <= HEAVIEST_AT_FIRST
    assert everything <= HEAVIEST
    assert {name for name in weights if not name.startswith(LATER)} == {"index.html", *loaded}


async def filled(world: World, length: int) -> str:
    """A conversation of messages 0 to `length` - 1, a minute apart, question and answer in turn."""
    thread = await world.conversation()
    await world.sql(
        "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
        " SELECT %s, '01HZ' || lpad(n::text, 22, '0'), 'local', CASE n %% 2 WHEN 0 THEN 'user' ELSE 'assistant' END,"
        " 'message ' || n || repeat(' and *some* more words', n %% 9), now() - make_interval(mins => %s - n)"
        " FROM generate_series(0, %s - 1) AS n",
        thread,
        length,
        length,
    )
    return thread


@ON_A_PHONE
async def test_of_a_long_conversation_a_page_is_shown_and_the_rest_can_be_read_back(
    visitor: Visitor, world: World
) -> None:
    thread = await filled(world, LONG)
    await visitor.open(f"c/{thread}")
    await expect(visitor.messages.last).to_contain_text(f"message {LONG - 1}")
    await expect(visitor.messages.last).to_be_in_viewport()
    assert await visitor.messages.count() <= A_PAGE

    scroller = visitor.page.locator(".scroller")
    while await visitor.messages.count() < 400:
        before = await visitor.messages.count()
        await scroller.evaluate("one => { one.scrollTop = 0 }")
        await expect(visitor.messages).not_to_have_count(before)
    ids = await visitor.ids()
    numbers = [int(one[4:]) for one in ids]
    assert numbers == list(range(numbers[0], LONG))
    # A new message does not move the scroll position, and a button announces it.
    await scroller.evaluate("one => { one.scrollTop = 2000 }")
    await visitor.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await world.says(thread, "something new")
    await expect(visitor.button("2 new")).to_be_visible()
    await visitor.button("2 new").click()
    await expect(visitor.messages.last).to_be_in_viewport()
    await expect(visitor.messages.last).to_contain_text("re: something new")


class Fast(ScriptedModel):
    """A model that streams at a steady pace, as fast as real models."""

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(TOKENS):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"t{number} "))
            await asyncio.sleep(max(0.0, began + (number + 1) / A_SECOND - loop.time()))


@ON_A_PHONE
async def test_a_fast_answer_is_shown_as_it_comes_and_whole(
    browser: Browser, screen: Screen, database_url: str, figures: Figures
) -> None:
    answer = "".join(f"t{number} " for number in range(TOKENS)).strip()
    async with open_world(database_url, model=Fast()) as world:
        context, visitor = await visit(browser, str(world.http.base_url).rstrip("/"), screen)
        thread = await world.conversation()
        await visitor.open(f"c/{thread}")
        await visitor.page.evaluate(FRAMES)
        await visitor.say("go")
        await expect(visitor.replies).to_have_count(1)
        frames: list[float] = await visitor.page.evaluate("(window.stop_ = true, window.frames_)")
        shown: list[str] = await visitor.page.evaluate("window.shown_")
        assert await visitor.words() == ["go", answer]
        visitor.assert_clean()
        await context.close()
    # The shown text was always a prefix of the answer, and never became shorter.
    assert [text for text in shown if not f"{answer} ".startswith(text)] == []
    assert all(len(one) <= len(other) for one, other in pairwise(shown))
    steps = len(set(shown))
    late = sorted(frames)
    figures(
        f"{screen}: {steps} steps in {len(frames)} frames; the median frame took {late[len(late) // 2]:.1f} ms, 95 % within"
        f" {late[int(len(late) * 0.95)]:.1f} ms, the slowest {late[-1]:.0f} ms, {sum(one > 34 for one in frames)} over 34 ms"
    )
    assert steps > 3  # dozens where nothing else runs
