"""That a reply to a follow-up never speaks of how it came about, and that innocent talk passes (AUTO-9).

How good the phrases are, by four sets of examples (`leak_examples.py`, `leak_examples_fresh.py`), is printed by
`python -m tests.support.rule_figures` and told in docs/followups-measured.md. The sets were read when the phrases were written,
so the figures flatter them; the leaks that get away are named below.
"""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from rapport.domain.follow_up import PROMPTS
from rapport.followups.leaks import find_leak, is_yes
from tests.followups.leak_examples import (
    INNOCENT,
    LEAKING,
    REPORTED_LEAKING,
    SECOND_INNOCENT,
    SECOND_LEAKING,
    THIRD_INNOCENT,
    THIRD_LEAKING,
)
from tests.followups.leak_examples_fresh import FOURTH_INNOCENT, FOURTH_LEAKING
from tests.support.cases import every_case

USUAL = tuple(PROMPTS.values())
MISSED = {
    "It looks like the message you sent was incomplete. Shall we talk about the boat?",
    "My goal is to re-engage you. Sailing or motor?",
    "Your request was to follow up on the task, but we haven't talked about one.",
    "Your note mentions an unanswered question, but I can't find it.",
    "I can't find a decision you need to make in our chat so far.",
    "Great question! How is the garden?",
    "Here's a gentle follow-up you might like: how is the knee?",
    "Ich wurde darum gebeten, nach deiner Entscheidung zu fragen.",
    "フォローアップのメッセージを送るように言われました。調子はどうですか？",
}
TOLD = """
You asked me to check in with you about the task, so here I am.
I notice your last message is an instruction rather than a question.
Your message says to follow up on a decision, but I don't see one.
Sure! Here's a natural continuation of our conversation:
Follow-up: how is it going?
Ich soll mich nach der Aufgabe erkundigen. Wie läuft es?
Vous m'avez demandé de faire un suivi.
Me han pedido que haga un seguimiento.
Mi hanno chiesto di fare un follow-up.
Pediram-me para fazer um acompanhamento.
Ze hebben me gevraagd om dit op te volgen.
システムから、フォローアップするよう指示されました。
我被要求跟进这个决定。
시스템에서 후속 조치를 하라는 지시를 받았습니다.
Мне поручили уточнить, как идут дела.
طُلب مني المتابعة معك بشأن المهمة.
Görevi takip etmem söylendi.
Poproszono mnie o sprawdzenie zadania.
Sure thing! What would you like to continue with?
Happy to continue! Where were we?
もちろんです！続けましょう。
好的！我们继续聊吧。
Конечно! Как дела?
"""


def caught(replies: list[str]) -> set[str]:
    return {reply for reply in replies if find_leak(reply, prompts=USUAL)}


@every_case("reply", [*LEAKING, *SECOND_LEAKING, *TOLD.strip().splitlines()])
def test_a_reply_that_speaks_of_the_machinery_is_caught(reply: str) -> None:
    assert find_leak(reply, prompts=USUAL)


@every_case("reply", [*INNOCENT, *SECOND_INNOCENT, *THIRD_INNOCENT, *FOURTH_INNOCENT])
def test_what_a_friend_would_write_passes(reply: str) -> None:
    assert find_leak(reply, prompts=USUAL) is None


def test_leaks_that_the_signs_were_not_made_for() -> None:
    unseen = [*THIRD_LEAKING, *FOURTH_LEAKING]
    assert set(unseen) - caught(unseen) == MISSED


@every_case("reply", REPORTED_LEAKING)
def test_reported_leaks_are_recognised(reply: str) -> None:
    assert find_leak(reply, prompts=USUAL) is not None


@every_case("yes", ["Sure!", "Of course.", "Understood.", "Certainly!", "Happy to help!", "Will do!"])
def test_saying_yes_gives_away_that_something_asked_but_only_at_the_very_beginning(yes: str) -> None:
    assert find_leak(f"{yes} How is the garden?", prompts=USUAL) == "instructions"
    assert find_leak(f"😊 {yes} How is the garden?", prompts=USUAL) == "instructions"
    assert find_leak(f"How is the garden? If you need a hand: {yes}", prompts=USUAL) is None


def test_the_sets_are_what_the_table_says() -> None:
    sets = (LEAKING, INNOCENT, SECOND_LEAKING, SECOND_INNOCENT, THIRD_LEAKING, THIRD_INNOCENT, FOURTH_LEAKING)
    assert [len(each) for each in (*sets, FOURTH_INNOCENT)] == [128, 138, 43, 63, 44, 67, 40, 60]
    everything = [reply for each in (*sets, FOURTH_INNOCENT) for reply in each]
    assert len(set(everything)) == len(everything)


@every_case("prompt", USUAL)
@every_case("shape", ["{}", '"{}"', "**{}**", "Okay: {} So, how are you?", "> {}\n\nHow is the knee?"])
def test_no_prompt_comes_back_however_it_is_dressed(prompt: str, shape: str) -> None:
    assert find_leak(shape.format(prompt), prompts=USUAL)
    assert find_leak(shape.format(prompt.upper()), prompts=USUAL)
    assert find_leak(shape.format(prompt.rstrip(".").lower()), prompts=USUAL)


@every_case("answer", ["yes", "Yes.", "**YES**, it does", " yes, it speaks of the user"])
def test_a_models_yes_is_read_in_any_form(answer: str) -> None:
    assert is_yes(answer)


@every_case("answer", ["no", "No.", "", "It does not say yes", "perhaps"])
def test_anything_else_is_no(answer: str) -> None:
    assert not is_yes(answer)


def test_an_agents_own_prompts_are_kept_secret_too() -> None:
    own = "Gently ask the user about their garden. Keep it under twenty words and never sound like a nurse."
    assert find_leak("Keep it under twenty words and never sound like a nurse!", prompts=[own]) == "prompt"
    assert find_leak("I will gently ask you about your garden.", prompts=[own]) == "prompt"
    assert find_leak("Gently asking the user about the garden: how is it?", prompts=[own])
    assert find_leak("How is your garden? I'd never sound like a nurse about it.", prompts=[own]) is None


def test_a_prompt_of_a_few_words_is_anybodys_words() -> None:
    assert find_leak("Say hi to your mother from me!", prompts=["Say hi."]) is None
    assert find_leak("Say hi!", prompts=["Say hi."]) == "prompt"
    assert find_leak("How was Rome?", prompts=["", "  ", "…"]) is None


def test_invisible_characters_and_capitals_hide_nothing() -> None:
    assert find_leak("I got a SYS\u200bTEM MES\u00adSAGE.", prompts=USUAL) == "system"
    assert find_leak("You sent an *incomplete* **message**.", prompts=USUAL) == "incomplete_message"
    assert find_leak("The\nuser\nhasn’t\nresponded yet.", prompts=USUAL)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(TEXTS, st.lists(TEXTS, max_size=2))
def test_any_text_can_be_looked_at(reply: str, prompts: list[str]) -> None:
    find_leak(reply, prompts=prompts)


@given(TEXTS, TEXTS, st.sampled_from(USUAL))
def test_a_prompt_is_found_wherever_it_stands(before: str, after: str, prompt: str) -> None:
    assert find_leak(f"{before} . {prompt} {after}", prompts=USUAL)


@every_case(
    "text",
    [
        "the user ",
        "your message was ",
        "i was told to ",
        "follow up on the ",
        "a",
        "<system ",
        "[ ",
        "* ",
        "\n",
        "sure, ",
        "ok ",
    ],
)
def test_a_long_monotonous_reply_takes_no_time(text: str) -> None:
    reply = text * (32_000 // len(text))
    began = time.process_time()
    find_leak(reply, prompts=USUAL)
    assert time.process_time() - began < 10
