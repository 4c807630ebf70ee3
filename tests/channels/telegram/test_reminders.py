"""Test reminders on Telegram: listed, snoozed, skipped and cancelled by buttons, by those who may (REM)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest

from rapport.core.reminders import Asker
from rapport.domain.reminder import Reminder
from tests.channels.telegram.peer import Chat, Person, Posted
from tests.channels.telegram.town import Town, open_town
from tests.support.world import until

NOT_YOURS = "Only the person who asked for this reminder, or an admin of the group, may change it."
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)


@pytest.fixture
async def town(database_url: str) -> AsyncGenerator[Town]:
    async with open_town(database_url) as opened:
        yield opened


async def remind(town: Town, chat: Chat, text: str, *, by: Person | None = None, rule: str | None = None) -> Reminder:
    """Set a reminder in a chat for tomorrow at nine."""
    person = by or town.ann
    await town.hears(chat, person, "/followups")  # so that the chat has a conversation
    conversation = await town.conversation(chat)
    [(owner,)] = await town.world.sql("SELECT owner_id FROM conversations WHERE id = %s", conversation)
    asker = Asker(f"user{person.id}", person.first_name)
    stored, _ = await town.world.app.core.reminders.add(
        owner, conversation, text=text, at=TOMORROW, rule=rule, asker=asker
    )
    return stored


async def make_due(town: Town, reminder: Reminder, chat: Chat, text: str) -> Posted:
    """Make it due, and return its message."""
    await town.world.sql("UPDATE reminders SET due_at = clock_timestamp() WHERE id = %s", reminder.id)

    async def is_sent() -> bool:
        return town.peer.sent(chat)[-1:] == [text]

    await until(is_sent)
    await town.settled()
    return town.peer.posted(chat)[-1]


def labels(message: Posted) -> list[str]:
    return [label for label, _ in message.buttons]


async def press(town: Town, message: Posted, label: str, *, by: Person | None = None, times: int = 1) -> str:
    """Press a button, wait until it has had its effect, and return the notice."""
    data = next(data for each, data in message.buttons if each == label)
    pressed = [message.chat.presses(by or town.ann, message, data) for _ in range(times)]
    await town.settled()
    answer = pressed[-1].answer
    assert answer is not None, "the press was not answered"
    return str(answer.get("text"))


async def states(town: Town) -> dict[str, str]:
    return dict(await town.world.sql("SELECT text, state FROM reminders ORDER BY id"))


async def listing(town: Town, chat: Chat, *, by: Person | None = None) -> Posted:
    await town.hears(chat, by or town.ann, "/reminders")
    return town.peer.posted(chat)[-1]


async def test_the_list_has_buttons_that_snooze_skip_and_cancel(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "/reminders")
    assert town.peer.sent(town.ann_alone)[-1] == "No reminder waits in this chat."
    await remind(town, town.ann_alone, "tea *at* <b>nine</b>", rule="FREQ=DAILY")
    shown = await listing(town, town.ann_alone)
    assert f"{TOMORROW:%a} {TOMORROW.day} {TOMORROW:%b}, 09:00" in shown.text
    assert ", every day: tea *at* <b>nine</b>" in shown.text
    assert labels(shown) == ["Snooze 1 h", "Skip", "Cancel"]

    later = TOMORROW + timedelta(days=1)
    assert f"{later:%a} {later.day} {later:%b}, 09:00 (UTC)" in await press(town, shown, "Skip", times=3)
    assert f"{later:%a} {later.day} {later:%b}, 09:00" in shown.text

    await remind(town, town.ann_alone, "pay")
    shown = await listing(town, town.ann_alone)
    assert labels(shown) == ["Snooze 1 h 1", "Cancel 1", "Snooze 1 h 2", "Skip 2", "Cancel 2"]
    assert (await press(town, shown, "Snooze 1 h 1")).startswith("It comes at ")
    assert "in 60 min" in shown.text
    assert await press(town, shown, "Cancel 2") == "Cancelled."
    assert labels(shown) == ["Snooze 1 h", "Cancel"]
    assert await press(town, shown, "Cancel") == "Cancelled."
    assert shown.text == "No reminder waits in this chat."
    assert labels(shown) == []
    assert set((await states(town)).values()) == {"cancelled"}


async def test_a_delivered_reminder_is_snoozed_once_however_often_it_is_pressed(town: Town) -> None:
    reminder = await remind(town, town.ann_alone, "tea", rule="FREQ=DAILY")
    message = await make_due(town, reminder, town.ann_alone, "Reminder: tea")
    assert labels(message) == ["Snooze 10 min", "1 h"]
    assert (await press(town, message, "Snooze 10 min", times=3)).startswith("It comes at ")
    [again] = labels(message)
    assert again.startswith("Again at ")
    assert await town.world.sql("SELECT count(*), count(rule) FROM reminders WHERE state = 'waiting'") == [(2, 1)]
    assert (await press(town, message, labels(message)[0])).startswith("It comes at ")
    [(copy,)] = await town.world.sql("SELECT id FROM reminders WHERE rule IS NULL")
    await town.world.sql("UPDATE reminders SET due_at = clock_timestamp() WHERE id = %s", copy)

    async def is_said() -> bool:
        return town.peer.sent(town.ann_alone).count("Reminder: tea") == 2

    await until(is_said)
    await town.settled()
    assert await press(town, message, labels(message)[0]) == "It was said."


async def test_in_a_group_only_the_author_or_an_admin_changes_a_reminder(town: Town) -> None:
    await remind(town, town.team, "bring cake", by=town.ben)
    shown = await listing(town, town.team, by=town.cara)
    assert "bring cake (asked for by Ben)" in shown.text
    assert await press(town, shown, "Cancel", by=town.cara) == NOT_YOURS
    assert await states(town) == {"bring cake": "waiting"}
    assert (await press(town, shown, "Snooze 1 h", by=town.ben)).startswith("It comes at ")
    assert await press(town, shown, "Cancel", by=town.ann) == "Cancelled."  # an admin
    assert await states(town) == {"bring cake": "cancelled"}


async def test_a_mute_says_how_many_reminders_wait(town: Town) -> None:
    await remind(town, town.ann_alone, "one")
    await town.hears(town.ann_alone, town.ann, "/mute 2d")
    assert town.peer.sent(town.ann_alone)[-1].endswith("/unmute ends it. 1 reminder waits until then.")
    await remind(town, town.ann_alone, "two")
    await town.hears(town.ann_alone, town.ann, "/mute")
    assert town.peer.sent(town.ann_alone)[-1].endswith("2 reminders wait until the mute is ended.")


async def test_buttons_of_an_erased_chat_change_nothing(town: Town) -> None:
    await remind(town, town.ann_alone, "tea")
    shown = await listing(town, town.ann_alone)
    await town.hears(town.ann_alone, town.ann, "/forget")
    assert "the reminders (1)" in town.peer.sent(town.ann_alone)[-1]
    await town.hears(town.ann_alone, town.ann, "/forget yes")
    assert await press(town, shown, "Cancel") == "This reminder is gone: its chat was erased."
    assert labels(shown) == []
