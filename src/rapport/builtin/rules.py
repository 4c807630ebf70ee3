"""Attempts to talk the model out of its rules, and how it declines."""

import re

_BREAK = re.compile(
    r"\b(?:ignore|disregard|forget|bypass|override|drop|break|skip|overlook|set aside)\b[^.!?\n]{0,40}?"
    r"\b(?:rules?|instructions?|prompts?|guidelines?|guardrails?|restrictions?|constraints?|directives?|sources only)\b"
    r"|\b(?:ignore|disregard|forget)\s+(?:everything|anything|all)(?: that)?(?: (?:came|stands|is written))? (?:before|above|prior|previous|you(?:'ve| have| were|'re))\b",
    re.IGNORECASE,
)
_REVEAL = re.compile(
    r"\b(?:reveal|print|show|repeat|output|display|leak|dump|give me|tell me|what(?:'s| is| are|s))\b[^.!?\n]{0,30}?"
    r"\b(?:your (?:system |hidden |initial |original |secret )?(?:prompt|instructions)|(?:the|this) system (?:prompt|message))\b",
    re.IGNORECASE,
)
_PERSONA = re.compile(
    r"\byou are now\b(?! (?:able|allowed|free))|\b(?:developer|god|dan|unrestricted|jailbreak) mode\b|\bjailbreak\b"
    r"|\bdo anything now\b|\bpretend (?:that )?(?:you have|there are) no (?:rules|restrictions|limits)\b"
    r"|\b(?:act|answer|reply|respond) (?:as if|as though)[^.!?\n]{0,30}\bno (?:rules|restrictions|limits)\b"
    r"|^\s*(?:system|assistant)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
# "May I ignore the parking rules?" asks about somebody else's rules.
_ABOUT_PEOPLE = re.compile(
    r"\b(?:i|we|they|he|she|people|someone|somebody|anyone|staff|users?|guests?|drivers?)\s+(?:\w+\s+){0,2}$",
    re.IGNORECASE,
)


def asks_to_break_rules(text: str) -> bool:
    """Return whether the text tells the model to drop its instructions, show them, or become something else."""
    broken = _BREAK.search(text)
    if broken and not _ABOUT_PEOPLE.search(text[: broken.start()]):
        return True
    return bool(_REVEAL.search(text) or _PERSONA.search(text))


REFUSALS = (
    "I'd rather keep to the rules I was given. Ask me anything within them, though.",
    "Sorry, I can't set my rules aside. I'm glad to go on with what you actually need.",
    "That's one thing I won't do: my rules stay in place. What else is on your mind?",
)
REFUSALS_WITH_SOURCES = (
    "Sorry, I can't set my rules aside. I'm glad to answer anything the documents cover.",
    "I'd rather keep to my rules. Is there something you'd like to know from the documents?",
)
