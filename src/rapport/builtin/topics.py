"""Recognise what a message is: small talk, bad news, an attempt to break the rules, a choice between two things."""

from rapport.builtin.language.words import content_words, find_phrase, sentences, words
from rapport.builtin.phrases import PHRASES, clip

_OPTIONS = PHRASES["options"]
_FORBIDDEN = frozenset(_OPTIONS["forbidden"].split())
_MAX_OPTION_WORDS = 7
_MAX_BARE_WORDS = 4
_RULES = PHRASES["rules"]
_VERBS, _OBJECTS, _OPENERS, _OWNERS = (
    frozenset(_RULES[name].split()) for name in ("verbs", "objects", "openers", "owners")
)
_REACH = 6  # words between the verb and what is to be ignored


def find_small_talk(text: str) -> list[str] | None:
    """Return the replies to a message that is only thanks, a goodbye or a question about the model."""
    for talk in PHRASES["small_talk"]:
        found = find_phrase(text, talk["phrases"])
        if found and len(content_words(text)) <= len(content_words(found)) + 1:
            return talk["replies"]
    return None


def is_in_danger(text: str) -> bool:
    """Return True if the text speaks of harming oneself."""
    return find_phrase(text, PHRASES["danger"]["phrases"]) is not None


def has_bad_news(text: str) -> bool:
    """Return True if the text tells of a loss, an illness, a parting or the like."""
    return find_phrase(text, PHRASES["bad_news"]["phrases"]) is not None


def breaks_rules(text: str) -> bool:
    """Return True if the text tells the model to drop its instructions, to show them, or to be something else.

    "May guests ignore the parking rules?" speaks of other rules: the verb must begin a sentence, or the rules be the model's.
    """
    if find_phrase(text, _RULES["phrases"]):
        return True
    return any(_orders_break(words(sentence)) for sentence in sentences(text.replace(",", ".\n")))


def _orders_break(said: list[str]) -> bool:
    for position in (position for position, word in enumerate(said) if word in _VERBS):
        following = said[position + 1 : position + 1 + _REACH]
        is_order = position <= _REACH and _OPENERS.issuperset(said[:position])
        if not _OBJECTS.isdisjoint(following) and (is_order or not _OWNERS.isdisjoint(following)):
            return True
    return False


def has_subject(text: str) -> bool:
    """Return True if a message says something that one can come back to."""
    says_something = len(content_words(text)) > 1 or (len(text.split()) > 2 and bool(content_words(text)))
    return says_something and not find_small_talk(text) and not is_in_danger(text) and not breaks_rules(text)


def find_options(text: str) -> tuple[str, str] | None:
    """Return the two things that a message weighs against each other, as said to the person who weighs them."""
    for sentence in sentences(text):
        line = " ".join(sentence.replace("’", "'").split())
        if " between " in line:
            found = _split_options(line.partition(" between ")[2], " and ")
        elif " or " in line:
            found = _split_options(line[_find_lead_end(line.partition(" or ")[0].lower()) :], " or ")
        else:
            found = None
        if found:
            return found
    return None


def _find_lead_end(before: str) -> int:
    """Return where the first option begins: after the last of the words that lead to a choice."""
    starts = ((f" {before}".rfind(f" {lead} "), lead) for lead in _OPTIONS["leads"])
    ends = [start + len(lead) + 1 for start, lead in starts if start >= 0]
    return max(ends, default=0 if len(before.split()) <= _MAX_BARE_WORDS else len(before))


def _split_options(text: str, joint: str) -> tuple[str, str] | None:
    first, _, rest = text.partition(joint)
    end = min((position for sign in ".,;:?!" if (position := rest.find(sign)) > 0), default=len(rest))
    options = [option.strip(" ,.:;?!\"'").split() for option in (first, rest[:end])]
    if not all(
        0 < len(option) <= _MAX_OPTION_WORDS and _FORBIDDEN.isdisjoint(map(str.lower, option)) for option in options
    ):
        return None
    turned = [" ".join(_OPTIONS["swaps"].get(word.lower(), word) for word in option) for option in options]
    return clip(turned[0], 60), clip(turned[1], 60)
