"""Test that the page shows everything once when the server is killed and restarted during an answer."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.e2e.harness import Client, Home, make_home
from tests.e2e.scripted import ScriptedModel, scripted_model

from .visitor import IN_A_BROWSER, ON_A_PHONE, Screen, visit

pytestmark = [*IN_A_BROWSER, ON_A_PHONE]

STORY = " ".join(f"word{number}" for number in range(40))
ASKED = "tell me a story"


@pytest_asyncio.fixture(loop_scope="session")
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest_asyncio.fixture(loop_scope="session")
async def home(model: ScriptedModel, new_data: Path) -> AsyncGenerator[Home]:
    made = make_home(model, new_data)
    yield made
    made.clean()


def free_port() -> int:
    """Return a port that stays the same through restarts, as the address of a page does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_server_killed_during_an_answer_loses_no_shown_text(
    browser: Browser, screen: Screen, home: Home, model: ScriptedModel, database_url: str
) -> None:
    environment = {"PORT": str(free_port()), "DATABASE_URL": database_url}
    server = await home.serve(**environment)
    async with aiohttp.ClientSession() as http:
        client = Client(http, lambda: server.url)
        thread = await client.create()
        context, visitor = await visit(browser, server.url, screen)
        await visitor.open(f"c/{thread}")
        await visitor.asks("hello", "re: hello")

        # The first attempt streams half of the story and then nothing; after the restart all of it.
        model.replies[ASKED] = STORY
        model.delay = lambda text: 60.0 if text == ASKED and len(model.calls_about(ASKED)) == 1 else 0.0
        await visitor.say(ASKED)
        await expect(visitor.draft).to_contain_text("word19")
        server.kill()
        await expect(visitor.page.locator("#banner")).to_contain_text("The server can't be reached.")
        await visitor.say("are you there?")
        # What it asked before may be waiting too: that it was stored is told a moment after the answer begins.
        await expect(visitor.page.locator(".pending").last).to_contain_text("are you there?")

        server = await home.serve(**environment)
        await expect(visitor.replies).to_have_count(3)
        await expect(visitor.page.locator("#banner")).to_be_hidden()
        await expect(visitor.page.locator(".pending, .draft")).to_have_count(0)
        said = ["hello", "re: hello", ASKED, STORY, "are you there?", "re: are you there?"]
        assert sorted(await visitor.words()) == sorted(said)
        history = await client.history(thread)
        assert await visitor.ids() == [one["id"] for one in history]
        assert await visitor.words() == [one["content"] for one in history]
        visitor.assert_clean()
        await context.close()
    assert server.errors() == []
