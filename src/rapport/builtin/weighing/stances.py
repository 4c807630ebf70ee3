"""Find how somebody stands to a question: for it, against it, on a condition, or just with something to say."""

import re
from dataclasses import dataclass
from typing import Literal

from rapport.builtin.language.word_lists import word_set
from rapport.builtin.language.words import sentences, words
from rapport.builtin.question_kinds import is_question

Side = Literal["for", "against"]
_LOOKED_AT = 1_000  # characters: who is for something says so at once

_YES = re.compile(
    r"^\W*(?:yes|yep|yeah|yup|aye|sure|ok(?:ay)?|fine|agreed?|deal|\+1|👍|✅|works for me|sounds? (?:good|great|fine)|(?:good|great|nice) idea|let's|"
    r"i'm (?:in|for|fine|ok|happy with)|count me in|i agree|absolutely|definitely|of course|go for it|do it|love it|why not|please do|gladly|me too|same here)(?:\b|$)"
    r"|\bi(?:'d| would)(?: \w+)? (?:take|go (?:with|for)|pick|choose|vote for|say yes|prefer|love|buy|keep|do it|be (?:fine|happy|up|for))\b"
    r"|\bi(?:'m| am) (?:all )?(?:for|in favou?r)\b|\b(?:i|my) vote (?:is |goes )?(?:for|to)\b|\bi(?:'ll| will) (?:take|go with|vote for)\b|\b(?:say|says|said) yes\b|\bmakes sense\b|\bi like (?:it|that|the idea)\b",
    re.IGNORECASE,
)
_NO = re.compile(
    r"^\W*(?:no\b(?! (?:idea|problem|objection|worries|hurry|rush))|nope|nah|please don't|not (?:again|that|for me|this|now|yet)\b|-1|👎|(?:i'd )?rather not|don't|never|bad idea)"
    r"|\bi(?:'d| would) (?:rather (?:not|wait|skip|leave)|not|leave it|wait)\b|\bi(?:'m| am)(?: \w+)? against\b|\bi (?:really )?(?:don't|do not) (?:like|think|want)\b"
    r"|(?<!not )(?<!n't )\btoo (?:late|early|far|expensive|pricey|much|many|risky|small|big|long|short|cold|hot|loud|dangerous|soon|heavy|slow|tight)\b"
    r"|\b(?:say|says|said) no\b|\b(?:i|we) can(?:'t|not) (?:afford|do that|make it|come)\b|\bnot (?:worth|a good idea|a fan|convinced|sure about)\b|\bwon't (?:work|like|fit)\b|\bbad idea\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"^\W*(?:yes,? |ok(?:ay)?,? |fine,? |sure,? |i'm in,? )?(?:(?:but )?only )?(?P<word>if|provided(?: that)?|as long as|unless)\s+(?P<clause>[^,.!?]{3,80})",
    re.IGNORECASE,
)
_ITS_YES = re.compile(
    r",\s*(?:then )?(?:yes|sure|fine|ok(?:ay)?|i'm in|gladly|i(?:'d| would)|why not|let's|we can)\b", re.IGNORECASE
)
_LOOK_UP = re.compile(
    r"\b(?:(?:some(?:body|one)|we|you|i|let's|please|can any(?:body|one)|could any(?:body|one))\b[^.?!]{0,20}\b)?(?:look up|check|find out|figure out|look into|ask)\s+"
    r"(?P<what>(?:what|how|whether|if|when|where|who|which|why)\b[^.?!;,]{3,90})",
    re.IGNORECASE,
)
_GOOD = word_set(
    """
    good great better best nice lovely cheap cheaper cheapest warm warmer easy easier fast faster quick quicker free near nearer close
    closer quiet quieter safe safer works worth fun tasty delicious beautiful bright solid reliable light lighter comfortable favourite favorite
    bigger included
    """
)
_BAD = word_set(
    """
    bad worse worst expensive pricey far farther late slow slower rain rains risky risk problem problems closed full leaks leak leaking broken
    breaks loud noisy dirty heavy ugly boring cold dark hard harder small cramped crowded unsafe dangerous stolen missing smells
    rotten sold sadly unfortunately without can't cannot won't doesn't isn't never nobody hate hated awful terrible costs tired
    """
)
_REVERSED = re.compile(
    r"\b(?:mind|object|objection|against|problem with|anything wrong|too (?:late|early|much|far))\b", re.IGNORECASE
)
_DECISION = re.compile(
    r"^\W*(?:(?:so|and|but|well|ok|okay|then|now|or|hey|hi|all|everyone|anyone|guys|folks|team)\b\W*)*"
    r"(?:(?:do|should|shall|can|could|may|must|will|would)\s+(?:i|we|you|they|he|she|it|this|that|the|an?|my|our|every\w+|any\w+|(?-i:[A-Z])[\w'-]+)\b"
    r"|does\s+(?:it|this|that|every\w+|any\w+)\b"
    # "Is the shop open?" wants to be told something, "is it all right?" wants to be settled.
    r"|(?:is|are)\s+(?:it|this|that|these|those|we)\b[^?]{0,30}\b(?:ok|okay|all right|alright|fine|worth|enough|allowed|possible|acceptable|wise|too|on|in|good)\b)",
    re.IGNORECASE,
)
_OF_KNOWLEDGE = re.compile(
    r"^\W*(?:so |and )?(?:do|does|can|could|would|will) (?:you|any\w+|we|i|some\w+) (?:\w+ )?(?:know|have|see|remember|tell|hear|find|say|explain|show)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Stance:
    """The position of a person; without a side they have only said something."""

    side: Side | None
    condition: str | None = None
    """On what it hangs: "if it fits the budget"."""
    has_reason: bool = True
    """True if their words say more than yes or no."""


def stance(text: str) -> Stance:
    """Return where the text stands to a yes-or-no question before it."""
    said = text[:_LOOKED_AT].replace("’", "'")
    if (met := _CONDITION.match(said)) and (
        _ITS_YES.search(said) or met.start("word") > 0 or said.lower().startswith("only")
    ):
        return Stance("for", f"{met.group('word').lower()} {met.group('clause').strip()}")
    if _NO.search(said):
        return Stance("against", has_reason=_says_more(said))
    if _YES.search(said):
        tail = re.search(
            r",?\s(?:but only |only )?(if|as long as|provided|unless) ([^,.!?]{3,80})", said, re.IGNORECASE
        )
        return Stance("for", f"{tail.group(1).lower()} {tail.group(2).strip()}" if tail else None, _says_more(said))
    return Stance(None)


def find_leaning(text: str) -> int:
    """Return whether the words speak well of what they are about (above 0) or ill of it (below 0); 0 if they don't tell."""
    found = words(text.replace("’", "'"))
    good, bad = (sum(word in listed for word in found) for listed in (_GOOD, _BAD))
    turned = any(word in ("not", "isn't", "no", "never", "hardly") for word in found)
    return -1 if turned and good else (good > bad) - (bad > good)


def find_asked_for(text: str) -> str | None:
    """Return what somebody says should be looked up ("what a room may cost")."""
    match = _LOOK_UP.search(text.replace("’", "'"))
    return match.group("what").strip() if match and not is_question(sentences(text)[-1]) else None


def decides(question: str) -> bool:
    """Return whether a question can be settled by yes or no, and not by knowing something."""
    # "Half marathon on Sunday: do I run it?" asks behind the colon.
    asked = (question, re.split(r"[:,;–]\s", question)[-1])
    return any(_DECISION.match(each) and not _OF_KNOWLEDGE.match(each) for each in asked)


def suggests(question: str) -> bool:
    """Return whether a question only puts something forward: "pizza?", "the place on 10th?"."""
    return is_question(question) and not is_question(question.rstrip(" ?!"))


def is_reversed(question: str) -> bool:
    """Return whether a yes to the question speaks against the thing: "does anybody mind?"."""
    return bool(_REVERSED.search(question))


def _says_more(text: str) -> bool:
    return len(words(text)) > 3
