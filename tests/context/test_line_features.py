"""Test what the scorer reads of a chat, and how much of it is cached."""

from __future__ import annotations

from datetime import UTC, datetime

from rapport.context.relevance.chat_lines import MAX_MENTIONS, build_lines
from rapport.context.relevance.line_features import MAX_READ_CHARACTERS, read_line
from rapport.domain.conversation import Author, Message


def said(text: str) -> Message:
    return Message("one", "here", "user", text, datetime(2025, 11, 18, tzinfo=UTC), Author("ann", "Ann"))


def test_of_a_very_long_message_the_beginning_is_read_and_nothing_more_kept() -> None:
    beginning = "word " * (MAX_READ_CHARACTERS // 5)
    assert read_line(f"{beginning}{'x' * 29_000}") is read_line(f"{beginning}something else")
    [line] = build_lines([said(f"@ben {'word ' * 6_000}@cara")], handles=())
    assert len(line.text) == MAX_READ_CHARACTERS
    assert line.mentions == ("ben",)


def test_who_names_everybody_addresses_a_few() -> None:
    [line] = build_lines([said(" ".join(f"@p{number}" for number in range(300)))], handles=())
    assert line.mentions == tuple(f"p{number}" for number in range(MAX_MENTIONS))
