"""Coming back to a conversation unasked: in plain words, about what surely was its topic, with no machinery showing.

A general line beats a clever one that is broken, so only three things are ever taken from the conversation: a noun of the
sender's own ("your kitchen"), a plain clause about what they are doing, and the two sides of a choice.
"""

import re
from collections.abc import Sequence

from rapport.builtin.care import AFTERWARDS, GENTLE, REPLY, in_danger, is_weighed_down
from rapport.builtin.foreign_replies import LINES
from rapport.builtin.language.detect import foreign
from rapport.builtin.language.words import content_words, sentences, words
from rapport.builtin.phrasing import Phrasebook, capitalise, quotable
from rapport.builtin.prompt_reader import Window
from rapport.builtin.question_kinds import asks, is_question
from rapport.builtin.rules import asks_to_break_rules
from rapport.builtin.smalltalk import GREETING, opener, set_piece
from rapport.builtin.subjects import options, statement
from rapport.builtin.things import (
    decides,
    echo,
    find_own_thing,
    has_decided,
    is_alive,
    lasting,
    object_of,
    task,
    taste,
    until,
)
from rapport.builtin.topics import short_answer
from rapport.builtin.window_facts import list_in

# Words that would sound like the machinery even when they come from the user's own topic.
_TELLTALE = re.compile(
    r"\b(?:system|trigger\w*|follow(?:ing)?[- ]?up\w*|incomplete|prompt\w*|synthetic|autonomous\w*|request\w*|messages?|user|tasks?|decisions?|"
    r"naturally|instruct\w*|continue|responded)\b",
    re.IGNORECASE,
)
_CHECK_IN = (
    "How are things by now?",
    "How has your day gone so far?",
    "What's new with you?",
    "How are you doing today?",
    "What have you been up to since?",
)
_CHECK_IN_ABOUT = (
    "How are things with {topic}?",
    "How is it going with {topic}?",
    "What's the latest on {topic}?",
)
_CHECK_IN_ON = (
    "You mentioned that {s}. How is it going?",
    "You told me that {s}. What's the latest?",
)
_CHECK_IN_TASTE = (
    "You mentioned {taste} earlier. What else do you enjoy?",
    "We talked about {taste} earlier. What else do you like?",
)
_TASK = (
    "How far have you got by now?",
    "How is it coming along?",
    "Is anything holding you up?",
    "Are you getting anywhere with it?",
)
_TASK_ABOUT = (
    "How far have you got with {topic}?",
    "How is it coming along with {topic}?",
    "Is anything holding you up with {topic}?",
    "Are you getting anywhere with {topic}?",
)
_TASK_ON = (
    "You mentioned that {s}. How far have you got?",
    "You told me that {s}. Is anything holding you up?",
)
_DECISION = (
    "Have you made up your mind yet?",
    "Which way are you leaning by now?",
    "Are you any closer to making up your mind?",
)
_CHOICE = (
    "Have you made up your mind yet: {a}, or {b}?",
    "{A}, or {b}: which way are you leaning by now?",
    "Are you any closer to choosing: {a}, or {b}?",
)
_CHOICE_AND_TASK = (
    "{A}, or {b}: which way are you leaning by now? You said that {s}.",
    "Have you made up your mind yet: {a}, or {b}? You mentioned that {s}.",
)
_ASK_AGAIN = (
    "Whenever you have a moment: {question}",
    "No hurry, but I'd still like to know: {question}",
    "I'm still curious: {question}",
)
_FOUND = (
    "Did you find what you were looking for?",
    "Did you get anywhere with your question?",
    "Have you found an answer by now?",
)
_HEAR_MORE = (
    "No hurry at all, but I'd still like to hear more.",
    "I'd still like to hear the rest, whenever you feel like it.",
    "Is there anything you'd add by now?",
)
_HEAR_MORE_ABOUT = (
    "I'd still like to hear more about {topic}, whenever you feel like it.",
    "No hurry at all, but how are things with {topic}?",
    "Is there anything you'd add about {topic}?",
)
_WHILE_SORE = 8  # messages of people after which bad news no longer sets the tone
_LOOKED_BACK = 6
_SHORTEST_QUESTION = 4  # words
# A question that points back at something is empty once it stands alone.
_DANGLING = re.compile(r"\b(?:that|there|it|its|this|so|those|these|they|them|two|one|ones|he|she|him|her|either|both|rest|instead|then|else)\b", re.IGNORECASE)  # fmt: skip


def follow_up(trigger: str, window: Window, name: str | None, book: Phrasebook) -> str:
    """Return a natural line of the given kind, or a plainer one where that kind would not fit; never a word about why it is sent."""
    if window.last and in_danger(window.last.text):
        return AFTERWARDS if book.has_said(REPLY) else REPLY
    if is_weighed_down(turn.text for turn in [t for t in window.turns if t.role == "user"][-_WHILE_SORE:]):
        return book.pick(GENTLE)
    said = _find_own_words(window)
    if language := _language(said):
        return book.pick(LINES.get(language, _CHECK_IN))
    line = _line(trigger, said, window, book) if window.turns else opener(book)
    if _TELLTALE.search(line):
        line = book.pick(_CHECK_IN)
    greets = name and not _TELLTALE.search(name) and not book.has_said(f"Hi {name}!") and not book.has_said(name)
    return f"Hi {name}! {line}" if greets else line


def find_last_topic(window: Window, *, stated: bool = False) -> str | None:
    """Return the latest thing a person said that has a subject (`stated`: as a statement); thanks and a bare yes have none."""
    people = (GREETING.sub("", turn.text) for turn in reversed(window.turns) if turn.role == "user")
    return next((text for text in people if _has_subject(text) and not (stated and not statement(text))), None)


def _find_own_words(window: Window) -> list[str]:
    """Return what the person who spoke last has said that has a subject, the latest first."""
    speaker = window.last.speaker if window.last else None
    own = (t for t in reversed(window.turns) if t.role == "user" and t.speaker == speaker)
    texts = (GREETING.sub("", turn.text).strip() for turn in own)
    return [text for text in texts if _has_subject(text)][:_LOOKED_BACK]


def _has_subject(text: str) -> bool:
    silent = Phrasebook((), ())
    if not content_words(text) or asks_to_break_rules(text) or list_in(text) or in_danger(text):
        return False
    return not set_piece(text, None, silent) and not short_answer(text, None, silent)


def _language(said: Sequence[str]) -> str | None:
    """Return the foreign language that the person writes in: of the latest words that are enough to tell."""
    telling = next((text for text in said if len(words(text)) >= 3), None) or next(iter(said), None)
    return foreign(telling) if telling else None


def _line(kind: str, said: Sequence[str], window: Window, book: Phrasebook) -> str:
    match kind:
        case "waiting_for_decision":
            line = _ask_about_decision(said, book)
        case "task_incomplete":
            line = _ask_about_task(said, book)
        case "question_unanswered":
            line = _ask_about_question(said, window, book)
        case _:
            line = None
    return line or _check_in(said, book)


def _ask_about_decision(said: Sequence[str], book: Phrasebook) -> str | None:
    for text in said:
        if has_decided(text):
            return None
        if both := options(text):
            first, second = both
            filling = {"A": capitalise(first), "a": first, "b": second}
            if due := until(text):
                line = _fill_template(_CHOICE_AND_TASK, (), book, s=due, **filling)
                if line:
                    return line
            return _fill_template(_CHOICE, _DECISION, book, **filling)
        if decides(text):
            return book.pick(_DECISION)
    return None


def _ask_about_task(said: Sequence[str], book: Phrasebook) -> str | None:
    clause = next(filter(None, map(task, said)), None)
    if clause is None:
        return None
    if topic := object_of(clause):
        return _fill_template(_TASK_ABOUT, _TASK, book, topic=topic)
    if doing := echo(clause):
        return _fill_template(_TASK_ON, _TASK, book, s=doing)
    return book.pick(_TASK)


def _ask_about_question(said: Sequence[str], window: Window, book: Phrasebook) -> str | None:
    # What was asked back about a choice says little once it stands alone: the choice itself says more.
    if said and options(said[0]) and (line := _ask_about_decision(said[:1], book)):
        return line
    if asked := _open_question(window):
        return _fill_template(_ASK_AGAIN, _HEAR_MORE, book, question=asked)
    latest = next(iter(said), None)
    if latest is None:
        return None
    if asks(sentences(latest)[-1]):
        return book.pick(_FOUND)
    if topic := None if lasting(latest) else find_own_thing(latest):
        return _fill_template(_HEAR_MORE_ABOUT, _HEAR_MORE, book, topic=topic)
    return book.pick(_HEAR_MORE)


def _check_in(said: Sequence[str], book: Phrasebook) -> str:
    latest = next(iter(said), None)
    if latest and (liked := taste(latest)):
        return _fill_template(_CHECK_IN_TASTE, _CHECK_IN, book, taste=liked)
    if latest is None or lasting(latest):
        return book.pick(_CHECK_IN)
    clause = task(latest)
    topic = (object_of(clause) if clause else None) or find_own_thing(latest)
    if topic:
        return _fill_template(_CHECK_IN_ABOUT[:2] if is_alive(topic) else _CHECK_IN_ABOUT, _CHECK_IN, book, topic=topic)
    if clause and (doing := echo(clause)):
        return _fill_template(_CHECK_IN_ON, _CHECK_IN, book, s=doing)
    return book.pick(_CHECK_IN)


def _fill_template(templates: Sequence[str], general: Sequence[str], book: Phrasebook, **filling: str) -> str:
    """Return one of the templates with its filling; a general line if all have been said or the filling can't be repeated, or
    nothing if there is none."""
    left = [each for each in templates if not book.has_said(each.format(**filling))]
    if not left or any(_TELLTALE.search(each) for each in filling.values()):
        return book.pick(general) if general else ""
    return book.pick(left).format(**filling)


def _open_question(window: Window) -> str | None:
    """Return what the agent asked in reply to the last words of anybody, if it can stand alone."""
    spoken = [place for place, turn in enumerate(window.turns) if turn.role == "user"]
    # What stands further on has been said unasked: only the first of these lines is a reply.
    reply = next(iter(window.turns[spoken[-1] + 1 if spoken else 0 :]), None)
    if reply is None:
        return None
    asked = [each for each in sentences(reply.text) if each.endswith("?") and is_question(each) and len(each) <= 160]
    if not asked:
        return None
    question = quotable(asked[-1].rsplit(": ", 1)[-1], 160)
    telling = len(words(question)) >= _SHORTEST_QUESTION and not _DANGLING.search(question)
    return question[:1].lower() + question[1:] if telling and not _TELLTALE.search(question) else None
