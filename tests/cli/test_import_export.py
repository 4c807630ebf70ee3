"""Test `rapport import` and `rapport export`: messages are imported once with their times, and exported completely."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rapport.agents.profiles import COMPANION
from rapport.domain.chat_archive import TICK, Archive
from rapport.domain.conversation import Author, Incoming, Message
from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id
from rapport.domain.synthetic import is_synthetic
from rapport.ingest.accept import accept
from rapport.ingest.archive_rows import read_jsonl
from rapport.ingest.import_messages import import_archive, tag_legacy
from rapport.ingest.telegram_export import TelegramChat, read_telegram
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.import_export import Archives, ImportCounts
from rapport.storage.messages.messages import Messages
from tests.support.commands import Home, Ran, Run, on_a_terminal
from tests.support.world import World

MORNING = datetime(2024, 5, 6, 8, 30, tzinfo=UTC)
MARKER = "[AUTONOMOUS_FOLLOWUP: task_incomplete] the report"
IMAGE = {"type": "image", "url": "https://example.org/cat.png"}


def row(number: int, text: str = "hello", **more: Any) -> dict[str, Any]:
    """The minutes count up with the number."""
    at = (MORNING + timedelta(minutes=number)).isoformat()
    return {"id": number, "author": "Ana", "text": text, "created_at": at, **more}


def archive_of(rows: Sequence[dict[str, Any]], **options: Any) -> Archive:
    lines = [json.dumps(one).encode() for one in rows]
    options = {"agent": COMPANION, "now": datetime.now(UTC), "chat": "a chat", **options}
    return read_jsonl(lines, **options)


async def bring(
    database: Database, *rows: dict[str, Any], into: str | None = None, owner: str = "local", **more: Any
) -> ImportCounts:
    archive = archive_of(rows, **more)
    assert archive.problems == []
    return await import_archive(database, archive, owner_id=owner, agent_id=COMPANION.id, conversation_id=into)


def chat_of(owner: str = "local", chat: str = "a chat") -> str:
    return archive_of([row(1)], chat=chat).derive_conversation_id(owner)


async def everything(database: Database, conversation_id: str, owner: str = "local") -> list[Message]:
    async with database.statement() as connection:
        return await Archives(connection).list_after(owner, conversation_id, limit=100_000)


async def new_conversation(database: Database, owner: str = "local") -> str:
    async with database.statement() as connection:
        return (await Conversations(connection).create(owner, agent_id=COMPANION.id)).id


async def says(database: Database, conversation_id: str, text: str, owner: str = "local") -> None:
    await accept(database, Incoming(owner, conversation_id, text), worker_id="nobody", claim=False)


async def only(database: Database, query: str, *parameters: Any) -> Any:
    async with database.statement() as connection:
        found = await connection.execute(query.encode(), parameters)
        (one,) = await found.fetchall()
        return one[0] if len(one) == 1 else one


def in_order(messages: Sequence[Message]) -> bool:
    return all(before.created_at < after.created_at for before, after in pairwise(messages))


# ---- coming in


async def test_an_archive_becomes_a_conversation_with_its_true_times(database: Database) -> None:
    done = await bring(
        database,
        row(1, "Shall we?", author={"id": "u1", "name": "Ana"}),
        row(2, "Gladly.", author="companion", reply_to=1),
        row(3, "look", author={"id": "u1"}, content=[{"type": "text", "text": "look"}, IMAGE]),
        row(4, "to whom?", reply_to="gone", author={"id": "u1"}),
    )
    assert done == ImportCounts(added=4, known=0, loose=1)
    first, second, third, fourth = await everything(database, chat_of())
    assert (first.role, first.author, first.created_at) == ("user", Author("u1", "Ana"), MORNING + timedelta(minutes=1))
    assert (second.role, second.reply_to_id, fourth.reply_to_id) == ("assistant", first.id, None)
    assert third.content == [{"type": "text", "text": "look"}, IMAGE]
    assert all(is_id(message.id) for message in (first, second, third, fourth))
    assert first.id < second.id < third.id < fourth.id  # their times are in them
    assert first.client_message_id == "import:jsonl:a chat:1"
    made = "SELECT kind, agent_id, created_at, last_at, user_message_count, open_event_count, consecutive_followups FROM conversations"
    assert await only(database, made) == ("direct", "companion", first.created_at, fourth.created_at, 0, 0, 0)
    for table in ("events", "timers", "outbox"):
        assert await only(database, f"SELECT count(*) FROM {table}") == 0


async def test_the_same_again_adds_nothing_and_more_of_it_adds_the_rest(database: Database) -> None:
    await bring(database, row(1), row(3))
    before = await everything(database, chat_of())
    assert await bring(database, row(1), row(3)) == ImportCounts(known=2)
    assert await everything(database, chat_of()) == before
    assert await bring(database, row(1), row(2, reply_to=1), row(3), row(4, reply_to=3)) == ImportCounts(
        added=2, known=2
    )
    after = await everything(database, chat_of())
    assert [message.client_message_id for message in after] == [
        f"import:jsonl:a chat:{number}" for number in (1, 2, 3, 4)
    ]
    assert (after[1].reply_to_id, after[3].reply_to_id) == (after[0].id, after[2].id)
    assert await only(database, "SELECT count(*) FROM conversations") == 1


async def test_what_was_edited_elsewhere_since_stays_as_it_is_and_is_counted(database: Database) -> None:
    await bring(database, row(1, "tea at four"), row(2))
    assert await bring(database, row(1, "tea at five"), row(2), row(3)) == ImportCounts(added=1, known=2, changed=1)
    first, *_ = await everything(database, chat_of())
    assert first.content == "tea at four"


async def test_rows_of_the_same_time_keep_their_order_and_get_times_of_their_own(database: Database) -> None:
    same = {"created_at": MORNING.isoformat()}
    await bring(database, *(row(number, f"{number}", **same) for number in range(1, 6)))
    await bring(database, *(row(number, f"{number}", **same) for number in range(1, 9)))
    told = await everything(database, chat_of())
    assert [message.content for message in told] == [f"{number}" for number in range(1, 9)]
    assert [message.created_at for message in told] == [MORNING + step * TICK for step in range(8)]


async def test_older_history_goes_before_what_was_said_here_and_the_clock_is_not_moved_back(database: Database) -> None:
    here = await new_conversation(database)
    await says(database, here, "live")
    last_at, spoken, unanswered = await only(
        database, "SELECT last_at, user_message_count, open_event_count FROM conversations"
    )
    await bring(database, row(2, "two"), row(1, "one"), into=here)
    assert await only(database, "SELECT last_at, user_message_count, open_event_count FROM conversations") == (
        last_at,
        spoken,
        unanswered,
    )
    assert [message.content for message in await everything(database, here)] == ["one", "two", "live"]
    await says(database, here, "and on")
    assert [message.content for message in await everything(database, here)][-1] == "and on"


async def test_what_is_newer_moves_the_clock_on(database: Database) -> None:
    await bring(database, row(1))
    just_now = datetime.now(UTC)
    await bring(database, row(1), row(2, created_at=just_now.isoformat()))
    assert await only(database, "SELECT last_at FROM conversations") == just_now
    await says(database, chat_of(), "live")
    told = await everything(database, chat_of())
    assert in_order(told)
    assert told[-1].content == "live"


async def test_a_time_that_is_taken_is_left_to_whoever_has_it(database: Database) -> None:
    here = await new_conversation(database)
    await says(database, here, "live")
    (live,) = await everything(database, here)
    await bring(database, row(1, "imported", created_at=live.created_at.isoformat()), into=here)
    told = await everything(database, here)
    assert [(message.content, message.created_at) for message in told] == [
        ("live", live.created_at),
        ("imported", live.created_at + TICK),
    ]
    assert await only(database, "SELECT last_at FROM conversations") == live.created_at + TICK


async def test_everybody_has_a_conversation_of_their_own(database: Database) -> None:
    await bring(database, row(1), owner="ana")
    await bring(database, row(1), owner="ben")
    assert chat_of("ana") != chat_of("ben")
    assert len(await everything(database, chat_of("ana"), "ana")) == 1
    assert await everything(database, chat_of("ana"), "ben") == []
    with pytest.raises(NotFound):
        await bring(database, row(2), owner="ben", into=chat_of("ana"))
    assert len(await everything(database, chat_of("ana"), "ana")) == 1


async def test_two_imports_into_one_conversation_at_once(database: Database) -> None:
    here = await new_conversation(database)
    same = {"created_at": MORNING.isoformat()}
    ana = [row(number, f"a{number}", **same) for number in range(2_500)]
    ben = [row(number, f"b{number}", **same) for number in range(2_500)]
    done = await asyncio.gather(
        bring(database, *ana, into=here, chat="of ana"),
        bring(database, *ben, into=here, chat="of ben"),
        bring(database, *ana, into=here, chat="of ana"),
        *(says(database, here, f"live {number}") for number in range(20)),
    )
    assert sum(one.added for one in done if one) == 5_000
    told = await everything(database, here)
    assert in_order(told)
    texts = [str(message.content) for message in told]
    for letter, count in (("a", 2_500), ("b", 2_500), ("live ", 20)):
        assert {text for text in texts if text.startswith(letter)} == {f"{letter}{number}" for number in range(count)}
    for letter in "ab":
        mine = [text for text in texts if text[0] == letter]
        assert mine == [f"{letter}{number}" for number in range(2_500)]
    assert len(texts) == 5_020


async def test_the_same_file_from_two_sides_at_once_makes_one_conversation(database: Database) -> None:
    rows = [row(number) for number in range(1_500)]
    done = await asyncio.gather(*(bring(database, *rows) for _ in range(3)))
    assert sum(one.added for one in done) == 1_500
    assert await only(database, "SELECT count(*) FROM conversations") == 1
    assert len(await everything(database, chat_of())) == 1_500


async def test_many_rows_take_time_in_proportion(database: Database) -> None:
    seconds: list[float] = []
    for count, chat in ((500, "first"), (500, "few"), (4_000, "many")):  # the first one pays for what is loaded once
        rows = [
            row(number, f"message {number} " + "and so on " * 10, reply_to=number - 1 if number else None)
            for number in range(count)
        ]
        began = time.process_time()
        done = await bring(database, *rows, chat=chat)
        seconds.append(time.process_time() - began)
        assert (done.added, done.loose) == (count, 0)
        assert in_order(await everything(database, chat_of(chat=chat)))
    assert seconds[2] < 4 * 8 * seconds[1], seconds  # comparing each with each would take 64 times as long


async def test_history_of_a_platform_meets_what_its_channel_has_brought_already(database: Database) -> None:
    """A message that the live channel has stored is not imported again, and replies to it find it."""
    async with database.statement() as connection:
        here = (await Conversations(connection).create("local", agent_id=COMPANION.id, kind="group")).id
    await accept(database, Incoming("local", here, "two", platform_id="-1005/2"), worker_id="nobody", claim=False)
    said = {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1"}
    rows = [
        {**said, "id": 1, "text": "one"},
        {**said, "id": 2, "text": "two"},
        {**said, "id": 3, "text": "three", "reply_to_message_id": 2},
    ]

    async def brought(count: int) -> ImportCounts:
        chat = TelegramChat("channel5", "5", "Climbing", "private_supergroup", rows[:count])
        archive = read_telegram(chat, now=datetime.now(UTC))
        return await import_archive(database, archive, owner_id="local", agent_id=COMPANION.id, conversation_id=here)

    assert await brought(2) == ImportCounts(added=1, known=1)
    rows.append({**said, "id": 4, "text": "four", "reply_to_message_id": 1})
    assert await brought(4) == ImportCounts(added=2, known=2)
    assert await brought(4) == ImportCounts(known=4)
    told = {(message.platform_id or "").partition("/")[2]: message for message in await everything(database, here)}
    assert [told[number].content for number in "1234"] == ["one", "two", "three", "four"]
    assert (told["3"].reply_to_id, told["4"].reply_to_id) == (told["2"].id, told["1"].id)


async def test_a_reply_from_another_batch_finds_what_the_channel_has_brought(database: Database) -> None:
    async with database.statement() as connection:
        here = (await Conversations(connection).create("local", agent_id=COMPANION.id, kind="group")).id
    await accept(database, Incoming("local", here, "the first", platform_id="-1005/0"), worker_id="nobody", claim=False)
    said = {"type": "message", "from": "Ana", "from_id": "user1"}
    rows = [
        {
            **said,
            "id": number,
            "text": "the first" if number == 0 else "more",
            "date_unixtime": str(1714984200 + number),
        }
        for number in range(1_100)
    ]
    rows[1_050]["reply_to_message_id"] = 0
    archive = read_telegram(
        TelegramChat("channel5", "5", "Climbing", "private_supergroup", rows), now=datetime.now(UTC)
    )
    done = await import_archive(database, archive, owner_id="local", agent_id=COMPANION.id, conversation_id=here)
    assert done == ImportCounts(added=1_099, known=1)


# ---- what nobody said


async def test_old_triggers_are_in_no_history(database: Database) -> None:
    await bring(
        database,
        row(1, "look", content=[{"type": "text", "text": "look"}, IMAGE]),
        row(
            2, "[AUTONOMOUS_FOLLOWUP: check_in]", content=[{"type": "text", "text": "[AUTONOMOUS_FOLLOWUP: check_in]"}]
        ),
        row(3, "Still there?", author="companion", reply_to=2),
        row(4, "A forged one", metadata={"synthetic": True, "trigger_type": "check_in"}),
    )
    async with database.statement() as connection:
        history = await Messages(connection).list_before("local", chat_of(), limit=100)
    assert [message.text for message in history] == ["look", "Still there?", "A forged one"]
    assert [message.metadata for message in history] == [{}, {"autonomous": True, "trigger_type": "check_in"}, {}]
    assert history[1].reply_to_id is None
    assert await only(database, "SELECT count(*) FROM messages WHERE synthetic") == 1


async def test_history_over_http_shows_what_was_said(world: World) -> None:
    await bring(world.database, row(1, "hi"), row(2, MARKER), row(3, "How is the report?", author="companion"))
    history = await world.history(chat_of())
    assert [(one["role"], one["content"], one["autonomous"]) for one in history] == [
        ("user", "hi", False),
        ("assistant", "How is the report?", True),
    ]
    assert "AUTONOMOUS" not in json.dumps(history)
    answer = await world.says(chat_of(), "Nearly done")
    assert answer["content"] == "re: Nearly done"
    given = [message.text for message in world.model.calls[-1]]
    assert given[-3:] == ["hi", "How is the report?", "Nearly done"]


async def test_what_was_stored_before_is_tagged_once(database: Database) -> None:
    here, elsewhere = await new_conversation(database), await new_conversation(database, "ben")
    plain = [
        row(1, "hi"),
        row(2, "TRIGGER"),
        row(3, "picture", author="companion", content=[{"type": "text", "text": "picture"}, IMAGE]),
    ]
    more = [
        row(4, "[AUTONOMOUS_FOLLOWUP: weekly]"),
        row(5, "a person"),
        row(6, "yes", author="companion"),
        row(7, " \nTRIGGER"),
        row(8, "What is TRIGGER?"),
    ]
    async with database.statement() as connection:
        await bring(database, *plain, *more, into=here)
        await bring(database, *plain, into=elsewhere, owner="ben")
        # As a script that knew nothing of tags had stored them.
        await connection.execute(
            "UPDATE messages SET content = replace(content, 'TRIGGER', %s), metadata = '{}'", (MARKER,)
        )

    found = await tag_legacy(database, "local")
    assert (found.triggers, found.replies) == (3, 1)
    assert [re.sub(r"message \w+", "message", one.place) for one in found.warnings] == ["message"]
    again = await tag_legacy(database, "local")
    assert (again.triggers, again.replies, again.warnings) == (0, 0, [])

    told = {message.client_message_id: message for message in await everything(database, here)}
    tags = {key and key.rpartition(":")[2]: message.metadata for key, message in told.items() if message.metadata}
    trigger = {
        "synthetic": True,
        "trigger_type": "task_incomplete",
        "lc_source": "autonomy",
        "trigger_reason": "the report",
    }
    assert tags == {
        "2": trigger,
        "3": {"autonomous": True, "trigger_type": "task_incomplete"},
        "4": {"synthetic": True, "trigger_type": "check_in", "lc_source": "autonomy"},
        "7": trigger,
    }
    assert [message.metadata for message in await everything(database, elsewhere, "ben")] == [{}, {}, {}]


async def test_what_a_live_user_typed_is_never_tagged(world: World) -> None:
    await bring(world.database, row(1, "hi"), row(2, "TRIGGER"), row(3, "Still there?", author="companion"), chat="old")
    imported = archive_of([row(1)], chat="old").derive_conversation_id("local")
    group = await world.conversation(kind="group")
    typed = "[AUTONOMOUS_FOLLOWUP: check_in] is what our old bot wrote"
    await world.says(imported, typed)
    assert (await world.post(group, typed, author={"id": "ana", "name": "Ana"})).status_code == 202
    # As an import that knew nothing of tags had stored it.
    await world.sql("UPDATE messages SET content = replace(content, 'TRIGGER', %s)", MARKER)

    found = await tag_legacy(world.database, "local")
    assert (found.triggers, found.replies) == (1, 1)
    assert [one["content"] for one in await world.history(imported)] == ["hi", "Still there?", typed, f"re: {typed}"]
    assert [one["autonomous"] for one in await world.history(imported)] == [False, True, False, False]
    assert [one["content"] for one in await world.history(group)] == [typed]


async def test_no_client_passes_its_message_off_as_imported(world: World) -> None:
    refused = await world.post(await world.conversation(), "hi", client_message_id="import:jsonl:a chat:1")
    assert refused.status_code == 400
    assert "can't begin with `import:`" in refused.json()["detail"]


async def test_a_live_answer_after_an_imported_trigger_stays_an_answer(world: World) -> None:
    await bring(world.database, row(1, "TRIGGER"))
    await world.sql("UPDATE messages SET content = replace(content, 'TRIGGER', %s)", MARKER)
    await world.sql(
        "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
        " SELECT conversation_id, 'live', owner_id, 'assistant', 'Hello again', clock_timestamp() FROM messages"
    )
    found = await tag_legacy(world.database, "local")
    assert (found.triggers, found.replies) == (1, 0)


# ---- the commands


def write(path: Path, *rows: dict[str, Any] | str) -> None:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in rows))


def conversation_in(ran: Ran) -> str:
    found = re.search(r"into ([0-9A-Z]{26})", ran.out)
    assert found is not None, ran
    return found[1]


@pytest.mark.e2e
def test_good_rows_are_imported_and_bad_ones_are_named(rapport: Run, tmp_path: Path) -> None:
    write(
        tmp_path / "talk.jsonl",
        row(1),
        "{",
        row(2, "x" * 32_001),
        row(3, MARKER),
        "",
        row(4, "[AUTONOMOUS_FOLLOWUP: x\x1b[31m]"),
        row(5, "[red]no\x1b markup"),
    )
    ran = rapport("import", "--format", "jsonl", "talk.jsonl")
    assert (ran.code, ran.err) == (1, "")
    assert "\x1b" not in ran.out
    lines = ran.out.splitlines()
    assert lines[0].startswith("✗ line 2: It isn't valid JSON")
    assert lines[1] == "✗ line 3: `content` has 32,001 characters; the limit is 32,000."
    assert lines[2].startswith("! line 6: There is no trigger type 'x\\x1b[31m'")
    assert re.fullmatch(
        r"Imported 4 messages into \w{26}; 2 rows left out; 2 triggers of follow-ups tagged, which no history shows\.",
        lines[3],
    )
    again = rapport("import", "--format", "jsonl", "talk.jsonl")
    assert (again.code, conversation_in(again)) == (1, conversation_in(ran))
    assert "Imported 0 messages" in again.out
    assert "4 were there already" in again.out

    shown = rapport("export", conversation_in(ran), "--format", "markdown")
    assert "[red]no" in shown.out
    assert "AUTONOMOUS" not in shown.out
    assert shown.err == "Exported 2 messages.\nFiltered 2 synthetic messages\n"


@pytest.mark.e2e
def test_an_export_that_is_imported_is_the_same_conversation(rapport: Run, tmp_path: Path) -> None:
    write(
        tmp_path / "talk.jsonl",
        row(1, "look", content=[{"type": "text", "text": "look"}, IMAGE]),
        row(2, "A cat. [source: cats]\n\nSources: cats", author={"id": "companion", "name": "Companion"}, reply_to=1, sources=[{"id": "cats", "text": "Cats purr."}]),
        row(3, "שלום 👩‍👩‍👧", author={"id": "u2", "name": "Ben"}),
        row(4, MARKER),
        row(5, "How is the report?", role="assistant", author=None),
        row(6, "done", reply_to=5, author=None),
    )  # fmt: skip
    first = rapport("import", "--format", "jsonl", "--trusted", "talk.jsonl")
    assert first.code == 0, first
    origin = conversation_in(first)
    for more in ([], ["--include-synthetic"]):
        one = rapport("export", origin, *more, "--output", "out.jsonl")
        count = 6 if more else 5
        assert (one.code, one.out) == (0, "")
        assert one.err == f"Exported {count} messages.\n" + ("" if more else "Filtered 1 synthetic message\n")
        text = (tmp_path / "out.jsonl").read_text()
        assert ("synthetic" in text, MARKER in text) == (bool(more), bool(more))
        owner = f"ana{count}"
        copied = rapport("import", "--format", "jsonl", "--trusted", "out.jsonl", "--user", owner)
        assert copied.code == 0, copied
        copy = conversation_in(copied)
        assert copy != origin
        two = rapport("export", copy, *more, "--user", owner)
        assert same_talk(two.out) == same_talk(text)

    # Into the conversation that it came from there is nothing to add.
    back = rapport("import", "--format", "jsonl", "--trusted", "out.jsonl", "--conversation", origin)
    assert "Imported 0 messages" in back.out
    # An untrusted import drops the tags, and the trigger is recognized by its text again.
    plain = rapport("import", "--format", "jsonl", "out.jsonl", "--user", "cleo")
    rows = [json.loads(line) for line in rapport("export", conversation_in(plain), "--user", "cleo").out.splitlines()]
    assert len(rows) == 5
    assert all("sources" not in one for one in rows)


@pytest.mark.e2e
def test_topics_mentions_and_bots_go_out_and_come_back(rapport: Run, tmp_path: Path) -> None:
    write(
        tmp_path / "talk.jsonl",
        row(1, "tents", thread_id="7", mentions=["u2", "ben"], platform_id="41"),
        row(2, "it rains", author="Weather", is_bot=True, thread_id="7"),
        row(3, "I see", author="Companion"),
        row(4, "in general"),
    )
    first = rapport("import", "--format", "jsonl", "talk.jsonl")
    assert first.code == 0
    out = rapport("export", conversation_in(first)).out
    told = [json.loads(line) for line in out.splitlines()]
    assert [{name: one.get(name) for name in ("thread_id", "mentions", "is_bot", "platform_id")} for one in told] == [
        {"thread_id": "7", "mentions": ["u2", "ben"], "is_bot": None, "platform_id": "41"},
        {"thread_id": "7", "mentions": None, "is_bot": True, "platform_id": None},
        {"thread_id": None, "mentions": None, "is_bot": True, "platform_id": None},
        {"thread_id": None, "mentions": None, "is_bot": None, "platform_id": None},
    ]
    (tmp_path / "out.jsonl").write_text(out)
    again = rapport("import", "--format", "jsonl", "out.jsonl", "--user", "ben")
    assert same_talk(rapport("export", conversation_in(again), "--user", "ben").out) == same_talk(out)


@pytest.mark.e2e
def test_what_a_reply_has_brought_along_goes_out_and_comes_back(rapport: Run, tmp_path: Path) -> None:
    """Unless what it replies to is in the file: then it is a reply to that."""
    snapshot = {
        "text": "the thai place",
        "id": "3",
        "author": {"id": "Zoe", "name": "Zoe"},
        "created_at": "2024-05-03T09:00:00+00:00",
    }
    write(
        tmp_path / "talk.jsonl",
        row(1, "is this still open?", context_snapshot={**snapshot, "id": 3, "author": "Zoe"}),
        row(2, "it is", reply_to=1, context_snapshot={"text": "is this still open?"}),
        row(3, "broken", context_snapshot={"id": "3"}),
        row(4, "broken too", context_snapshot="the thai place"),
        row(5, "broken as well", context_snapshot={"text": "tea", "created_at": "yesterday"}),
    )
    first = rapport("import", "--format", "jsonl", "talk.jsonl")
    assert first.code == 1
    assert [f"line {n}" in first.out for n in range(1, 6)] == [False, False, True, True, True]
    out = rapport("export", conversation_in(first)).out
    told = [json.loads(line) for line in out.splitlines()]
    assert [one.get("context_snapshot") for one in told] == [snapshot, None]
    (tmp_path / "out.jsonl").write_text(out)
    again = rapport("import", "--format", "jsonl", "out.jsonl", "--user", "ben")
    assert same_talk(rapport("export", conversation_in(again), "--user", "ben").out) == same_talk(out)


def same_talk(text: str) -> list[dict[str, Any]]:
    """Return the rows with ids replaced by numbers, because ids differ in every conversation."""
    rows = [json.loads(line) for line in text.splitlines()]
    numbers = {one["id"]: number for number, one in enumerate(rows)}
    for one in rows:
        one["id"], one["reply_to"] = numbers[one["id"]], numbers.get(one.get("reply_to"))
        del one["conversation"]
    return rows


@pytest.mark.e2e
def test_a_telegram_file_with_several_chats_asks_which(rapport: Run, tmp_path: Path) -> None:
    said = {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1"}
    chats = [
        {"name": "Climbing\x1b[31m", "type": "private_supergroup", "id": 5, "messages": [
            {"id": 1, "type": "service", "action": "create_group", "date_unixtime": "1714984200"},
            {**said, "id": 2, "text": ["Who is in? ", {"type": "mention", "text": "@ben"}]},
            {**said, "id": 3, "text": "Me", "from": "Ben", "from_id": "user2", "reply_to_message_id": 2},
            {**said, "id": 4, "text": "nul \x00"},
        ]},
        {"name": "Ben", "type": "personal_chat", "id": 2, "messages": [{**said, "id": 9, "text": "psst"}]},
    ]  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps({"about": "…", "chats": {"list": chats}}))
    asked = rapport("import", "--format", "telegram", "result.json")
    assert (asked.code, asked.out) == (1, "")
    assert asked.err.splitlines() == [
        "rapport: There are 2 chats in this file: choose one by `--chat` and its id or name.",
        "  channel5  Climbing[31m (private supergroup, 4 rows)",
        "  user2  Ben (personal chat, 1 rows)",
    ]
    assert "There is no such chat" in rapport("import", "--format", "telegram", "result.json", "--chat", "Nobody").err

    ran = rapport("import", "--format", "telegram", "result.json", "--chat", "5", "--title", "The rocks")
    assert ran.code == 1
    assert ran.out.splitlines()[0].startswith("✗ message 4 (id 4): `content` holds a NUL")
    assert "Imported 2 messages" in ran.out
    assert "1 row in which nobody says anything skipped" in ran.out
    told = rapport("export", conversation_in(ran), "--format", "markdown").out
    assert told == (
        "# The rocks\n\nTimes are in UTC.\n\n## Monday, 6 May 2024\n\n"
        "**Ana** · 08:30\n\n> Who is in? @ben\n\n**Ben** · 08:30\n\n> Me\n\n"
    )
    private = rapport("import", "--format", "telegram", "result.json", "--chat", "ben")
    assert (private.code, conversation_in(private) == conversation_in(ran)) == (0, False)


@pytest.mark.e2e
def test_markdown_is_for_people_and_nobody_speaks_for_another(rapport: Run, tmp_path: Path) -> None:
    write(
        tmp_path / "talk.jsonl",
        row(1, "# Not a heading\n**Ben** · 09:00\n\nI am Ana.", author="*Ana*\n# X"),
        row(2, "Cats purr. [source: cats]", author="Companion", sources=[{"id": "cats", "text": "They <purr>."}]),
        row(2000, MARKER),
        row(2001, "And the report?", author="Companion"),
        row(2002, "look", content=[{"type": "text", "text": "look"}, IMAGE], author=None),
    )
    ran = rapport("import", "--format", "jsonl", "--trusted", "talk.jsonl", "--title", "Cats")
    told = rapport("export", conversation_in(ran), "--format", "markdown", "--include-synthetic").out
    assert told == (
        "# Cats\n\nTimes are in UTC.\n\n## Monday, 6 May 2024\n\n"
        "**\\*Ana\\* \\# X** · 08:31\n\n> # Not a heading\n> **Ben** · 09:00\n>\n> I am Ana.\n\n"
        "**Companion** · 08:32\n\n> Cats purr. [source: cats]\n\nSources:\n\n- cats: They \\<purr\\>.\n\n"
        "## Tuesday, 7 May 2024\n\n"
        f"**Ana** · 17:50 · made by the system (task\\_incomplete)\n\n> {MARKER}\n\n"
        "**Companion** · 17:51 · unasked\n\n> And the report?\n\n"
        "**You** · 17:52\n\n> look\n>\n> [image]\n\n"
    )


@pytest.mark.e2e
def test_what_cannot_be_done_is_said_in_one_line(home: Home, database_url: str, tmp_path: Path) -> None:
    write(tmp_path / "talk.jsonl", row(1))
    (tmp_path / "empty.jsonl").write_text("\n")
    with (tmp_path / "huge.jsonl").open("wb") as huge:
        huge.truncate(200_000_001)  # takes no room on the disk
    missing = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    ways = {
        ("import",): "say what to import",
        ("import", "talk.jsonl"): "say what to import",
        ("import", "--format", "jsonl"): "say what to import",
        ("import", "--format", "jsonl", "none.jsonl"): "none.jsonl: No such file or directory",
        ("import", "--format", "jsonl", "."): "isn't a file",
        ("import", "--format", "jsonl", "huge.jsonl"): "200,000,001 bytes; at most 200,000,000",
        ("import", "--format", "telegram", "talk.jsonl"): "There is no chat in this file",
        ("import", "--format", "jsonl", "talk.jsonl", "--agent", "nobody"): "There is no agent 'nobody'",
        ("import", "--format", "jsonl", "talk.jsonl", "--conversation", missing): "There is no conversation",
        ("export", missing): "There is no conversation",
        ("export", "nonsense"): "There is no conversation 'nonsense'",
    }
    for arguments, expected in ways.items():
        assert expected in home.fails(*arguments, DATABASE_URL=database_url), arguments
    empty = home.run("import", "--format", "jsonl", "empty.jsonl", DATABASE_URL=database_url)
    assert (empty.code, empty.out) == (1, "There is no message to import in this file.\n")


@pytest.mark.e2e
def test_somebody_elses_conversation_is_neither_read_nor_written(rapport: Run, tmp_path: Path) -> None:
    write(tmp_path / "talk.jsonl", row(1, "my secret"))
    mine = conversation_in(rapport("import", "--format", "jsonl", "talk.jsonl", "--user", "ana"))
    read = rapport("export", mine, "--user", "ben", "--output", "stolen.jsonl")
    assert (read.code, read.out) == (1, "")
    assert not (tmp_path / "stolen.jsonl").exists()
    write(tmp_path / "more.jsonl", row(2))
    assert rapport("import", "--format", "jsonl", "more.jsonl", "--user", "ben", "--conversation", mine).code == 1
    assert len(rapport("export", mine, "--user", "ana").out.splitlines()) == 1


@pytest.mark.e2e
def test_old_rows_are_tagged_from_the_command_line(rapport: Run) -> None:
    assert rapport("import", "--tag-legacy").out == "Tagged 0 triggers of follow-ups and 0 replies to them.\n"


@pytest.mark.e2e
def test_a_file_that_cannot_be_written_leaves_nothing_behind(rapport: Run, tmp_path: Path) -> None:
    write(tmp_path / "talk.jsonl", row(1))
    here = conversation_in(rapport("import", "--format", "jsonl", "talk.jsonl"))
    ran = rapport("export", here, "--output", "no/such/folder.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert "no/such/folder.jsonl can't be written: No such file or directory" in ran.err
    (tmp_path / "kept.jsonl").write_text("old")
    assert rapport("export", here, "--output", "kept.jsonl").code == 0
    assert json.loads((tmp_path / "kept.jsonl").read_text())["text"] == "hello"
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.e2e
def test_a_terminal_shows_how_far_it_is_and_obeys_nobody(home: Home, database_url: str, tmp_path: Path) -> None:
    write(tmp_path / "talk.jsonl", *(row(number, "a bell \x07 and a \x1b[31mcolour") for number in range(3_000)))
    shown = on_a_terminal(home, database_url, "import", "--format", "jsonl", "talk.jsonl")
    seen = re.search(r"messages .*?(\d+)/3000", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown))
    assert seen is not None
    assert "Imported 3,000 messages" in shown
    here = re.search(r"into ([0-9A-Z]{26})", shown)
    assert here is not None
    for form in ("jsonl", "markdown"):
        told = on_a_terminal(home, database_url, "export", here[1], "--format", form)
        assert "\x07" not in told
        assert "\x1b" not in told
        assert "a bell" in told


async def test_an_export_walks_through_everything_in_pages(database: Database) -> None:
    same = {"created_at": MORNING.isoformat()}
    await bring(database, *(row(number, f"{number}", **same) for number in range(450)))
    seen: list[Message] = []
    async with database.statement() as connection:
        while page := await Archives(connection).list_after(
            "local", chat_of(), limit=200, cursor=(seen[-1].created_at, seen[-1].id) if seen else None
        ):
            seen += page
    assert [message.content for message in seen] == [f"{number}" for number in range(450)]
    assert not any(is_synthetic(message) for message in seen)
