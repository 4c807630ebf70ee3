"""Test finding a message whose sending had no answer: it is shown once, with few requests."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rapport.channels.telegram.writing import delivery_check as whereabouts
from rapport.channels.telegram.writing.delivery_check import MAX_MISSES, REQUEST_INTERVAL_SECONDS
from rapport.delivery import sender as outbox
from tests.channels.telegram.peer import Fault, flood, hangs, resets
from tests.channels.telegram.town import Impatient, Town
from tests.support.world import until

TAG = "@rapport_bot"
LOST = [resets(after=True), resets()]
NAMES = ["arrived", "not arrived"]
CROWD = 120
"""Number of messages: more than would be probed one by one."""


def looks(town: Town) -> list[int]:
    """Return the numbers that were probed."""
    return [int(request.params["message_id"]) for request in town.peer.calls("editMessageReplyMarkup")]


async def is_doubtful(town: Town) -> bool:
    return [state for state, _ in await town.outbox()][-1:] == ["unconfirmed"]


@pytest.mark.parametrize("fault", LOST, ids=NAMES)
@pytest.mark.parametrize("where", ["in a group", "alone"])
async def test_probing_waits_for_pending_updates(
    impatient: Impatient, town: Town, monkeypatch: pytest.MonkeyPatch, fault: Fault, where: str
) -> None:
    """Many updates have not been fetched yet: of the same group, or of chats that share its numbers."""
    impatient.for_what_is_on_its_way(0.1)
    monkeypatch.setattr(whereabouts, "BACKLOG_RETRY_SECONDS", 0.1)
    chat, others = (town.team, town.team) if where == "in a group" else (town.ann_alone, town.club)
    slow = town.world.model.will_wait("It took a while.")
    chat.says(town.ann, f"{TAG} think about it")
    await slow.begun.wait()
    town.peer.will(hangs(), on="getUpdates", times=None)
    others.says(town.ben, "nothing comes after this for a while")
    await town.peer.until(lambda: town.peer.calls("getUpdates")[-1].fault)
    for number in range(CROWD):
        others.says(town.ben, f"something {number}")
    town.peer.will(fault, on="sendMessage")
    slow.go_on()
    await until(lambda: is_doubtful(town))
    await town.peer.until(lambda: len(town.peer.calls("getWebhookInfo")) >= 3)
    assert looks(town) == []
    town.peer.heals()
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert town.peer.sent(chat) == ["It took a while."]
    assert len(looks(town)) <= MAX_MISSES + 2


@pytest.mark.parametrize("fault", LOST, ids=NAMES)
async def test_numbers_of_service_messages_are_not_probed(impatient: Impatient, town: Town, fault: Fault) -> None:
    """Service messages about members use up numbers and are not stored."""
    impatient.for_what_is_on_its_way(0.1)
    slow = town.world.model.will_wait("It took a while.")
    town.team.says(town.ann, f"{TAG} think about it")
    await slow.begun.wait()
    for _ in range(CROWD):
        town.team.says(town.ben, new_chat_members=[town.peer.person("Somebody").raw])
    await town.peer.until(lambda: not town.peer.updates.pending)
    town.peer.will(fault, on="sendMessage")
    slow.go_on()
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert town.peer.sent(town.team) == ["It took a while."]
    assert len(looks(town)) <= MAX_MISSES + 2


@pytest.mark.parametrize("fault", LOST, ids=NAMES)
async def test_without_updates_probing_is_slow_and_resumes_where_it_stopped(
    impatient: Impatient, town: Town, fault: Fault
) -> None:
    """In privacy mode most of a group's numbers are unknown. Telegram limits the probes in between."""
    impatient.for_what_is_on_its_way(0.1)
    slow = town.world.model.will_wait("It took a while.")
    asked = town.team.says(town.ann, f"{TAG} think about it")
    await slow.begun.wait()
    for number in range(CROWD):
        town.team.already_said(town.ben, f"something {number}")
    town.peer.will(fault, on="sendMessage")
    town.peer.will(flood(1), on="editMessageReplyMarkup", skip=CROWD // 2)
    slow.go_on()
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert town.peer.sent(town.team) == ["It took a while."]
    refused, last = asked.message_id + CROWD // 2 + 1, asked.message_id + CROWD + (1 if fault.after else MAX_MISSES)
    assert looks(town) == sorted([*range(asked.message_id + 1, last + 1), refused])
    questions = town.peer.calls("editMessageReplyMarkup")
    assert min(later.at - one.at for one, later in pairwise(questions)) >= REQUEST_INTERVAL_SECONDS * 0.9


async def test_who_has_waited_long_for_updates_is_patient_with_telegram_afterwards(
    impatient: Impatient, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour of waiting is a thousand tries."""
    impatient.for_what_is_on_its_way(60)
    monkeypatch.setattr(outbox, "MAX_BACKOFF_SECONDS", 0.1)
    town.peer.will(resets(after=True), on="sendMessage")
    town.team.says(town.ann, f"{TAG} hello")
    await until(lambda: is_doubtful(town))
    await town.world.sql("UPDATE outbox SET attempts = 5000, due_at = now() RETURNING id")
    town.peer.will(flood(1), on="editMessageReplyMarkup")
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert len(town.peer.sent(town.team)) == 1


async def test_many_deleted_numbers_are_not_the_end_of_the_chat(impatient: Impatient, town: Town) -> None:
    """An admin has deleted a lot before the answer arrived; what was said after it is known."""
    impatient.for_what_is_on_its_way(0.5)
    slow = town.world.model.will_wait("It took a while.")
    town.team.says(town.ann, f"{TAG} think about it")
    await slow.begun.wait()
    for said in [town.team.already_said(town.ben, "an advertisement") for _ in range(2 * MAX_MISSES)]:
        town.team.deletes(said)
    town.peer.will(resets(after=True), on="sendMessage")
    slow.go_on()
    await town.peer.until_sent(town.team, 1)
    town.team.says(town.ben, "it did")
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert town.peer.sent(town.team) == ["It took a while."]


async def test_what_strangers_say_is_not_the_end_of_a_chat_that_shares_their_numbers(
    impatient: Impatient, town: Town
) -> None:
    """Of rejected chats only the attempt and their latest number are stored."""
    impatient.for_what_is_on_its_way(0.1)
    zoe = town.peer.person("Zoe")
    slow = town.world.model.will_wait("It took a while.")
    town.ann_alone.says(town.ann, "think about it")
    await slow.begun.wait()
    for number in range(2 * MAX_MISSES):
        town.peer.private(zoe).says(zoe, f"let me in {number}")
    town.peer.will(resets(after=True), on="sendMessage")
    slow.go_on()
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert town.peer.sent(town.ann_alone) == ["It took a while."]
