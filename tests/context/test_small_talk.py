"""Test questions in a small group over several days, with small talk and questions about other things between (CTX-5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rapport.context.engine import SelectionOptions, select_context
from rapport.domain.context_selection import CandidateMessages
from rapport.domain.conversation import Author, Message
from rapport.retrieval.embedders.wordllama import open_word_table

BEGAN = datetime(2026, 11, 10, 9, tzinfo=UTC)
RELEVANT = SelectionOptions(words=open_word_table())

# minutes since the message before, who, the message it replies to, text
_LINES = """
0 Pia - Sign-up for the spring tournament closes on the 20th
3 Rob - nice match yesterday Gus
1 Gus - thanks, lucky net
5 Nia 0 I'd play doubles if somebody joins me
20 Rob 0 count me in for singles
120 Ola - Court 3 has a hole near the baseline
3 Gus 5 I twisted my ankle there on Monday
2 Pia - I called the caretaker, he fills it next week
500 Nia - anyone for a run tomorrow
2 Ola - 6pm?
1 Nia - ok
300 Rob - who has the ball machine key
2 Pia - in the locker
600 Gus - Nia I can do doubles with you if my ankle holds
10 Nia - <3
400 Ola - rain again
1 Rob - always on thursdays
3 Gus - typical
800 Pia - The fee is 25 for singles and 40 for a doubles pair
5 Rob - ok
60 Ola - new strings arrived
2 Nia - yay
500 Gus - The caretaker says court 3 stays closed until the 25th
4 Rob - hm
300 Nia - pizza after training?
1 Ola - yes
1 Gus - sure
2 Rob - can't, dentist
15 Ola - lost a blue bottle, anyone?
2 Nia - it's in the bar
"""


def write_chat() -> list[Message]:
    messages: list[Message] = []
    at = BEGAN
    for number, line in enumerate(_LINES.strip().splitlines()):
        minutes, who, replied, text = line.split(" ", 3)
        at += timedelta(minutes=float(minutes))
        reply = None if replied == "-" else f"{int(replied):02}"
        messages.append(Message(f"{number:02}", "chat", "user", text, at, Author(who.lower(), who), reply))
    return messages


def ask(text: str, after: Message) -> Message:
    return Message(
        "call", "chat", "user", f"@bot {text}", after.created_at + timedelta(minutes=2), Author("ola", "Ola")
    )


def choose(question: str, found: CandidateMessages) -> list[Message]:
    return [entry.message for entry in select_context(ask(question, found.recent[-1]), found, RELEVANT).earlier]


def add_calls(messages: list[Message]) -> list[Message]:
    """Return the chat with questions to the agent about other things, and its answers."""
    asked = ["how is pasta made?", "tell me a joke", "who invented skiing?", "what is a comet?"]
    with_calls: list[Message] = []
    for number, message in enumerate(messages):
        with_calls.append(message)
        if number % 7 == 6:
            call_text = asked[number // 7]
            call = replace(message, id=f"{message.id}c", content=f"@bot {call_text}", reply_to_id=None)
            call = replace(call, created_at=message.created_at + timedelta(seconds=20))
            answer = replace(call, id=f"{message.id}d", role="assistant", content="I can't say.", event_id=call.id)
            with_calls += [call, replace(answer, author=Author("companion", "Companion"))]
    return with_calls


def test_small_talk_of_other_days_is_not_chosen_for_a_question_that_names_its_subject() -> None:
    chosen = {message.text for message in choose("when can we play on court 3 again?", CandidateMessages(write_chat()))}
    assert {
        "Court 3 has a hole near the baseline",
        "I twisted my ankle there on Monday",
        "The caretaker says court 3 stays closed until the 25th",
    } <= chosen
    small_talk = {"anyone for a run tomorrow", "6pm?", "rain again", "always on thursdays", "typical", "yay"}
    assert not small_talk & chosen


def test_calls_about_other_things_are_not_chosen_for_a_question() -> None:
    chosen = choose("when can we play on court 3 again?", CandidateMessages(add_calls(write_chat())))
    assert [message.text for message in chosen if message.id[-1] in "cd"] == []
    assert "The caretaker says court 3 stays closed until the 25th" in {message.text for message in chosen}


def test_the_exchange_just_before_a_question_and_one_with_its_words_are_chosen() -> None:
    messages = write_chat()
    last = messages[-1]
    exchanges: list[Message] = []
    for number, text in enumerate(["is a court of clay slow?", "how is pasta made?", "what is a comet?"]):
        call = ask(text, last)
        at = last.created_at + timedelta(minutes=10 * number + 1)
        call = replace(call, id=f"{number}c", created_at=at)
        answer = replace(call, id=f"{number}d", role="assistant", content="Yes.", event_id=call.id)
        exchanges += [call, replace(answer, created_at=at + timedelta(seconds=5))]
    chosen = choose("when can we play on court 3 again?", CandidateMessages([*messages, *exchanges]))
    assert [message.id for message in chosen if message.id[-1] in "cd"] == ["0c", "0d", "2c", "2d"]


def test_a_reply_to_a_message_that_was_found_by_meaning_is_chosen_with_it() -> None:
    messages = write_chat()
    reply = replace(
        messages[3], id="03b", content="yes please", created_at=messages[3].created_at + timedelta(minutes=1)
    )
    messages.insert(4, replace(reply, reply_to_id="12"))  # to "in the locker"
    question = "where are the spare rackets?"
    without = {message.id for message in choose(question, CandidateMessages(messages))}
    assert not {"12", "03b"} & without
    found = CandidateMessages(messages, similar=[(messages[13], 0.8)])
    assert messages[13].id == "12"
    assert {"12", "03b"} <= {message.id for message in choose(question, found)}
