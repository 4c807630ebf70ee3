"""Test which questions stand alone, which depend on earlier ones, and the query for each (RAG-2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rapport.retrieval.standalone_question import LOOK_BACK, make_standalone, plain
from tests.support.cases import every_case

TOURS = "Which guided tours does the museum offer?"

FOLLOW_UPS = [
    # hardly a word of their own
    *["why?", "Why not?", "How so?", "how often?", "Until when?", "and then?", "like what?", "tell me more", "Go on."],
    *["yes please", "thanks!", "ok great", "Can you give me an example?", "Really?", "Who exactly?", "How come?"],
    # they point at something
    *["how much does it cost?", "Is that included?", "Who leads them?", "When does it start?", "Where do they meet?"],
    *["Is it far?", "Does the ticket cover that?", "Can I bring my dog there?", "Is he nice?", "What does that mean?"],
    *["What’s it like?", "it's how long exactly?", "Could you explain that again?", "Why is it closed?"],
    *["the former or the latter?", "Does it have a lift?", "What happened to him?", "So how long is it?"],
    # they count on
    *["and the second one?", "Which one is cheaper?", "Which is cheaper?", "What else is included?", "or the first?"],
    *["The previous one?", "OK, and the third?", "the other one", "Do both have a guide?"],
    # they continue
    *["And for children?", "what about Sundays?", "How about groups?", "And how do I book?", "I see. But why?"],
    *["What if I'm late?", "But not on Mondays?", "And the price for students?", "und die zweite?", "et la deuxième ?"],
    # parts of a sentence
    *["In Berlin?", "For children under six?", "Without a ticket?", "How much for students?", "which colours?"],
    *["What colour?", "What's the difference?", "What are the alternatives?", "Are there any exceptions?"],
]

SELF_CONTAINED = [
    *["Which planet has the most moons?", "What is the capital of France?", "How do I reset my password?"],
    *["Who wrote Hamlet?", "Who invented Python?", "Can dogs eat chocolate?", "What causes rainbows?"],
    *["How many people live in Norway?", "Where is the nearest pharmacy?", "Do I need a visa for Japan?"],
    *["Which vaccines are required?", "How old is the universe?", "Who is the manager of the Berlin office?"],
    *["Do you deliver to Spain?", "Was the invoice for March paid?", "What did the customer's lawyer reply?"],
    *["How long can I return something I bought?", "Is smoking allowed on the balcony?"],
    # a word that often continues, and doesn't here
    *["Why is the sky blue?", "So how do I reset my password?", "And how do I reset my password?"],
    *["But is Pluto a planet?", "How come parking costs nothing?", "Well, where is the nearest pharmacy?"],
    # a word that often points back, and doesn't here
    *["Is there parking at the office?", "Are there refunds for shoes?", "There is smoke in the server room"],
    *["What time does the shop open this week?", "How do birds build their nests?"],
    *["Who wrote Dracula and when did he die?", "How much does the ticket cost and where do I buy it?"],
    *["Does the printer work if it is offline?", "What does the warranty say about water damage to its screen?"],
    *["When is the next train?", "What is the first step of the audit?"],
    # a word that often begins a part of a sentence
    *["At what time does the shop open?", "In which city is the parliament?", "For which countries do I need a visa?"],
    # no question at all, but something to look up
    *["parking", "Opening hours", "Explain photosynthesis", "Tell me about refunds", "Give me an example of a closure"],
]


@every_case("question", FOLLOW_UPS)
def test_a_follow_up_takes_the_question_before_it_along(question: str) -> None:
    assert make_standalone(question, ["Where is the harbour?", TOURS]) == f"{TOURS} {question}"


@every_case("question", SELF_CONTAINED)
def test_a_question_that_stands_alone_is_looked_up_alone(question: str) -> None:
    assert make_standalone(question, [TOURS]) == question


@every_case("question", [*FOLLOW_UPS, *SELF_CONTAINED])
def test_without_earlier_questions_a_question_is_unchanged(question: str) -> None:
    assert make_standalone(question, []) == question


def test_the_tables_are_as_long_as_they_claim() -> None:
    assert len(set(FOLLOW_UPS)) >= 25
    assert len(set(SELF_CONTAINED)) >= 25


def test_a_follow_up_to_a_follow_up_reaches_the_question_they_are_about() -> None:
    earlier = ["Where is the harbour?", TOURS, "and the second one?"]
    assert make_standalone("how much does it cost?", earlier) == f"{TOURS} and the second one? how much does it cost?"
    assert make_standalone("why?", [TOURS, "and the second one?", "how much does it cost?"]) == (
        f"{TOURS} and the second one? how much does it cost? why?"
    )


def test_a_chain_of_follow_ups_is_followed_only_so_far() -> None:
    asked = make_standalone("why?", [TOURS, *["and then?"] * LOOK_BACK])
    assert asked == "and then? and then? and then? why?"


def test_a_question_that_stands_alone_ends_the_chain() -> None:
    assert make_standalone("why?", [TOURS, "Why is the sky blue?"]) == "Why is the sky blue? why?"


@every_case(
    ("written", "looked_up"),
    [
        ("@bot what do you think of refunds?", "what do you think of refunds?"),
        ("Hey @librarian, how long is the warranty?", "Hey how long is the warranty?"),
        ("@bot: @anna-b asks for the gate code", "asks for the gate code"),
        ("write to me@example.org about the bill", "write to me@example.org about the bill"),
        ("  two\n\n lines\t here ", "two lines here"),
        ("@bot", ""),
        ("", ""),
    ],
)
def test_whom_a_question_is_addressed_to_is_not_looked_up(written: str, looked_up: str) -> None:
    assert plain(written) == looked_up


def test_a_bare_mention_asks_what_was_asked_before() -> None:
    assert make_standalone("@bot", [TOURS]) == TOURS
    assert make_standalone("@bot", []) == ""
    assert make_standalone("@bot why?", [f"@bot {TOURS}"]) == f"{TOURS} why?"


def test_of_a_long_message_both_ends_are_looked_up() -> None:
    looked_up = plain(f"{TOURS} {'background ' * 500} So what do you recommend?")
    assert looked_up.startswith(TOURS)
    assert looked_up.endswith("So what do you recommend?")
    assert len(looked_up) <= 1_000


def test_a_follow_up_is_not_lost_behind_a_long_question() -> None:
    """An embedder reads no more than the beginning."""
    looked_up = make_standalone("and how much does it cost?", [f"{TOURS} {'background ' * 500}"])
    assert looked_up.startswith(TOURS)
    assert looked_up.endswith("and how much does it cost?")
    assert len(looked_up) <= 1_000


WORDS = "hm got it and but so the one is there that they of it's why ok , ? @bot don't Berlin costs"
said = st.text(max_size=60) | st.lists(st.sampled_from(WORDS.split()), max_size=8).map(" ".join)


@given(question=said, earlier=st.lists(said, max_size=5))
def test_whatever_is_said_the_question_itself_comes_last(question: str, earlier: list[str]) -> None:
    looked_up = make_standalone(question, earlier)
    assert looked_up.endswith(plain(question))
    assert looked_up == plain(looked_up)
    assert len(looked_up) <= 1_000
