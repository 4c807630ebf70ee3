"""Test the panels beside the chat: what each shows, and what can be changed there."""

from __future__ import annotations

import re

from playwright.async_api import Locator, expect

from rapport.domain.note_scope import NoteSettings
from tests.channels.http.test_auth import make_key, until_closed
from tests.channels.http.test_session import secret_of
from tests.support.world import World, until

from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Visitor

pytestmark = IN_A_BROWSER

REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
HOW_LONG = "How long can I return something I bought?"


@ON_A_PHONE
async def test_an_answer_shows_the_passage_it_rests_on(visitor: Visitor, world: World) -> None:
    text = f"# Shop rules\n\nWe open at nine.\n\n{REFUNDS}\n\nBags stay at the door."
    await world.http.post("/api/notes", json={"id": "shop", "title": "The shop", "text": text})
    thread = await world.conversation(agent_id="librarian")
    await visitor.open(f"c/{thread}")
    world.model.will_say("You have 30 days [source: shop]. Made up [source: nowhere].\n\nSources: shop")
    await visitor.asks(HOW_LONG, "You have 30 days")
    reply = visitor.replies.first
    await expect(reply.locator(".words")).not_to_contain_text("nowhere")
    await expect(reply.locator(".words a.source")).to_have_text(["1"])
    await reply.locator(".words a.source").click()
    passage = visitor.shown("sources").locator("[data-note='shop']")
    await expect(passage.locator("header b")).to_have_text("The shop")
    await expect(passage.locator("mark")).to_contain_text("within 30 days of purchase")
    await expect(passage.locator(".note-text")).to_contain_text("Bags stay at the door.")

    # Beside the passages: what it would say without one.
    await visitor.to_chat()
    asked = len(world.model.calls)
    await visitor.asks("Which planet has the most moons?", "No note is close enough")
    assert len(world.model.calls) == asked
    await reply.locator(".chip[data-note='shop']").click()
    await expect(passage).to_be_visible()
    await world.http.delete("/api/notes/shop")
    await visitor.open(f"c/{thread}/sources")
    await expect(passage).to_contain_text("This note was deleted")


async def test_the_messages_given_to_an_answer_are_highlighted(visitor: Visitor, world: World) -> None:
    loaded = (await world.http.post("/api/samples")).json()
    await visitor.open(f"c/{loaded['thread_id']}")
    await visitor.page.get_by_role("button", name="Maya: @bot what do you think?").click()
    await expect(visitor.replies.last).to_contain_text("re:")
    await visitor.button("Why this answer?").last.click()
    why = visitor.shown("why")
    chosen, ids = why.locator(".entry.chosen"), "all => all.map(one => one.dataset.messageId)"
    await expect(why.locator(".entry.call")).to_contain_text("@bot what do you think?")
    count = await chosen.count()
    assert 3 <= count <= 30
    await expect(chosen.first.locator(".reasons span").first).not_to_be_empty()
    await expect(why.locator(".passed").first).to_contain_text("not chosen")
    if not visitor.is_phone:
        lit: list[str] = await visitor.page.locator(".message.lit").evaluate_all(ids)
        assert set(lit) <= set(await why.locator(".entry.chosen, .entry.call").evaluate_all(ids))
        assert len(lit) >= 3
    await why.get_by_label("Chosen by").select_option("recent")
    await expect(why.locator(".lead")).to_contain_text("The agent would be given")
    await why.locator(".entry.call button").click()
    await expect(visitor.messages.nth(-2)).to_be_focused()


@ON_A_PHONE
async def test_follow_ups_are_counted_down_postponed_cancelled_and_muted(visitor: Visitor, world: World) -> None:
    thread = await world.conversation(title="Plans")
    await world.says(thread, "Thanks, good night.")
    await visitor.open(f"c/{thread}")
    following = await visitor.panel("next")
    await following.get_by_role("button", name="Set one").click()
    await following.get_by_label("Reason").select_option("waiting_for_decision")
    await following.get_by_label("Minutes from now").fill("10")
    await following.get_by_role("button", name="Set it").click()
    card = following.locator(".timer")
    await expect(card.locator("h3")).to_have_text("A decision is still open")
    clock = card.locator(".clock")
    await expect(clock).to_have_text(re.compile(r"^9:5\d$"))
    before = await clock.inner_text()
    await expect(clock).not_to_have_text(before)  # it runs

    await card.get_by_label("Postpone").select_option(label="in 3 hours")
    await expect(clock).to_have_text(re.compile(r"^(3 h 0|2 h 59) min$"))
    await card.get_by_role("button", name="Cancel").click()
    await expect(following).to_contain_text("No follow-up is planned")
    assert (await world.http.get(f"/api/threads/{thread}/timers")).json()["timers"] == []

    await following.get_by_role("button", name="1 hour").click()
    await expect(following).to_contain_text("Muted until")
    await following.get_by_role("button", name="Unmute").click()
    await expect(following.get_by_role("button", name="forever")).to_be_visible()
    await following.get_by_role("switch").uncheck()
    await expect(following).to_contain_text("Follow-ups are off here")
    await following.get_by_role("switch").check()
    await quiet_hours(following, world)

    # One that is due now is said, unasked, and remembered as said.
    await world.http.post(f"/api/threads/{thread}/timers", json={"trigger_type": "check_in", "delay_seconds": 600})
    await card.get_by_role("button", name="Send now").click()
    await expect(following.locator(".past .said")).to_contain_text("To pick up the conversation")
    await following.get_by_role("button", name="Show").click()
    await expect(visitor.replies.last.locator(".badge.unasked")).to_be_visible()
    await expect(visitor.replies.last).to_contain_text("How is it going?")


async def quiet_hours(following: Locator, world: World) -> None:
    await following.get_by_label("Quiet from").fill("23:00")
    await following.get_by_role("button", name="Set quiet hours").click()
    await expect(following).to_contain_text("No follow-ups from 23:00 to 08:00, Europe/Lisbon.")
    assert (await world.http.get("/api/preferences")).json()["quiet_from"] == "23:00"
    await following.get_by_role("button", name="Remove").click()
    await expect(following).to_contain_text("Not set.")


@ON_A_DESKTOP
async def test_memories_are_told_changed_and_forgotten(visitor: Visitor, world: World) -> None:
    await visitor.open("memory")
    memory = visitor.shown("memory")
    await expect(memory).to_contain_text("No memories yet")
    for told in ("I live in Lisbon", "I play the piano"):
        await memory.get_by_label("Something to remember").fill(told)
        await memory.get_by_role("button", name="Remember").click()
        await expect(memory.locator(".memory-item").first).to_contain_text(told)
    await memory.locator(".memory-item", has_text="Lisbon").get_by_role("button", name="Edit").click()
    await memory.get_by_label("What it remembers").fill("I live in Porto")
    await memory.get_by_role("button", name="Save").click()
    await expect(memory.locator(".memory-item", has_text="Porto")).to_have_count(1)

    async def kept() -> set[str]:
        found = await world.http.get("/api/memories", params={"agent": "companion"})
        return {one["content"] for one in found.json()["memories"]}

    assert await kept() == {"I live in Porto", "I play the piano"}
    forget = memory.locator(".memory-item", has_text="piano").get_by_role("button", name="Forget")
    await forget.click()
    await expect(memory.locator(".memory-item")).to_have_count(1)
    await visitor.button("Undo").click()
    await expect(memory.locator(".memory-item")).to_have_count(2)
    await forget.click()
    await expect(memory.locator(".memory-item")).to_have_count(1)
    await visitor.open("memory")  # who leaves has decided

    async def forgotten() -> bool:
        return await kept() == {"I live in Porto"}

    await until(forgotten)


@ON_A_DESKTOP
async def test_notes_are_chosen_dropped_read_and_deleted(visitor: Visitor, world: World) -> None:
    page = visitor.page
    await visitor.open("notes")
    notes = visitor.shown("notes")
    await expect(notes).to_contain_text("No notes yet")
    async with page.expect_file_chooser() as chooser:
        await notes.get_by_role("button", name="choose files").click()
    files = [("opening.md", b"# Opening hours\n\nWe open at nine."), ("rules.txt", REFUNDS.encode())]
    await (await chooser.value).set_files(
        [{"name": name, "mimeType": "text/plain", "buffer": content} for name, content in files]
    )
    items = notes.locator("[data-note-id]")
    await expect(items).to_have_count(2)

    await page.evaluate(
        """() => {
            const dropped = new DataTransfer();
            dropped.items.add(new File(["Lunch is at noon."], "lunch.txt", { type: "text/plain" }));
            dropped.items.add(new File([new Uint8Array([0, 1, 2, 255])], "broken.pdf", { type: "application/pdf" }));
            for (const name of ["dragenter", "dragover", "drop"]) {
                const event = new DragEvent(name, { dataTransfer: dropped, bubbles: true, cancelable: true });
                document.querySelector(".drop").dispatchEvent(event);
            }
        }"""
    )
    await expect(items).to_have_count(3)
    refused = notes.locator(".uploads .bad")
    await expect(refused).to_contain_text("broken.pdf")
    await refused.get_by_role("button", name="Close").click()

    await items.filter(has_text="Opening hours").locator(".note-item").click()
    await expect(notes.locator(".note-text.whole")).to_contain_text("We open at nine.")
    await expect(notes).to_contain_text("opening.md")
    await notes.get_by_role("button", name="All notes").click()
    await items.filter(has_text="lunch").get_by_role("button", name=re.compile("^Delete")).click()
    await expect(items).to_have_count(2)
    await visitor.open("notes")

    async def two() -> bool:
        return len((await world.http.get("/api/notes")).json()["notes"]) == 2

    await until(two)


async def test_notes_are_collected_and_shared_by_keyboard(visitor: Visitor, world: World) -> None:
    group = await world.conversation(kind="group", title="Climbing")
    for note_id, names in (("shop", ["rules"]), ("hours", ["rules", "office"]), ("menu", [])):
        body = {"id": note_id, "text": f"Some words about {note_id}.", "title": note_id, "collections": names}
        await world.http.post("/api/notes", json=body)
    await world.app.library.add("ben", "What Ben shares.", note_id="bens", settings=NoteSettings(("office",)))
    await world.sql("UPDATE notes SET shared_with = 'everyone' WHERE owner_id = 'ben'")
    await visitor.open("notes")
    notes, press = visitor.shown("notes"), visitor.page.keyboard.press
    items, chips = notes.locator("[data-note-id]"), notes.get_by_role("group", name="Collection")
    await expect(items).to_have_count(4)
    await expect(items.filter(has_text="hours").locator(".reasons span")).to_have_text(["office", "rules"])
    bens = items.filter(has_text="What Ben shares")
    await expect(bens).to_contain_text("shared by ben")
    await expect(bens.get_by_role("button", name=re.compile("^Delete"))).to_have_count(0)

    await chips.get_by_role("button", name="office 2").focus()
    await press("Enter")
    await expect(items).to_have_count(2)
    await expect(chips.get_by_role("button", name="office 2")).to_have_attribute("aria-pressed", "true")
    await expect(chips.get_by_role("button", name="office 2")).to_be_focused()
    await chips.get_by_role("button", name="All").click()
    await expect(items).to_have_count(4)

    await items.filter(has_text="menu").locator(".note-item").focus()
    await press("Enter")
    await notes.get_by_label("Collections").focus()
    await visitor.page.keyboard.type("Office, kitchen")
    await notes.get_by_label("Shared with").select_option(label="Members of “Climbing”")
    await notes.get_by_role("button", name="Save").focus()
    await press("Enter")
    await expect(visitor.toast).to_contain_text("Saved.")
    await expect(notes.get_by_label("Collections")).to_have_value("kitchen, office")
    menu = (await world.http.get("/api/notes/menu")).json()
    assert (menu["collections"], menu["shared_with"]) == (["kitchen", "office"], group)
    await notes.get_by_label("Collections").fill("what?")
    await press("Enter")
    await expect(visitor.toast.last).to_contain_text("`collections` has the name 'what?'")
    await notes.get_by_role("button", name="All notes").click()
    await expect(items.filter(has_text="menu")).to_contain_text("shared with Climbing")

    await bens.locator(".note-item").click()
    await expect(notes.locator(".note-text.whole")).to_have_text("What Ben shares.")
    await expect(notes).to_contain_text("Only its owner can change it.")
    await expect(notes.get_by_label("Collections")).to_have_count(0)


@ON_A_PHONE
async def test_insight_counts_what_happened(visitor: Visitor, world: World) -> None:
    await visitor.open("insight")
    insight = visitor.shown("insight")
    await expect(insight).to_contain_text("No answers yet")
    thread = await world.conversation()
    for number in range(3):
        await world.says(thread, f"hello {number}")
    await world.silence(thread)
    await insight.get_by_role("button", name="7 days").click()
    await expect(insight.locator(".figures .card").first).to_contain_text("answers")
    counted = (await world.http.get("/api/insight", params={"hours": 168})).json()["turns"]["count"]
    await expect(insight.locator(".figures .card b").first).to_have_text(str(counted))
    await expect(insight.locator(".chart rect")).not_to_have_count(0)
    await expect(insight.locator(".spans")).to_contain_text("Writing the answer")
    await expect(insight.locator("table").first).to_contain_text("To pick up the conversation")
    await expect(insight.locator(".wordings")).to_contain_text("default")
    await expect(insight.locator(".wordings")).to_contain_text("0 of 1 answered, 0–79 %; too few to compare")


@ON_A_PHONE
async def test_the_samples_come_and_go_and_each_thing_to_try_takes_one_click(visitor: Visitor, world: World) -> None:
    await visitor.open("start")
    await visitor.page.locator("[data-try='1']").click()
    await expect(visitor.replies).to_have_count(1)
    await expect(visitor.page.locator("h1 .plain-title")).to_have_text("Sample: the team's chat")
    await visitor.go("start")
    world.model.will_say("25 days [source: sample-time-off].")
    await visitor.page.locator("[data-try='2']").click()
    await expect(visitor.replies.locator(".chip")).to_contain_text("sample-time-off")
    await visitor.go("start")
    await visitor.page.locator("[data-try='3']").click()
    await expect(visitor.replies).to_contain_text("re: I can't decide")

    await visitor.go("start")
    await visitor.button("Remove the samples").click()
    await expect(visitor.toast).to_contain_text("The samples were removed.")
    assert (await world.http.get("/api/samples")).json() == {"loaded": False, "thread_id": None, "notes": []}
    await expect(visitor.threads.filter(has_text="Sample:")).to_have_count(0)
    await visitor.button("Load the samples").click()
    await expect(visitor.messages).not_to_have_count(0)


@ON_A_PHONE
async def test_signing_in_with_a_key_and_signing_out_again(visitor: Visitor, world: World) -> None:
    _, header = await make_key(world, "ana")
    await until_closed(world)
    await world.conversation(owner="ana", title="Ana's own")
    await world.conversation(owner="ben", title="Ben's own")
    await visitor.open("")
    sign_in = visitor.page.locator("[data-panel='sign-in']")
    await sign_in.get_by_label("Your key").fill("rapport_wrong")
    await visitor.button("Sign in").click()
    await expect(sign_in.get_by_role("alert")).to_have_text("This key is not valid.")
    await sign_in.get_by_label("Your key").fill(secret_of(header))
    await visitor.button("Sign in").click()
    await expect(visitor.threads).to_have_count(1)
    await expect(visitor.threads).to_contain_text("Ana's own")
    # No script can read what lets her in, and nothing that is kept in the browser holds the key.
    kept = await visitor.page.evaluate(
        "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
    )
    assert "rapport_session" not in kept
    assert secret_of(header) not in kept
    await visitor.threads.click()
    await visitor.asks("hello", "re: hello")
    await visitor.to_list()
    await visitor.button("Sign out").click()
    await expect(sign_in).to_be_visible()
    await visitor.open("")
    await expect(sign_in).to_be_visible()


@ON_A_PHONE
async def test_colours_are_chosen_and_kept(visitor: Visitor, world: World) -> None:
    await world.conversation()
    ground = "getComputedStyle(document.body).backgroundColor"
    await visitor.page.emulate_media(color_scheme="light")
    await visitor.open("")
    light = await visitor.page.evaluate(ground)
    await visitor.button("Dark colours").click()
    await expect(visitor.button("Light colours")).to_be_visible()
    dark = await visitor.page.evaluate(ground)
    assert dark != light
    await visitor.open("")
    assert await visitor.page.evaluate(ground) == dark
