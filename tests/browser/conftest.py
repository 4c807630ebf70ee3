"""Fixtures: one browser a process, and for each test a separate profile and a separate server.

The browser uses one event loop for the whole run, so everything that it communicates with uses it too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import cast

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.support.installing import chromium
from tests.support.world import World, open_world

from .visitor import PATIENCE, SCREENS, Screen, Visitor, visit

Figures = Callable[[str], None]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncGenerator[Browser]:
    path = chromium()
    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def world(database_url: str) -> AsyncGenerator[World]:
    """The same world as in other tests, on the browser's event loop."""
    async with open_world(database_url) as opened:
        yield opened


@pytest.fixture(params=list(SCREENS))
def screen(request: pytest.FixtureRequest) -> Screen:
    return cast("Screen", request.param)


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, world: World, screen: Screen) -> AsyncGenerator[Visitor]:
    """A visitor of the page of `world`; the end of the test checks that nothing forbidden has happened."""
    async with AsyncExitStack() as stack:
        context, opened = await visit(browser, str(world.http.base_url).rstrip("/"), screen)
        stack.push_async_callback(context.close)
        yield opened
        opened.assert_clean()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Return a function that records a measurement; `pytest -rP` shows it."""

    def tell(text: str) -> None:
        request.node.add_report_section("call", "figures", text)

    return tell
