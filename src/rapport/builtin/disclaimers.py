"""Say plainly what the built-in model cannot do, with one sentence on how to get a model that can."""

import re

from rapport.builtin.phrasing import Phrasebook

SWITCH = (
    "To talk with a full language model instead, set `RAPPORT_MODEL` (for example `openai:…`, `anthropic:…` or "
    "`ollama:…`) with its key; `rapport doctor` shows what is in use."
)
_SWITCH_MARK = "`RAPPORT_MODEL`"

_BEYOND = tuple(
    (re.compile(pattern, re.IGNORECASE), ability)
    for pattern, ability in (
        ((r"\b(?:write|generate|debug|review|refactor|fix|give me|show me)\b.{0,40}\b(?:code|function|script|program|class|sql|query|regex|"
         r"python|javascript|typescript|java|rust|golang|bash|html|css|unit tests?)\b|```"), "write or check code"),
        (r"^\s*[{<][\s\S]*[}>]\s*$|\bselect\b.+\bfrom\b.+|\bdef \w+\(|\bfunction\s*\w*\(|</\w+>|#include\b", "read or run code"),
        ((r"\btranslat(?:e|ion)\b|\bhow (?:do|would) (?:you|i) say\b.*\bin \w+|\bin (?:german|french|spanish|italian|portuguese|"
         r"japanese|chinese|russian)\s*\?"), "translate"),
        (r"\bweather\b(?!-)|\bforecast\b|\bwill it (?:rain|snow)\b|\b(?:is it|temperature) (?:raining|outside|going to)\b",
         "look up the weather"),
        (r"\b(?:latest|today's|any|current|the) news\b|\bheadlines\b|\bstock price|\bexchange rate|\bwho won\b", "look up news"),
        ((r"\bwhat(?:'s| is)? (?:the )?(?:current )?(?:time|date|day)(?: is it| today| now| is today)\b|\bwhat(?:'s| is) the (?:time|date)\s*\?|"
         r"\bwhat(?:'s| is) today's date\b"), "tell the time or the date"),
        (r"\b(?:draw|paint|sketch|generate|create|make|show)\b.{0,30}\b(?:image|picture|photo|drawing|logo|illustration|meme|icon|diagram)\b",
         "make images"),
        (r"\b(?:search|browse|google|look up)\b.{0,30}\b(?:web|internet|online|google)\b|\bgoogle (?:it|that|for)\b|^google\b",
         "search the web"),
        (r"\b(?:open|read|visit|check|summari[sz]e)\b.{0,30}https?://|^https?://\S+$", "open links"),
        ((r"\b(?:write|compose|draft|generate|make up)\b.{0,30}\b(?:essay|poem|story|article|blog|e-?mail|letter|song|haiku|speech|report|text|"
         r"cv|resume|tweet|post)\b"), "write longer texts"),
        (r"\bremind me\b(?! (?:what|when|where|who|of what|which))|\bset (?:an? )?(?:alarm|timer|reminder)\b|\bwake me\b",
         "set reminders from a chat line"),
        (r"^(?:please |can you |could you |will you )*(?:book|order|buy|reserve|call|phone|send|email|text|play|turn (?:on|off)|schedule|pay)\b",
         "act outside this chat"),
    )
)  # fmt: skip

_CANNOT = (
    "I can't {ability}: I'm Rapport's built-in model, with no language model behind me.",
    "I'm not able to {ability}, I'm afraid: this is the built-in model, without a language model behind it.",
)
_CANNOT_AGAIN = (
    "I can't {ability} either, I'm afraid. What I can do is talk it through with you here.",
    "That's beyond the built-in model too: it can't {ability}. Is there a part of it we can sort out in words?",
    "No luck there: the built-in model can't {ability}.",
)
_UNKNOWN = (
    "I don't know that: I'm the built-in model, and I only know what you tell me here and what your notes say.",
    "That's something I can't answer: as the built-in model I only go by what you tell me here and by your notes.",
)
_UNKNOWN_THERE = (
    "I don't know that: it wasn't said here, and I found nothing about it in the notes.",
    "I can't answer that: neither what was said here nor the notes tell it.",
)
_CANNOT_THERE = (
    "I can't {ability}: I'm a small built-in model, and go only by what is said here and by the notes.",
    "I'm not able to {ability}, I'm afraid: I go only by what is said here and by the notes.",
)
_UNKNOWN_AGAIN = (
    "That's not something I know either, I'm afraid. What have you found out about it so far?",
    "I can't say: nothing of what you've told me answers it. What's your own guess?",
    "I don't have an answer to that one. What would you do with it if you had it?",
)


def find_missing_ability(text: str) -> str | None:
    """Return the ability a text asks for that this model lacks."""
    return next((ability for pattern, ability in _BEYOND if pattern.search(text[:600])), None)


def decline(ability: str, book: Phrasebook) -> str:
    """Says no plainly, and how to switch unless that was said already."""
    if book.in_group:
        return book.pick(_CANNOT_THERE).format(ability=ability)
    if book.has_said(_SWITCH_MARK):
        return book.pick(_CANNOT_AGAIN).format(ability=ability)
    return with_switch(book.pick(_CANNOT).format(ability=ability), book)


def not_known(book: Phrasebook) -> str:
    """For a question that nothing at hand answers."""
    if book.in_group:
        return book.pick(_UNKNOWN_THERE)
    if book.has_said(_SWITCH_MARK):
        return book.pick(_UNKNOWN_AGAIN)
    return with_switch(book.pick(_UNKNOWN), book)


def with_switch(text: str, book: Phrasebook) -> str:
    """Return the text, and how to switch if this window has not said so yet; a group is mostly not who could."""
    return text if book.in_group or book.has_said(_SWITCH_MARK) else f"{text} {SWITCH}"
