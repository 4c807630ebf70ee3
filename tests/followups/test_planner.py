"""Find when and about what to follow up: short dialogues with what the rules make of them, and what holds for any text (AUTO-1)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rapport.domain.conversation import Message, Role
from rapport.domain.follow_up import TRIGGER_TYPES, Autonomy, PastFollowUp, Plan, TriggerType
from rapport.followups.closings import is_closing, is_in_distress, is_only_thanks, tells_bad_news
from rapport.followups.planner import GAP_MARGIN_SECONDS, USUAL_DELAY, clamp_delay, plan_by_rules, space_out
from rapport.followups.topics import is_same_topic, make_topic
from tests.support.cases import every_case

BEGAN = datetime(2025, 3, 1, 12, tzinfo=UTC)
LIMITS = Autonomy()
MINUTE = 60


def dialogue(*lines: str) -> list[Message]:
    """Return what was said, line by line: "U: …" by the user, "A: …" by the agent, "F: …" by the agent unasked."""
    return [_message(number, line) for number, line in enumerate(lines)]


def _message(number: int, line: str) -> Message:
    speaker, text = line.split(": ", 1)
    role: Role = "user" if speaker == "U" else "assistant"
    metadata: dict[str, Any] = {}
    if speaker.startswith("F"):
        metadata = {"autonomous": True, "trigger_type": speaker[2:] or "check_in"}
    return Message(f"m{number}", "c", role, text, BEGAN + timedelta(minutes=number), metadata=metadata)


def planned(*lines: str, matters: Sequence[str] = (), autonomy: Autonomy = LIMITS) -> Plan | None:
    return plan_by_rules(dialogue(*lines), earlier=[made(matter) for matter in matters], autonomy=autonomy)


def made(matter: str, *sources: str, minutes: float = 60, is_inferred: bool = False) -> PastFollowUp:
    """Return a follow-up so many minutes after the beginning."""
    at = BEGAN + timedelta(minutes=minutes)
    return PastFollowUp(matter, sources, at, is_inferred=is_inferred, in_this_silence=False)


def kind_of(plan: Plan | None) -> TriggerType | None:
    return plan.trigger_type if plan else None


Story = tuple[TriggerType | None, tuple[str, ...]]
SUBJECT = (
    "U: My daughter starts playing the cello next month and she is only ten.",
    "A: For a ten-year-old a half size usually fits.",
)

STORIES: dict[str, Story] = {
    # ---- something to follow up on
    "a question of the agent's": ("question_unanswered", ("U: I have a job interview on Friday.", "A: Exciting! What position is it for?")),
    "a question with a soft tail": ("question_unanswered", ("U: I want to repaint the hallway.", "A: Which colours do you have in mind? Take your time.")),
    "two questions": ("question_unanswered", ("U: We are moving to Porto.", "A: How lovely! When do you move? And is it for work?")),
    "a question without a subject, about an appointment": ("question_unanswered", ("U: I have an interview.", "A: When is it?")),
    "an empty question after a decision": ("waiting_for_decision", ("U: I have not decided between green and yellow.", "A: Understood: you have not decided. What follows from that?")),
    "an empty question after a task": ("task_incomplete", ("U: I need to call the landlord.", "A: Right, you need to call the landlord. What's the story there?")),
    "a good outcome": ("task_incomplete", ("U: I have to finish the tax return this week.", "A: So you have to finish the tax return. What would a good outcome look like?")),
    "how come": ("waiting_for_decision", ("U: I can't decide between Rome and Oslo for the summer.", "A: How come?")),
    "the decision, asked back": ("waiting_for_decision", ("U: Should I take the red bike or the blue one?", "A: The red bike or the blue one: which way are you leaning?")),
    "the task, asked back": ("task_incomplete", ("U: I'll book the flights to Lisbon tonight.", "A: When do you book the flights?")),
    "a task beats a question": ("task_incomplete", ("U: I have to finish the tax return.", "A: Do you still miss any receipts?")),
    "an empty question in German": ("task_incomplete", ("U: Ich muss noch die Steuererklärung abgeben.", "A: Was folgt daraus?")),
    "a new subject after a death": ("task_incomplete", ("U: Our dog died.", "A: I'm so sorry.", "U: Anyway, I need to renew my passport before the summer.", "A: It takes a few weeks.")),
    "a new subject after a break-up": ("check_in", ("U: We broke up.", "A: That hurts.", "U: Let's talk of something else: my tomato plants turn yellow.", "A: Too much water, perhaps.", "U: I water the balcony plants twice daily.", "A: Once is enough.")),
    "a question, then one of courtesy": ("question_unanswered", ("U: My bread never rises.", "A: How old is your yeast? Anything else I can help with?")),
    "an offer with a subject": ("question_unanswered", ("U: The letter to the insurance is too long.", "A: Shall I draft a shorter version of the letter?")),
    "a question in German": ("question_unanswered", ("U: Ich lerne seit einer Woche Klavier.", "A: Wie schön! Welches Stück übst du gerade?")),
    "a question in Spanish": ("question_unanswered", ("U: Quiero correr un maratón.", "A: ¡Qué bien! ¿Cuándo es la carrera?")),
    "a question in Chinese": ("question_unanswered", ("U: 我下个月要搬家。", "A: 太好了！你要搬到哪里？")),
    "a question after thanks": ("question_unanswered", ("U: Thanks!", "A: You're welcome! When is the recital of your daughter?")),
    "job or stay": ("waiting_for_decision", ("U: Should I take the job in Hamburg or stay here?", "A: Both have their charm. Think about where you want to be in five years.")),
    "can't decide between": ("waiting_for_decision", ("U: I can't decide between the red bike and the blue one.", "A: The red one is lighter, the blue one is cheaper.")),
    "still thinking about whether": ("waiting_for_decision", ("U: I'm still thinking about whether to sell the house.", "A: That is a big step, and there is no rush.")),
    "torn": ("waiting_for_decision", ("U: I'm torn between studying physics and music.", "A: Both are wonderful.")),
    "not sure whether I should": ("waiting_for_decision", ("U: Not sure whether I should tell my boss about it.", "A: Honesty usually pays off.")),
    "have to decide by Friday": ("waiting_for_decision", ("U: I have to decide by Friday about the apartment.", "A: Then a list of pros and cons may help.")),
    "on the fence": ("waiting_for_decision", ("U: I'm on the fence about adopting a second dog.", "A: A second dog is good company for the first.")),
    "sleep on it": ("waiting_for_decision", ("U: The garage offers 900 euros for my car.", "A: That is a fair price.", "U: I'll sleep on it.", "A: A good idea.")),
    "a decision of two messages ago": ("waiting_for_decision", ("U: Should I quit my job or ask for a raise?", "A: What matters most to you is the question.", "U: The money, mostly.", "A: Then a raise would be the first thing to try.")),
    "a decision in German": ("waiting_for_decision", ("U: Soll ich das Angebot annehmen oder noch warten?", "A: Beides hat etwas für sich.")),
    "a decision in French": ("waiting_for_decision", ("U: J'hésite entre Lyon et Nantes.", "A: Deux belles villes.")),
    "send the report tonight": ("task_incomplete", ("U: I'll send the report tonight.", "A: Good luck with it!")),
    "call the landlord": ("task_incomplete", ("U: I need to call the landlord.", "A: The morning is a good time for that.")),
    "finish my essay": ("task_incomplete", ("U: I have to finish my essay.", "A: You can do it.")),
    "gonna": ("task_incomplete", ("U: im gonna bake the cake this afternoon", "A: Sounds delicious.")),
    "promised somebody": ("task_incomplete", ("U: I promised my mum to fix her printer.", "A: She will be glad.")),
    "still need to": ("task_incomplete", ("U: I still need to book the flights for Lisbon.", "A: Prices tend to go up, so soon is better.")),
    "a task, then small talk": ("task_incomplete", ("U: I should renew my passport this week.", "A: It takes a while, so the sooner the better.", "U: haha true", "A: Indeed.")),
    "a task among other things": ("task_incomplete", ("U: The weather is awful today. I'm going to clean the garage. My back hurts though.", "A: Mind your back.")),
    "a task in German": ("task_incomplete", ("U: Ich muss noch die Steuererklärung abgeben.", "A: Viel Erfolg dabei.")),
    "a task in Spanish": ("task_incomplete", ("U: Tengo que llamar al dentista mañana.", "A: Buena idea.")),
    "a task that is not done although another is": ("task_incomplete", ("U: I need to water the plants.", "A: They will thank you.", "U: I already cleaned the kitchen.", "A: Well done.")),
    "a lull": ("check_in", (*SUBJECT, "U: She practises the violin at the moment, but the cello is her dream.", "A: Then the step will be easy for her.")),
    "a lull after an acknowledgement": ("check_in", (*SUBJECT, "U: Her teacher recommends a full size cello already.", "A: The teacher knows best.", "U: ok", "A: It will be fine.")),
    "a lull in Dutch": ("check_in", ("U: Mijn dochter begint volgende maand met cello spelen.", "A: Wat leuk.", "U: We huren een klein instrument bij de muziekschool.", "A: Dat is verstandig.")),
    "bye the way": ("question_unanswered", ("U: bye the way, I bought a kayak", "A: Where will you take the kayak first?")),
    "thanks, and another thing": ("task_incomplete", ("U: Thanks! I need to order the tickets now.", "A: Enjoy the show.")),
    "don't know which one": ("waiting_for_decision", ("U: We got two offers for the house and I don't know which one to accept.", "A: The higher one is not always the better one.")),
    "no subject at all": ("task_incomplete", ("U: gotta buy milk", "A: Don't forget the bread.")),
    # ---- nothing
    "a dog died": (None, ("U: Our dog died.", "A: I'm sorry to hear that. What was it like?")),
    "a grandmother": (None, ("U: My grandmother passed away and I have to book a flight home.", "A: I'm sorry. When do you fly?")),
    "laid off": (None, ("U: I got laid off and I need to update my CV.", "A: That is hard. Which jobs interest you?")),
    "made redundant": (None, ("U: They fired me. Should I sue them or let it go?", "A: Both have a price.")),
    "broke up": (None, ("U: We broke up yesterday, I need to find a flat.", "A: That must weigh on you. How are you holding up?")),
    "bad news, and still about it": (None, ("U: Our dog died.", "A: I'm sorry.", "U: She slept on my bed every single night for years.", "A: What would make it easier?")),
    "bad news, then a word": (None, ("U: I got laid off.", "A: I'm sorry.", "U: ok", "A: What comes next?")),
    "bad news in German": (None, ("U: Ich bin gekündigt worden und muss die Wohnung aufgeben.", "A: Das tut mir leid. Wann ziehst du aus?")),
    "bad news in Spanish": (None, ("U: Me despidieron ayer. Tengo que llamar al banco.", "A: Lo siento mucho.")),
    "an empty question about nothing": (None, ("U: hm", "A: How come?")),
    "an empty question about one remark": (None, ("U: My sourdough starter keeps smelling of vinegar.", "A: I see. What follows from that?")),
    "a question, then advice": (None, ("U: My knee hurts.", "A: How far do you run every week? Swelling after a long run is common, so give it some rest.")),
    "an empty question about a look-up": (None, ("U: What is the boiling point of water?", "A: 100 degrees Celsius. What follows from that?")),
    "a wish": (None, ("U: I want to run a marathon in New York.", "A: A fine goal.")),
    "far ahead": (None, ("U: I'm going to build a boat when I retire.", "A: A fine goal.")),
    "what everybody should do": (None, ("U: We should all eat less meat.", "A: Many think so.")),
    "my sister is torn": (None, ("U: My sister is torn between Rome and Paris.", "A: Hard to choose.")),
    "an offer to explain": (None, ("U: What's 12*9?", "A: 108. Would you like me to explain?")),
    "should have": (None, ("U: I should have called her.", "A: It is not too late.")),
    "back soon": (None, ("U: I'll be back in 5", "A: Take your time.")),
    "I won't": (None, ("U: I won't send the report.", "A: All right.")),
    "bye": (None, ("U: bye", "A: Goodbye! When shall we talk about the cello again?")),
    "thanks, that's all": (None, (*SUBJECT, "U: I measured her arm, half size it is.", "A: Perfect.", "U: thanks, that's all", "A: My pleasure.")),
    "good night with a task": (None, ("U: I need to finish my essay tomorrow. Good night!", "A: Sleep well.")),
    "talk to you later": (None, (*SUBJECT, "U: ok, talk to you later", "A: See you!")),
    "I'm off": (None, ("U: I have to pack my suitcase, I'm off", "A: Have fun.")),
    "stop asking me": (None, ("U: I need to call the landlord. Stop asking me about it!", "A: Understood.")),
    "don't message me": (None, ("U: don't message me anymore", "A: As you wish. What happened?")),
    "a typo and emoji": (None, ("U: goodnigth 😴😴", "A: Sleep well! What are you dreaming of?")),
    "Tschüss": (None, ("U: Ich muss noch einkaufen. Tschüss!", "A: Bis bald! Was kochst du?")),
    "c'est tout": (None, ("U: Merci, c'est tout", "A: Avec plaisir ! Que fais-tu demain ?")),
    "adiós": (None, ("U: Tengo que llamar al banco. ¡Adiós!", "A: ¡Adiós!")),
    "buonanotte": (None, ("U: Buonanotte!", "A: Buonanotte! Che farai domani?")),
    "até amanhã": (None, ("U: Preciso terminar o relatório, até amanhã!", "A: Até!")),
    "welterusten": (None, ("U: welterusten 🌙", "A: Slaap lekker! Wat doe je morgen?")),
    "no to an offer": (None, (*SUBJECT, "U: I rented the half size cello today.", "A: Great. Is there anything else I can help with?", "U: no thanks", "A: All right.")),
    "only courtesy": (None, ("U: hello", "A: Hello! How can I help you?")),
    "anything else?": (None, ("U: What is the capital of France?", "A: Paris. Anything else?")),
    "how are you": (None, ("U: hi", "A: Hi there! How are you today?")),
    "a rhetorical question": (None, ("U: Bananas are berries.", "A: They are, and strawberries are not. Isn't that funny?")),
    "a question that answers itself": (None, ("U: Why is the sky blue?", "A: Why is it blue? Because air scatters blue light more than red light, in all directions.")),
    "a quoted question": (None, ("U: Translate it for the postcard.", 'A: In English it is "Where are you?" and nothing more.')),
    "a look-up": (None, ("U: What is the boiling point of water?", "A: 100 degrees Celsius at sea level.", "U: What is the boiling point of ethanol?", "A: 78 degrees Celsius.")),
    "small talk": (None, ("U: hi", "A: Hello!", "U: how are you", "A: Fine.", "U: nice", "A: Indeed.")),
    "one exchange is no conversation": (None, SUBJECT),
    "a lull after thanks": (None, (*SUBJECT, "U: She practises the violin at the moment.", "A: A good start.", "U: Thank you so much!", "A: Gladly.")),
    "I will never": (None, ("U: I will never call the landlord again.", "A: I understand.")),
    "somebody else will": (None, ("U: My brother will send the report tonight.", "A: Good.")),
    "she has to": (None, ("U: She needs to call the landlord.", "A: I see.")),
    "already done": (None, ("U: I already sent the report.", "A: Well done.")),
    "a task and then done": (None, ("U: I need to call the landlord.", "A: Good luck.", "U: I called the landlord.", "A: Great.")),
    "done, in a word": (None, ("U: I have to take out the trash.", "A: Good.", "U: done!", "A: Great.")),
    "I have to say": (None, ("U: I have to say, that was a great film.", "A: I agree.")),
    "I need to know": (None, ("U: I need to know the boiling point of water.", "A: 100 degrees Celsius.")),
    "a question about a duty": (None, ("U: Do I need to call the landlord?", "A: Yes, that would be best.")),
    "if I have to": (None, ("U: If I have to call the landlord, so be it.", "A: Right.")),
    "he said he'll": (None, ("U: He said I will clean the kitchen, imagine that.", "A: Cheeky.")),
    "my brother can't decide": (None, ("U: My brother can't decide between two cars.", "A: It is a hard choice for him.")),
    "decided by now": (None, ("U: I can't decide between the red bike and the blue one.", "A: The red one is lighter.", "U: I'll go with the red one.", "A: A good choice.")),
    "couldn't decide, but then": (None, ("U: I couldn't decide, but then I bought the red one.", "A: A good choice.")),
    "wondering if you know": (None, ("U: I'm wondering if you know the capital of Peru.", "A: It is Lima.")),
    "despair": (None, ("U: I can't go on, I want to die.", "A: I'm very sorry. Is there someone near you?")),
    "a death": (None, ("U: My father died yesterday and I have to organise everything.", "A: I am so sorry. What was he like?")),
    "an emergency": (None, ("U: My son has chest pain and I need to drive him to hospital.", "A: Please hurry. Is he awake?")),
    "distress in German": (None, ("U: Mein Opa ist gestorben.", "A: Das tut mir sehr leid. Wie geht es dir?")),
    "a reply that condoles": (None, ("U: Nonna non c'è più.", "A: Le mie condoglianze. Vuoi parlarne?")),
    "distress a while ago": (None, ("U: I had a panic attack this morning.", "A: That must have been hard.", "U: I need to call my boss.", "A: Take it slowly.")),
}  # fmt: skip


@every_case("name", STORIES)
def test_what_a_dialogue_calls_for(name: str) -> None:
    expected, lines = STORIES[name]
    plan = planned(*lines)
    assert kind_of(plan) == expected, plan
    if plan:
        assert LIMITS.min_delay <= plan.delay <= LIMITS.max_delay
        assert plan.topic
        assert plan.reason
        assert planned(*lines) == plan


def test_half_of_the_stories_call_for_nothing() -> None:
    silent = [name for name, (expected, _) in STORIES.items() if expected is None]
    assert len(STORIES) >= 60
    assert 0.4 <= len(silent) / len(STORIES) <= 0.6


def test_a_quoted_or_synthetic_message_is_not_the_users_words() -> None:
    said = dialogue("U: I need to call the landlord.", "A: Good luck.")
    trigger = Message("t", "c", "user", "bye", BEGAN, metadata={"synthetic": True, "trigger_type": "check_in"})
    reply = _message(9, "F: How are things?")
    plan = plan_by_rules([*said, trigger, reply], earlier=(), autonomy=LIMITS)
    assert kind_of(plan) == "task_incomplete"
    assert planned('U: She wrote "I need to call the landlord."', "A: I see.") is None


@every_case("flag", ["fallback_used", "guard_used", "cancelled"])
def test_nothing_follows_a_reply_that_was_none(flag: str) -> None:
    said = dialogue("U: I need to call the landlord.", "A: Good luck.")
    failed = Message("r", "c", "assistant", "Temporary issue", BEGAN, metadata={flag: True})
    assert plan_by_rules([said[0], failed], earlier=(), autonomy=LIMITS) is None
    assert plan_by_rules([said[0], Message("r", "c", "assistant", " ", BEGAN)], earlier=(), autonomy=LIMITS) is None
    assert plan_by_rules(said[:1], earlier=(), autonomy=LIMITS) is None
    assert plan_by_rules([], earlier=(), autonomy=LIMITS) is None


def test_the_same_matter_is_not_brought_up_twice() -> None:
    lines = ("U: I need to call the landlord about the heating.", "A: Good luck.")
    assert kind_of(planned(*lines)) == "task_incomplete"
    assert planned(*lines, matters=["landlord calls"]) is None
    assert kind_of(planned(*lines, matters=["call the dentist"])) == "task_incomplete"


def test_what_one_message_says_is_brought_up_once_whatever_its_words_and_type() -> None:
    lines = ("U: I need to call the landlord.", "A: Is the heating broken again?")
    first = planned(*lines)
    assert first
    assert (first.trigger_type, first.sources) == ("task_incomplete", ("m0",))
    after = dialogue(*lines, "F-task_incomplete: Did you reach the landlord?")
    assert plan_by_rules(after, earlier=[made("something", *first.sources)], autonomy=LIMITS) is None


def test_when_the_strongest_is_used_up_the_one_of_another_message_stands() -> None:
    lines = ("U: I need to call the dentist.", "A: OK.", "U: I can't decide between red and blue.", "A: I see.")
    first = planned(*lines)
    assert first
    assert (first.trigger_type, first.sources) == ("waiting_for_decision", ("m2",))
    after = dialogue(*lines, "F-waiting_for_decision: Red or blue?")
    second = plan_by_rules(after, earlier=[made(first.topic, *first.sources)], autonomy=LIMITS)
    assert second
    assert (second.trigger_type, second.sources) == ("task_incomplete", ("m0",))


def test_a_matter_is_open_again_when_the_user_speaks_of_it() -> None:
    flats = "U: I can't decide between the flat in Porto and the one in Lisbon."
    brought_up = made("flat Porto Lisbon", "m0", minutes=1.5)
    lines = (flats, "A: Hm.", "F-check_in: How is it going?")
    for again in ("Still thinking about Lisbon.", "Porto or Lisbon, that is the question", "And the flat in Porto?"):
        talk = dialogue(*lines, f"U: {again}", "A: I see.")
        assert plan_by_rules(talk, earlier=[brought_up], autonomy=LIMITS), again
    for other in ("Not yet.", "What is the weather like in Lisbon?", "I love jazz.", "> Porto or Lisbon?\nha"):
        talk = dialogue(*lines, f"U: {other}", "A: I see.")
        plan = plan_by_rules(talk, earlier=[brought_up], autonomy=LIMITS)
        assert plan is None or "m0" not in plan.sources, other


def test_inferred_follow_ups_are_an_hour_apart_in_one_silence() -> None:
    plan = Plan("check_in", 300, "pizza")
    now = BEGAN + timedelta(minutes=10)
    before = replace(made("flat", minutes=0), in_this_silence=True)
    put_off = replace(plan, delay=50 * MINUTE + GAP_MARGIN_SECONDS)
    assert space_out(plan, earlier=[before], now=now, autonomy=LIMITS) == put_off
    assert space_out(plan, earlier=[made("flat", minutes=0)], now=now, autonomy=LIMITS) == plan
    assert space_out(plan, earlier=[], now=now, autonomy=LIMITS) == plan
    long_ago = replace(before, at=BEGAN - timedelta(hours=2))
    assert space_out(plan, earlier=[long_ago], now=now, autonomy=LIMITS) == plan


def test_there_are_two_inferred_follow_ups_a_day() -> None:
    plan = Plan("check_in", 300, "pizza")
    now = BEGAN + timedelta(hours=23)
    two = [made("flat", minutes=0, is_inferred=True), made("bike", minutes=90, is_inferred=True)]
    assert space_out(plan, earlier=two, now=now, autonomy=LIMITS) is None
    assert space_out(plan, earlier=two, now=now + timedelta(hours=1), autonomy=LIMITS) == plan
    assert space_out(plan, earlier=two[:1], now=now, autonomy=LIMITS) == plan
    assert space_out(plan, earlier=two, now=now, autonomy=Autonomy(inferred_per_day=3)) == plan
    theirs = [replace(one, is_inferred=False) for one in two]
    assert space_out(plan, earlier=theirs, now=now, autonomy=LIMITS) == plan


def test_a_type_is_used_once_until_the_user_speaks_again() -> None:
    lines = ("U: I need to call the landlord.", "A: Good luck.", "F-task_incomplete: Did you reach the landlord?")
    assert planned(*lines) is None
    answered = (*lines, "U: Not yet. I have to repair the bike first.", "A: One after the other.")
    assert kind_of(planned(*answered, matters=["call landlord"])) == "task_incomplete"


def test_nobody_is_asked_again_what_was_asked_unasked() -> None:
    lull = STORIES["a lull"][1]
    assert planned(*lull, "F-check_in: How is the cello?") is None


def test_enough_in_a_row_is_enough() -> None:
    lines = ("U: I need to call the landlord.", "A: Good luck.", "F-check_in: Hello again.")
    assert kind_of(planned(*lines)) == "task_incomplete"
    assert planned(*lines, autonomy=Autonomy(max_in_a_row=1)) is None


def test_a_plan_says_in_plain_words_what_it_is_about() -> None:
    plan = planned("U: Hi! I need to call my landlord about our heating.", "A: Good luck.")
    assert plan
    assert plan.reason == "You said you would call your landlord about your heating."
    assert plan.topic == "call landlord heating"
    asked = planned("U: I have an interview.", "A: When is it?")
    assert asked
    assert asked.reason == 'The question "When is it?" is still open.'
    assert "interview" in asked.topic


@every_case(
    ("said", "reason"),
    [
        (
            "Ich muss morgen meine Steuererklärung abgeben.",
            'You said: "Ich muss morgen meine Steuererklärung abgeben."',
        ),
        ("Je dois appeler l'école de Zoë demain.", 'You said: "Je dois appeler l\'école de Zoë demain."'),
        ("Tengo que llamar al señor Núñez.", 'You said: "Tengo que llamar al señor Núñez."'),
        ("Hallo! Ik moet de fiets repareren.", 'You said: "Ik moet de fiets repareren."'),
        ("I need to call Zoë in Zürich about my visa.", "You said you would call Zoë in Zürich about your visa."),
        ("I’ll tell my boss I’m moving to the US.", "You said you would tell your boss you're moving to the US."),
        ("I have to call Straßburg at 9 am.", "You said you would call Straßburg at 9 am."),
    ],
)
def test_a_reason_keeps_peoples_own_spelling_and_their_language(said: str, reason: str) -> None:
    plan = planned(f"U: {said}", "A: OK.")
    assert plan
    assert plan.reason == reason


def test_a_check_in_after_bad_news_comes_as_late_as_it_may() -> None:
    lines = STORIES["a new subject after a break-up"][1]
    for autonomy in (LIMITS, Autonomy(max_delay=900)):
        plan = planned(*lines, autonomy=autonomy)
        assert plan
        assert (plan.trigger_type, plan.delay) == ("check_in", autonomy.max_delay)
    # A task from before is not remembered against the person.
    assert "passport" in (planned(*STORIES["a new subject after a death"][1]) or Plan("check_in", 1, "")).topic
    before = ("U: I need to call the landlord. My grandmother passed away.", "A: I'm sorry.", *lines[2:])
    assert kind_of(planned(*before)) == "check_in"


BAD = """
our dog died|my grandmother passed away|I got laid off|we broke up|My dad has cancer|she left me last week|I lost my job
I was made redundant|we had to put our cat down|my boyfriend and I split up|Mein Opa ist gestorben|on s'est séparés|me han despedido
mi hanno licenziata|fui demitido ontem|we zijn uit elkaar|my uncle Bob died|they laid me off|I had a miscarriage
"""
FINE = """
my phone died|the battery died|my sister passed her exam|she passed the test|my brother is dead tired|we split up the work
I separated the eggs|he left me a note|she left me the keys|I lost my keys|the plot is a funny loss of time|I had to put my son to sleep
they let me go home early|the meeting broke up late|I fired up the grill|it was a killer concert|I was dying to see it
"""


def test_what_is_bad_news_and_what_is_not() -> None:
    assert [text for text in each_of(BAD) if not tells_bad_news(text)] == []
    assert [text for text in each_of(FINE) if tells_bad_news(text)] == []


def test_how_long_to_wait_follows_what_was_said() -> None:
    def delay(*lines: str) -> float:
        plan = planned(*lines)
        assert plan
        return plan.delay

    now = delay("U: I'll call the landlord right now.", "A: Good luck.")
    sometime = delay("U: I'll call the landlord.", "A: Good luck.")
    today = delay("U: I'll call the landlord this afternoon.", "A: Good luck.")
    tonight = delay("U: I'll call the landlord tonight.", "A: Good luck.")
    assert 20 * MINUTE <= now < sometime < today < tonight <= 60 * MINUTE
    short = delay("U: We move to Porto.", "A: When?")
    long = delay(
        "U: We move to Porto.", "A: When you think of the new city, what is it that you look forward to most of all?"
    )
    assert 2 * MINUTE <= short < long <= 5 * MINUTE
    small = delay("U: Should I take the red cup or the blue cup?", "A: Both are nice.")
    big = delay("U: Should I take the job or stay at the old one?", "A: Both are nice.")
    assert 10 * MINUTE <= small < big <= 30 * MINUTE
    assert 5 * MINUTE <= delay(*STORIES["a lull"][1]) <= 15 * MINUTE


# ---- closing a conversation

CLOSING = """
bye|Bye!|byeee 👋|thanks, that's all|Thx thats all 🙏|good night|goodnite!! 😴|talk to you later|ttyl|I'm off|I'm off to bed
stop asking me|Please stop messaging me.|don't message me|Don't text me anymore|leave me alone|ok thanks, bye!
Great, thank you so much! Have a nice day|gotta run, talk later|See you tomorrow|See you later then, Anna|goodbey|Tschüss!
Danke, das war's|Gute Nacht|bis morgen 😊|Lass mich in Ruhe|Hör auf zu fragen|Au revoir|Merci, c'est tout|bonne nuit|à demain
adiós|hasta mañana, gracias|eso es todo, gracias|deja de escribirme|buonanotte|arrivederci|grazie, è tutto|tchau|até amanhã
obrigado, é só isso|doei|welterusten|bedankt, dat was het|laat me met rust|👋|I have to go now|need to go, see ya|cya|gn
thats it for today, cheers|i gotta go to sleep|ok im done for today thx|No more questions, thank you|Unsubscribe|ciao
Thank you, good bye|going to bed now, night!|We're done here|smettila di scrivermi|não me mande mais mensagens|stop met vragen
"""
OPEN = """
bye the way, what is rye?|thanks! and what about X?|Thanks!|By the way I moved|I said bye to my job last week|I slept well
good night's sleep is important to me|Bye? I'm not leaving yet|Goodbye Lenin is a great film|I told her to stop asking me
I'll stop asking him|Don't ask my brother|he left me alone with the kids|I was off work today|I'm off on Friday|hello|no
see you have a point there|That's all I know about it, what do you think?|I need to go to the dentist tomorrow|Good evening
I have to go to Berlin|I must leave my job|stop the car|I never write to her|I can't stop thinking about it|I'll sleep on it
bye! oh wait, I forgot to ask about the visa|The later chapters are boring|How do I say goodbye in Spanish?|I'll go with it
I take care of my mother|should I write to her later?|Have a good recipe for bread?|Never ask a baker|I don't want to ask her
later I will cook pasta|a plus is that it's cheap|don't call the landlord yet|I have to go on|ok|👍|😂|was ist das
"""


def each_of(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in line.split("|")]


@every_case("text", each_of(CLOSING))
def test_this_closes_a_conversation(text: str) -> None:
    assert is_closing(text)


@every_case("text", each_of(OPEN))
def test_this_closes_nothing(text: str) -> None:
    assert not is_closing(text)


@every_case("text", ["no", "no thanks", "Nope, all good", "nah", "I'm good, thanks", "nothing, thank you"])
def test_a_mere_no_closes_what_was_only_an_offer(text: str) -> None:
    assert is_closing(text, answers_an_offer=True)
    assert not is_closing(text)


@every_case("text", ["ciao", "salut", "Buenas noches", "boa noite!", "dag"])
def test_the_same_word_greets_first_and_parts_later(text: str) -> None:
    assert not is_closing(text, is_first=True)
    assert is_closing(text)


def test_figures_of_speech_are_no_emergency() -> None:
    fine = (
        "my phone died",
        "dying to see it",
        "the battery died",
        "this deadline is killing me",
        "a recipe to die for",
    )
    assert not [text for text in fine if is_in_distress(text)]
    bad = ("I want to kill myself", "je veux mourir", "quiero morirme", "ik wil niet meer leven")
    assert [text for text in bad if is_in_distress(text)] == list(bad)


def test_thanks_alone() -> None:
    assert is_only_thanks("Thank you so much!")
    assert not is_only_thanks("thanks, I will call him")
    assert not is_only_thanks("ok")


# ---- matters


@every_case(
    ("a", "b"),
    [
        ("call the landlord", "calling my landlord"),
        ("landlord call", "I need to call the landlord about the heating"),
        ("send the report", "the report I sent"),
        ("half marathon training", "training for the half-marathon"),
        ("Wohnung in Köln", "die Wohnung in koln"),
        ("搬家", "搬家"),
    ],
)
def test_the_same_in_other_words(a: str, b: str) -> None:
    assert is_same_topic(a, b)


@every_case(
    ("a", "b"),
    [
        ("send the report", "send the letter"),
        ("job offer Hamburg", "job interview Berlin"),
        ("call the landlord", "call the dentist"),
        ("", "call the landlord"),
        ("the and of", "call"),
        ("搬家", "工作"),
    ],
)
def test_something_else(a: str, b: str) -> None:
    assert not is_same_topic(a, b)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
VOCABULARY = (
    "I I'll need to call the landlord should we or stay bye thanks? ! . , good night can't decide between and what is it"
    ' have done my dad stop asking me \n not " 👋 ich muss não sé si'
)
PHRASES = st.lists(st.sampled_from(VOCABULARY.split(" ")), max_size=25).map(" ".join)
WORDS = TEXTS | PHRASES


@given(WORDS, WORDS)
def test_being_the_same_matter_is_symmetric(a: str, b: str) -> None:
    assert is_same_topic(a, b) == is_same_topic(b, a)


@given(WORDS)
def test_everything_is_the_same_matter_as_itself(text: str) -> None:
    assert is_same_topic(text, text)
    assert is_same_topic(text, f"  {text} ")


@given(WORDS)
def test_a_matter_is_short_and_on_one_line(text: str) -> None:
    matter = make_topic(text)
    assert len(matter) <= 80
    assert matter.isprintable()


# ---- whatever is said

ROLES: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant", "system-summary"])
METADATA: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"autonomous": True, "trigger_type": "check_in"},
        {"synthetic": True},
        {"fallback_used": True},
        {"autonomous": "yes"},
    ]
)
MESSAGES = st.builds(
    Message, st.just("m"), st.just("c"), ROLES, WORDS, st.just(BEGAN), metadata=METADATA
)  # fmt: skip
DELAYS = st.floats(allow_nan=True, allow_infinity=True)
AUTONOMIES = st.builds(
    Autonomy,
    min_delay=st.floats(1, 10_000),
    max_delay=st.floats(1, 10_000),
    max_in_a_row=st.integers(0, 5),
)


@given(st.lists(MESSAGES, max_size=8), st.lists(WORDS, max_size=3), AUTONOMIES)
def test_any_talk_has_a_plan_within_the_limits_or_none(
    said: list[Message], matters: list[str], autonomy: Autonomy
) -> None:
    earlier = [made(matter) for matter in matters]
    plan = plan_by_rules(said, earlier=earlier, autonomy=autonomy)
    if plan is None:
        return
    assert plan.trigger_type in TRIGGER_TYPES
    assert autonomy.min_delay <= plan.delay <= max(autonomy.min_delay, autonomy.max_delay)
    assert plan.topic
    assert not any(is_same_topic(plan.topic, matter) for matter in matters)
    assert plan.reason
    assert len(plan.reason) <= 220
    assert plan_by_rules(said, earlier=earlier, autonomy=autonomy) == plan
    assert plan_by_rules(said, earlier=[*earlier, made(plan.topic)], autonomy=autonomy) != plan
    assert plan_by_rules(said, earlier=[*earlier, made("", *plan.sources)], autonomy=autonomy) != plan


@given(st.sampled_from(TRIGGER_TYPES), DELAYS, AUTONOMIES)
@example("check_in", float("nan"), LIMITS)
@example("check_in", float("inf"), LIMITS)
@example("check_in", float("-inf"), LIMITS)
def test_every_delay_is_brought_within_the_limits(trigger_type: TriggerType, delay: float, autonomy: Autonomy) -> None:
    plan = Plan(trigger_type, delay, "pizza")
    kept = clamp_delay(plan, autonomy)
    assert autonomy.min_delay <= kept.delay <= max(autonomy.min_delay, autonomy.max_delay)
    assert clamp_delay(kept, autonomy) == kept
    if autonomy.min_delay <= delay <= autonomy.max_delay:
        assert kept == plan


def test_a_delay_that_is_no_number_becomes_the_usual_one() -> None:
    assert clamp_delay(Plan("check_in", float("nan"), "pizza"), LIMITS).delay == USUAL_DELAY["check_in"]


@every_case("text", ["should i ", "i need to ", '"', "? ", "bye ", "i have to say that ", "a", "```", "between a and "])
def test_a_long_monotonous_message_takes_no_time(text: str) -> None:
    said = dialogue("U: " + text * (32_000 // len(text)), "A: " + text * (32_000 // len(text)) + "?")
    began = time.process_time()
    plan_by_rules(said, earlier=[made("call the landlord")], autonomy=LIMITS)
    assert time.process_time() - began < 10


def test_rules_plan_no_type_that_the_agent_does_not_allow() -> None:
    talk = (
        "U: I have to finish the tax return this week.",
        "A: So you have to finish the tax return. Which forms are missing?",
    )
    assert kind_of(planned(*talk)) == "task_incomplete"
    assert (
        kind_of(planned(*talk, autonomy=replace(LIMITS, trigger_types=("question_unanswered",))))
        == "question_unanswered"
    )
    assert planned(*talk, autonomy=replace(LIMITS, trigger_types=("waiting_for_decision",))) is None
