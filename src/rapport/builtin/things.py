"""Find what somebody can be asked about later: a thing of theirs, something they have to do, a choice they have to make."""

import re
from collections.abc import Sequence

from rapport.builtin.language.word_lists import STOP_WORDS, word_set
from rapport.builtin.language.words import sentences
from rapport.builtin.perspective import clauses, turn_around
from rapport.builtin.phrasing import quotable
from rapport.builtin.question_kinds import asks

_OWNED = re.compile(r"\b(?:my|our)\s+(?=((?:[\w'-]+[ ]?){1,4}))", re.IGNORECASE)
_DONE_TO = re.compile(r"\b(my|our|the|an?|this)\s+((?:[\w'-]+[ ]?){1,4})", re.IGNORECASE)
_NO_NOUN = word_set(
    """
    lol haha hahaha lmao rofl btw tbh imo omg ugh pls plz idk though again today tomorrow yesterday tonight later soon already always
    never now here there back home away anymore lately recently alone together instead anyway badly everywhere
    be been am is are was were has had have having do does did done doing will would can could shall should may might must
    isn't aren't wasn't weren't doesn't don't didn't won't can't couldn't wouldn't hasn't haven't hadn't
    ate beat became began bit bled blew bought broke brought built burst came caught chose cost cried died dug drank drew drove fed
    fell felt fled flew forgot fought found froze gave got grew had heard hid hit held hung hurt kept knew laid led left lent
    let lied lost made meant met paid put quit ran rang read rode rose said sang sank sat saw sent set shook shot shut slept
    sold sought spent spoke stole stood stuck stung stank swam swept swore taught threw told took tore understood upset went wept woke won
    wore wrote dying crying lying
    arrives ate barks begins bites breaks calls comes cooks cries crashes dies doesn't drinks drives eats ends fails feels fits forgets gets gives
    goes grows happens hates hears helps hurts ignores itches keeps knows laughs leaves leaks likes listens lives looks loses loves
    makes means meets moves needs never opens plays prefers puts reads runs says seems sends sits sleeps smells snores
    speaks starts stays stinks stops studies sucks takes talks teaches tells thinks tries turns uses visits waits wakes walks
    wants watches wears wins works worries writes yells
    leave start begin run go work working break fail keep come look take seem feel arrive open close move hurt happen call
    need want say tell make lose suck change keep think know love hate like live sleep eat drink smell sit stay
    """
)
# Not things one gets anywhere with, nor things there could be news of.
_NO_TOPIC = word_set(
    """
    mind life god goodness opinion bad way day days week weekend night morning evening own head fault thing things turn favourite favorite name
    age birthday place side time self word words point view guess best worst first last next part question questions answer
    eyes heart soul gut feelings feeling mood experience case world ass butt whole entire other only old
    message messages instructions rules prompt system
    """
)
_LIVING = word_set(
    """
    wife husband partner girlfriend boyfriend spouse ex mother father mom mum mam dad parents parent son sons daughter daughters
    kid kids child children baby toddler brother brothers sister sisters sibling siblings twin twins family grandmother
    grandfather grandma grandpa gran nan granny grandparents grandson granddaughter grandchildren uncle aunt auntie cousin cousins
    nephew niece friend friends mate mates buddy neighbour neighbours neighbor neighbors roommate flatmate boss manager colleague
    colleagues coworker coworkers team teacher professor doctor therapist dentist landlord landlady tenant client clients
    dog dogs puppy cat cats kitten pet pets horse hamster rabbit parrot bird fish in-laws mother-in-law father-in-law fiancé
    fiancée fiance fiancee students student pupils crush date people guys girls boys
    back knee knees foot feet leg legs arm arms hand hands finger fingers thumb toe toes shoulder shoulders neck throat stomach
    belly tooth teeth eye eyes ear ears nose skin hip hips ankle wrist elbow headache cold flu
    """
)
_MUST = re.compile(
    r"^(?:i|we)(?:'ve| have)? (?:still |also |really |just )*(?:have to|need to|must|got to|gotta|should|ought to|want to|wanted to|plan to|'d like to)"
    r" (?:finally |really |still )?(?!be\b|go\b|admit\b|say\b|know\b|sleep\b|eat\b|leave\b|stop\b|die\b|cry\b|feel\b|think\b|see\b|tell\b|have\b|do enough\b|get\b)\w+",
    re.IGNORECASE,
)
_DOING = re.compile(
    r"^(?:i|we)(?:'m|'re| am| are|'ve been| have been) (?:still |just |currently |also |now |finally |busy )*(?:working on|trying to|going to (?-i:[a-z])|planning|preparing|"
    r"writing|painting|building|learning|renovating|repairing|fixing|cleaning|packing|organi[sz]ing|applying|training|studying|revising|"
    r"practi[sc]ing|translating|editing|reading|designing|coding|programming|refactoring|migrating|moving|looking for|searching for|saving|redoing|decorating|"
    r"sewing|knitting|baking|cooking|gardening|planting|sorting|tidying|filing|assembling|drafting|rewriting|setting up|putting together)\b",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"^[A-Za-z0-9' -]+$")
_SHORTHAND = re.compile(
    r"\b(?:lol|haha|tbh|omg|ugh|idk|lmao|pls|you|your|not|n't|never|hate|tell|ask)\b|n't\b", re.IGNORECASE
)
_LETTERS = re.compile(r"[^\W\d_]{2}")
_AFTER_VERB = word_set(
    "a an the my our his her their your me us him it them at that so too to like very really up out off back down all no"
)
_LONGEST_ECHO = 70
_DUE = re.compile(r"^(?:i|we) (?:still |also |really |just )*(?:have to|need to|must|should)\b", re.IGNORECASE)
_BY_THEN = re.compile(
    r"\b(?:by|before|until|on) (?:the end of )?(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:by|before|until) (?:tomorrow|tonight|noon|\w+ o'clock|"
    r"(?:the )?(?:end of|weekend|next) ?\w*|(?:january|february|march|april|may|june|july|august|september|october|november|december)|\d[\w:]*|six|five|four|three|seven|eight|nine|ten)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:lol|haha|tbh|omg|ugh|idk|lmao|pls|you|your|not|never)\b|n't\b", re.IGNORECASE)
_LIKES = re.compile(
    r"^(?:i|we) (?:really |also |quite |just |absolutely |still )*(?:love|like|enjoy|adore) ([a-z][a-z' -]{2,40})[.!]?$",
    re.IGNORECASE,
)
_POINTING = word_set(
    "i you me we us he she him her they them it that this these those to when how why what where who if but so because my our your not lol haha"
)
_DECIDES = re.compile(
    r"\b(?:decid(?:e|ing)|decision|undecided|torn|make up my mind|should (?:i|we)|shall (?:i|we)|whether (?:to|i|we)|(?:which|what) (?:one )?(?:should|to)"
    r"|not sure (?:whether|if|which|about (?:taking|accepting|quitting|moving))|can't (?:choose|pick)|choos(?:e|ing) between|on the fence|considering|"
    r"thinking (?:of|about) (?:quitting|moving|buying|selling|leaving|changing|taking|switching|accepting|getting|adopting|renting))\b",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:i|we)(?:'ve| have)? (?:finally |now |just )?(?:decided|chose|chosen|picked|went with|settled on|made up my mind|gone with)\b|\b(?:i'll|we'll|let's) (?:take|go with|go for)\b",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:allerg\w+|intoleran\w+|vegan|vegetarian|coeliac|celiac|my name|call me|(?:i|we) (?:live|work|come from|was born|am from|like|love|hate|prefer|enjoy|speak|don't (?:eat|drink|like)|can't stand)"
    r"|i'm from|i'm (?:an?|\d+) |i am (?:an?|\d+) |my favou?rite|years old|born (?:in|on))\b",
    re.IGNORECASE,
)


def lasting(text: str) -> bool:
    """Return whether the text tells what is so and stays so: nothing there could be news of."""
    return bool(_LASTING.search(_flat(text)))


def find_own_thing(text: str) -> str | None:
    """Return the last thing of the sender's own that the text names ("your kitchen"); None unless it is surely a noun."""
    named = [noun for match in _OWNED.finditer(_flat(text)) if (noun := _noun(match.group(1)))]
    return f"your {quotable(named[-1], 40)}" if named else None


def taste(text: str) -> str | None:
    """Return what the text says its sender likes ("pizza with mushrooms"), if that is all it says."""
    match = _LIKES.match(_flat(text).strip())
    return match.group(1) if match and _POINTING.isdisjoint(match.group(1).lower().split()) else None


def is_alive(thing: str) -> bool:
    """Return whether it is somebody, an animal or a part of one's body: nobody "gets far" with those."""
    return thing.rsplit(" ", 1)[-1].lower() in _LIVING


def task(text: str) -> str | None:
    """Return the clause, as the sender wrote it, that says what they are at or have to do; the latest one."""
    stated = [c for s in sentences(_flat(text)) if not asks(s) for c in clauses(s)]
    return next((clause for clause in reversed(stated) if _MUST.match(clause) or _DOING.match(clause)), None)


def object_of(clause: str) -> str | None:
    """Return what a task is done to ("the shed"); None unless it is surely a thing."""
    for match in _DONE_TO.finditer(clause):
        noun = _noun(match.group(2))
        if noun and not is_alive(noun):
            return f"{'your' if match.group(1).lower() in ('my', 'our') else 'the'} {quotable(noun, 40)}"
    return None


def echo(clause: str) -> str | None:
    """Return a plain clause about what the sender is doing, turned towards them; None if it can't be repeated as it is."""
    if not (_DOING.match(clause) and len(clause) <= _LONGEST_ECHO and _PLAIN.match(clause)) or _SHORTHAND.search(
        clause
    ):
        return None
    turned = turn_around(clause)
    return turned[:1].lower() + turned[1:]


def until(text: str) -> str | None:
    """Return the plain clause, turned towards its sender, that says what they have to do by when ("you have to tell them by Friday")."""
    stated = [c for s in sentences(_flat(text)) if not asks(s) for c in clauses(s)]
    due = next((c for c in reversed(stated) if _DUE.match(c) and _BY_THEN.search(c) and _PLAIN.match(c)), None)
    if due is None or len(due) > _LONGEST_ECHO or _NEGATED.search(due):
        return None
    turned = turn_around(due)
    return turned[:1].lower() + turned[1:]


def decides(text: str) -> bool:
    """Return whether the text says that there is something to decide."""
    return bool(_DECIDES.search(_flat(text))) and not has_decided(text)


def has_decided(text: str) -> bool:
    return bool(_DECIDED.search(_flat(text)))


def _flat(text: str) -> str:
    return text.replace("’", "'")[:1500]


def _noun(phrase: str) -> str | None:
    """Return the words of a phrase up to the first that cannot belong to a noun; None if that leaves nothing to talk about."""
    taken: list[str] = []
    following = [each.strip("'-") for each in phrase.split()]
    for word, after in zip(following, [*following[1:], ""], strict=True):
        if _ends_noun(word.lower(), after.lower(), taken):
            break
        taken.append(word)
    # The fourth word was cut off from what follows: it may be anything.
    taken = taken[:3]
    if not taken or any(word.lower() in _NO_TOPIC for word in taken) or not _LETTERS.search(taken[-1]):
        return None
    return " ".join(taken)


def _ends_noun(word: str, after: str, taken: Sequence[str]) -> bool:
    if word in STOP_WORDS or word in _NO_NOUN or word.endswith(("n't", "ly", "'s")):
        return True
    # Behind a noun "throws an" is a verb, and behind a plural nearly everything is one.
    return bool(taken) and (
        word.endswith("ed") or _is_plural(taken[-1].lower()) or (_is_plural(word) and after in _AFTER_VERB)
    )


def _is_plural(word: str) -> bool:
    return word.endswith("s") and not word.endswith(("ss", "us", "is"))
