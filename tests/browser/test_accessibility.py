"""Test that axe finds nothing serious on any panel, in light and dark, and that the keyboard reaches everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.support.installing import packages
from tests.support.world import World

from .visitor import IN_A_BROWSER, Visitor

pytestmark = IN_A_BROWSER

HERE = Path(__file__).parent
PANELS = ("sources", "why", "next", "memory", "notes", "agents", "insight")
RUN = "() => axe.run(document, { resultTypes: ['violations'] }).then(found => found.violations)"
NOTE = "Customers may send goods back within 30 days of purchase and get their money back."


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script of axe-core."""
    return (packages(HERE) / "axe-core" / "axe.min.js").read_text()


async def problems(page: Page, axe: str) -> list[str]:
    """Return the violations that axe calls serious or critical."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(axe)
    found: list[dict[str, Any]] = await page.evaluate(RUN)
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for one in found
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]


async def seen_in_light_and_dark(visitor: Visitor, axe: str, where: str) -> list[str]:
    found: list[str] = []
    for colours in ("light", "dark"):
        await visitor.page.emulate_media(color_scheme=colours)
        found += [f"{where}, {colours}: {one}" for one in await problems(visitor.page, axe)]
    return found


async def furnish(world: World) -> str:
    """Create content for each panel; return a conversation with it."""
    await world.http.post("/api/notes", json={"id": "shop", "title": "The shop", "text": NOTE})
    await world.http.post("/api/memories", params={"agent": "companion"}, json={"content": "I live in Lisbon"})
    thread = await world.conversation(title="Plans")
    world.model.will_say("You have **30 days** [source: shop].\n\n- [ ] a `list`\n\n| a |\n|-|\n| b |\n\nSources: shop")
    await world.says(thread, "How long can I return something I bought?")
    await world.silence(thread)
    await world.says(thread, "> quoted\n\n[a link](https://ok.example)")
    await world.http.post(f"/api/threads/{thread}/timers", json={"trigger_type": "check_in", "delay_seconds": 900})
    for at in ("2030-05-01T09:00", "2030-05-02T09:00"):
        body = {"conversation_id": thread, "text": "Water the plants", "at": at, "rrule": "FREQ=DAILY"}
        await world.http.post("/api/reminders", json=body)
    await world.sql("UPDATE reminders SET state = 'held' WHERE local_at < '2030-05-02'")
    await world.sql("UPDATE conversations SET muted_until = '2029-01-01' WHERE id = %s", thread)
    return thread


async def test_axe_finds_nothing_serious(visitor: Visitor, world: World, axe: str) -> None:
    thread = await furnish(world)
    found: list[str] = []
    await visitor.open("start")
    await expect(visitor.page.locator("[data-try='1']")).to_be_visible()
    found += await seen_in_light_and_dark(visitor, axe, "start")
    await visitor.button("Begin your own conversation").click()
    found += await seen_in_light_and_dark(visitor, axe, "a new conversation")
    await visitor.page.keyboard.press("Escape")
    if visitor.is_phone:
        await visitor.go("")
        found += await seen_in_light_and_dark(visitor, axe, "conversations")
    await visitor.go(f"c/{thread}")
    await expect(visitor.replies).to_have_count(3)
    if visitor.is_phone:
        found += await seen_in_light_and_dark(visitor, axe, "chat")
    for panel in PANELS:
        shown = await visitor.panel(panel)
        await expect(shown.get_by_text("Loading…")).to_have_count(0)
        found += await seen_in_light_and_dark(visitor, axe, panel)
    await visitor.panel("next")
    await visitor.button("Set a reminder").click()
    found += await seen_in_light_and_dark(visitor, axe, "the form of a reminder")
    await visitor.page.keyboard.press("Escape")
    await visitor.go("notes/shop")
    await expect(visitor.shown("notes").locator(".whole")).to_be_visible()
    found += await seen_in_light_and_dark(visitor, axe, "a note")
    assert found == []


async def test_axe_finds_nothing_serious_while_things_happen(visitor: Visitor, world: World, axe: str) -> None:
    """While an answer is written, a reply, a call, no connection, and the sign-in form."""
    found: list[str] = []
    thread = await world.conversation(kind="group", title="Lunch")
    await world.post(thread, "Where do we eat?", author={"id": "ana", "name": "Ana Sousa"})
    await visitor.open(f"c/{thread}")
    await visitor.attend(visitor.messages.first)
    await visitor.messages.first.get_by_role("button", name="Reply").click()
    step = world.model.will_wait("Somewhere near")
    await visitor.say("@bot where?")
    await expect(visitor.draft).to_have_text("Somewhere")
    await visitor.box.press_sequentially("@")
    await expect(visitor.page.locator(".mentions")).to_be_visible()
    await visitor.page.context.set_offline(True)
    await expect(visitor.page.locator("#banner")).to_be_visible()
    found += await seen_in_light_and_dark(visitor, axe, "a busy chat")
    await visitor.page.context.set_offline(False)
    step.go_on()
    await expect(visitor.replies).to_have_count(1)
    assert found == []


@pytest.mark.parametrize("screen", ["desktop"], indirect=True)  # phones have no keyboard
async def test_the_keyboard_reaches_what_the_mouse_does(visitor: Visitor, world: World) -> None:
    thread = await furnish(world)
    await visitor.open(f"c/{thread}")
    await expect(visitor.box).to_be_focused()
    await visitor.page.keyboard.type("by keys alone")
    await visitor.page.keyboard.press("Enter")
    await expect(visitor.replies.last).to_contain_text("re: by keys alone")
    await visitor.page.keyboard.press("Control+k")
    await expect(visitor.page.get_by_label("Search conversations")).to_be_focused()
    reached: set[str] = set()
    for _ in range(120):
        await visitor.page.keyboard.press("Tab")
        name = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
        reached.add((await visitor.page.evaluate(name)).strip())
    wanted = {
        "Notes",
        "Memory",
        "Agents",
        "Insight",
        "Message",
        "Reply",
        "Why this answer?",
        "Close the details",
        "Message history",
    }
    assert wanted <= reached
    await visitor.page.locator("[data-tab='why']").focus()
    for title in ("Next", "Memory"):
        await visitor.page.keyboard.press("ArrowRight")
        await expect(visitor.page.get_by_role("tab", name=title)).to_be_focused()
    await expect(visitor.shown("memory")).to_contain_text("I live in Lisbon")
    await visitor.page.keyboard.press("Escape")
    await expect(visitor.shown("memory")).to_be_hidden()
