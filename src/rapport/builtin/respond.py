"""The one decision: what to say to a list of messages. Pure: the same messages always get the same words."""

import re
from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from rapport.builtin import source_reader as source_blocks
from rapport.builtin.arithmetic import work_out
from rapport.builtin.care import AFTERWARDS, REPLY, in_danger
from rapport.builtin.contents import overview
from rapport.builtin.disclaimers import decline, find_missing_ability, not_known
from rapport.builtin.follow_up_replies import find_last_topic, follow_up
from rapport.builtin.grounding import answer
from rapport.builtin.groups import (
    asks_to_sum_up,
    asks_view,
    asks_whats_open,
    is_group,
    points_up,
    question_above,
    view,
)
from rapport.builtin.language.detect import NOTE_MARK, foreign
from rapport.builtin.language.words import sentences, words
from rapport.builtin.perspective import clauses
from rapport.builtin.phrasing import Phrasebook, join_list, quotable
from rapport.builtin.prompt_reader import Window, read
from rapport.builtin.question_kinds import asks, is_question, is_request
from rapport.builtin.rules import REFUSALS, REFUSALS_WITH_SOURCES, asks_to_break_rules
from rapport.builtin.smalltalk import GREETING, greet, opener, repeat_last, set_piece
from rapport.builtin.source_reader import Source
from rapport.builtin.subjects import options, subject
from rapport.builtin.summary_text import summarise
from rapport.builtin.topics import continue_with, is_guess, short_answer
from rapport.builtin.weighing.answer import gather, still_open, weigh
from rapport.builtin.weighing.open_question import choices
from rapport.builtin.weighing.stances import decides
from rapport.builtin.window_facts import asks_about_self, find_name, list_in, name_in, recall

LONGEST_REPLY = 2000
_STRICT_THRESHOLD, _BLEND_THRESHOLD = 0.34, 0.5
_ANY_LETTER = re.compile(r"\w")

NO_IMAGES = "I can't see images with the built-in model."
_NOT_COVERED = (
    "The documents I have don't cover that.",
    "I couldn't find that in the documents I have.",
)
_ANYTHING_ELSE = (
    "Is there anything else you'd like to know from the documents?",
    "What else would you like to look up in the documents?",
)
_EMPTY = (
    "That came through empty. What would you like to say?",
    "I got no words there. What's on your mind?",
)
_WORDLESS = (
    "I can't read much from that alone. What's on your mind, in a few words?",
    "Signs say a lot, but I need a word or two. What's going on?",
)
_NOISE = "That looks like one long string without words to me. What is it about?"
_FOREIGN = (
    "I see you're writing in {language}. I'm sorry, I " + NOTE_MARK + ". Could you put it in a few English words?"
)
_FOREIGN_AGAIN = (
    "I couldn't follow that one, sorry. Which English word comes closest to it?",
    "That one went past me, I'm afraid. What's the gist of it?",
)
_COMMAND = re.compile(r"^/([A-Za-z][\w-]{0,30})(?:@[\w-]+)?(?:\s+\S+){0,2}$")
_COMMANDS = ("help", "start")
_NO_COMMAND = (
    "I know no command “/{command}”. Here you just write what you mean; /help tells what I can do.",
    "“/{command}” is nothing that I know. Plain words will do; /help tells what I can do with them.",
)
_NICE_TO_MEET = (
    "Nice to meet you, {name}! What's on your mind?",
    "Good to meet you, {name}. What would you like to talk about?",
)


def reply_to(messages: Sequence[BaseMessage]) -> str:
    """Return the reply: never empty, at most 2,000 characters, whatever the messages hold."""
    window = read(messages)
    if window.summary_wanted:
        return summarise(window)
    book = Phrasebook((turn.text for turn in window.turns), window.replies, in_group=window.group)
    if window.trigger is not None:
        text = follow_up(window.trigger, window, find_name(window), book)
    elif window.last is None:
        text = opener(book)
    else:
        text = _answer(window, book)
    return text[:LONGEST_REPLY].strip() or opener(book)


def _answer(window: Window, book: Phrasebook) -> str:
    last = window.last
    text = last.text.strip() if last else ""
    if last and last.image:
        return _reply_to_image(window, text, book)
    return _reply_to_text(window, text, book)


def _reply_to_image(window: Window, text: str, book: Phrasebook) -> str:
    if not _ANY_LETTER.search(text) or is_question(text):
        return f"{NO_IMAGES} What does it show?"
    return f"{NO_IMAGES} {_reply_to_text(window, text, book)}"


def _reply_to_text(window: Window, text: str, book: Phrasebook) -> str:
    if in_danger(text):
        return REPLY
    offered = source_blocks.parse(window.system)
    if asks_to_break_rules(text):
        return book.pick(REFUSALS_WITH_SOURCES if offered else REFUSALS)
    if told := overview(window.instructions, offered):
        return told
    points = points_up(window, text) or asks_view(text)
    above = question_above(window) if points else None
    if offered and source_blocks.is_strict(window.instructions):
        return _from_sources_only(window, above or text, offered, book)
    if is_group(window) and (weighed := _reply_in_group(window, text, offered, points=points)):
        return weighed
    if above and (known := _answer_question(window, above, offered)):
        return known
    if points and is_group(window) and (gathered := gather(window, offered)):
        return gathered
    if seen := view(window, text, book):
        return seen
    if offered and foreign(text) and (found := _blend(window, text, offered)):
        return found
    return _odd(text, book) or _conversation(window, text, offered, book)


def _reply_in_group(window: Window, text: str, offered: list[Source], *, points: bool) -> str | None:
    """Return what is said to a group that is about to decide something, or wants to know where it stands."""
    if asks_whats_open(text):
        return still_open(window)
    if points or asks_to_sum_up(text):
        return weigh(window, offered, whole=not points)
    own = next((each for each in reversed(sentences(text)) if is_question(each)), None)
    return weigh(window, offered, own) if own and (decides(own) or choices(own)) else None


def _answer_question(window: Window, question: str, offered: list[Source]) -> str | None:
    """Return the answer to a question that somebody points at, if there is one: from what was said, the sources or by arithmetic."""
    asked = next((each for each in reversed(sentences(question)) if asks(each)), question)
    return recall(window, asked) or (_blend(window, question, offered) if offered else None) or work_out(asked)


def _from_sources_only(window: Window, text: str, offered: list[Source], book: Phrasebook) -> str:
    name = find_name(window)
    rest = GREETING.sub("", text).strip()
    if text and not rest:
        return greet(name, book, again=bool(window.replies))
    piece = set_piece(rest, name, book, polite_only=True)
    # "Thanks!" takes nothing over from the question before it.
    found = answer(rest, "" if piece else _question_before(window), offered, threshold=_STRICT_THRESHOLD)
    if found or piece:
        return found or piece or ""
    return book.pick(_ANYTHING_ELSE) if short_answer(rest, None, book) else _not_covered(rest, book)


def _not_covered(text: str, book: Phrasebook) -> str:
    about = subject(text)
    hint = f" If you have one about {about}, add it and ask again." if about and len(about) <= 40 else ""
    return f"{book.pick(_NOT_COVERED)}{hint}"


def _odd(text: str, book: Phrasebook) -> str | None:
    """Input that has no words to go by."""
    if not text:
        return book.pick(_EMPTY)
    if not _ANY_LETTER.search(text):
        return book.pick(_WORDLESS)
    if (command := _COMMAND.match(text)) and command.group(1).lower() not in _COMMANDS:
        return book.pick(_NO_COMMAND).format(command=quotable(command.group(1), 30))
    if language := foreign(text):
        return book.pick(_FOREIGN_AGAIN) if book.has_said(NOTE_MARK) else _FOREIGN.format(language=language)
    if max(map(len, text[:400].split()), default=0) > 60 and "://" not in text:
        return _NOISE
    return None


def _conversation(window: Window, text: str, offered: list[Source], book: Phrasebook) -> str:
    name = find_name(window)
    rest = GREETING.sub("", text).strip()
    if not rest:
        return greet(name, book, again=bool(window.replies))
    hello = (
        f"Hello{f' {name}' if name and name_in(text) is None else ''}! " if rest != text and not window.replies else ""
    )
    return hello + (_direct(window, rest, name, book) or _inform(window, rest, offered, book))


def _direct(window: Window, text: str, name: str | None, book: Phrasebook) -> str | None:
    """Return what needs no knowledge: set pieces, sums, short answers, introductions and lists."""
    if said := set_piece(text, name, book) or repeat_last(text, window.replies):
        return said
    if total := next((found for each in (text, *sentences(text)[-1:]) if (found := work_out(each))), None):
        return total
    topic_text = find_last_topic(window, stated=True)
    if short := short_answer(text, _name_topic(topic_text), book):
        return AFTERWARDS if REPLY in window.replies[-1:] else short
    if items := list_in(text):
        return f"Got it, for this conversation: {quotable(join_list(items), 180)}."
    return _introduce(text, name, book)


def _introduce(text: str, name: str | None, book: Phrasebook) -> str | None:
    called = name_in(text) or (name if name and name.lower() == text.strip(" .!").lower() else None)
    if not called or any(is_question(each) for each in sentences(text)):
        return None
    rest = [clause for each in sentences(text) for clause in clauses(each) if not name_in(clause)]
    if any(len(words(clause)) >= 3 for clause in rest):
        return f"Nice to meet you, {called}! {continue_with('. '.join(rest), book)}"
    return book.pick(_NICE_TO_MEET).format(name=called)


def _name_topic(topic_text: str | None) -> str | None:
    """Return what to call a topic when coming back to it."""
    if topic_text is None:
        return None
    if options(topic_text):
        return "that choice"
    topic = subject(topic_text)
    # Only what is the user's own is sure to be a thing one can come back to by name.
    return topic if topic and topic.startswith("your ") else None


def _inform(window: Window, text: str, offered: list[Source], book: Phrasebook) -> str:
    """Return what needs to be known: from what people said, else from the sources, else honestly not at all."""
    asked = [each for each in sentences(text) if asks(each)]
    if asked and (remembered := recall(window, asked[-1])):
        return remembered
    if offered and is_request(text) and (found := _blend(window, text, offered)):
        return found
    if ability := find_missing_ability(text):
        return decline(ability, book)
    if asked and asks_about_self(asked[-1]):
        return "I can't find that in what you've told me in this conversation."
    if asked and not options(text) and not is_guess(text):
        return _not_covered(asked[-1], book) if offered else not_known(book)
    return continue_with(text, book, answering=bool(window.replies) and window.replies[-1].endswith("?"))


def _blend(window: Window, text: str, offered: list[Source]) -> str | None:
    return answer(text, _question_before(window), offered, threshold=_BLEND_THRESHOLD)


def _question_before(window: Window) -> str:
    return window.earlier[-1].text if window.earlier else ""
