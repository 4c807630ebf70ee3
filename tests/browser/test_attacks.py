"""Test that stored content of others never runs in the page, loads nothing, and can't imitate the page (SEC)."""

from __future__ import annotations

import asyncio
import json

from playwright.async_api import Browser, expect

from tests.channels.http.test_rendering import ATTACKS
from tests.support.world import World

from .visitor import IN_A_BROWSER, ON_A_PHONE, SCREENS, Visitor, visit

pytestmark = IN_A_BROWSER

STORED = [attack for attack in ATTACKS if len(attack) < 2_000]

# Elements that may run a script on an event, load something, or cover the page.
SUSPECT = """() => {
    const all = [...document.querySelectorAll("#app *, #toasts *")];
    const handlers = all.filter(one => [...one.attributes].some(({ name }) => name.startsWith("on") || name === "style"
        && one.closest(".words, .note-text")));
    const links = all.filter(one => one.matches("a[href]") && !/^(https?:|mailto:|tel:|#|$)/i.test(one.getAttribute("href")));
    const foreign = document.querySelectorAll("body script, iframe, object, embed, base, body style, body link, body meta,"
        + " video, audio, .words form, .words input, .words svg, .words math, .words img, .words [id], frame, portal");
    return [...handlers, ...links, ...foreign].map(one => one.outerHTML.slice(0, 200));
}"""


async def store(world: World, chat: str) -> None:
    """Store every attack as a title, a memory, and a note with a file that an answer cites."""
    replies = [one["id"] for one in await world.history(chat) if one["role"] == "assistant"]
    for number, attack in enumerate(STORED):
        line = attack.replace("\n", " ")[:200]
        await world.conversation(title=line)
        note = await world.http.post("/api/notes", json={"title": line, "text": f"{attack}\nnumber {number}"})
        await world.sql("UPDATE notes SET file_name = %s WHERE id = %s", f"{line}.html", note.json()["id"])
        await world.sql(
            "INSERT INTO memories (owner_id, agent_id, id, key, content, origin, embedder, embedding)"
            " VALUES ('local', 'companion', %s, %s, %s, 'user', 'none', '[0]')",
            note.json()["id"],
            f"{number}{line}"[:100],
            attack,
        )
        sources = json.dumps([{"id": note.json()["id"], "text": attack}])
        await world.sql("UPDATE messages SET sources = %s WHERE id = %s", sources, replies[number])


async def say_all(world: World, group: str, alone: str) -> None:
    """Send every attack: in the group as text and author's name, as a reply; in a direct chat also as the agent's answer."""
    last: str | None = None
    for number, attack in enumerate(STORED):
        author = {"id": f"person-{number}", "name": attack.replace("\n", " ")[:200]}
        last = (await world.post(group, attack, author=author, reply_to_id=last)).json()["id"]
        world.model.will_say(attack)
        await world.says(alone, attack)


async def said_in(world: World, chat: str) -> list[str]:
    return [one["id"] for one in await world.history(chat) if one["role"] != "system-summary"]


async def scroll_back(visitor: Visitor, count: int) -> None:
    """Scroll back until this many messages are shown."""
    while (before := await visitor.messages.count()) < count:
        await visitor.page.locator(".scroller").evaluate("one => { one.scrollTop = 0 }")
        await expect(visitor.messages).not_to_have_count(before)


async def touch(visitor: Visitor) -> None:
    """Trigger pointer and browser events on all content of others."""
    await visitor.page.evaluate(
        """() => { for (const one of document.querySelectorAll(".words *, .name, .quote, .threads b, .chips *"))
            for (const name of ["mouseover", "focus", "toggle", "load", "error"])
                one.dispatchEvent(new Event(name, { bubbles: true })) }"""
    )


async def look_around(visitor: Visitor, world: World, *chats: str) -> None:
    for chat in chats:
        await visitor.open(f"c/{chat}")
        said = await said_in(world, chat)
        await scroll_back(visitor, len(said))
        assert await visitor.ids() == said
        assert await visitor.page.evaluate(SUSPECT) == []
        await touch(visitor)
    for panel in ("sources", "why", "next", "memory", "notes", "insight"):
        shown = await visitor.panel(panel)
        await expect(shown.get_by_text("Loading…")).to_have_count(0)
        assert await visitor.page.evaluate(SUSPECT) == [], panel
    if visitor.is_phone:
        await visitor.go("")
        await expect(visitor.threads.first).to_be_visible()
        assert await visitor.page.evaluate(SUSPECT) == []


async def read_notes(visitor: Visitor, world: World) -> None:
    for note in (await world.http.get("/api/notes", params={"limit": 500})).json()["notes"]:
        await visitor.go(f"notes/{note['id']}")
        await expect(visitor.shown("notes").locator(".reading .hint code")).to_have_text(note["id"])
        assert await visitor.page.evaluate(SUSPECT) == [], note["title"]


async def test_attacks_that_are_stored_do_nothing(browser: Browser, world: World) -> None:
    """Attacks arrive live, as drafts and as messages, and then from the history."""
    assert len(STORED) >= 60
    group = await world.conversation(kind="group", title=STORED[0])
    alone = await world.conversation(title=STORED[0])
    address = str(world.http.base_url).rstrip("/")
    opened = [await visit(browser, address, screen) for screen in SCREENS]
    phone, desktop = (visitor for _, visitor in opened)
    for visitor, chat in ((phone, alone), (desktop, group)):
        await visitor.open(f"c/{chat}")
        await expect(visitor.page.locator(".empty-chat")).to_be_visible()
    await say_all(world, group, alone)
    for visitor, chat in ((phone, alone), (desktop, group)):
        said = await said_in(world, chat)
        await expect(visitor.messages).to_have_count(len(said))
        assert await visitor.ids() == said
        assert await visitor.page.evaluate(SUSPECT) == []
    await store(world, alone)
    await asyncio.gather(*(look_around(visitor, world, group, alone) for visitor in (phone, desktop)))
    await read_notes(desktop, world)
    for context, visitor in opened:
        visitor.assert_clean()
        await context.close()


@ON_A_PHONE
async def test_addresses_that_somebody_made_up_do_nothing(visitor: Visitor) -> None:
    """The part of the address after `#`, which a link from anywhere can set."""
    for attack in (
        "javascript:alert(1)",
        "c/<img src=x onerror=alert(1)>",
        "notes/../../session",
        "c/%3Csvg onload=alert(1)%3E/why",
        "%",
    ):
        await visitor.open(attack)
        assert await visitor.page.evaluate(SUSPECT) == []
    await visitor.open("notes/..%2f..%2fapi%2fsession")
    await expect(visitor.shown("notes")).to_contain_text("That didn't work")


async def test_the_attacks_would_be_noticed(browser: Browser, world: World) -> None:
    """Show that without the protections many attacks succeed, so that the traps of these tests work."""
    context, visitor = await visit(browser, str(world.http.base_url).rstrip("/"), "desktop")
    await context.route("**/*", lambda route: route.abort())
    await visitor.page.set_content("".join(attack for attack in STORED if "plaintext" not in attack))
    await visitor.page.evaluate("document.body.innerHTML = `<img src=x onerror=alert(1)><svg onload=alert(1)>`")
    await expect(visitor.page.locator("img")).to_have_count(1)
    assert visitor.ran
    assert any("evil.example" in url for url in visitor.elsewhere)
    assert await visitor.page.evaluate(SUSPECT.replace("#app *", "body *")) != []
    await context.close()
