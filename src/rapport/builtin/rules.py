"""Recognise attempts to talk the model out of its rules."""

from rapport.builtin.language.words import find_phrase, sentences, words
from rapport.builtin.phrases import PHRASES

_RULES = PHRASES["rules"]
_VERBS, _OBJECTS, _OPENERS, _OWNERS = (
    frozenset(_RULES[name].split()) for name in ("verbs", "objects", "openers", "owners")
)
_REACH = 6
"""The number of words between the verb and what is to be ignored."""


def breaks_rules(text: str) -> bool:
    """Return True if the text tells the model to drop its instructions, to show them, or to be something else.

    "May guests ignore the parking rules?" speaks of other rules: the verb must begin a sentence, or the rules be the model's.
    """
    if find_phrase(text, _RULES["phrases"]):
        return True
    return any(_orders_break(words(sentence)) for sentence in sentences(text.replace(",", ".\n")))


def _orders_break(said: list[str]) -> bool:
    for position, word in enumerate(said):
        following = said[position + 1 : position + 1 + _REACH]
        if word in _VERBS and not _OBJECTS.isdisjoint(following):
            is_order = _OPENERS.issuperset(said[:position])
            if is_order or not _OWNERS.isdisjoint(following):
                return True
    return False
