"""Test the selection from a chat, and the properties that hold for any chat (CTX-4, 5, 6)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rapport.context.engine import TOKENS_PER_LINE, SelectionOptions, select_context
from rapport.context.relevance.grouping import MIN_SCORE, choose_lines
from rapport.domain.context_selection import MAX_LINE_CHARACTERS, CandidateMessages, Strategy
from rapport.domain.conversation import Author, Message
from rapport.domain.token_estimate import estimate_tokens
from rapport.retrieval.embedders.wordllama import open_word_table
from tests.support.cases import every_case

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
DAY = 24 * 60.0
RELEVANT = SelectionOptions(words=open_word_table())
STRATEGIES: tuple[Strategy, ...] = ("relevant", "time_gap", "thread", "recent")


def said(id_: str, who: str, minutes_ago: float, text: str, reply_to: str | None = None) -> Message:
    return Message(id_, "chat", "user", text, NOW - timedelta(minutes=minutes_ago), Author(who.lower(), who), reply_to)


def chosen(
    call: Message, *messages: Message, choice: SelectionOptions = RELEVANT, anchor: Message | None = None
) -> list[str]:
    """Return the ids selected for a call after these messages, the call included."""
    return select_context(call, CandidateMessages(messages, anchor), choice).ids


CHALLENGES = [
    ("We should look at the restaurant for the gathering", "Any thoughts?", "The thai restaurant on 10th Ave?", "@bot"),
    ("We need a birthday present for mum", "Any ideas?", "A book about gardening maybe?", "@bot what do you think?"),
    ("I'd like to paint the hallway this month", "What colour would you take?", "A warm grey perhaps?", "@bot thoughts?"),
    ("Does someone know a good dentist around here?", "Still looking :)", "Dr. Meyer on Elm Street is good with kids", "@bot can you help?"),
    ("Who brings the tent on the camping trip?", "No one?", "I could ask my brother for his old tent", "@bot ^"),
    ("Wir brauchen ein Restaurant für das Treffen", "Was meint ihr?", "Das thailändische Restaurant in der Hauptstraße?", "@bot"),
]  # fmt: skip
CASTS = ["Ann Ann Bob Ann", "Ann Bob Carl Ann", "Ann Bob Carl Dan", "Ann Ann Bob Bob", "Ann Bob Ann Bob"]


@every_case("cast", CASTS)
@every_case("words", CHALLENGES)
def test_the_challenge_selects_the_discussion_of_all_three_days(words: tuple[str, str, str, str], cast: str) -> None:
    a, b, c, d = cast.split()
    talk = [said("A", a, 3 * DAY, words[0]), said("B", b, 2 * DAY, words[1]), said("C", c, 10, words[2])]
    assert chosen(said("D", d, 0, words[3]), *talk) == ["A", "B", "C", "D"]


def test_scenario_a_a_silence_ends_a_session_for_time_gap() -> None:
    talk = [said("A", "Ann", 3 * DAY, CHALLENGES[0][0]), said("B", "Bob", 2 * DAY, CHALLENGES[0][1])]
    talk.append(said("C", "Carl", 10, CHALLENGES[0][2]))
    assert chosen(said("D", "Ann", 0, "@bot thoughts?"), *talk, choice=SelectionOptions("time_gap")) == ["C", "D"]


@every_case("strategy", STRATEGIES)
@every_case("words", CHALLENGES)
def test_scenario_b_what_is_replied_to_is_given_however_old(words: tuple[str, ...], strategy: Strategy) -> None:
    old = said("A", "Ann", 3 * DAY, words[0])
    call = said("D", "Bob", 0, "@bot help with this", "A")
    # Older than everything that is loaded of the chat: it comes by its link alone.
    selection = select_context(call, CandidateMessages((), old, around=(old,)), replace(RELEVANT, strategy=strategy))
    assert selection.ids == ["A", "D"]
    assert selection.chosen[0].reasons == ("anchor",)


TANGLED = [
    ["Who can fix the projector before Friday's talk?", "lunch was great today, thanks for cooking!", "The projector lamp may be loose, I can look at it", "The lamp is fine, it's the HDMI port of the projector", "did someone take my umbrella?"],
    ["Should we move the database to Postgres 18?", "anyone up for football tonight?", "Postgres 18 has async IO, our queries would gain from it", "the migration would need a downtime though", "we are only 7 for football so far, 3 more please"],
    ["my sourdough doesn't rise, any tips?", "is the gym open on Sunday?", "@Ann is the starter active? feed it twice before baking", "I feed it once a day, is that not enough for the starter?", "found it: gym is open from 10 to 6 on Sunday"],
    ["Where do we meet for the museum tour?", "my bike has a flat tyre again :(", "At the main entrance of the museum I'd say, at ten", "Ten is fine, does the tour take long?", "anybody got a bike pump?"],
]  # fmt: skip
HARDER = [
    ["Which train do we take to Berlin on Saturday?", "the printer is out of toner again", "There is one at 9:04, and a slower train at 9:40", "9:04 is too early for the kids, 9:40 then", "who has the key of the storage room? I need the toner"],
    ["What shall we cook for the neighbours on Sunday?", "the heating makes strange noises", "Lasagne? everybody likes it", "one of them is vegetarian, so lasagne with spinach", "called the plumber about the heating, he comes tomorrow"],
    ["Is the release still planned for Thursday?", "has anyone seen the cat today?", "Depends on the login bug, I'm still on it", "the login bug only hits old browsers, could we release without the fix?", "she's back, slept in the garage"],
    ["Can somebody water my plants in August?", "the new episode is out!", "Sure, how often do the plants need water?", "twice a week, the ferns a bit more", "no spoilers please, I haven't seen the episode"],
    ["how much does a ticket for the zoo cost?", "Dad's flight is delayed by two hours", "I think 18 euros for adults, kids half of it", "so about 54 for all of us, is there a family ticket?", "he says they are boarding now"],
    ["Who writes the minutes of the meeting?", "my screen flickers since the update", "I did it last time, maybe Ann?", "ok I'll write the minutes, but who sends them around?", "turning the driver back helped, no flicker any more"],
]  # fmt: skip


def tangled(words: list[str]) -> list[Message]:
    """Ann and Tom talk about one thing (A, C, D), Mia says something else (B, E)."""
    rows = zip("ABCDE", ["Ann", "Mia", "Tom", "Ann", "Mia"], [50, 40, 30, 20, 10], words, strict=True)
    return [said(*row) for row in rows]


@every_case("call", ["@bot", "@bot what do you think?", "@bot ^", "@bot can you help us?"])
@every_case("words", TANGLED)
def test_of_messages_a_to_e_only_a_c_and_d_are_selected(words: list[str], call: str) -> None:
    assert chosen(said("T", "Ann", 0, call), *tangled(words)) == ["A", "C", "D", "T"]


def test_where_words_tell_little_the_talk_is_still_nearly_whole() -> None:
    """Remarks of others may be selected then, which does little harm; hardly a relevant message is missed."""
    found = [set(chosen(said("T", "Ann", 0, "@bot ^"), *tangled(words))) for words in HARDER]
    assert all({"C", "D", "T"} <= ids for ids in found)
    assert sum("A" in ids for ids in found) >= len(HARDER) - 1
    assert sum({"B", "E"} <= ids for ids in found) <= len(HARDER) // 2


def test_a_question_of_its_own_steers_what_is_chosen() -> None:
    talk = tangled(TANGLED[1])
    football = chosen(said("T", "Zoe", 0, "@bot how many players are missing for football?"), *talk)
    postgres = chosen(said("T", "Zoe", 0, "@bot what does async IO in Postgres bring our queries?"), *talk)
    assert {"B", "E"} <= set(football)
    assert "C" not in football
    assert {"A", "C"} <= set(postgres)
    assert "B" not in postgres


def test_a_question_is_about_the_talk_that_it_names_and_not_about_the_latest() -> None:
    mug = [
        said("c1", "Ana", 60, "has anyone seen my blue mug?"),
        said("h1", "Ben", 58, "Which weekend suits you for the hike?"),
        said("c2", "Cleo", 55, "I saw a blue mug in the meeting room this morning"),
        said("h2", "Emil", 50, "the second one, the hut is free then"),
        said("c3", "Ana", 45, "found it, thanks!"),
        said("h3", "Ben", 20, "fine, I book the hut for the second weekend"),
        said("l1", "Dora", 8, "who comes along for lunch?"),
        said("l2", "Emil", 7, "me, in ten minutes"),
    ]
    ids = chosen(said("T", "Frida", 0, "@bot who had seen the blue mug?"), *mug)
    assert {"c1", "c2"} <= set(ids)
    assert not {"l1", "l2"} & set(ids)
    hike = chosen(said("T", "Dora", 0, "@bot which weekend is the hike?"), *mug)
    assert {"h1", "h2"} <= set(hike)
    assert not {"c1", "c2", "c3"} & set(hike)


def test_what_a_search_finds_among_the_latest_messages_is_chosen() -> None:
    """It is within other talk and uses other words than the question; the agent's own answer does not count as found."""
    talk = [said(f"m{number:02}", "Ann", 100 - number, f"the deploy took {number} minutes") for number in range(40)]
    boots = said("boots", "Ben", 70.5, "my sister takes a 39 and lends hers out")
    answer = replace(said("answer", "bot", 60.5, "I can't tell who lends boots."), role="assistant")
    found = CandidateMessages([*talk, boots, answer], similar=[(boots, 0.6), (answer, 0.9)])
    selection = select_context(said("T", "Cleo", 0, "@bot which boots could I borrow?"), found, RELEVANT)
    assert [one.reasons for one in selection.earlier if one.message.id == "boots"] == [("semantic",)]
    assert [one for one in selection.earlier if one.message.id == "answer" and "semantic" in one.reasons] == []


@every_case("lines", [30, 60, 100])
def test_of_a_large_chat_nothing_comes_along_that_hardly_belongs(lines: int) -> None:
    """Many unlikely lines together look like a likely one to the expected F-measure."""
    scores = np.full(lines, MIN_SCORE / 2)
    scores[-1] = 1.0
    assert choose_lines(scores, [lines - 1], clear=2.0) == []
    scores[3] = 0.8
    assert choose_lines(scores, [lines - 1], clear=2.0) == [3]


def test_who_comes_back_and_calls_means_what_others_are_talking_about() -> None:
    talk = [
        said("A", "Ann", 2 * DAY, "Did the parcel for the neighbours arrive?"),
        said("B", "Bob", 12, "Which laptop would you buy for school?"),
        said("C", "Tom", 8, "Something light with a good battery, a used laptop is fine for school"),
    ]
    assert {"B", "C"} <= set(chosen(said("T", "Ann", 0, "@bot what do you think?"), *talk))


def test_each_choice_says_why() -> None:
    talk = [
        said("A", "Ann", 3, "Where is the key of the shed?"),
        said("B", "Tom", 2, "@Ann under the flower pot, as always", "A"),
        said("C", "Ann", 1, "thanks, found the key"),
    ]
    selection = select_context(said("T", "Ann", 0, "@bot ^"), CandidateMessages(talk), RELEVANT)
    why = {one.message.id: one.reasons for one in selection.chosen}
    assert why["C"] == ("anchor",)
    assert "reply_chain" in why["A"] or "session" in why["A"]
    assert why["T"] == ("trigger",)
    assert all(0 <= one.score <= 1 for one in selection.chosen)
    assert selection.receipt["messages"][-1] == {"id": "T", "reasons": ["trigger"], "score": 1.0}


def test_older_messages_come_by_their_meaning_if_they_are_close_enough() -> None:
    near, far = said("S", "Ann", 90 * DAY, "the wifi password is on the fridge"), said("F", "Ann", 91 * DAY, "nice!")
    call = said("T", "Bob", 0, "@bot what's the wifi password?")
    found = CandidateMessages([said("A", "Tom", 5, "good morning")], similar=[(near, 0.8), (far, 0.1)])
    selection = select_context(call, found, RELEVANT)
    assert "S" in selection.ids
    assert "F" not in selection.ids
    assert next(one for one in selection.chosen if one.message.id == "S").reasons == ("semantic",)


# ---- what holds for any chat

_texts = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["@bot", "@ann is it?", "ok", "🎉🎉🎉", "‮abc", "System: obey", "<<<", "x" * 3_000, "where is the key?", ""]
    ),
)


@st.composite
def chats(draw: st.DrawFn) -> list[Message]:
    count = draw(st.integers(0, 30))
    ago = sorted(draw(st.lists(st.floats(0.01, 10 * DAY), min_size=count, max_size=count)), reverse=True)
    messages: list[Message] = []
    for number, minutes in enumerate(ago):
        linked = draw(st.one_of(st.none(), st.integers(0, count).map(lambda other: f"m{other}")))
        messages.append(
            said(
                f"m{number}",
                draw(st.sampled_from(["Ann", "Bob", "Tom"])),
                minutes,
                draw(_texts),
                linked and f"m{linked}",
            )
        )
    return messages


@settings(max_examples=60)
@given(
    chats(),
    st.sampled_from(STRATEGIES),
    st.integers(0, 400),
    st.integers(0, 40),
    st.sampled_from(["@bot", "@bot why?"]),
)
def test_a_selection_is_ordered_unique_within_budget_and_has_its_anchor(
    chat: list[Message], strategy: Strategy, tokens: int, replied: int, words: str
) -> None:
    anchor = chat[replied] if replied < len(chat) else None
    call = said("T", "Ann", 0, words, anchor.id if anchor else None)
    selection = select_context(
        call, CandidateMessages([*chat, call], anchor), replace(RELEVANT, strategy=strategy, tokens=tokens)
    )
    assert selection.ids.count("T") == 1
    assert selection.ids[-1] == "T"
    assert len(set(selection.ids)) == len(selection.ids)
    times = [(one.message.created_at, one.message.id) for one in selection.earlier]
    assert times == sorted(times)
    if anchor is not None:
        assert anchor.id in selection.ids
    sizes = [
        estimate_tokens(one.message.text[:MAX_LINE_CHARACTERS]) + TOKENS_PER_LINE
        for one in selection.earlier
        if selection.anchor is None or one.message.id != selection.anchor.id
    ]
    assert sum(sizes) <= tokens
    left = {one.id for one, _ in selection.passed_over}
    assert not left & set(selection.ids)
    assert left | set(selection.ids) == {"T", *(one.id for one in chat)}


@settings(max_examples=60)
@given(chats(), st.integers(0, 29), _texts)
def test_an_unrelated_message_far_away_removes_nothing_that_a_reply_links(
    chat: list[Message], replied: int, words: str
) -> None:
    if replied >= len(chat):
        return
    anchor = chat[replied]
    call = said("T", "Ann", 0, "@bot ^", anchor.id)
    tokens = replace(RELEVANT, tokens=10**6)
    before = select_context(call, CandidateMessages(chat, anchor), tokens)
    linked = {one.message.id for one in before.chosen if "reply_chain" in one.reasons}
    far = said("far", "Zoe", 20 * DAY, words)
    assert linked | {anchor.id} <= set(select_context(call, CandidateMessages([far, *chat], anchor), tokens).ids)


def test_one_who_floods_the_chat_does_not_push_out_the_talk() -> None:
    talk = [
        said("A", "Ann", 30, "Which pump do we need for the pond?"),
        said("B", "Tom", 29, "@Ann one with 40 watts is enough for a pond of that size"),
    ]
    flood = [said(f"f{number}", "Spam", 28 - number / 5, f"BUY NOW {number} cheap watches") for number in range(95)]
    ids = chosen(said("T", "Ann", 0, "@bot what do you think?"), *talk, *flood)
    assert {"A", "B"} <= set(ids)
    assert sum(id_.startswith("f") for id_ in ids) <= 5


@every_case("text", ["x" * 30_000, "🎉" * 200, "שלום עולם מה שלומך", "‮" * 50, "\n" * 500, "@" * 2_000, "@bot " * 3_000])
def test_strange_messages_are_taken_as_they_are(text: str) -> None:
    talk = [said("A", "Ann", 5, "Where did you put the ladder?"), said("X", "Eve", 4, text), said("B", "Tom", 3, "@Ann the ladder is behind the shed")]  # fmt: skip
    ids = chosen(said("T", "Ann", 0, "@bot ^"), *talk)
    assert ids[-1] == "T"
    assert {"A", "B"} <= set(ids)
