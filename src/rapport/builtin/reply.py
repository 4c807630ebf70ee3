"""Decide what to say to a list of messages: the same messages always get the same words."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from rapport.builtin.chat import drop_greeting, make_small_talk, talk
from rapport.builtin.digest import answer_group, asks_for_view
from rapport.builtin.follow_ups import write_follow_up
from rapport.builtin.language.words import is_question, sentences, words
from rapport.builtin.phrases import PHRASES, Phrasebook
from rapport.builtin.prompt import Prompt, read_prompt
from rapport.builtin.sources import STRICT_THRESHOLD, answer_about_notes, answer_from_sources
from rapport.builtin.summary import summarize
from rapport.builtin.topics import breaks_rules, is_in_danger

MAX_CHARACTERS = 2_000


def make_reply(messages: Sequence[BaseMessage]) -> str:
    """Return the reply: never empty, at most 2,000 characters, whatever the messages are."""
    prompt = read_prompt(messages)
    if prompt.earlier_summary is not None:
        return summarize(prompt.turns, prompt.earlier_summary)
    book = Phrasebook(prompt)
    if prompt.trigger_type is not None or prompt.last is None:
        return write_follow_up(prompt.trigger_type or "check_in", prompt, book)
    text = prompt.last.text
    if prompt.last.has_image and (not text or is_question(text)):
        return PHRASES["direct"]["image"]
    start = f"{PHRASES['direct']['image']} " if prompt.last.has_image else ""
    return f"{start}{_answer(text, prompt, book)}"[:MAX_CHARACTERS]


def _answer(text: str, prompt: Prompt, book: Phrasebook) -> str:
    if is_in_danger(text):
        return book.pick(PHRASES["danger"]["replies"])
    if breaks_rules(text):
        return book.pick(PHRASES["rules"]["replies"])
    if (told := answer_about_notes(prompt)) is not None:
        return told
    points_up = prompt.is_group and asks_for_view(text)
    if not (prompt.is_group and not words(text)) and (small_talk := make_small_talk(text, prompt, book)) is not None:
        return small_talk
    if prompt.is_strict:
        return _answer_strictly(text, prompt, book, points_up=points_up)
    return (answer_group if prompt.is_group else talk)(drop_greeting(text), prompt, book)


def _answer_strictly(text: str, prompt: Prompt, book: Phrasebook, *, points_up: bool) -> str:
    """Return an answer from the sources alone, or that they don't cover the question."""
    earlier = prompt.earlier[-1].text if prompt.earlier else ""
    if points_up:  # the question is the one that the call points at
        questions = [turn.text for turn in prompt.earlier if any(map(is_question, sentences(turn.text)))]
        text, earlier = prompt.anchor or (questions or [earlier])[-1], ""
    found = answer_from_sources(drop_greeting(text), earlier, prompt.sources, threshold=STRICT_THRESHOLD)
    return found or book.pick(PHRASES["sources"]["not_covered"])
