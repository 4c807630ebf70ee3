"""Show a small model by examples how a follow-up reads: what a person wrote, and a good message about it (AUTO-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rapport.domain.follow_up import TriggerType
from rapport.domain.phrases import load_languages
from rapport.followups.word_stems import DATA

INSTRUCTIONS = "You write one short, friendly message to somebody who has been silent since. Ask about what they wrote, in their language."
_ASKS: Final[Mapping[TriggerType, str]] = {
    "check_in": " Ask how it went or how it is now.",
    "question_unanswered": "",
    "task_incomplete": " Ask if it is done.",
    "waiting_for_decision": " Ask what they have decided.",
}
_NAMES = ("Tim", "Ann")
_SILENCES = ("2 days", "5 hours")
_NOBODY = "They"


@dataclass(frozen=True, slots=True)
class Example:
    """A silence as the model is shown it, and a good message to it."""

    shown: str
    message: str
    own_words: str
    """The message without its greeting, and the name: what no other message has by chance."""


def instruct(trigger_type: TriggerType) -> str:
    """Return the instructions for a kind of moment."""
    return INSTRUCTIONS + _ASKS[trigger_type]


def show_silence(lines: Sequence[str], silence: str, *, name: str, question: str = "") -> str:
    """Return a silence as a model is shown it: who wrote what, how long ago, and the question that is open."""
    quoted = "\n".join(f"“{line}”" for line in lines)
    asked = f"\nYou asked: “{question}”" if question else ""
    return f"{name or _NOBODY} wrote {silence} ago: {quoted}{asked}"


@cache
def list_examples(trigger_type: TriggerType, language: str | None, *, is_named: bool) -> tuple[Example, ...]:
    """Return the examples of a kind of moment, in this language if there are some, otherwise in English."""
    languages = load_languages(DATA)
    held: dict[str, Any] = languages.get(language or "en", {}).get("examples") or languages["en"]["examples"]
    examples: list[Example] = []
    for (lines, message, *question), silence, example_name in zip(held[trigger_type], _SILENCES, _NAMES, strict=True):
        name = example_name if is_named else ""
        text = f"{held['greeting'].format(name=name)}{message}" if name else _capitalise(message)
        shown = show_silence(lines, silence, name=name, question="".join(question))
        examples.append(Example(shown, text, f"{name} {message}"))
    return tuple(examples)


def _capitalise(text: str) -> str:
    at = next((position for position, character in enumerate(text) if character.isalpha()), 0)
    return f"{text[:at]}{text[at : at + 1].upper()}{text[at + 1 :]}"
