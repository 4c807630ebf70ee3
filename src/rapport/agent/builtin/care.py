"""The one subject that no set phrase may answer: somebody in danger."""

import re

_IN_DANGER = re.compile(
    r"\b(?:kill(?:ing)? myself|suicid(?:e|al)|end(?:ing)? my life|(?:want|wanna) (?:to )?die|hurt(?:ing)? myself|self[- ]harm)\b",
    re.IGNORECASE,
)

REPLY = (
    "I'm very sorry you're going through this. I'm only a small program and not the right help here: please call your "
    "local emergency number or a crisis line now, or talk to someone you trust."
)
AFTERWARDS = "Thank you for writing back. Is there someone near you whom you can talk to right now?"


def in_danger(text: str) -> bool:
    """Whether the text speaks of harming oneself."""
    return bool(_IN_DANGER.search(text))
