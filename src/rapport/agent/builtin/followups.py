"""Coming back to a conversation unasked: about its last real topic, in plain words, with no machinery showing."""

import re

from rapport.agent.builtin.care import AFTERWARDS, REPLY, in_danger
from rapport.agent.builtin.facts import list_in
from rapport.agent.builtin.phrasing import Phrasebook, capitalised, quotable
from rapport.agent.builtin.questions import is_question
from rapport.agent.builtin.rules import asks_to_break_rules
from rapport.agent.builtin.smalltalk import GREETING, opener, set_piece
from rapport.agent.builtin.subjects import options, statement, subject
from rapport.agent.builtin.topics import short_answer
from rapport.agent.builtin.window import Window
from rapport.agent.builtin.words import content_words, sentences

# Words that would sound like the machinery even when they come from the user's own topic.
_TELLTALE = re.compile(
    r"\b(?:system|trigger\w*|follow(?:ing)?[- ]?up\w*|incomplete|prompt\w*|synthetic|autonomous\w*|request\w*|messages?|user|tasks?|decisions?|"
    r"naturally|instruct\w*|continue|responded)\b",
    re.IGNORECASE,
)
_ABOUT_STATEMENT = {
    "check_in": (
        "Earlier you told me that {s}. Where do things stand by now?",
        "Has anything changed since you told me that {s}?",
        "You mentioned that {s}. Any news?",
    ),
    "task_incomplete": (
        "You mentioned that {s}. How far have you got?",
        "How is it coming along? You told me that {s}.",
        "You said that {s}. Is anything holding you up?",
    ),
    "waiting_for_decision": (
        "You mentioned that {s}. Have you made up your mind yet?",
        "Where are you leaning by now? You told me that {s}.",
    ),
    "question_unanswered": (
        "You mentioned that {s}. Is there anything you'd add?",
        "I'd still like to hear more: you told me that {s}. What came of it?",
    ),
}
_ABOUT_TOPIC = {
    "check_in": ("How are things with {topic}?", "Is there anything new about {topic}?", "How has it gone with {topic} since?"),
    "task_incomplete": ("How far have you got with {topic}?", "How is {topic} coming along?", "Is anything holding you up with {topic}?"),
    "waiting_for_decision": ("Have you made up your mind about {topic}?", "Where are you leaning with {topic} by now?"),
    "question_unanswered": ("You asked about {topic} earlier. Did you find what you were looking for?", "Did you get anywhere with {topic}?"),
}  # fmt: skip
_ABOUT_NOTHING = {
    "check_in": ("How are things by now?", "How has your day gone so far?", "What's new with you?"),
    "task_incomplete": (
        "How far have you got by now?",
        "How is it coming along?",
        "Is anything holding you up?",
    ),
    "waiting_for_decision": ("Have you made up your mind yet?", "Which way are you leaning by now?"),
    "question_unanswered": (
        "Did you find what you were looking for?",
        "No hurry at all, but I'd still like to hear what you think.",
    ),
}
_ABOUT_CHOICE = (
    "Have you made up your mind yet: {a}, or {b}?",
    "{A}, or {b}: which way are you leaning by now?",
)
_ASK_AGAIN = (
    "Whenever you have a moment: {question}",
    "No hurry, but I'd still like to know: {question}",
    "One thing is still open between us: {question}",
)
_ASK_AGAIN_ABOUT = (
    "Coming back to {topic}: {question}",
    "No hurry, but about {topic}: {question}",
    "I'd still like to hear about {topic}: {question}",
)


def follow_up(trigger: str, window: Window, name: str | None, book: Phrasebook) -> str:
    """A natural line of the given kind; never a word about why it is sent."""
    if window.last and in_danger(window.last.text):
        return AFTERWARDS if book.has_said(REPLY) else REPLY
    kind = trigger if trigger in _ABOUT_NOTHING else "check_in"
    topic_text = last_topic(window, stated=kind != "question_unanswered") or last_topic(window)
    line = _line(kind, topic_text, window, book)
    if _TELLTALE.search(line):
        line = book.pick(_ABOUT_NOTHING[kind]) if window.turns else opener(book)
    greets = name and not _TELLTALE.search(name) and not book.has_said(f"Hi {name}!")
    return f"Hi {name}! {line}" if greets else line


def last_topic(window: Window, *, stated: bool = False) -> str | None:
    """The latest thing a person said that has a subject (`stated`: as a statement); thanks and a bare yes have none."""
    people = (GREETING.sub("", turn.text) for turn in reversed(window.turns) if turn.role == "user")
    return next((text for text in people if _has_subject(text) and not (stated and not statement(text))), None)


def _has_subject(text: str) -> bool:
    silent = Phrasebook((), ())
    if not content_words(text) or asks_to_break_rules(text) or list_in(text) or in_danger(text):
        return False
    return not set_piece(text, None, silent) and not short_answer(text, None, silent)


def _line(kind: str, topic_text: str | None, window: Window, book: Phrasebook) -> str:
    if kind == "waiting_for_decision" and (both := _last_options(window)):
        first, second = both
        return book.pick(_ABOUT_CHOICE).format(A=capitalised(first), a=first, b=second)
    if kind == "question_unanswered" and (asked := _open_question(window)):
        topic = subject(topic_text) if topic_text else None
        if topic and topic.startswith("your ") and topic not in asked:
            return book.pick(_ASK_AGAIN_ABOUT).format(topic=topic, question=asked)
        return book.pick(_ASK_AGAIN).format(question=asked)
    if topic_text is None:
        return book.pick(_ABOUT_NOTHING[kind]) if window.turns else opener(book)
    if said := statement(topic_text):
        return book.pick(_ABOUT_STATEMENT[kind]).format(s=said)
    if topic := subject(topic_text):
        return book.pick(_ABOUT_TOPIC[kind]).format(topic=topic)
    return book.pick(_ABOUT_NOTHING[kind])


def _last_options(window: Window) -> tuple[str, str] | None:
    return next(
        (both for turn in reversed(window.turns) if turn.role == "user" and (both := options(turn.text))),
        None,
    )


def _open_question(window: Window) -> str | None:
    """What the agent asked last and nobody answered."""
    last = window.turns[-1] if window.turns else None
    if last is None or last.role != "assistant":
        return None
    asked = [each for each in sentences(last.text) if each.endswith("?") and is_question(each) and len(each) <= 160]
    if not asked:
        return None
    question = quotable(asked[-1].rsplit(": ", 1)[-1], 160)
    return None if _TELLTALE.search(question) else question[:1].lower() + question[1:]
