"""Test the rule that decides whether a message is for the agent (CTX-9)."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rapport.agents.profiles import COMPANION, LIBRARIAN
from rapport.domain.agent_profile import AgentHandle
from rapport.domain.conversation import Audience, Incoming, Message
from rapport.ingest.addressing import (
    Facts,
    find_audience,
    find_mentioned_agents,
    has_mention,
    is_for_agent,
    strip_quotes_and_code,
)
from tests.support.cases import every_case
from tests.support.growth import takes_at_most

AGENTS = [AgentHandle(agent.id, agent.handles) for agent in (COMPANION, LIBRARIAN)]


@every_case(
    "text",
    [
        "@bot",
        "@bot what do you think?",
        "@bot ^",
        "hey @bot",
        "hey @BOT!",
        "hey @Companion, help",
        "what do you think, @bot?",
        "(@bot)",
        '"@bot"',
        "**@bot**",
        "@bot: hello",
        "@bot's turn",
        "thanks @bot.",
        "thanks @bot...",
        "thanks @bot.\nBye",
        "ana,@bot",
        "line one\n@bot line two",
        "¿@bot?",
        "@ana @bot",
        "@bot@bot",
        "👋@bot👋",
        "@bot,@ana",
        "/ask @bot",
        "/ask@bot",
        "/ask@Bot what do you think?",
        "please /start@companion",
        "line one\n/help@bot",
    ],
)
def test_a_mention_is_a_word_of_its_own(text: str) -> None:
    assert has_mention(text, AGENTS[0])


@every_case(
    "text",
    [
        "",
        "bot",
        "robot @ana",
        "@",
        "@ bot",
        "mail me@bot.example",
        "me@bot",
        "mail bot@example.org",
        "@bottle",
        "@bot_2",
        "@bot2",
        "@bot-two",
        "@bot.example",
        "@@bot",
        "x@companion",
        "@librarian",
        "@böt",
        "é@bot",
        "https://example.org/.@bot",
        "https://example.org/ask@bot",
        "/home/ask@bot",
        "/ask@bottle",
        "/ask@bot.example",
        "/@ask@bot",
        "/ask",
        "/ask bot",
    ],
)
def test_text_that_only_looks_like_a_mention_is_none(text: str) -> None:
    assert not has_mention(text, AGENTS[0])


def test_each_agent_hears_its_own_names() -> None:
    assert find_mentioned_agents("@bot", [], AGENTS) == ["companion", "librarian"]
    assert find_mentioned_agents("@companion", [], AGENTS) == ["companion"]
    assert find_mentioned_agents("@LIBRARIAN and @companion", [], AGENTS) == ["companion", "librarian"]
    assert find_mentioned_agents("nobody", [], AGENTS) == []
    assert find_mentioned_agents("@nobody", [], AGENTS) == []
    assert find_mentioned_agents("@bot", [], []) == []


def test_an_accent_may_be_typed_as_a_character_of_its_own() -> None:
    for handle, typed in (("caf\u00e9", "cafe\u0301"), ("cafe\u0301", "caf\u00e9"), ("caf\u00e9", "CAFE\u0301")):
        agent = AgentHandle("x", (handle,))
        assert find_mentioned_agents(f"hi @{typed}, hello", [], [agent]) == ["x"]
        assert find_mentioned_agents("hello", [f"@{typed}"], [agent]) == ["x"]
    assert find_mentioned_agents("@cafe\u0301", [], [AgentHandle("x", ("cafe",))]) == []


@every_case(
    ("mentioned", "whom"),
    [
        (["companion"], ["companion"]),
        (["@Companion"], ["companion"]),
        (["ana", "BOT"], ["companion", "librarian"]),
        (["librarian", "companion"], ["companion", "librarian"]),
        (["ana", "bottle", "@", "", "user1"], []),
        ([], []),
    ],
)
def test_who_is_named_by_the_channel_is_addressed(mentioned: list[str], whom: list[str]) -> None:
    """As by a text-mention, in which the words need not hold any name."""
    assert find_mentioned_agents("what do you think?", mentioned, AGENTS) == whom


@every_case(
    "text",
    [
        "> @bot what do you think?\nI would ask again",
        "  > @bot\nas you said",
        ">@bot\n>and more\nno idea",
        "write `@bot help` and it answers",
        "``@bot ` help``",
        "```\n@bot help\n```",
        "`/ask@bot`",
        "`one` and `@bot`",
        "(`@bot`)",
        "it`s `@bot` that you write",
        "write\n`@bot\nhelp`",
        "```\nx = 1\n\n@bot help\n```",
    ],
)
def test_who_quotes_a_call_or_shows_one_as_code_does_not_call(text: str) -> None:
    assert find_mentioned_agents(text, [], AGENTS) == []


@every_case(
    "text",
    [
        "> what do you think?\n@bot and you?",
        "write `@bot help`, right @bot?",
        "a backtick ` is no code @bot",
        "``@bot` what is this?",
        "```python\nx = 1\n``` @bot why?",
        "3 > 2, @bot?",
        "-> @bot",
        "`` ` `` @bot",
        "@bot `",
        "it`s broken again @bot, can`t you help?",
        "a ` here\n\n@bot\n\na ` there",
        "a ` here\n \t\r\n@bot and a ` there",
        "don`t `x` @bot, won`t you?",
    ],
)
def test_who_calls_beside_a_quote_or_code_does_call(text: str) -> None:
    assert find_mentioned_agents(text, [], AGENTS) == ["companion", "librarian"]


@given(st.text(string.ascii_letters + " `@\n>", max_size=80))
def test_own_words_are_part_of_the_words(text: str) -> None:
    own = strip_quotes_and_code(text)
    assert len(own) <= len(text) + 1
    remaining = iter(text)
    assert all(character in remaining for character in own if character != " ")
    if "`" not in text and ">" not in text:
        assert own == text


# Nothing that would make a quote or code of it.
BESIDE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="`>"), max_size=30)


@given(
    before=BESIDE,
    after=BESIDE,
    handle=st.sampled_from(COMPANION.handles),
    case=st.sampled_from([str.upper, str.lower, str.title]),
)
def test_between_spaces_a_mention_is_always_found(before: str, after: str, handle: str, case: object) -> None:
    assert callable(case)
    assert has_mention(f"{before} @{case(handle)} {after}", AGENTS[0])
    assert has_mention(f"@{handle}", AGENTS[0])


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@"), max_size=100))
def test_without_an_at_nothing_is_mentioned(text: str) -> None:
    assert find_mentioned_agents(text, [], AGENTS) == []


@given(st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=12))
def test_another_name_is_somebody_else(name: str) -> None:
    assume(name.lower() not in {handle.lower() for handle in (*COMPANION.handles, *LIBRARIAN.handles)})
    assert find_mentioned_agents(f"@{name}", [], AGENTS) == []


@given(st.text(string.printable, min_size=1, max_size=10).filter(lambda handle: re.fullmatch(r"\S*\w", handle)))
def test_a_handle_is_taken_literally(handle: str) -> None:
    """No handle is a pattern: `a.c` is not `abc`."""
    agent = AgentHandle("x", (handle,))
    assert has_mention(f"hi @{handle} there", agent)
    assert has_mention(f"hi @{handle}x there", agent) is False


@every_case(
    "text",
    [
        "@" * 32_000,
        "@bo" * 10_000,
        "a" * 31_000 + "@bot_",
        "." * 31_000 + "@",
        "@bot." * 6_000,
        "`@" * 16_000,
        "`\n\n@" * 8_000,
        "\n" * 31_000 + "@",
        "\n " * 15_000 + "`@`",
        "".join("`" * n + "@" for n in range(1, 250)),
        "\n>" * 16_000 + "@",
        "/a" * 16_000 + "@",
    ],
)
def test_long_text_is_checked_in_little_time(text: str) -> None:
    assert takes_at_most(5, lambda: find_mentioned_agents(text, [], AGENTS))


def test_a_message_is_for_the_agent_in_a_direct_chat_by_mention_by_reply_or_if_a_reply_is_awaited() -> None:
    in_group = Facts(is_direct=False, mentions_agent=False, replies_to_agent=False)
    assert not is_for_agent(in_group)
    for fact in ("is_direct", "mentions_agent", "replies_to_agent", "awaits_reply"):
        called = replace(in_group, **{fact: True})
        assert is_for_agent(called), fact
        for excluded in ("is_bot", "is_album_rest", "is_late_edit"):
            assert not is_for_agent(replace(called, **{excluded: True})), (fact, excluded)


def test_the_audience_is_decided_for_every_conversation_the_message_can_be_in() -> None:
    message = Incoming("local", "here", "@librarian, what is new?")
    assert find_audience(message, None, AGENTS) == Audience(True, False, ["librarian"])
    # Where the platform marks mentions, the words do not count.
    assert find_audience(replace(message, mentions_agent=False), None, AGENTS) == Audience(True, False, [])
    assert find_audience(replace(message, mentions_agent=True), None, AGENTS) == Audience(True, True, [])
    heir = replace(AGENTS[1], answers_for_deleted=True)
    assert find_audience(message, None, [AGENTS[0], heir]).in_groups_of_deleted
    assert find_audience(replace(message, replies_to_agent=True), None, AGENTS).in_group_chats
    assert find_audience(replace(message, is_bot=True), None, AGENTS).is_empty


def test_a_reply_counts_by_the_stored_message_unless_the_platform_says_whose_it_is() -> None:
    message = Incoming("local", "here", "Why?")
    said = Message("m1", "here", "assistant", "Because.", datetime.now(UTC))
    assert find_audience(message, said, AGENTS).in_group_chats
    assert not find_audience(message, replace(said, role="user"), AGENTS).in_group_chats
    assert not find_audience(replace(message, replies_to_agent=False), said, AGENTS).in_group_chats


@pytest.mark.parametrize(("age", "is_answered"), [(timedelta(minutes=59), True), (timedelta(minutes=61), False)])
def test_an_edit_of_an_old_message_is_not_answered(age: timedelta, is_answered: bool) -> None:
    now = datetime.now(UTC)
    edited = Incoming("local", "here", "@bot?", said_at=now - age, edited_at=now)
    assert find_audience(edited, None, AGENTS).is_empty is not is_answered
    assert not find_audience(replace(edited, edited_at=None), None, AGENTS).is_empty
