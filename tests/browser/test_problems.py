"""Test how the page shows the operator a model problem, and how to ask again (ADR 38)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest_asyncio
from playwright.async_api import expect

from rapport.agents.advice import advise
from tests.support.world import World, open_world, until

from .visitor import IN_A_BROWSER, ON_A_PHONE, Visitor

pytestmark = [*IN_A_BROWSER, ON_A_PHONE]

MODEL = "openai:gpt-5-mini"


class Refused(Exception):
    """Imitate the error of a provider's client for a wrong key."""

    status_code = 401


@pytest_asyncio.fixture(loop_scope="session")
async def world(database_url: str) -> AsyncGenerator[World]:
    async with open_world(database_url, model_name=MODEL) as opened:
        yield opened


async def test_a_model_problem_is_shown_until_the_model_answers(visitor: Visitor, world: World) -> None:
    told = advise("key_refused", MODEL)
    thread = await world.conversation()
    await visitor.open(f"c/{thread}")
    banner = visitor.page.locator("#banner")
    await expect(banner).to_be_hidden()

    world.model.will_fail(Refused("no"))
    await visitor.say("Which flat shall I take?")
    await expect(visitor.replies).to_have_count(1)
    await expect(banner).to_contain_text(told)
    await expect(visitor.replies.first).to_contain_text(told)
    await expect(visitor.replies.first).to_contain_text("Temporary issue generating response.")
    why = await visitor.panel("why")
    await expect(why).to_contain_text(told)
    await visitor.to_chat()

    # Who comes back finds it said before anything is asked again.
    await visitor.open(f"c/{thread}")
    await expect(banner).to_contain_text(told)

    world.model.will_say("The one in Porto.")
    await visitor.button("Ask again").click()
    await expect(visitor.replies).to_have_count(2)
    assert await visitor.words() == [
        "Which flat shall I take?",
        (await visitor.words())[1],
        "Which flat shall I take?",
        "The one in Porto.",
    ]
    await expect(banner).to_be_hidden()
    asked = [one for one in await world.history(thread) if one["role"] == "user"]
    assert [one["content"] for one in asked] == ["Which flat shall I take?"] * 2


async def test_the_page_tells_the_agent_the_time_zone_once(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    await visitor.open(f"c/{thread}")

    async def zone() -> str:
        return (await world.http.get("/api/preferences")).json()["time_zone"]

    async def is_told() -> bool:
        return await zone() == "Europe/Lisbon"

    await until(is_told)
    await visitor.say("What time is it?")
    await expect(visitor.replies).to_have_count(1)
    assert "(Europe/Lisbon, UTC" in str(world.model.prompts[-1][-1].text)

    await world.http.put("/api/preferences", json={"time_zone": "Asia/Kathmandu"})
    await visitor.open(f"c/{thread}")
    await expect(visitor.replies).to_have_count(1)
    await visitor.say("And now?")
    await expect(visitor.replies).to_have_count(2)
    assert await zone() == "Asia/Kathmandu"


async def test_the_operator_is_told_of_a_budget_that_is_nearly_used_up(visitor: Visitor, world: World) -> None:
    await world.sql(
        "INSERT INTO model_usage (owner_id, day, agent_id, conversation_id, slot, purpose, model, calls, tokens_in,"
        " tokens_out, estimated_calls) VALUES ('local', (now() AT TIME ZONE 'UTC')::date, 'companion', '', 0, 'answer', 'm', 1,"
        " 85, 0, 0)"
    )
    await world.http.put("/api/usage/budgets/local", json={"monthly_tokens": 100})
    await visitor.open()
    await expect(visitor.page.locator("#banner")).to_contain_text(
        "This month's token budget of user local is used to 85 %."
    )
