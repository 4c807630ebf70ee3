"""Drive a browser as a person does, and record everything that it must not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Locator, Page, Request, expect

IN_A_BROWSER = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
"""The mark of every module here: the browser and its servers use one event loop."""

ON_A_PHONE = pytest.mark.parametrize("screen", ["phone"], indirect=True)
ON_A_DESKTOP = pytest.mark.parametrize("screen", ["desktop"], indirect=True)
"""The marks of tests whose claim does not depend on the layout; the others run on both screens."""

Screen: TypeAlias = Literal["phone", "desktop"]
SCREENS: dict[Screen, dict[str, Any]] = {
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "desktop": {"viewport": {"width": 1280, "height": 800}},
}
PATIENCE = 60_000
"""Time limit of a wait in milliseconds, for a busy machine."""

WATCH = """addEventListener("securitypolicyviolation", event =>
    console.warn(`POLICY ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`))"""


@dataclass
class Visitor:
    """One browser profile with one page open; `address` is the server's."""

    page: Page
    address: str
    screen: Screen
    elsewhere: list[str] = field(default_factory=list[str])
    """Requests to anywhere but the server."""
    ran: list[str] = field(default_factory=list[str])
    """The dialogs that scripts opened: the attacks of these tests all call `alert`."""
    violations: list[str] = field(default_factory=list[str])
    """The violations that the page's content policy stopped."""
    broken: list[str] = field(default_factory=list[str])
    """Errors of the page's scripts that nobody caught."""

    @property
    def is_phone(self) -> bool:
        return self.screen == "phone"

    # ---- the browser

    def watch(self) -> None:
        """Record from now on everything that must not happen."""
        self.page.on("request", self._asked)
        self.page.on("dialog", self._alerted)
        self.page.on("console", self._logged)
        self.page.on("pageerror", self._broke)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.address}/", "data:", "about:")):
            self.elsewhere.append(request.url)

    async def _alerted(self, dialog: Dialog) -> None:
        self.ran.append(dialog.message)
        await dialog.dismiss()

    def _logged(self, message: ConsoleMessage) -> None:
        if message.text.startswith("POLICY ") or "Content Security Policy" in message.text:
            self.violations.append(message.text)

    def _broke(self, error: Error) -> None:
        self.broken.append(str(error))

    def assert_clean(self) -> None:
        """Check that no forbidden script ran, no other server was contacted, and no script failed."""
        assert self.ran == []
        assert self.elsewhere == []
        assert self.violations == []
        assert self.broken == []

    # ---- navigation

    async def open(self, where: str = "") -> None:
        """Open the page at this part of its address after `#/`, as by a link."""
        await self.page.goto("about:blank")
        await self.page.goto(f"{self.address}/#/{where}")
        await expect(self.page.locator("#conversations .rail, [data-panel='sign-in']")).to_have_count(1)

    async def go(self, where: str) -> None:
        """Navigate within the open page."""
        await self.page.evaluate("where => { location.hash = `#/${where}` }", where)

    async def to_list(self) -> None:
        if self.is_phone:
            await self.page.get_by_role("button", name="Back to the conversations").click()

    async def panel(self, name: str) -> Locator:
        """Open a panel beside the chat (on a phone: over it) by its tab."""
        tab = self.page.locator(f"[data-tab='{name}']")
        if not await tab.is_visible():
            await self.button("Show the details").click()
        await tab.click()
        return self.shown(name)

    def shown(self, name: str) -> Locator:
        return self.page.locator(f"#side [data-panel='{name}']")

    async def to_chat(self) -> None:
        """Return to the chat from a panel that covers it."""
        if self.is_phone:
            await self.button("Close the details").click()

    # ---- content

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    @property
    def box(self) -> Locator:
        return self.page.locator("#composer")

    @property
    def messages(self) -> Locator:
        return self.page.locator("li.message[data-message-id]")

    @property
    def replies(self) -> Locator:
        return self.page.locator("li.message.agent[data-message-id]")

    @property
    def draft(self) -> Locator:
        """The answer that is being written."""
        return self.page.locator("li.draft .words")

    @property
    def threads(self) -> Locator:
        return self.page.locator("[data-thread-id]")

    @property
    def toast(self) -> Locator:
        return self.page.locator(".toast").last

    async def ids(self) -> list[str]:
        """Return the ids of the messages on the page, in their order."""
        return await self.messages.evaluate_all("all => all.map(one => one.dataset.messageId)")

    async def words(self) -> list[str]:
        """Return what they say; messages that are scrolled out of view have text, and no inner text."""
        return [text.strip() for text in await self.messages.locator(".words").all_text_contents()]

    # ---- actions

    async def say(self, text: str) -> None:
        await self.box.fill(text)
        await self.button("Send").click()

    async def attend(self, message: Locator) -> None:
        """Point at a message, or tap it, so that its buttons appear."""
        await (message.tap() if self.is_phone else message.hover())

    async def asks(self, text: str, answer: str) -> None:
        """Send a message, and wait until this answer is shown."""
        await self.say(text)
        await expect(self.replies.last).to_contain_text(answer)


async def visit(browser: Browser, address: str, screen: Screen, **more: Any) -> tuple[BrowserContext, Visitor]:
    """Create a separate browser profile, without opening the page."""
    context = await browser.new_context(
        **SCREENS[screen], locale="en-GB", timezone_id="Europe/Lisbon", reduced_motion="reduce", **more
    )
    context.set_default_timeout(PATIENCE)
    await context.add_init_script(WATCH)
    visitor = Visitor(await context.new_page(), address, screen)
    visitor.watch()
    return context, visitor
