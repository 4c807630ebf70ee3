"""Take the pictures in docs/: the samples and every panel, with the built-in model.

`make screenshots` takes them again, on a separate server.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from pathlib import Path

from bench.processes import Server, free_port
from PIL import Image
from playwright.async_api import Browser, Locator, async_playwright, expect

from tests.support.installing import chromium

from .conftest import ARGUMENTS
from .visitor import PATIENCE, Screen, Visitor, visit

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = Path(sys.executable).with_name("rapport")
SAID = [
    "By the way: I'm Ana, I moved to Lisbon in May and I'm allergic to peanuts.",
    "I still have to call the landlord back.",
]


@asynccontextmanager
async def served() -> AsyncGenerator[str]:
    """Start a fresh server and yield its address."""
    with tempfile.TemporaryDirectory(prefix="rapport-shots-") as folder:
        port = free_port()
        env = {"RAPPORT_DATA_DIR": f"{folder}/data", "HOST": "127.0.0.1", "PORT": str(port)}
        server = Server(
            [COMMAND, "serve"], env=env, cwd=Path(folder), cpus=set(), pg_data=Path(folder) / "data/postgres"
        )
        address = f"http://127.0.0.1:{port}"
        try:
            await server.until_healthy(address, "/readyz")
            yield address
        finally:
            await asyncio.to_thread(server.stop)


async def taken(visitor: Visitor) -> Image.Image:
    await visitor.page.mouse.move(0, 0)
    await visitor.page.wait_for_timeout(600)  # for animations
    return Image.open(io.BytesIO(await visitor.page.screenshot()))


def keep(picture: Image.Image, name: str) -> None:
    """Save it with few colours: it looks the same and has a third of the size."""
    picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        DOCS / f"page-{name}.png", optimize=True
    )


async def colours(visitor: Visitor, name: str) -> None:
    wanted = visitor.button(f"{name.capitalize()} colours")
    if await wanted.is_visible():
        await wanted.click()


async def answered(visitor: Visitor, count: int) -> Locator:
    await expect(visitor.replies).to_have_count(count)
    return visitor.replies.last


async def on_a_desktop(visitor: Visitor) -> None:
    """Take a picture of each view, starting with an empty page."""
    await visitor.open("start")
    keep(await taken(visitor), "start")
    await visitor.button("Call it in the group").click()
    await answered(visitor, 1)
    await expect(visitor.shown("why").get_by_text("The agent was given")).to_be_visible()
    keep(await taken(visitor), "why")

    await visitor.open("start")
    await visitor.button("Ask the notes").click()
    await answered(visitor, 1)
    await visitor.say("Who was Napoleon?")
    await answered(visitor, 2)
    await visitor.say("What does a hotel room cost at most?")
    await (await answered(visitor, 3)).locator(".chip").first.click()
    keep(await taken(visitor), "sources")

    await visitor.open("start")
    await colours(visitor, "dark")
    await visitor.button("Leave something open").click()
    await answered(visitor, 1)
    for number, text in enumerate(SAID):
        await visitor.say(text)
        await answered(visitor, 2 + number)
    await visitor.panel("next")
    await visitor.button("Send now").first.click()
    await answered(visitor, 2 + len(SAID))
    await set_reminder(visitor, "Call the landlord back", "09:00", "Never")
    await set_reminder(visitor, "Water the plants", "18:30", "Every week")
    keep(await taken(visitor), "next")
    await visitor.panel("memory")
    keep(await taken(visitor), "memory")
    await colours(visitor, "light")
    await visitor.panel("notes")
    keep(await taken(visitor), "notes")
    await visitor.panel("insight")
    keep(await taken(visitor), "insight")
    await in_the_editor(visitor)


async def set_reminder(visitor: Visitor, text: str, time: str, repeat: str) -> None:
    await visitor.button("Set a reminder").click()
    form = visitor.page.get_by_role("dialog")
    await form.get_by_label("Remind me of").fill(text)
    await form.get_by_label("Date").fill(f"{date.today() + timedelta(days=1)}")
    await form.get_by_label("Time").fill(time)
    await form.get_by_label("Repeat").select_option(repeat)
    await form.get_by_role("button", name="Set it").click()
    await expect(form).to_have_count(0)
    await visitor.toast.get_by_role("button", name="Close").click()


async def in_the_editor(visitor: Visitor) -> None:
    """Make an agent, try it, and take a picture before it is saved."""
    await visitor.open("agents")
    panel = visitor.shown("agents")
    await panel.get_by_role("button", name="New agent").click()
    await panel.get_by_label("Name", exact=True).fill("Travel desk")
    await panel.get_by_label("Persona").fill(
        "You help the team to plan trips. You answer in two sentences and name the rule that you rely on."
    )
    await panel.get_by_label("Description").fill("Answers questions about trips from our rules.")
    await panel.get_by_label("Greeting").fill("Where do you want to go?")
    await panel.get_by_label("Your question").fill("What does a hotel room cost at most?")
    await panel.get_by_role("button", name="Try it").click()
    await expect(panel.locator(".agent-said")).to_be_visible()
    await visitor.page.locator("#side-panel").evaluate("one => { one.scrollTop = 0 }")
    keep(await taken(visitor), "agents")


async def on_a_phone(visitor: Visitor) -> None:
    """Four views beside each other."""
    await visitor.open("")
    views = [await taken(visitor)]
    await visitor.page.get_by_text("Sample: the team's chat").first.click()
    await expect(visitor.replies.last).to_be_in_viewport()
    views.append(await taken(visitor))
    await visitor.to_list()
    await colours(visitor, "dark")
    await visitor.page.get_by_text("Sample: the team's chat").first.click()
    await visitor.panel("why")
    views.append(await taken(visitor))
    await visitor.to_chat()
    await visitor.to_list()
    await visitor.page.get_by_text("Something left open").first.click()
    await expect(visitor.replies.last).to_be_in_viewport()
    views.append(await taken(visitor))
    width, height = views[0].size
    together = Image.new("RGB", (len(views) * (width + 8) - 8, height), "#888")
    for number, view in enumerate(views):
        together.paste(view, (number * (width + 8), 0))
    keep(together, "phone")


async def look(browser: Browser, address: str, screen: Screen) -> None:
    context, visitor = await visit(browser, address, screen)
    await (on_a_phone if screen == "phone" else on_a_desktop)(visitor)
    visitor.assert_clean()
    await context.close()


async def main() -> None:
    expect.set_options(timeout=PATIENCE)
    async with served() as address, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        await look(browser, address, "desktop")
        await look(browser, address, "phone")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
