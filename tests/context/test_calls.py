"""Test the selection in chats with earlier calls: the discussion that is meant, whoever called (ADR 31)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rapport.context.engine import AGENT_HANDLES, MAX_EXCHANGES, SelectionOptions, select_context
from rapport.context.relevance.chat_lines import build_lines
from rapport.domain.context_selection import CandidateMessages, ContextSelection
from rapport.domain.conversation import Author, Message
from rapport.retrieval.embedders.wordllama import open_word_table
from tests.context.cast import Chat, Said, chats
from tests.support.cases import every_case

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RELEVANT = SelectionOptions(words=open_word_table())


def selected(chat: Chat, choice: SelectionOptions = RELEVANT, *, links: bool) -> tuple[ContextSelection, list[Message]]:
    """Return the selection for the new call of a chat. `links` says whether answers are linked to their calls."""
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
    return select_context(call, CandidateMessages(messages, anchor), choice), messages


def told(chat: Chat, chosen: set[str]) -> tuple[list[str], list[str], int]:
    """Return the relevant messages that are missing, the other messages that are selected, and the number of other messages."""
    marks = {f"{number:02}": line for number, line in enumerate(chat.lines)}
    missing = [line.text for id_, line in marks.items() if line.mark == "*" and id_ not in chosen]
    others = [line.text for id_, line in marks.items() if line.mark == "-" and id_ in chosen]
    return missing, others, sum(line.mark == "-" for line in chat.lines)


@every_case(
    "links",
    [True, False],
)
@every_case("chat", chats())
def test_the_whole_discussion_that_is_meant_is_selected(chat: Chat, *, links: bool) -> None:
    selection, _ = selected(chat, links=links)
    missing, others, total = told(chat, set(selection.ids))
    assert missing == []
    assert len(others) <= (total + 1) // 2, others


@every_case("chat", chats())
def test_an_answer_is_chosen_with_the_call_that_it_answers(chat: Chat) -> None:
    selection, messages = selected(chat, links=True)
    called = {one.id: one.event_id for one in messages if one.role == "assistant"}
    exchanges = {called.get(id_, id_) for id_ in selection.ids} & set(called.values())
    assert len(exchanges) <= MAX_EXCHANGES
    assert all(called[id_] in selection.ids for id_ in selection.ids if id_ in called)


def test_the_exchange_of_another_talk_stays_there() -> None:
    chat = next(one for one in chats() if one.title.startswith("a reply to a person's message"))
    texts = {line.text for line in chosen_lines(chat)}
    assert "I can't water plants, sorry." in texts
    assert "I haven't seen it either." not in texts


def test_who_goes_on_from_an_answer_is_given_it_with_its_call() -> None:
    for title in ("a reply to the agent's answer", "going on from the answer", "going on from the agent's own words"):
        chat = next(one for one in chats() if one.title.startswith(title))
        first = next(number for number, line in enumerate(chat.lines) if line.mark == "<")
        assert {chat.lines[first - 1], chat.lines[first]} <= set(chosen_lines(chat)), title


def chosen_lines(chat: Chat) -> list[Said]:
    return [chat.lines[int(id_)] for id_ in selected(chat, links=True)[0].ids]


def test_the_agents_answers_get_only_the_room_that_people_leave() -> None:
    chat = next(one for one in chats() if one.title.startswith("the agent's long answers"))
    selection, _ = selected(chat, replace(RELEVANT, tokens=150), links=True)
    assert told(chat, set(selection.ids))[0] == []
    assert all(one.message.role == "user" for one in selection.chosen)


def test_a_chat_with_the_agent_alone_is_gone_on_with() -> None:
    """Only the caller and the agent have written: the calls are the discussion."""
    texts = ["@bot where can one swim here?", "In the lake.", "@bot how deep is it?", "Eight metres."]
    chat = [spoken_at(number, 40 - number, "Ann", text) for number, text in enumerate(texts)]
    chat = [replace(one, role="assistant", event_id=f"0{int(one.id) - 1}") if int(one.id) % 2 else one for one in chat]
    call = spoken_at(9, 0, "Ann", "@bot and warm?")
    assert select_context(call, CandidateMessages(chat), RELEVANT).ids == ["00", "01", "02", "03", "09"]


def spoken_at(number: int, minutes: float, who: str, text: str, **more: Any) -> Message:
    return Message(
        f"{number:02}", "chat", "user", text, NOW - timedelta(minutes=minutes), Author(who.lower(), who), **more
    )


def test_a_mention_of_the_agent_is_no_link_between_people() -> None:
    said = [
        spoken_at(0, 5, "Ann", "@bot and @Ben what do you think?"),
        spoken_at(1, 4, "Ben", "@house_helper_bot thoughts?", mentions=["companion"]),  # as its platform calls it
        spoken_at(2, 3, "Cleo", "ask @dora, she knows"),
        replace(spoken_at(3, 2, "Companion", "Both are fine."), role="assistant"),
    ]
    assert [line.mentions for line in build_lines(said, AGENT_HANDLES)] == [("ben",), (), ("dora",), ()]


def test_what_the_agent_said_unasked_can_be_what_is_talked_about() -> None:
    chat = [
        spoken_at(0, 90, "Ann", "The plumber looks at the heating tomorrow"),
        spoken_at(1, 80, "Mia", "who took my umbrella?"),
        replace(spoken_at(2, 40, "Companion", "Has the plumber repaired the heating?"), role="assistant", event_id="x"),
        spoken_at(3, 30, "Mia", "the umbrella is back"),
    ]
    call = spoken_at(9, 0, "Ann", "@bot yes, the heating is warm again", reply_to_id="02")
    selection = select_context(call, CandidateMessages(chat, chat[2]), RELEVANT)
    assert {"00", "02"} <= set(selection.ids)
    assert selection.anchor == chat[2]


PEOPLE = ["Ann", "Bob", "Tom"]
TEXTS = ["where is the key?", "under the pot", "ok", "the train is late", "who cooks tonight?", "me", "is it raining?"]
BARE = ["@bot", "@bot ^", "@bot what do you think?", "@bot is that right?", "@bot any idea?"]


@st.composite
def chats_with_calls(draw: st.DrawFn) -> list[Message]:
    """Half an hour of a chat in which the agent is called now and then."""
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 25))):
        minutes = 40 - number
        people = [one.id for one in messages if one.role == "user" and "@bot" not in one.text]
        reply = draw(st.none() | st.sampled_from(people)) if people else None
        who = draw(st.sampled_from(PEOPLE))
        if not people or draw(st.integers(0, 2)):
            messages.append(spoken_at(2 * number, minutes, who, draw(st.sampled_from(TEXTS)), reply_to_id=reply))
            continue
        messages.append(spoken_at(2 * number, minutes, who, draw(st.sampled_from(BARE)), reply_to_id=reply))
        answer = spoken_at(2 * number + 1, minutes - 0.5, "Companion", draw(st.sampled_from([*TEXTS, "Sorry."])))
        messages.append(replace(answer, role="assistant", event_id=messages[-1].id))
    return messages


@settings(max_examples=80)
@given(chats_with_calls(), st.sampled_from(BARE), st.integers(0, 50))
def test_earlier_calls_change_nothing_of_what_is_chosen_of_people(chat: list[Message], text: str, replied: int) -> None:
    people = [one for one in chat if one.role == "user" and one.text not in BARE]
    anchor = people[replied] if replied < len(people) else None
    # Bare calls that are replies are covered by other tests.
    asker = people[-1].author if anchor is None else Author("zoe", "Zoe")
    assert asker is not None
    if anchor is None and any(one.reply_to_id and one.author == asker and one.text in BARE for one in chat):
        return
    call = replace(spoken_at(99, 0, "", text), author=asker, reply_to_id=anchor.id if anchor else None)
    found = select_context(call, CandidateMessages(chat, anchor), RELEVANT)
    alone = select_context(call, CandidateMessages(people, anchor), RELEVANT)
    of_people = {one.id for one in people}
    assert [id_ for id_ in found.ids if id_ in of_people] == [id_ for id_ in alone.ids if id_ in of_people]
