"""Test the chat on the page: answers while they are written, cancelling, sending again, replying, groups."""

from __future__ import annotations

import asyncio
import json
import re

from playwright.async_api import Route, expect

from tests.support.world import World, until

from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Visitor

pytestmark = IN_A_BROWSER


async def test_a_conversation_is_begun_watched_as_it_is_written_and_stopped(visitor: Visitor, world: World) -> None:
    await visitor.open("start")
    await visitor.button("Begin your own conversation").click()
    await visitor.page.locator("[data-agent='companion']").click()
    await expect(visitor.box).to_be_visible()

    step = world.model.will_wait("Hello *there* friend")
    await visitor.say("Hi, it is **me**")
    await expect(visitor.draft).to_have_text("Hello")
    await expect(visitor.messages).to_have_count(1)
    step.go_on()
    await expect(visitor.replies).to_have_count(1)
    await expect(visitor.replies.locator("em")).to_have_text("there")
    await expect(visitor.draft).to_have_count(0)
    assert await visitor.words() == ["Hi, it is me", "Hello there friend"]
    await expect(visitor.page.locator("h1 .plain-title")).to_have_text("Hi, it is **me**")

    world.model.will_wait("Once upon a time there was")
    await visitor.say("Tell me a story")
    await expect(visitor.draft).to_have_text("Once")
    await visitor.button("Stop").click()
    await expect(visitor.replies.last).to_contain_text("You stopped this answer.")
    assert (await visitor.words())[2:] == ["Tell me a story", "Once"]
    await expect(visitor.draft).to_have_count(0)
    await expect(visitor.button("Stop")).to_be_hidden()

    # Somebody who comes later sees the same.
    shown = await visitor.ids()
    await visitor.open((await visitor.page.evaluate("location.hash"))[2:])
    await expect(visitor.messages).to_have_count(4)
    assert await visitor.ids() == shown


@ON_A_PHONE
async def test_a_message_written_while_the_history_loads_is_sent_once(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    may_load, may_send = asyncio.Event(), asyncio.Event()
    sent: list[str] = []

    async def load_late(route: Route) -> None:
        await may_load.wait()
        await route.continue_()

    async def send_late(route: Route) -> None:
        sent.append(route.request.url)
        await may_send.wait()
        await route.continue_()

    await visitor.page.route(f"**/api/threads/{thread}/history*", load_late)
    await visitor.page.route(f"**/chat/conversations/{thread}/messages", send_late)
    await visitor.open(f"c/{thread}")
    await visitor.say("Hi")
    await until(lambda: bool(sent))
    async with visitor.page.expect_response(f"**/api/threads/{thread}/history*") as response:
        may_load.set()
    await (await response.value).finished()
    await visitor.page.evaluate("new Promise(resolve => setTimeout(resolve))")  # the page has read the response
    may_send.set()
    await expect(visitor.replies).to_have_count(1)
    assert len(sent) == 1
    assert await visitor.words() == ["Hi", "re: Hi"]


@ON_A_PHONE
async def test_what_could_not_be_sent_is_kept_and_sent_again(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    await visitor.open(f"c/{thread}")
    refusals = 1

    async def refuse_once(route: Route) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            problem = json.dumps({"title": "Too much", "status": 429, "retryAfter": 1})
            await route.fulfill(status=429, content_type="application/problem+json", body=problem)
        else:
            await route.fallback()

    await visitor.page.route("**/messages", refuse_once)
    await visitor.say("take this")
    await expect(visitor.page.locator(".pending.failed")).to_contain_text("Too many messages.")
    await visitor.button("Send again").click()
    await expect(visitor.replies.locator(".words")).to_have_text(["re: take this"])
    await expect(visitor.page.locator(".pending")).to_have_count(0)

    # Without a line it waits, and goes by itself when the line is back.
    await visitor.page.context.set_offline(True)
    await visitor.say("and this")
    await expect(visitor.page.locator(".pending.waiting")).to_contain_text("It will be sent.")
    await expect(visitor.page.locator("#banner")).to_contain_text("Your messages are kept")
    await visitor.page.context.set_offline(False)
    await expect(visitor.replies).to_have_count(2)
    await expect(visitor.page.locator("#banner")).to_be_hidden()
    assert await visitor.words() == ["take this", "re: take this", "and this", "re: and this"]
    assert [one["content"] for one in await world.history(thread)] == await visitor.words()

    # A draft outlives the page.
    await visitor.box.fill("not sent yet")
    await visitor.open(f"c/{thread}")
    await expect(visitor.box).to_have_value("not sent yet")


@ON_A_PHONE
async def test_an_answer_that_arrives_with_the_history_is_shown_once(visitor: Visitor, world: World) -> None:
    """On a slow line: the stream has not begun, and the history comes after the answer that it holds."""
    thread = await world.conversation()
    answered, asked = asyncio.Event(), asyncio.Event()

    async def later(route: Route) -> None:
        asked.set()
        await answered.wait()
        await route.fallback()

    await visitor.page.route("**/events", later)
    await visitor.page.route("**/history?*", later)
    await visitor.open(f"c/{thread}")
    await asked.wait()
    await visitor.say("hello")
    await expect(visitor.draft).to_have_text("re: hello")
    answered.set()
    await expect(visitor.replies.locator(".words")).to_have_text(["re: hello"])
    await expect(visitor.draft).to_have_count(0)
    await visitor.asks("and now?", "re: and now?")
    await expect(visitor.draft).to_have_count(0)
    await visitor.page.unroute_all(behavior="ignoreErrors")


@ON_A_PHONE
async def test_a_reply_shows_what_it_replies_to(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    for said in ("The first thing", "The second thing"):
        await world.says(thread, said)
    await visitor.open(f"c/{thread}")
    first = visitor.messages.filter(has_text="The first thing").first
    await visitor.attend(first)
    await first.get_by_role("button", name="Reply").click()
    await expect(visitor.page.locator(".replying")).to_contain_text("Replying to You")
    await visitor.asks("About that one", "re:")
    await expect(visitor.page.locator(".replying")).to_be_hidden()
    quote = visitor.messages.filter(has_text="About that one").first.locator(".quote")
    await expect(quote).to_contain_text("The first thing")
    await quote.click()
    await expect(first).to_be_focused()
    told = {message["content"]: message for message in await world.history(thread)}
    assert told["About that one"]["reply_to_id"] == told["The first thing"]["id"]


@ON_A_DESKTOP
async def test_several_speak_in_a_group_and_call_the_agent_by_completion(visitor: Visitor, world: World) -> None:
    thread = await world.conversation(kind="group", title="Lunch")
    await world.post(thread, "Where do we eat?", author={"id": "ana", "name": "Ana Sousa"})
    await visitor.open(f"c/{thread}")
    voice = visitor.page.get_by_label("Speak as", exact=True)
    await voice.select_option(label="Somebody else…")
    await visitor.page.get_by_label("Name").fill("Bo")
    await visitor.button("Speak as them").click()
    await visitor.say("Pizza, I'd say")
    await expect(visitor.messages.last.locator(".name")).to_have_text("Bo")

    await visitor.box.press_sequentially("ask @An")
    options = visitor.page.locator(".mentions [role='option'] b")
    await expect(options).to_have_text(["@AnaSousa"])
    await visitor.box.press("Tab")
    await expect(visitor.box).to_have_value("ask @AnaSousa ")

    await voice.select_option(label="Ana Sousa")
    await visitor.box.fill("")
    await visitor.box.press_sequentially("@")
    await expect(options.filter(has_text=re.compile("@Bo$"))).to_have_count(1)
    await options.first.click()  # the agent comes first
    called = await visitor.box.input_value()
    world.model.will_say("The trattoria.")
    await visitor.asks(f"{called}where?", "The trattoria.")
    history = await world.history(thread)
    assert [one["author"]["name"] for one in history[:3]] == ["Ana Sousa", "Bo", "Ana Sousa"]
    assert history[3]["role"] == "assistant"


async def test_conversations_are_found_named_and_deleted(visitor: Visitor, world: World) -> None:
    garden = await world.conversation(title="The garden")
    await world.says(garden, "Tomatoes need much sun")
    await world.conversation(title="The car")
    await visitor.open("")
    await expect(visitor.threads).to_have_count(2)
    search = visitor.page.get_by_label("Search conversations")
    await search.fill("tomatoes")
    await expect(visitor.threads).to_have_count(1)
    await visitor.threads.click()
    await expect(visitor.messages).to_have_count(2)

    await visitor.page.get_by_title("Rename").click()
    await visitor.page.get_by_label("Title").fill("Vegetables")
    await visitor.button("Save").click()
    await expect(visitor.page.locator("h1 .plain-title")).to_have_text("Vegetables")

    async def there() -> list[str]:
        return [one["title"] for one in (await world.http.get("/api/threads")).json()["threads"]]

    await visitor.button("Delete this conversation").click()
    await expect(visitor.threads).to_have_count(0)
    await visitor.button("Undo").click()
    await expect(visitor.threads).to_have_count(1)
    assert sorted(await there()) == ["The car", "Vegetables"]
    await visitor.threads.click()
    await visitor.button("Delete this conversation").click()
    await visitor.open("")  # who leaves has decided

    async def gone() -> bool:
        return await there() == ["The car"]

    await until(gone)


@ON_A_PHONE
async def test_who_has_many_conversations_is_told_how_to_find_the_older_ones(visitor: Visitor, world: World) -> None:
    await world.conversation(title="The first of all")
    for number in range(100):
        await world.conversation(title=f"Another, {number}")
    await visitor.open("")
    await expect(visitor.threads).to_have_count(100)
    await expect(visitor.page.get_by_text("Use the search to find older ones.")).to_be_visible()
    await visitor.page.get_by_label("Search conversations").fill("first of all")
    await expect(visitor.threads).to_have_count(1)
    await expect(visitor.page.get_by_text("Use the search to find older ones.")).to_be_hidden()


@ON_A_PHONE
async def test_messages_of_others_appear_without_a_reload(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    await visitor.open(f"c/{thread}")
    await expect(visitor.page.locator(".empty-chat")).to_be_visible()
    step = world.model.will_wait("From afar it comes")
    asked = asyncio.ensure_future(world.post(thread, "said elsewhere"))
    await expect(visitor.draft).to_have_text("From")
    step.go_on()
    assert (await asked).status_code == 200
    await expect(visitor.replies.locator(".words")).to_have_text(["From afar it comes"])
    await world.silence(thread)
    await expect(visitor.replies.last.locator(".badge.unasked")).to_be_visible()
    assert [one["id"] for one in await world.history(thread)] == await visitor.ids()
