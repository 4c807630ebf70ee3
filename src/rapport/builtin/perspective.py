"""Turning a sentence around: what the user says of themselves becomes what one says to them."""

import re

from rapport.builtin.language.word_lists import word_set

_TURNED = {
    "i": "you", "i'm": "you're", "i've": "you've", "i'll": "you'll", "i'd": "you'd", "me": "you", "my": "your",
    "mine": "yours", "myself": "yourself", "we": "you", "we're": "you're", "we've": "you've", "we'll": "you'll",
    "we'd": "you'd", "us": "you", "our": "your", "ours": "yours", "ourselves": "yourselves", "your": "my",
    "yours": "mine", "yourself": "myself", "you're": "I'm", "you've": "I've", "you'll": "I'll", "you'd": "I'd",
    "im": "you're", "ive": "you've",
}  # fmt: skip
_TOKEN = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?|[^A-Za-z]+")
_OPENERS = re.compile(
    r"^(?:(?:by the way|btw|well|oh|so|also|and|but|actually|fyi|ok|okay|anyway|yes|yeah|yep|no|hi|hello|hey|hmm|ah|"
    r"good (?:morning|afternoon|evening)|(?:please )?(?:remember|note|don't forget)(?: that)?|just so you know|thanks|"
    r"thank you|sorry|look|listen|honestly|you know|i (?:said|mean|meant)(?: that)?)\b[\s,:;.!–-]*)+",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"\s*[;\n]\s*|,?\s+(?:and|but|so)\s+(?=(?:i|i'm|i've|i'll|my|our|we|we're)\b)|,\s+(?=(?:i|i'm|my|our|we)\b)",
    re.IGNORECASE,
)
# Third-person notes about the user, as a memory keeps them.
_THIRD_PERSON = (
    (re.compile(r"^(?:the )?user said: [\"“](.+)[\"”]\.?$", re.IGNORECASE), r"\1"),
    (re.compile(r"^(?:the )?user's\b", re.IGNORECASE), "my"),
    (re.compile(r"^(?:the )?user ((?:usually|often|sometimes|always|also|still|really|never|now|currently|mostly) )?", re.IGNORECASE), r"I \1"),
)  # fmt: skip
_VERB = re.compile(
    r"^(I (?:(?:usually|often|sometimes|always|also|still|really|never|now|currently|mostly) )?)([\w']+)"
)
_CONJUGATED = {
    "is": "am", "isn't": "am not", "has": "have", "hasn't": "haven't", "does": "do", "doesn't": "don't", "goes": "go", "was": "was", "uses": "use",
}  # fmt: skip
_THEIRS = ((re.compile(r"\btheir\b"), "my"), (re.compile(r"\bthemsel(?:f|ves)\b"), "myself"))


def clauses(sentence: str) -> list[str]:
    """Return a sentence's statements, one by one, without the words that only lead into them."""
    parts = (_OPENERS.sub("", part.strip()).strip(" ,.!") for part in _CLAUSE.split(sentence.replace("’", "'")))
    return [part.lower() if part.isupper() and len(part) > 4 else part for part in parts if part]


def is_first_person(note: str) -> str:
    """`User likes tea` → `I like tea`; anything else unchanged."""
    for pattern, replacement in _THIRD_PERSON:
        match = pattern.match(note)
        if match:
            turned = _VERB.sub(_conjugate, match.expand(replacement) + note[match.end() :])
            for theirs, mine in _THEIRS:
                turned = theirs.sub(mine, turned)
            return turned
    return note


def _conjugate(match: re.Match[str]) -> str:
    """`I lives` → `I live`; a form that has no s stays as it is."""
    verb = match.group(2)
    return match.group(1) + (_CONJUGATED.get(verb) or _bare(verb))


def _bare(verb: str) -> str:
    if verb.endswith("ies") and len(verb) > 4:
        return f"{verb[:-3]}y"
    if verb.endswith(("ches", "shes", "sses", "xes")):
        return verb[:-2]
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def turn_around(clause: str) -> str:
    """`my train leaves at nine` → `your train leaves at nine`; names and the rest stay as they are."""
    tokens: list[str] = _TOKEN.findall(clause.replace("’", "'"))
    turned: list[str] = []
    previous = ""
    for n, token in enumerate(tokens):
        word = token.lower()
        if word == "you":
            turned.append("I" if _is_subject(tokens, n) else "me")
        elif word in ("am", "was") and previous == "i":
            turned.append("are" if word == "am" else "were")
        elif word in ("are", "were") and previous == "you":
            turned.append("am" if word == "are" else "was")
        else:
            turned.append(_TURNED.get(word, token))
        previous = word if token.strip(" ") else previous
    return "".join(turned)


_AFTER_SUBJECT = word_set(
    """
    are were will would can could should may might have had do did don't know think said say told
    tell want need like
    """
)


def _is_subject(tokens: list[str], n: int) -> bool:
    following = next((token.lower() for token in tokens[n + 1 :] if token.strip()), "")
    return n == 0 or following in _AFTER_SUBJECT
