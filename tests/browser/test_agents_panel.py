"""Test the agents panel: make, try and talk by keyboard; errors at their fields; versions; confirmation; names that are HTML."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from rapport.storage.access.api_keys import ApiKeys
from tests.browser.test_accessibility import axe, problems
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.world import World, until

from .conftest import Figures
from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Visitor

__all__ = ["axe"]
pytestmark = IN_A_BROWSER

CHEF: dict[str, Any] = {"id": "chef", "name": "Chef", "persona": "You are a chef."}
FOCUSED = """() => {
    const one = document.activeElement;
    return one.getAttribute('aria-label') ?? one.labels?.[0]?.innerText ?? one.innerText ?? '';
}"""
A_MINUTE = 60


async def make(world: World, **fields: Any) -> dict[str, Any]:
    made = await world.http.post("/api/agents", json={**CHEF, **fields})
    assert made.status_code == 201, made.text
    return made.json()


async def tab_to(visitor: Visitor, name: str) -> None:
    """Press Tab until the element with this name has the focus."""
    seen: list[str] = []
    for _ in range(80):
        await visitor.page.keyboard.press("Tab")
        seen.append((await visitor.page.evaluate(FOCUSED)).strip())
        if seen[-1] == name:
            return
    pytest.fail(f"Tab did not reach {name!r}, only {seen}")


def field(panel: Locator, path: str) -> Locator:
    return panel.locator(f"[data-field='{path}']")


async def open_editor(visitor: Visitor, agent: str) -> Locator:
    await visitor.open(f"agents/{agent}")
    panel = visitor.shown("agents")
    await expect(panel.get_by_label("Name", exact=True)).to_be_focused()
    return panel


async def test_an_agent_is_made_tried_and_talked_to_by_keyboard(
    visitor: Visitor, world: World, figures: Figures
) -> None:
    page, keys = visitor.page, visitor.page.keyboard
    await visitor.open("agents")
    panel = visitor.shown("agents")
    await expect(panel.locator("[data-agent-id]")).to_have_count(2)
    began = time.monotonic()
    await tab_to(visitor, "New agent")
    await keys.press("Enter")
    await expect(panel.get_by_label("Name", exact=True)).to_be_focused()
    await keys.type("Chef Ana")
    await tab_to(visitor, "Persona")
    await keys.type("You are a patient chef.")
    await tab_to(visitor, "Greeting (optional)")
    await keys.type("What is in your fridge?")
    await tab_to(visitor, "Your question")
    await keys.type("soup?")
    await keys.press("Enter")
    await expect(panel.locator(".agent-said")).to_have_text("re: soup?")
    assert world.model.calls[-1][0].text.startswith("You are a patient chef.")
    assert await world.sql("SELECT id FROM agents WHERE owner_id = 'local'") == []
    await page.keyboard.press("Shift+Tab")
    while (await page.evaluate(FOCUSED)).strip() != "Save and talk":
        await page.keyboard.press("Shift+Tab")
    await keys.press("Enter")
    await expect(visitor.box).to_be_focused()
    await expect(page.locator(".greeting")).to_have_text("What is in your fridge?")
    await keys.type("an onion")
    await keys.press("Enter")
    if visitor.is_phone:  # Enter is a new line on a touch screen
        await tab_to(visitor, "Send")
        await keys.press("Enter")
    await expect(visitor.replies.last).to_contain_text("re: an onion")
    taken = time.monotonic() - began
    figures(f"{visitor.screen}: made, tried and talked to in {taken:.1f} s")
    assert taken < A_MINUTE
    detail = (await world.http.get("/api/agents/chef-ana")).json()
    assert (detail["persona"], detail["version"]) == ("You are a patient chef.", 1)


async def test_an_error_is_shown_at_its_field_and_keeps_what_was_typed(visitor: Visitor, world: World) -> None:
    await make(world)
    await visitor.open("agents")
    panel = visitor.shown("agents")
    await panel.get_by_role("button", name="New agent").click()
    name = panel.get_by_label("Name", exact=True)
    await name.fill("Baker")
    await visitor.button("Save").click()
    persona = field(panel, "persona")
    await expect(persona.get_by_role("alert")).to_contain_text("persona must not be empty")
    await expect(persona.locator("textarea")).to_be_focused()
    await expect(persona.locator("textarea")).to_have_attribute("aria-invalid", "true")
    await expect(name).to_have_value("Baker")
    await persona.locator("textarea").fill("You are a baker.")
    await expect(persona.get_by_role("alert")).to_be_hidden()

    await panel.get_by_text("Model options").click()
    await field(panel, "model_options.temperature").locator("input").fill("warm")
    await panel.get_by_text("Model options").click()  # closed: the error opens it again
    await panel.get_by_text("Id, handles, who may use it").click()
    await field(panel, "handles").locator("input").fill("baker, no!")
    await visitor.button("Save").click()
    await expect(field(panel, "model_options.temperature").get_by_role("alert")).to_contain_text("must be a number")
    await expect(field(panel, "handles").get_by_role("alert")).to_contain_text("must be a word of letters")
    await field(panel, "model_options.temperature").locator("input").fill("0.5")
    await field(panel, "handles").locator("input").fill("baker, chef")
    await visitor.button("Save").click()
    await expect(field(panel, "handles").get_by_role("alert")).to_contain_text("belongs to the agent 'chef'")
    await field(panel, "handles").locator("input").fill("baker")

    await panel.get_by_text("Follow-ups", exact=True).last.click()
    await field(panel, "autonomy.min_delay_seconds").locator("input").fill("90")
    await field(panel, "autonomy.max_delay_seconds").locator("input").fill("60")
    await panel.get_by_label("Your question").fill("bread?")
    await panel.get_by_role("button", name="Try it").click()
    delay = field(panel, "autonomy.min_delay_seconds")
    await expect(delay.get_by_role("alert")).to_contain_text("must not be larger than")
    await delay.locator("input").fill("")
    await field(panel, "autonomy.max_delay_seconds").locator("input").fill("")
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 1.")).to_be_visible()
    saved = (await world.http.get("/api/agents/baker")).json()
    assert saved["model_options"]["temperature"] == 0.5
    assert (saved["handles"], saved["autonomy"]["min_delay_seconds"]) == (["baker"], 30)


@ON_A_DESKTOP
async def test_every_field_is_read_and_written_and_an_empty_one_is_the_default(visitor: Visitor, world: World) -> None:
    variants = [{"name": "a", "text": "Ask.", "weight": 1.0}, {"name": "b", "text": "Ask more.", "weight": 2.0}]
    await make(
        world,
        memory=False,
        tools=["follow_up"],
        model_options={"max_tokens": 50},
        autonomy={
            "enabled": True,
            "min_delay_seconds": 60,
            "prompts": {"check_in": variants, "task_incomplete": "Done?"},
        },
    )
    before = (await world.http.get("/api/agents/chef")).json()
    panel = await open_editor(visitor, "chef")
    for summary in await panel.locator("details summary").all():
        await summary.click()
    prompts = {
        name: field(panel, f"autonomy.prompts.{name}").locator("textarea") for name in ("check_in", "task_incomplete")
    }
    await expect(prompts["check_in"]).to_be_disabled()
    await expect(prompts["check_in"]).to_have_attribute(
        "placeholder", "It has 2 variants: a, b. They stay as they are."
    )
    await expect(prompts["task_incomplete"]).to_have_value("Done?")
    waiting = field(panel, "autonomy.prompts.waiting_for_decision").locator("textarea")
    await expect(waiting).to_have_attribute("placeholder", "Follow up on the decision the user needs to make.")
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Nothing has changed.")).to_be_visible()

    await prompts["task_incomplete"].fill("")
    await waiting.fill("Which one is it?")
    await field(panel, "autonomy.min_delay_seconds").locator("input").fill("")
    await field(panel, "model_options.max_tokens").locator("input").fill("")
    await panel.get_by_label("Memory", exact=True).check()
    await panel.get_by_label("Save a memory upsert_memory").check()
    await field(panel, "grounding").locator("select").select_option("none")
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 2.")).to_be_visible()
    after = (await world.http.get("/api/agents/chef")).json()
    changed = {name: value for name, value in after.items() if value != before[name]}
    assert changed.keys() == {
        *("autonomy", "grounding", "memory", "model_options", "remembers", "tools", "updated_at", "version")
    }
    assert changed["tools"] == ["follow_up", "upsert_memory"]
    assert changed["model_options"]["max_tokens"] is None
    assert changed["autonomy"] == {
        **before["autonomy"],
        "min_delay_seconds": 30,
        "prompts": {
            "check_in": variants,
            "waiting_for_decision": [{"name": "own", "text": "Which one is it?", "weight": 1}],
        },
    }


async def test_versions_say_what_changed_and_are_restored(visitor: Visitor, world: World) -> None:
    await make(world)
    await world.http.patch("/api/agents/chef", json={"greeting": "Hi!", "autonomy": {"enabled": True}})
    panel = await open_editor(visitor, "chef")
    await panel.get_by_text("Versions", exact=True).click()
    versions = panel.locator("[data-version]")
    await expect(versions).to_have_count(2)
    await expect(versions.first).to_contain_text("by you")
    await expect(versions.first).to_contain_text("greeting")
    await expect(versions.first).to_contain_text("default → Hi!")
    await expect(versions.first).to_contain_text("autonomy: enabled")
    await expect(versions.first).to_contain_text("off → on")
    await panel.get_by_label("Description").fill("It cooks.")
    await panel.get_by_role("button", name="Restore version 1").click()
    await expect(versions).to_have_count(3)
    await expect(panel.get_by_label("Greeting")).to_have_value("")
    await expect(panel.get_by_label("Description")).to_have_value("It cooks.")
    restored = (await world.http.get("/api/agents/chef")).json()
    assert (restored["version"], restored["greeting"], restored["description"]) == (3, "", "")


@ON_A_PHONE
async def test_a_change_made_elsewhere_meanwhile_loses_nothing(visitor: Visitor, world: World) -> None:
    await make(world)
    panel = await open_editor(visitor, "chef")
    await world.http.patch("/api/agents/chef", json={"greeting": "Hi!"})
    await panel.get_by_label("Description").fill("It cooks.")
    await visitor.button("Save").click()
    await expect(panel.get_by_text("was changed meanwhile")).to_be_visible()
    await expect(panel.get_by_label("Description")).to_have_value("It cooks.")
    await panel.get_by_role("button", name="Load it, and keep my changes").click()
    await expect(panel.get_by_label("Greeting")).to_have_value("Hi!")
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 3.")).to_be_visible()
    saved = (await world.http.get("/api/agents/chef")).json()
    assert (saved["greeting"], saved["description"]) == ("Hi!", "It cooks.")


@ON_A_DESKTOP
async def test_escape_leaves_the_editor_and_keeps_what_was_typed(visitor: Visitor, world: World) -> None:
    await make(world)
    panel = await open_editor(visitor, "chef")
    await panel.get_by_label("Description").fill("It cooks.")
    await visitor.page.keyboard.press("Escape")
    edit = panel.get_by_role("button", name="Edit Chef")
    await expect(edit).to_be_focused()
    await expect(panel.locator("[data-agent-id='chef']")).to_contain_text("unsaved changes")
    await visitor.page.keyboard.press("Enter")
    await expect(panel.get_by_label("Description")).to_have_value("It cooks.")
    await visitor.button("Discard changes").click()
    await expect(panel.get_by_label("Description")).to_have_value("")
    await visitor.button("All agents").click()
    await expect(edit).to_be_focused()
    await visitor.page.keyboard.press("Escape")
    await expect(panel).to_be_hidden()


async def test_an_agent_is_copied_reset_and_deleted_after_a_question(visitor: Visitor, world: World) -> None:
    await world.http.patch("/api/agents/companion", json={"persona": "You are terse."})
    await visitor.open("agents")
    panel = visitor.shown("agents")
    companion = panel.locator("[data-agent-id='companion']")
    await expect(companion.get_by_role("button", name="Delete")).to_have_count(0)
    await companion.get_by_role("button", name="Copy").click()
    await expect(panel.get_by_label("Name", exact=True)).to_have_value("Companion (copy)")
    await expect(panel.get_by_label("Persona")).to_have_value("You are terse.")
    await visitor.button("All agents").click()
    await companion.get_by_role("button", name="Reset").click()
    await expect(companion.get_by_role("button", name="Reset")).to_be_visible()  # version 3 can be reset too
    await expect(companion).to_contain_text("version 3")
    shipped = (await world.http.get("/api/agents/companion")).json()
    assert shipped["persona"].startswith("You are a warm, attentive companion")

    copied = panel.locator("[data-agent-id='companion-copy']")
    await copied.get_by_role("button", name="Delete").click()
    await expect(visitor.button("Keep it")).to_be_focused()
    await visitor.page.keyboard.press("Escape")
    await expect(copied.get_by_role("button", name="Delete")).to_be_focused()
    assert (await world.http.get("/api/agents/companion-copy")).status_code == 200
    await copied.get_by_role("button", name="Delete").click()
    await visitor.button("Delete it").click()
    await expect(copied).to_have_count(0)
    assert (await world.http.get("/api/agents/companion-copy")).status_code == 404


async def test_a_name_that_is_html_is_shown_as_text(visitor: Visitor, world: World) -> None:
    evil = "<img src=x onerror=alert(1)>"
    await make(world, name=evil, description=evil, persona=evil, greeting=evil)
    await world.http.patch("/api/agents/chef", json={"description": f"{evil} 2"})
    await visitor.open("agents")
    panel = visitor.shown("agents")
    await expect(panel.locator("[data-agent-id='chef'] h3")).to_have_text(evil)
    await panel.get_by_role("button", name=f"Edit {evil}").click()
    await expect(panel.get_by_role("heading", level=2).first).to_have_text(f"Edit {evil}")
    await panel.get_by_text("Versions", exact=True).click()
    await expect(panel.locator("del")).to_have_text(evil)
    world.model.will_say(evil)
    await panel.get_by_label("Your question").fill("soup?")
    await panel.get_by_role("button", name="Try it").click()
    await expect(panel.locator(".agent-said")).to_have_text(evil)
    await visitor.button("Save and talk").click()
    await expect(visitor.page.locator(".greeting")).to_have_text(evil)
    assert await visitor.page.locator("img[src='x']").count() == 0


@ON_A_PHONE
async def test_a_user_sees_what_they_may_do(visitor: Visitor, world: World) -> None:
    _, header = await make_key(world, "ana")
    await until_closed(world)
    await make_for(world, header, id="mine", name="Mine")
    _, operator = await make_key(world, "olga", "operator")
    await make_for(world, operator, id="secret", name="Secret", for_everyone=True)
    await visitor.open("")
    await sign_in(visitor, header)
    await expect(visitor.page.locator("#conversations .rail")).to_have_count(1)
    await visitor.go("agents")
    panel = visitor.shown("agents")
    companion, mine = (panel.locator(f"[data-agent-id='{name}']") for name in ("companion", "mine"))
    await expect(companion.get_by_role("button")).to_have_text(["Talk", "Copy"])
    await expect(mine.get_by_role("button")).to_have_text(["Talk", "Edit", "Copy", "Delete"])
    await mine.get_by_role("button", name="Edit").click()
    await expect(panel.get_by_label("Name", exact=True)).to_be_focused()
    await expect(field(panel, "fallback_model")).to_have_count(1)
    await expect(field(panel, "model_options.base_url")).to_have_count(0)
    await visitor.go("agents/companion")
    await expect(panel).to_contain_text("Only an operator may change this agent. You can copy it.")
    await expect(panel.get_by_role("button", name="Copy")).to_have_count(1)
    await visitor.go("agents/secret")
    await expect(panel).to_contain_text("Only an operator may change this agent.")
    await expect(panel).not_to_contain_text("You can copy it.")
    await expect(panel.get_by_role("button", name="Copy")).to_have_count(0)
    await visitor.go("agents/nobody")
    await expect(panel).to_contain_text("That didn't work")


@ON_A_PHONE
async def test_what_is_typed_stays_when_a_key_is_revoked(visitor: Visitor, world: World) -> None:
    key_id, header = await make_key(world, "ana")
    _, second = await make_key(world, "ana")
    await until_closed(world)
    await make_for(world, header, id="mine", name="Mine")
    await visitor.open("agents/mine")
    await sign_in(visitor, header)
    panel = visitor.shown("agents")
    await panel.get_by_label("Name", exact=True).fill("A name that I have thought about")
    async with world.database.statement() as connection:
        await ApiKeys(connection).revoke(key_id)
    await visitor.page.keyboard.press("Control+Enter")
    await expect(visitor.page.get_by_label("Your key")).to_be_visible()
    await sign_in(visitor, second)
    await expect(panel.get_by_label("Name", exact=True)).to_have_value("A name that I have thought about")
    await expect(panel.get_by_label("Name", exact=True)).to_be_visible()
    await panel.get_by_label("Name", exact=True).press("Control+Enter")

    async def is_saved() -> bool:
        answer = await world.http.get("/api/agents/mine", headers=second)
        return answer.json()["name"] == "A name that I have thought about"

    await until(is_saved)


async def sign_in(visitor: Visitor, header: dict[str, str]) -> None:
    await visitor.page.get_by_label("Your key").fill(header["Authorization"].removeprefix("Bearer "))
    await visitor.button("Sign in").click()


async def make_for(world: World, header: dict[str, str], **fields: Any) -> None:
    made = await world.http.post("/api/agents", json={**CHEF, **fields}, headers=header)
    assert made.status_code == 201


async def test_axe_finds_nothing_serious_in_the_editor(visitor: Visitor, world: World, axe: str) -> None:
    await make(world, greeting="Hi!")
    await world.http.patch("/api/agents/chef", json={"greeting": "Hello!"})
    panel = await open_editor(visitor, "chef")
    for summary in await panel.locator("details summary").all():
        await summary.click()
    await expect(panel.locator("[data-version]")).to_have_count(2)
    await panel.get_by_label("Persona").fill("")
    await visitor.button("Save").click()
    await expect(field(panel, "persona").get_by_role("alert")).to_be_visible()
    await panel.get_by_label("Your question").fill("soup?")
    await panel.get_by_role("button", name="Try it").click()
    await expect(panel.get_by_text("see the form")).to_be_visible()
    for colours in ("light", "dark"):
        await visitor.page.emulate_media(color_scheme=colours)
        assert await problems(visitor.page, axe) == []


@ON_A_DESKTOP
async def test_the_code_of_the_panel_is_loaded_when_it_is_opened(visitor: Visitor, world: World) -> None:
    await make(world, greeting="What is in your fridge?")
    loaded = "() => performance.getEntriesByType('resource').filter(one => one.name.includes('/page/agents/')).length"
    await visitor.open("start")
    await visitor.button("Begin your own conversation").click()
    await visitor.page.locator("[data-agent='chef']").click()
    await expect(visitor.page.locator(".greeting")).to_have_text("What is in your fridge?")
    assert await visitor.page.evaluate(loaded) == 0
    await visitor.panel("agents")
    await expect(visitor.shown("agents").locator("[data-agent-id]")).to_have_count(3)
    assert await visitor.page.evaluate(loaded) > 0
