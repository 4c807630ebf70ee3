"""Recognise messages that no set phrase may answer: somebody in danger, and somebody who has just had bad news."""

import re
from collections.abc import Iterable

_IN_DANGER = re.compile(
    r"\b(?:kill(?:ing)? myself|suicid(?:e|al)|end(?:ing)? my life|(?:want|wanna) (?:to )?die|hurt(?:ing)? myself|self[- ]harm)\b",
    re.IGNORECASE,
)
# A phone that died is a nuisance and no loss.
_ONLY_A_THING = re.compile(
    r"\b(?:phone|laptop|battery|car|computer|pc|server|tablet|router|printer|engine|tv|wifi|internet|connection|bike|app)"
    r"(?: \w+)? (?:died|is dying|is dead)\b",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"\b(?:died|dying|passed away|death|deceased|funeral|buried|grief|grieving|mourn(?:ing|s)?|widow(?:ed|er)?|miscarri\w+|stillborn"
    r"|(?:is|are|was|'s) dead|suicide"
    r"|lost (?:my|our|his|her|their|the) (?:\w+ )?(?:dad|father|mum|mom|mother|parents?|son|daughter|baby|child|wife|husband|partner|brother|"
    r"sister|grand\w+|gran|nan|granny|grandpa|uncle|aunt|cousin|friend|dog|cat|pet|job|house|home)"
    r"|put (?:\w+ ){1,2}(?:down|to sleep)|cancer|tumou?r|leuk\w+|terminal(?:ly)? \w+|dementia|alzheimer\w*"
    r"|diagnosed|hospice|(?:went|rushed|taken|brought|is|was|are|were|ended up|back) (?:\w+ )?(?:in|to) (?:the )?(?:hospital|icu|er)|hospitali[sz]ed"
    r"|intensive care|heart attack|(?:a|another) stroke|(?:car|bike|bad|terrible|serious|had an) accident"
    r"|broke up|break ?up|broken up|dumped me|left me|divorc\w+|cheated on|fired|laid off|made redundant|evicted"
    r"|heartbroken|devastated|depressed|can't stop crying|cr(?:ied|ying)|so lonely|abus(?:e|ed|ive)|assault\w*"
    r"|(?:bad|terrible|awful|horrible|sad) news|didn't get (?:the|that|it|in)\b|(?:got|was|been|were) rejected|turned me down"
    r"|failed (?:my|the|an?) \w+|(?:fight|argument|falling[- ]out|fell out|row) with (?:my|our)|(?:had|having) (?:a|an|another) (?:\w+ )?(?:fight|argument)"
    r"|(?:very|really|so|seriously) (?:sick|ill|sad|unhappy|down)|miss (?:him|her|them) (?:so|a lot|terribly|every))\b",
    re.IGNORECASE,
)

REPLY = (
    "I'm very sorry you're going through this. I'm only a small program and not the right help here: please call your "
    "local emergency number or a crisis line now, or talk to someone you trust."
)
AFTERWARDS = "Thank you for writing back. Is there someone near you whom you can talk to right now?"
GENTLE = (
    "I've been thinking of you. How are you holding up?",
    "How are you feeling today?",
    "Take all the time you need. How are you doing?",
    "I hope today is a little kinder to you. How are you?",
    "How has today been for you so far?",
)
"""Lines that can be said after any loss, and by somebody who knows no more than that there was one."""


def in_danger(text: str) -> bool:
    """Return whether the text speaks of harming oneself."""
    return bool(_IN_DANGER.search(text))


def brings_bad_news(text: str) -> bool:
    """Return whether the text tells of a loss, an illness, a parting or the like: nothing to be brisk about."""
    return bool(_LOSS.search(_ONLY_A_THING.sub(" ", text.replace("’", "'")[:2000])))


def is_weighed_down(texts: Iterable[str]) -> bool:
    """Return whether any of the texts is of that kind."""
    return any(brings_bad_news(text) for text in texts)
