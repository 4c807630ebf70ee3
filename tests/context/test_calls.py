"""What is chosen when the agent has been called in the chat before: the talk that is meant, whoever called (ADR 31)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from context.cast import Chat, chats
from rapport.context.engine import Choice, select
from rapport.domain.conversation import Author, Message
from rapport.domain.selection import ContextSelection, Surroundings
from rapport.knowledge.embedders.wordllama import word_table

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RELEVANT = Choice(words=word_table())


def selected(chat: Chat, choice: Choice = RELEVANT, *, links: bool) -> tuple[ContextSelection, list[Message]]:
    """What is chosen for the new call of a chat. `links` says whether answers say what they answer."""
    messages: list[Message] = []
    ids: dict[str, str] = {}
    asked = ""
    for number, line in enumerate(chat.lines):
        id_ = f"{number:02}"
        if line.name:
            ids[line.name] = id_
        if line.mark == "@":
            asked = id_
        at = NOW - timedelta(minutes=line.minutes) + timedelta(seconds=number)
        reply = ids[line.replies_to] if line.replies_to else None
        message = Message(id_, "chat", "user", line.text, at, Author(line.who.lower(), line.who), reply)
        if line.mark == "<":
            message = replace(
                message, role="assistant", author=Author("companion", "Companion"), event_id=asked if links else None
            )
        messages.append(message)
    call = messages.pop()
    anchor = next((one for one in messages if one.id == call.reply_to_id), None)
    return select(call, Surroundings(messages, anchor), choice), messages


def told(chat: Chat, chosen: set[str]) -> tuple[list[str], list[str], int]:
    """Of the chat: what belongs and is missing, what is other talk and chosen, and how much other talk there is."""
    marks = {f"{number:02}": line for number, line in enumerate(chat.lines)}
    missing = [line.text for id_, line in marks.items() if line.mark == "*" and id_ not in chosen]
    others = [line.text for id_, line in marks.items() if line.mark == "-" and id_ in chosen]
    return missing, others, sum(line.mark == "-" for line in chat.lines)


@pytest.mark.parametrize("links", [True, False], ids=["linked", "unlinked"])
@pytest.mark.parametrize("chat", chats(), ids=lambda chat: chat.title)
def test_the_talk_that_is_meant_is_all_there(chat: Chat, *, links: bool) -> None:
    selection, _ = selected(chat, links=links)
    missing, others, total = told(chat, set(selection.ids))
    assert missing == []
    assert len(others) <= (total + 1) // 2, others
