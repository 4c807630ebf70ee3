"""Test reading archives: every row becomes a message or an error message, and a file can't forge metadata."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapport.agents.profiles import COMPANION, LIBRARIAN
from rapport.domain.chat_archive import TICK, Archive, select_portable_metadata, space_out
from rapport.domain.conversation import Author
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import TRIGGER_TYPES
from rapport.domain.ids import is_id
from rapport.domain.synthetic import is_synthetic
from rapport.ingest.archive_rows import LEGACY_MARKER, find_legacy_trigger, read_jsonl, read_time
from rapport.ingest.telegram_export import TelegramChat, list_telegram_chats, read_telegram
from tests.support.cases import every_case

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MORNING = datetime(2024, 5, 6, 8, 30, tzinfo=UTC)
IMAGE = {"type": "image", "url": "https://example.org/cat.png"}
FORGED = {"synthetic": True, "trigger_type": "task_incomplete", "trigger_reason": "because", "retrieved": ["x"]}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ROW_FIELDS = (
    "id",
    "author",
    "text",
    "created_at",
    "reply_to",
    "role",
    "metadata",
    "content",
    "sources",
    "conversation",
    "mentions",
    "thread_id",
    "is_bot",
    "platform_id",
)
TELEGRAM_FIELDS = (
    "id", "type", "date", "date_unixtime", "edited_unixtime", "from", "from_id", "text", "media_type", "photo", "file",
    "forwarded_from", "reply_to_message_id", "poll", "contact_information", "location_information", "sticker_emoji",
    "action",
)  # fmt: skip
TIMES = st.integers(0, 40).map(lambda number: MORNING + number * TICK)


def row(number: int, text: str | None = "hello", **more: Any) -> dict[str, Any]:
    """The minutes count up with the number."""
    at = (MORNING + timedelta(minutes=number)).isoformat()
    return {"id": number, "author": "Ana", "text": text, "created_at": at, **more}


def read(*rows: object, **options: Any) -> Archive:
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in rows]
    options = {"agent": COMPANION, "now": NOW, **options}
    return read_jsonl(lines, **options)


def only_problem(*rows: object, **options: Any) -> str:
    archive = read(*rows, **options)
    assert len(archive.problems) == 1, archive.problems
    return f"{archive.problems[0].place}: {archive.problems[0].reason}"


# ---- rows


def test_a_row_becomes_a_message_with_its_true_time() -> None:
    archive = read(row(1, "hi", created_at="2024-05-06T10:30:00.123456+02:00"), row(2, "you too", reply_to="1"))
    assert (archive.problems, archive.warnings, archive.kind) == ([], [], "direct")
    first, second = archive.messages
    assert (first.row_id, first.role, first.content, first.author) == ("1", "user", "hi", Author("Ana", "Ana"))
    assert first.created_at == datetime(2024, 5, 6, 8, 30, 0, 123456, tzinfo=UTC)
    assert (second.reply_to, second.metadata, second.sources) == ("1", {}, ())


@every_case(
    "told",
    [
        "2024-05-06T08:30:00Z", "2024-05-06T08:30:00", "2024-05-06 08:30", "2024-05-06T10:30+02:00", "20240506T083000Z",
        1714984200, 1714984200.0, 1714984200000, "1714984200", " 1714984200 ",
    ],
)  # fmt: skip
def test_a_time_may_be_told_in_many_ways(told: object) -> None:
    assert read_time(told, now=NOW) == MORNING


@every_case(
    "told",
    [
        None, True, [], {}, "", "yesterday", "2024-13-01", float("nan"), float("inf"), 1e30, -5, 10**400, "1969-12-31",
        "9999-12-31", "2026-03-01T12:00:01Z", "0001-01-01T00:00:00+23:59", "1e9",
    ],
)  # fmt: skip
def test_what_is_no_time_of_the_past_is_refused(told: object) -> None:
    with pytest.raises(InvalidInput, match="created_at"):
        read_time(told, now=NOW)


@every_case(
    ("broken", "reason"),
    [
        (row(7, "x" * 32_001), "`content` has 32,001 characters; the limit is 32,000"),
        (row(7, "a\x00b"), "NUL"),
        (row(7, "half \ud83d"), "surrogate"),
        (row(7, "  \n"), "empty"),
        (row(7, author="a\x00"), "NUL"),
        (row(7, author={"id": "u1", "name": "\udc00"}), "surrogate"),
        (row(7, author=""), "`author`"),
        (row(7, author={"name": "Ana"}), "`author.id`"),
        (row(7, author="x" * 201), "`author` has 201"),
        (row(7, id=None), "`id` is missing"),
        (row(7, id=True), "`id` is missing"),
        (row(7, id="x" * 121), "`id` has 121"),
        (row(7, id="a\x00"), "NUL"),
        (row(7, reply_to={}), "`reply_to`"),
        (row(7, role="system"), "`role` is"),
        (row(7, text=None), "`text` is missing"),
        (row(7, content=["words"]), "`content` is a list of blocks"),
        (row(7, content=[{"type": "video"}]), "content block"),
        (row(7, created_at="2031-01-01"), "in the future"),
        (row(1), "The id '1' was used on line 1 already."),
        ({"id": 7, "text": "x", "created_at": 1714984200}, "`author` is missing"),
        ([], "A row is a JSON object"),
        (b'{"id": 1,', "It isn't valid JSON"),
        (b'{"id": "\xff"}', "It isn't UTF-8 text"),
        (b"[" * 100_000, "It isn't valid JSON"),
        (b'{"id": ' + b"9" * 5_000 + b"}", "It isn't valid JSON"),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_the_others_are_read(broken: object, reason: str) -> None:
    archive = read(row(1), b"", broken, b"   \r", row(2))
    assert [message.row_id for message in archive.messages] == ["1", "2"]
    assert len(archive.problems) == 1
    assert archive.problems[0].place == "line 3"
    assert reason in archive.problems[0].reason


def test_exactly_as_long_as_allowed_is_allowed() -> None:
    assert read(row(1, "x" * 32_000)).problems == []


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    archive = read(b"\xef\xbb\xbf" + json.dumps(row(1)).encode(), b"\xef\xbb\xbf")
    assert (len(archive.messages), archive.problems) == (1, [])


def test_messages_are_put_in_the_order_of_time_whatever_the_order_of_the_file() -> None:
    same = {"created_at": MORNING.isoformat()}
    up = [row(1, **same), row(2, **same), row(3), row(4)]
    for rows in (up, up[::-1]):
        assert [message.row_id for message in read(*rows).messages] == ["1", "2", "3", "4"]
    mixed = [row(5), row(1), row(3), row(6)]
    assert [message.row_id for message in read(*mixed).messages] == ["1", "3", "5", "6"]


def test_who_is_the_agent_is_the_agent() -> None:
    told = read(
        row(1, author="companion"),
        row(2, author={"id": "u7", "name": "Companion"}),
        row(3, author="librarian"),
        row(4, author="Ana", role="assistant"),
        row(5, author="companion", role="user"),
        row(6, author=None),
    )
    assert [message.role for message in told.messages] == [
        "assistant",
        "assistant",
        "user",
        "assistant",
        "user",
        "user",
    ]
    assert read(row(3, author="librarian"), agent=LIBRARIAN).messages[0].role == "assistant"


def test_several_people_make_a_group() -> None:
    assert read(row(1), row(2, author="companion")).kind == "direct"
    assert read(row(1), row(2, author={"id": "Ana", "name": "Ana the Great"})).kind == "direct"
    assert read(row(1), row(2, author="Ben")).kind == "group"


def test_pictures_come_as_blocks() -> None:
    blocks = [{"type": "text", "text": "look"}, IMAGE]
    assert read(row(1, "look", content=blocks)).messages[0].content == blocks


# ---- what a file may claim


def test_a_row_may_tell_its_topic_who_is_meant_and_that_a_bot_speaks() -> None:
    told: dict[str, Any] = {"thread_id": 7, "platform_id": "41", "mentions": ["u2", "u2"], "is_bot": True}
    archive = read(row(1, **told), row(2), row(3, author="companion"), row(4, is_bot="yes", thread_id=None))
    assert [(one.thread_id, one.platform_id, one.mentions, one.is_bot) for one in archive.messages] == [
        ("7", "41", ("u2",), True),
        (None, None, (), False),
        (None, None, (), True),
        (None, None, (), False),
    ]
    assert archive.problems == []


@every_case(
    ("fields", "reason"),
    [
        ({"mentions": "u2"}, "`mentions` is a list"),
        ({"mentions": [2]}, "`mentions` is a list"),
        ({"mentions": ["a\x00"]}, "NUL"),
        ({"mentions": ["a"] * 51}, "at most 50"),
        ({"thread_id": ""}, "`thread_id`"),
        ({"thread_id": ["7"]}, "`thread_id`"),
        ({"platform_id": "x" * 201}, "`platform_id`"),
        ({"platform_id": "41"}, "The platform_id '41' was used on line 1 already."),
    ],
)
def test_a_row_that_tells_it_wrongly_is_named(fields: dict[str, Any], reason: str) -> None:
    assert reason in only_problem(row(1, platform_id="41"), row(2, **fields))


def test_forged_metadata_and_sources_are_dropped() -> None:
    archive = read(
        row(1, metadata=FORGED),
        row(
            2,
            role="assistant",
            metadata={"autonomous": True, "lc_source": "summarization"},
            sources=[{"id": "a", "text": "b"}],
        ),
    )
    assert archive.problems == []
    assert [(message.metadata, message.sources) for message in archive.messages] == [({}, ()), ({}, ())]


def test_a_trusted_file_keeps_what_an_export_wrote_and_nothing_else() -> None:
    archive = read(
        row(1, metadata=FORGED),
        row(2, role="assistant", metadata={**FORGED, "autonomous": True}, sources=[{"id": "a", "text": "b", "c": 1}]),
        row(3, metadata={"synthetic": "true", "trigger_type": "check_in", "autonomous": True}),
        row(4, metadata={"synthetic": True, "trigger_type": "nonsense"}),
        row(5, metadata="synthetic"),
        trusted=True,
    )
    first, second, third, fourth, fifth = archive.messages
    assert first.metadata == {
        "synthetic": True,
        "trigger_type": "task_incomplete",
        "trigger_reason": "because",
        "lc_source": "autonomy",
    }
    assert second.metadata == {"autonomous": True, "trigger_type": "task_incomplete"}
    assert second.sources == [{"id": "a", "text": "b"}]
    assert third.metadata == {}
    assert fourth.metadata == {"synthetic": True, "trigger_type": "check_in", "lc_source": "autonomy"}
    assert fifth.metadata == {}
    assert "`sources`" in only_problem(row(1, role="assistant", sources=[{"id": "a b", "text": "c"}]), trusted=True)
    assert "NUL" in only_problem(row(1, metadata={"synthetic": True, "trigger_reason": "\x00"}), trusted=True)


@given(JSON.map(lambda value: value if isinstance(value, dict) else {"synthetic": value}))
def test_only_true_is_a_tag(metadata: dict[str, Any]) -> None:
    archive = read(row(1, metadata=metadata), trusted=True)
    for message in archive.messages:
        assert is_synthetic(message) == (metadata.get("synthetic") is True)
        assert (
            select_portable_metadata("user", message.metadata) == message.metadata
        )  # out and in again changes nothing


@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(ROW_FIELDS, JSON)), max_size=6), st.booleans())
def test_no_row_is_lost_and_none_can_stop_the_others(rows: list[dict[str, Any]], trusted: bool) -> None:
    archive = read(row(1), *rows, row(2), trusted=trusted)
    assert len(archive.messages) + len(archive.problems) == len(rows) + 2
    assert {"1", "2"} <= {message.row_id for message in archive.messages}


@given(st.lists(st.binary(max_size=40).filter(lambda line: line.strip(b"\xef\xbb\xbf \t\r\n")), max_size=6))
def test_any_bytes_are_read_or_reported(lines: list[bytes]) -> None:
    archive = read(*lines)
    assert len(archive.messages) + len(archive.problems) == len(lines)


# ---- which archive it is


def test_a_file_that_has_grown_or_was_mended_is_the_same_archive() -> None:
    known = read(row(1), row(2)).chat_id
    assert read(row(1), row(2), row(3)).chat_id == known
    assert read(row(3), row(2), row(1)).chat_id == known
    assert read(row(1, "x" * 40_000), row(2)).chat_id == known
    assert read(row(2), row(3)).chat_id != known
    assert read(row(1, author="Ben"), row(2)).chat_id != known
    assert read(row(1), chat="family").chat_id == "family"


def test_an_export_is_known_by_its_conversation() -> None:
    rows = [row(number, conversation="01HX") for number in (1, 2)]
    assert read(*rows).chat_id == read(rows[1]).chat_id == "01HX"
    assert "another conversation" in only_problem(*rows, row(3, conversation="01HY"))


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_a_chat_of_an_owner_has_one_conversation(owner: str, chat: str, other_owner: str, other_chat: str) -> None:
    archive = Archive("jsonl", chat, None, "direct", [])
    found = archive.derive_conversation_id(owner)
    assert is_id(found)
    assert found == Archive("jsonl", chat, "title", "group", []).derive_conversation_id(owner)
    assert found != Archive("telegram", chat, None, "direct", []).derive_conversation_id(owner)
    if (owner, chat) != (other_owner, other_chat) and "\x00" not in owner + chat + other_owner + other_chat:
        assert found != Archive("jsonl", other_chat, None, "direct", []).derive_conversation_id(other_owner)


@given(st.lists(TIMES, max_size=20).map(lambda times: sorted(times)), st.sets(TIMES, max_size=20))
def test_times_are_moved_as_little_as_it_takes(times: list[datetime], taken: set[datetime]) -> None:
    placed = space_out(times, taken)
    assert all(before < after for before, after in pairwise(placed))
    assert not taken & set(placed)
    for number, (time, moved) in enumerate(zip(times, placed, strict=True)):
        assert moved >= time
        between = {time + step * TICK for step in range((moved - time) // TICK)}
        assert between <= taken | set(placed[:number])


# ---- what older systems left behind


@every_case("kind", TRIGGER_TYPES)
@every_case("text", ["[AUTONOMOUS_FOLLOWUP: {}]", "[AUTONOMOUS_FOLLOWUP:{}]", " \n[AUTONOMOUS_FOLLOWUP: {} ]\n"])
def test_an_old_trigger_is_tagged_and_so_is_its_reply(kind: str, text: str) -> None:
    archive = read(row(1, "hi"), row(2, text.format(kind)), row(3, "How did it go?", role="assistant"), row(4, "well"))
    assert [message.metadata for message in archive.messages] == [
        {},
        {"synthetic": True, "trigger_type": kind, "lc_source": "autonomy"},
        {"autonomous": True, "trigger_type": kind},
        {},
    ]
    assert archive.warnings == []


def test_what_follows_the_marker_is_its_reason() -> None:
    found = find_legacy_trigger("[AUTONOMOUS_FOLLOWUP:check_in] The user\nwent quiet.")
    assert found is not None
    assert found.tags["trigger_reason"] == "The user\nwent quiet."


def test_an_unknown_type_is_a_check_in_with_a_warning() -> None:
    archive = read(row(1), row(2, "[AUTONOMOUS_FOLLOWUP: weekly_digest]"))
    assert archive.messages[1].metadata["trigger_type"] == "check_in"
    assert [(one.place, one.reason) for one in archive.warnings] == [
        ("line 2", "There is no trigger type 'weekly_digest': it is taken as 'check_in'.")
    ]


@every_case(
    "content",
    [
        "What does [AUTONOMOUS_FOLLOWUP: check_in] mean?",
        "[AUTONOMOUS_FOLLOWUP]",
        "[autonomous_followup: check_in]",
        "> [AUTONOMOUS_FOLLOWUP: check_in]",
        "[AUTONOMOUS_FOLLOWUP: check_in",
        [{"type": "text", "text": "[AUTONOMOUS_FOLLOWUP: check_in]"}, IMAGE],
        [IMAGE],
    ],
)
def test_what_a_person_says_about_it_stays_theirs(content: Any) -> None:
    assert find_legacy_trigger(content) is None


def test_only_what_people_seem_to_say_is_looked_at_and_neighbours_with_pictures_stay_as_they_are() -> None:
    marker = "[AUTONOMOUS_FOLLOWUP: check_in]"
    look = [{"type": "text", "text": "look"}, IMAGE]
    archive = read(
        row(1, "look", content=look),
        row(2, marker, content=[{"type": "text", "text": marker}]),
        row(3, "a picture for you", content=[{"type": "text", "text": "a picture for you"}, IMAGE], role="assistant"),
        row(4, "look", content=look),
        row(5, marker, role="assistant"),
        row(6, marker),
        row(7, "back again", content=look),
        row(8, "welcome", role="assistant"),
    )
    tagged = [(message.row_id, sorted(message.metadata)) for message in archive.messages if message.metadata]
    assert tagged == [
        ("2", ["lc_source", "synthetic", "trigger_type"]),
        ("3", ["autonomous", "trigger_type"]),
        ("6", ["lc_source", "synthetic", "trigger_type"]),
    ]
    assert archive.messages[0].content == look


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_message_without_the_marker_is_never_tagged(before: str, after: str) -> None:
    assert find_legacy_trigger(before + after) is None or (before + after).strip().startswith(LEGACY_MARKER)


# ---- Telegram


def chat(*rows: dict[str, Any], kind: str = "private_supergroup") -> TelegramChat:
    told = [
        {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1", **one} for one in rows
    ]
    return list_telegram_chats(json.dumps({"name": "Climbing", "type": kind, "id": 42, "messages": told}).encode())[0]


def said(**fields: Any) -> str:
    (message,) = read_telegram(chat({"id": 1, **fields}), now=NOW).messages
    assert isinstance(message.content, str)
    return message.content


def test_a_telegram_chat_is_read_with_authors_times_and_replies() -> None:
    archive = read_telegram(
        chat(
            {"id": 1, "type": "service", "action": "create_group", "actor": "Ana"},
            {"id": 2, "text": "Who is in on Sunday?"},
            {"id": 3, "type": "unsupported"},
            {
                "id": 4,
                "text": "Me",
                "from": "Ben",
                "from_id": "user2",
                "reply_to_message_id": 2,
                "edited_unixtime": "1714984300",
            },
            {"id": 5, "text": "As I said there", "reply_to_message_id": 9, "reply_to_peer_id": "channel7"},
            {"id": 6, "text": "gone", "from": None, "from_id": "user3", "edited_unixtime": "0"},
            {"id": 7, "text": ""},
        ),
        now=NOW,
    )
    assert (archive.chat_id, archive.title, archive.kind, archive.skipped) == ("channel42", "Climbing", "group", 3)
    assert archive.problems == []
    assert [(one.row_id, one.author and one.author.name, one.reply_to) for one in archive.messages] == [
        ("2", "Ana", None),
        ("4", "Ben", "2"),
        ("5", "Ana", None),
        ("6", "Deleted account", None),
    ]
    assert {one.created_at for one in archive.messages} == {MORNING}
    assert archive.messages[1].metadata == {"edited_at": "2024-05-06T08:31:40+00:00"}
    assert archive.messages[3].metadata == {}


@every_case(
    ("fields", "expected"),
    [
        ({"text": ["See ", {"type": "bold", "text": "this"}, " ", {"type": "link", "text": "https://a.example"}]}, "See this https://a.example"),
        ({"text": [{"type": "text_link", "text": "here", "href": "https://a.example"}]}, "here (https://a.example)"),
        ({"photo": "photos/1.jpg", "text": "our tent"}, "[photo]\nour tent"),
        ({"photo": "photos/1.jpg", "text": ""}, "[photo]"),
        ({"media_type": "sticker", "file": "s.webp", "sticker_emoji": "😄", "text": ""}, "[sticker: 😄]"),
        ({"media_type": "voice_message", "file": "v.ogg", "text": ""}, "[voice message]"),
        ({"media_type": "video_file", "file": "v.mp4", "file_name": "summit.mp4", "text": "up there"}, "[video: summit.mp4]\nup there"),
        ({"file": "files/plan.pdf", "text": ""}, "[file: plan.pdf]"),
        ({"file": "(File not included. Change data exporting settings to download.)", "text": ""}, "[file: (File not included. Change data exporting settings to download.)]"),
        ({"contact_information": {"first_name": "Cleo", "last_name": ""}, "text": ""}, "[contact: Cleo]"),
        ({"location_information": {"latitude": 1.5, "longitude": 2}, "place_name": "Hut", "text": ""}, "[location: Hut, 1.5, 2]"),
        ({"poll": {"question": "When?", "answers": [{"text": "Sat"}, {"text": "Sun"}]}, "text": ""}, "[poll: When?]\n- Sat\n- Sun"),
        ({"game_title": "Chess", "text": ""}, "[game: Chess]"),
        ({"forwarded_from": "Weather", "text": "Storm ahead"}, "[forwarded from Weather]\nStorm ahead"),
        ({"forwarded_from": None, "text": "Storm ahead"}, "[forwarded from a deleted account]\nStorm ahead"),
    ],
)  # fmt: skip
def test_what_was_sent_beside_words_is_told_in_words(fields: dict[str, Any], expected: str) -> None:
    assert said(**fields) == expected


def test_of_a_chat_with_a_bot_the_bot_is_the_agent_and_elsewhere_only_who_is_named() -> None:
    rows = [{"id": 1, "text": "hi"}, {"id": 2, "text": "hello", "from": "Companion", "from_id": "user42"}]
    assert [one.role for one in read_telegram(chat(*rows, kind="bot_chat"), now=NOW).messages] == ["user", "assistant"]
    assert read_telegram(chat(*rows, kind="bot_chat"), now=NOW).kind == "direct"
    assert [one.role for one in read_telegram(chat(*rows), now=NOW).messages] == ["user", "user"]
    for name in ("Companion", "user42"):
        named = read_telegram(chat(*rows), now=NOW, agent_authors=[name])
        assert [one.role for one in named.messages] == ["user", "assistant"]


def test_in_a_forum_every_message_belongs_to_the_topic_that_its_replies_lead_to() -> None:
    """The file has no topic field: a topic starts with a separate row, and its messages reply to that row."""
    said = {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1"}
    archive = read_telegram(
        chat(
            {**said, "id": 1, "text": "in general"},
            {"id": 2, "type": "service", "action": "topic_created", "title": "Tents", "date_unixtime": "1714984200"},
            {**said, "id": 3, "text": "mine leaks", "reply_to_message_id": 2},
            {"id": 4, "type": "service", "action": "topic_created", "title": "Food", "date_unixtime": "1714984200"},
            {**said, "id": 5, "text": "where?", "reply_to_message_id": 3},
            {**said, "id": 6, "text": "rice", "reply_to_message_id": 4},
            {**said, "id": 7, "text": "at the top", "reply_to_message_id": 5},
            {**said, "id": 8, "text": "hm", "reply_to_message_id": 1},
            {**said, "id": 9, "text": "over there", "reply_to_message_id": 2, "reply_to_peer_id": "channel9"},
            {**said, "id": 10, "text": "gone", "reply_to_message_id": 99},
        ),
        now=NOW,
    )
    assert archive.problems == []
    assert [(one.row_id, one.thread_id, one.reply_to) for one in archive.messages] == [
        ("1", None, None),
        ("3", "2", None),
        ("5", "2", "3"),
        ("6", "4", None),
        ("7", "2", "5"),
        ("8", None, "1"),
        ("9", None, None),
        ("10", None, "99"),
    ]


def test_somebody_without_a_handle_is_mentioned_by_their_id() -> None:
    text = [
        "look ",
        {"type": "mention_name", "text": "Ben", "user_id": 2},
        {"type": "mention", "text": "@cleo"},
        {"type": "mention_name", "text": "Ben", "user_id": 2},
        {"type": "mention_name", "text": "nobody", "user_id": "2"},
    ]
    said = {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1", "text": text}
    (message,) = read_telegram(chat({**said, "id": 1}), now=NOW).messages
    assert message.mentions == ("user2",)


@every_case(
    ("kind", "known_as"),
    [
        ("private_supergroup", "-10042/1"),
        ("public_supergroup", "-10042/1"),
        ("private_group", None),
        ("bot_chat", None),
    ],
)
def test_only_where_everybody_has_the_same_numbers_they_are_the_platforms(kind: str, known_as: str | None) -> None:
    """In a small group each member counts for themselves: the same number is another message to the bot."""
    said = {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1", "text": "hello"}
    (message,) = read_telegram(chat({**said, "id": 1}, kind=kind), now=NOW).messages
    assert message.platform_id == known_as


def test_an_old_export_is_read_with_a_warning() -> None:
    export = {"name": "A", "type": "personal_chat", "id": 7, "messages": [
        {"id": 1, "type": "message", "date": "2020-01-29T11:41:46", "from": "Ana", "from_id": 5, "text": "hi"},
        {"id": 2, "type": "message", "date": "2020-01-29T11:41:47", "from": "Ana", "from_id": 5, "text": "you"},
    ]}  # fmt: skip
    archive = read_telegram(list_telegram_chats(json.dumps(export).encode())[0], now=NOW)
    assert archive.messages[0].author == Author("user5", "Ana")
    assert [one.place for one in archive.warnings] == ["message 1 (id 1)"]
    assert (archive.chat_id, archive.kind) == ("user7", "direct")


def test_all_of_somebodys_chats_can_be_told_apart() -> None:
    chats: list[Any] = [
        {"name": "Ana", "type": "personal_chat", "id": 7, "messages": []},
        {"name": "Ana", "type": "private_group", "id": 7, "messages": []},
        {"type": "saved_messages", "id": 8, "messages": []},
        {"name": None, "type": "personal_chat", "id": 9, "messages": []},
        "nonsense",
    ]
    export = {"chats": {"about": "…", "list": chats[:3]}, "left_chats": {"list": chats[3:]}}
    found = list_telegram_chats(json.dumps(export).encode())
    assert [(one.id, one.name) for one in found] == [
        ("user7", "Ana"), ("chat7", "Ana"), ("user8", "Saved Messages"), ("user9", ""),
    ]  # fmt: skip
    assert [one.id for one in found if one.has_name("ana")] == ["user7", "chat7"]
    assert [one.id for one in found if one.has_name("chat7")] == ["chat7"]


@every_case("data", [b"", b"{", b"<html>", b"[]", b"{}", b"\xff\xfe", b'{"chats": {"list": 5}}', b'{"chats": 1}'])
def test_what_is_no_export_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        list_telegram_chats(data)


def test_a_message_that_is_no_unicode_does_not_spoil_the_file() -> None:
    good = {"type": "message", "date_unixtime": "1714984200", "from": "Ana", "from_id": "user1"}
    rows = [{**good, "id": 1, "text": "fine"}, {**good, "id": 2, "text": "BAD"}, {**good, "id": 3, "text": "\ud83d"}]
    data = json.dumps({"name": "A", "type": "private_group", "id": 1, "messages": rows}).encode()
    archive = read_telegram(list_telegram_chats(data.replace(b"BAD", b"\xff\xfe"))[0], now=NOW)
    assert [one.row_id for one in archive.messages] == ["1"]
    assert [one.place for one in archive.problems] == ["message 2 (id 2)", "message 3 (id 3)"]


@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(TELEGRAM_FIELDS, JSON)), max_size=6))
def test_no_telegram_row_can_stop_the_others(rows: list[dict[str, Any]]) -> None:
    good = {"id": 10**9, "type": "message", "date_unixtime": "1714984200", "from": "A", "from_id": "user1", "text": "x"}
    found = TelegramChat("channel1", "1", "A", "private_supergroup", [*rows, good, 5])
    archive = read_telegram(found, now=NOW)
    assert len(archive.messages) + len(archive.problems) + archive.skipped == len(rows) + 2
    assert not any(is_synthetic(message) for message in archive.messages)


def test_an_old_trigger_in_a_telegram_chat_is_tagged_too() -> None:
    rows = [{"id": 1, "text": "[AUTONOMOUS_FOLLOWUP: check_in]"}, {"id": 2, "text": "Hello again", "from_id": "user42"}]
    trigger, reply = read_telegram(chat(*rows, kind="bot_chat"), now=NOW).messages
    assert (is_synthetic(trigger), reply.metadata) == (True, {"autonomous": True, "trigger_type": "check_in"})
