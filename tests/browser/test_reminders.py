"""Test reminders on the page: set, listed by day, changed, snoozed, said, held back, live, by keyboard and on a phone (REM)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from playwright.async_api import Browser, Locator, Route, expect

from tests.support.world import World, until

from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Screen, Visitor, visit

pytestmark = IN_A_BROWSER

LISBON = ZoneInfo("Europe/Lisbon")
"""The browser's zone, which the page stores as the person's own."""


def day(days: int) -> str:
    return f"{datetime.now(LISBON).date() + timedelta(days=days)}"


async def remind(world: World, conversation: str, text: str, at: str, **fields: Any) -> dict[str, Any]:
    body = {"conversation_id": conversation, "text": text, "at": at, **fields}
    response = await world.http.post("/api/reminders", json=body)
    assert response.status_code == 201, response.text
    return response.json()


async def listed(world: World) -> list[dict[str, Any]]:
    return (await world.http.get("/api/reminders")).json()["reminders"]


async def make_due(world: World, reminder: dict[str, Any]) -> None:
    await world.sql("UPDATE reminders SET due_at = clock_timestamp() WHERE id = %s", reminder["id"])


def cards(place: Locator) -> Locator:
    return place.locator(".reminder")


async def test_a_reminder_is_set_edited_skipped_snoozed_and_cancelled(visitor: Visitor, world: World) -> None:
    thread = await world.conversation(title="Plans")
    await visitor.open(f"c/{thread}")
    panel = await visitor.panel("next")
    await panel.get_by_role("button", name="Set a reminder").click()
    form = visitor.page.get_by_role("dialog", name="Set a reminder")
    await expect(form.get_by_label("Remind me of")).to_be_focused()
    await form.get_by_label("Remind me of").fill("water the <b>plants</b>")
    await form.get_by_label("Date").fill(day(1))
    await form.get_by_label("Time").fill("09:15")
    await form.get_by_label("Repeat").select_option("Every day")
    await form.get_by_role("button", name="Set it").click()
    card = cards(panel)
    await expect(card).to_contain_text("water the <b>plants</b>")
    await expect(card).to_contain_text("09:15")
    await expect(card).to_contain_text("every day")
    await expect(panel.locator(".reminder-day h3")).to_have_text("Tomorrow")
    await expect(panel.locator(".follow-ups")).to_contain_text("No follow-up is planned")

    await card.get_by_role("button", name="Skip once").click()
    await expect(panel.locator(".reminder-day h3")).not_to_have_text("Tomorrow")
    [skipped] = await listed(world)
    assert skipped["at"] == f"{day(2)}T09:15:00"

    await card.get_by_role("button", name="Edit").click()
    edit = visitor.page.get_by_role("dialog", name="Edit the reminder")
    await expect(edit.get_by_label("Date")).to_have_value(day(2))
    await edit.get_by_label("Remind me of").fill("water the roses")
    await edit.get_by_label("Repeat").select_option("Every weekday")
    await edit.get_by_role("button", name="Save").click()
    await expect(card).to_contain_text("water the roses")
    await expect(card).to_contain_text("every weekday")

    await card.get_by_label("Snooze").select_option(label="1 hour")
    await expect(visitor.toast).to_contain_text("Snoozed until")
    [snoozed] = await listed(world)
    assert datetime.fromisoformat(snoozed["due_at"]) - datetime.now(UTC) < timedelta(minutes=61)
    await card.get_by_label("Snooze").select_option(label="tomorrow at 9")

    async def is_tomorrow() -> bool:
        due = datetime.fromisoformat((await listed(world))[0]["due_at"]).astimezone(LISBON)
        return f"{due:%Y-%m-%d %H:%M}" == f"{day(1)} 09:00"

    await until(is_tomorrow)

    await card.get_by_role("button", name="Cancel").click()
    await expect(card).to_have_count(0)
    await visitor.toast.get_by_role("button", name="Undo").click()
    await expect(card).to_have_count(1)
    await card.get_by_role("button", name="Cancel").click()
    await expect(card).to_have_count(0)
    await visitor.open(f"c/{thread}")  # who leaves has decided

    async def is_cancelled() -> bool:
        return await listed(world) == []

    await until(is_cancelled)
    panel = await visitor.panel("next")
    await panel.get_by_text("Earlier reminders").click()
    await expect(panel.locator(".reminders-past li")).to_contain_text("Cancelled")


@ON_A_DESKTOP
async def test_a_mistake_is_one_sentence_and_loses_nothing(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    await visitor.open(f"c/{thread}")
    panel = await visitor.panel("next")
    await panel.get_by_role("button", name="Set a reminder").click()
    form = visitor.page.get_by_role("dialog")
    await visitor.page.keyboard.type("yesterday's news")
    await form.get_by_label("Date").fill(day(-1))
    await visitor.page.keyboard.press("Enter")
    await expect(form.get_by_role("alert")).to_contain_text("The time is in the past")
    await expect(form.get_by_label("Remind me of")).to_have_value("yesterday's news")
    assert await listed(world) == []
    await form.get_by_label("Date").fill(day(3))
    await form.get_by_label("Remind me of").focus()
    await visitor.page.keyboard.press("Enter")
    await expect(form).to_have_count(0)
    await expect(cards(panel)).to_contain_text("yesterday's news")

    # Another tab was faster.
    [one] = await listed(world)

    async def cancel_first(route: Route) -> None:
        await world.sql("UPDATE reminders SET state = 'cancelled' WHERE id = %s", one["id"])
        await route.continue_()

    await visitor.page.route("**/snooze", cancel_first)
    await cards(panel).get_by_label("Snooze").select_option(label="10 minutes")
    await expect(visitor.toast).to_contain_text("This reminder was cancelled: set a new one.")
    await visitor.page.unroute_all(behavior="ignoreErrors")


async def test_a_delivered_reminder_is_snoozed_in_the_chat(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    await visitor.open(f"c/{thread}")
    reminder = await remind(world, thread, "call mum", f"{day(1)}T09:00")
    await make_due(world, reminder)
    await expect(visitor.replies.last).to_contain_text("Reminder: call mum")
    choice = visitor.replies.last.get_by_label("Snooze")
    await choice.focus()
    await choice.select_option(label="10 minutes")
    await expect(visitor.toast).to_contain_text("Snoozed until today")
    [again] = await listed(world)
    assert again["state"] == "waiting"
    panel = await visitor.panel("next")
    await expect(cards(panel)).to_contain_text("call mum")
    await make_due(world, again)
    await expect(cards(panel)).to_have_count(0)
    await panel.get_by_text("Earlier reminders").click()
    await panel.locator(".reminders-past").get_by_role("button", name="Show").click()
    await expect(visitor.messages).to_have_count(2)
    await expect(visitor.messages.last).to_be_focused()


@ON_A_DESKTOP
async def test_reminders_of_all_conversations_are_listed_by_day_and_live(
    visitor: Visitor, world: World, browser: Browser, screen: Screen
) -> None:
    here, there = await world.conversation(title="Plans"), await world.conversation(title="Garden")
    await world.http.put("/api/preferences", json={"time_zone": "Europe/Lisbon"})
    await remind(world, there, "prune the roses", f"{day(2)}T07:00", rrule="FREQ=WEEKLY;INTERVAL=2")
    await remind(world, here, "call Tokyo", f"{day(5)}T09:00", zone="Asia/Tokyo")
    await visitor.open(f"c/{here}")
    panel = await visitor.panel("next")
    await expect(cards(panel)).to_have_count(1)
    await expect(cards(panel)).to_contain_text("09:00 in Asia/Tokyo")
    await panel.get_by_role("button", name="All conversations").focus()
    await visitor.page.keyboard.press("Enter")
    await expect(cards(panel)).to_have_count(2)
    await expect(cards(panel).first).to_contain_text("prune the roses")
    await expect(cards(panel).first).to_contain_text("every 2 weeks")
    await expect(panel.get_by_role("button", name="All conversations")).to_be_focused()
    async with visitor.page.expect_download() as download:
        await panel.get_by_role("link", name="Save all as a calendar file").click()
    assert (await download.value).suggested_filename == "reminders.ics"
    await cards(panel).first.get_by_role("button", name="Garden").click()
    await expect(visitor.page.locator("h1 .plain-title")).to_have_text("Garden")

    await panel.get_by_role("button", name="This conversation").click()
    context, other = await visit(browser, visitor.address, screen)
    await other.open(f"c/{there}")
    elsewhere = await other.panel("next")
    await cards(elsewhere).get_by_label("Snooze").select_option(label="tomorrow at 9")
    await expect(panel.locator(".reminder-day h3")).to_have_text("Tomorrow")
    other.assert_clean()
    await context.close()


@ON_A_PHONE
async def test_a_mute_says_how_many_reminders_it_holds_back(visitor: Visitor, world: World) -> None:
    thread = await world.conversation()
    await remind(world, thread, "one", f"{day(1)}T09:00")
    late = await remind(world, thread, "two", f"{day(2)}T09:00")
    await visitor.open(f"c/{thread}")
    panel = await visitor.panel("next")
    await panel.get_by_role("button", name="forever").click()
    await expect(panel).to_contain_text("2 reminders wait until you unmute it.")
    await make_due(world, late)
    held = panel.locator(".reminder[data-state='held']")
    await expect(held).to_contain_text("Held back: this conversation is muted.")
    await panel.get_by_role("button", name="Unmute").click()
    await expect(held).to_have_count(0)
    await visitor.to_chat()
    await expect(visitor.replies.last).to_contain_text("two")
