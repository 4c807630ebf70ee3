"""Find what a message is about: its main statement, its subject, or the two options it weighs."""

import re

from rapport.builtin.language.word_lists import STOP_WORDS, word_set
from rapport.builtin.language.words import content_words, sentences, words
from rapport.builtin.perspective import clauses, turn_around
from rapport.builtin.phrasing import quotable
from rapport.builtin.question_kinds import is_question

_LONGEST_ECHO = 90
_STATES = re.compile(
    r"^(?:(?:probably|maybe|perhaps|luckily|unfortunately|sadly|hopefully|apparently|sometimes|usually|now|still)\s+)?"
    r"(?:i|i'm|i've|i'll|i'd|im|ive|we|we're|we've|we'll|my|our|the|a|an|this|that|these|those|it|it's|he|he's|she|she's|they|they're|his|"
    r"her|their|there|there's|some|somebody|someone|everyone|everything|nobody|nothing|today|tomorrow|yesterday)\b",
    re.IGNORECASE,
)
_HEDGES = ("probably", "maybe", "perhaps")
_NAMED_SUBJECT = re.compile(
    r"^(?:(?:[Pp]robably|[Mm]aybe|[Pp]erhaps) )?[A-Z][a-z]+ (?:is|was|are|were|has|had|will|wants|says|said|needs|keeps|does|did|can|\w+ed|\w+s)\b"
)
_DETERMINED = re.compile(r"\b(my|our|the|his|her|their|this|a|an)\s+((?:[\w'’-]+\s?){1,4})", re.IGNORECASE)
_RELATED = re.compile(r"\b(?:about|with|for|regarding|on|of|to|in)\s+((?:[\w'’-]+\s?){1,3})", re.IGNORECASE)
_RANK = {"my": 4, "our": 4, "the": 3, "his": 2, "her": 2, "their": 2, "this": 2, "a": 1, "an": 1}
_VERBS = word_set(
    """
    leaves leave starts start begins ends runs run goes works work working breaks broke broken
    crashed crashes fails failed failing stopped keeps kept comes came looks look looked takes took
    seems feels felt arrived arrives opens closes moved moving died hurts happened happens called
    went got gets needs needed wants wanted said told made makes lost left sucks changed cost costs
    doesn't didn't won't isn't wasn't can't hasn't haven't aren't couldn't wouldn't again today
    tomorrow yesterday tonight lol haha lmao tbh omg
    """
)
_TRAILING = re.compile(r",? (?:though|too|anyway|as well|lol|haha|btw|actually)$", re.IGNORECASE)
_BETWEEN = re.compile(
    r"\b(?:torn|decid\w+|choos\w+|choice|pick\w*|undecided|waver\w+|toss-?up|hesitat\w+)\b[^.?!\n]{0,30}?\bbetween\s+([^\d\s].{1,60}?)\s+and\s+(.{2,60}?)\s*(?:[.?!;,\n]|$)",
    re.IGNORECASE,
)
_WEIGHS = re.compile(
    r"\b(?:either|whether(?: to)?|should (?:i|we)|shall (?:i|we)|choose|choosing|(?:deciding|decide)(?: on| whether to| if (?:i|we) should| between)?|"
    r"(?:i|we|you) could|consider(?:ing)?|torn|which(?: is| one)?(?: better)?[:,]?|what(?:'s| is) better[:,]?|prefer|better to|pick)\s+"
    r"(?:is better[:,]? |to |on )?(.{2,60}?),?\s+or\s+(?:should (?:i|we) )?(.{2,60}?)\s*(?:[.?!;,\n]|$)",
    re.IGNORECASE,
)
_ASKED = re.compile(r"^(?:should|shall|could|would|do|can) (?:you|i|we|it be)\s+", re.IGNORECASE)
_SHARED_VERB = re.compile(
    r"^(?:do|pick|choose|take|get|visit|buy|have|go with|go for|go to|travel to|fly to|move to|use|order|try|book|learn|read|watch|see|call|adopt|rent|wear|"
    r"cook|make|eat|drink|bring|study|invite|sell|play)\s+(?=\S)",
    re.IGNORECASE,
)
_SHARED_PURPOSE = re.compile(r"^(\S.*?) for (?:your|my|our|the|his|her|their|this) [\w' -]+$", re.IGNORECASE)
_IS_THING = re.compile(
    r"^(?:(?-i:[A-Z])|(?:the|an?|my|your|his|her|their|this|that|some|\w+ing)\b|\S+$)", re.IGNORECASE
)
_NO_OPTION = re.compile(
    r"^(?:do|does|did|is|are|was|were|am|what|why|how|when|where|who|which|if|whether|because|tell|ask|know|think|say)\b",
    re.IGNORECASE,
)
_SHORT_CHOICE = re.compile(r"^\W*([\w' -]{2,40}?),? or ([\w' -]{2,40}?)\s*\?+\s*$")


def options(text: str) -> tuple[str, str] | None:
    """Return the two things a message weighs against each other, turned towards the reader."""
    head = text.replace("’", "'")[:1500]
    match = _BETWEEN.search(head) or _WEIGHS.search(head) or _SHORT_CHOICE.match(head)
    if not match:
        return None
    first, second = (turn_around(quotable(each, 50)).strip(" ,\"'") for each in match.groups())
    if not first or not second or second.lower() in ("not", "so", "no", "something", "what", "whatever"):
        return None
    first, second = drop_shared_words(_ASKED.sub("", first), second)
    return None if _NO_OPTION.match(first) or _NO_OPTION.match(second) else (first, second)


def drop_shared_words(first: str, second: str) -> tuple[str, str]:
    """Two options without what only one of them names and both mean: "do Kyoto" or "Hokkaido", "Porto" or "Madrid for our trip"."""
    if _SHARED_VERB.match(first) and not _SHARED_VERB.match(second) and _IS_THING.match(second):
        first = _SHARED_VERB.sub("", first)
    purpose = _SHARED_PURPOSE.match(second)
    if purpose and " for " not in first and _IS_THING.match(first) and _IS_THING.match(purpose.group(1)):
        second = purpose.group(1)
    return first, second


def statement(text: str) -> str | None:
    """Return the message's own main clause turned towards the reader ("you're moving to Porto"), if it has a short one."""
    return next(iter(find_declarations(text)), None)


def find_declarations(text: str) -> list[str]:
    """Return the short statements of a message turned towards the reader: the sender's own before others, the latest first."""
    stated = [c for s in sentences(text[:2000]) if not is_question(s) for c in clauses(s)]
    fitting = [c for c in stated if len(words(_TRAILING.sub("", c))) >= 3 and len(c) <= _LONGEST_ECHO and _declares(c)]
    own = [clause for clause in fitting if re.match(r"(?:i|i'm|i've|i'll|my|we|we're|our)\b", clause, re.IGNORECASE)]
    return [_towards_reader(clause) for clause in reversed((own or fitting)[-12:])]


def _towards_reader(clause: str) -> str:
    turned = turn_around(_TRAILING.sub("", quotable(clause, _LONGEST_ECHO).rstrip(" .!?,;:…")))
    return turned if _keeps_capital(turned) else turned[:1].lower() + turned[1:]


def subject(text: str) -> str | None:
    """Return a short noun phrase for what the message is about ("your kitchen"), else its first telling words in quotes."""
    head = text.replace("’", "'")[:1500]
    best: tuple[int, str] | None = None
    for match in _DETERMINED.finditer(head):
        determiner = match.group(1).lower()
        phrase = _run(match.group(2))
        if phrase and (best is None or _RANK[determiner] > best[0]):
            best = (_RANK[determiner], f"{_DEFINITE.get(determiner, determiner)} {phrase}")
    if best:
        return quotable(best[1], 60)
    related = next((phrase for match in _RELATED.finditer(head) if (phrase := _run(match.group(1)))), None)
    if related and len(related) > 2:
        return quotable(related, 60)
    return _is_telling(head)


# What was "a flat" when it was first mentioned is "the flat" from then on.
_DEFINITE = {"my": "your", "our": "your", "a": "the", "an": "the", "this": "this"}


def _is_telling(head: str) -> str | None:
    telling = content_words(head)[:3]
    if not telling:
        return f"“{quotable(head, 40)}”" if re.search(r"\d", head) else None
    match = re.search(re.escape(telling[0]), head, re.IGNORECASE)
    start = match.start() if match else 0
    return f"“{quotable(head[start : start + 60], 40).rstrip(' .!?,;:')}”"


def _run(phrase: str) -> str:
    """Return the words of a phrase up to the first that cannot belong to a noun."""
    taken: list[str] = []
    for n, word in enumerate(phrase.split()):
        if word.lower() == "of" and taken:
            taken.append("of")
            continue
        # "my partner loves Porto": an inflected word inside the run is most likely the verb.
        inflected = bool(taken) and word.lower().endswith("s") and not word.lower().endswith(("ss", "us", "is", "'s"))
        if (
            (inflected and n + 1 < len(phrase.split()))
            or word.lower() in STOP_WORDS
            or word.lower() in _VERBS
            or (taken and word.lower().endswith(("ed", "ly")))
        ):
            break
        taken.append(word.strip("'’-"))
    while taken and taken[-1] == "of":
        taken.pop()
    return " ".join(taken)


def _declares(clause: str) -> bool:
    return bool(_STATES.match(clause) or _NAMED_SUBJECT.match(clause))


def _keeps_capital(text: str) -> bool:
    first = text.split(" ", 1)[0]
    return first in ("I", "I'm", "I've", "I'll", "I'd") or not (_STATES.match(text) or first.lower() in _HEDGES)
