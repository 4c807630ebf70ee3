"""Whether a message of a group is meant for the agent: an @mention as a word of its own, in any case (CTX-9)."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rapport.domain.agents import AGENTS, COMPANION, LIBRARIAN, AgentProfile
from rapport.ingest.addressing import mentioned_agents, mentions


@pytest.mark.parametrize(
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
    ],
)
def test_a_mention_is_a_word_of_its_own(text: str) -> None:
    assert mentions(text, COMPANION)


@pytest.mark.parametrize(
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
    ],
)
def test_what_only_looks_like_one_is_none(text: str) -> None:
    assert not mentions(text, COMPANION)


def test_each_agent_hears_its_own_names() -> None:
    assert mentioned_agents("@bot", AGENTS.values()) == ["companion", "librarian"]
    assert mentioned_agents("@companion", AGENTS.values()) == ["companion"]
    assert mentioned_agents("@LIBRARIAN and @companion", AGENTS.values()) == ["companion", "librarian"]
    assert mentioned_agents("nobody", AGENTS.values()) == []
    assert mentioned_agents("@nobody", AGENTS.values()) == []
    assert mentioned_agents("@bot", []) == []


BESIDE = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    before=BESIDE,
    after=BESIDE,
    handle=st.sampled_from(COMPANION.handles),
    case=st.sampled_from([str.upper, str.lower, str.title]),
)
def test_between_spaces_a_mention_is_always_found(before: str, after: str, handle: str, case: object) -> None:
    assert callable(case)
    assert mentions(f"{before} @{case(handle)} {after}", COMPANION)
    assert mentions(f"@{handle}", COMPANION)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@"), max_size=100))
def test_without_an_at_nothing_is_mentioned(text: str) -> None:
    assert mentioned_agents(text, AGENTS.values()) == []


@given(st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=12))
def test_another_name_is_somebody_else(name: str) -> None:
    assume(name.lower() not in {handle.lower() for handle in (*COMPANION.handles, *LIBRARIAN.handles)})
    assert mentioned_agents(f"@{name}", AGENTS.values()) == []


@given(st.text(string.printable, min_size=1, max_size=10).filter(lambda handle: re.fullmatch(r"\S*\w", handle)))
def test_a_handle_is_taken_literally(handle: str) -> None:
    """No handle is a pattern: `a.c` is not `abc`."""
    agent = AgentProfile("x", "X", "", "", "blend", (handle,))
    assert mentions(f"hi @{handle} there", agent)
    assert mentions(f"hi @{handle}x there", agent) is False


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "text", ["@" * 32_000, "@bo" * 10_000, "a" * 31_000 + "@bot_", "." * 31_000 + "@", "@bot." * 6_000]
)
def test_long_text_takes_no_time(text: str) -> None:
    mentioned_agents(text, AGENTS.values())
