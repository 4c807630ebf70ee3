"""Test what a call asks: its own text, or the message that it points at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rapport.context.calls import separate_calls
from rapport.context.engine import AGENT_HANDLES, find_subject_message
from rapport.context.question import derive_question, has_subject, is_bare, strip_address
from rapport.domain.conversation import Author, Message
from tests.support.cases import every_case

BARE = [
    "@bot", "@bot ^", "@bot 👆", "@bot ???", "@bot what do you think?", "@bot What do you think about this one?", "@bot can you help",
    "@bot can you help us with this please", "@bot thoughts?", "Thoughts, @bot?", "any ideas @bot", "hey @bot, your take?",
    "@bot help", "@bot wdyt", "@bot is that right?", "@bot what's your opinion on that", "@bot please explain", "/ask@bot",
    "@bot was meinst du dazu?", "@bot kannst du uns helfen?", "@bot qu'en penses-tu ?", "@bot tu peux nous aider ?",
    "@bot ¿qué opinas?", "@bot ¿puedes ayudarnos?",
]  # fmt: skip
OWN = [
    "@bot is this still open?", "@bot what's the capital of Peru?", "@bot which of the two trains is faster?", "@bot thanks!",
    "@bot translate that into French", "@bot and the second one?", "@bot what do you think of the Thai place?", "@bot hello",
    "@bot summarize the budget", "@bot wann fährt der Zug?", "@bot 12 * 14",
]  # fmt: skip


def said(text: str, number: int = 0, name: str = "Ann", **more: Any) -> Message:
    at = datetime(2025, 11, 18, tzinfo=UTC) + timedelta(minutes=number)
    return Message(f"m{number}", "here", "user", text, at, Author(name, name), **more)


@every_case("text", BARE)
def test_a_call_without_a_subject_of_its_own_is_bare(text: str) -> None:
    assert is_bare(text)


@every_case("text", OWN)
def test_a_call_with_a_subject_is_not_bare(text: str) -> None:
    assert not is_bare(text)


def test_whom_it_addresses_is_no_part_of_what_it_says() -> None:
    assert strip_address("@bot, what does @ann mean? mail me@bot.example") == "what does mean? mail me@bot.example"


def test_a_bare_call_means_what_it_replies_to() -> None:
    question, later = said("How long may goods be sent back?"), said("No idea, honestly. Lunch?", 1, "Ben")
    assert derive_question(question, [question, later]) == question.text


def test_without_a_reply_it_means_the_latest_question_and_what_came_after_it() -> None:
    chat = [
        said("Nice weather"),
        said("How long may goods be sent back?", 1),
        said("no idea", 2, "Ben"),
        said("@bot thoughts?", 3, "Cara"),
        said("It is raining.", 4, "Weather", is_bot=True),
    ]
    assert derive_question(None, chat) == "How long may goods be sent back? no idea"


def test_what_it_replies_to_may_be_bare_itself() -> None:
    chat = [said("We should look at the restaurant"), said("Any thoughts?", 1, "Ben")]
    assert derive_question(chat[1], chat) == "Any thoughts? We should look at the restaurant"


def test_where_nothing_was_said_it_means_nothing() -> None:
    assert derive_question(None, []) == ""
    assert find_subject_message(said("@bot"), []) is None


def test_a_picture_without_words_asks_nothing() -> None:
    question, picture = said("How long may goods be sent back?"), said("[picture]", 1, "Ben")
    assert derive_question(None, [question, picture]) == question.text
    assert not has_subject(picture)


def test_of_a_very_long_text_beginning_and_end_are_looked_over() -> None:
    long = f"@bot begin {'word ' * 6_000}@ann end"
    assert len(strip_address(long)) < 2_100
    assert strip_address(long).startswith("begin word")
    assert strip_address(long).endswith("word end")
    assert is_bare("@bot" + " " * 30_000 + "^")
    assert not is_bare("@bot" + " " * 30_000 + "translate")
    assert has_subject(said(long))


def test_a_call_points_at_what_its_asker_said_last() -> None:
    chat = [said("Where is the ladder?"), said("Lunch?", 1, "Ben")]
    assert find_subject_message(said("@bot ^", 2), chat) == chat[0]
    assert find_subject_message(said("@bot ^", 2, "Cara"), chat) == chat[1]


def test_who_was_away_may_mean_what_others_talk_about() -> None:
    chat = [said("Where is the ladder?"), said("Lunch?", 599, "Ben")]
    assert separate_calls(chat, AGENT_HANDLES).find_subject_lines(said("@bot ^", 600)) == [one.id for one in chat]
