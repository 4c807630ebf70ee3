"""Going on with what the user brings up: one sentence that takes it up, one open question."""

import re

from rapport.builtin.care import brings_bad_news
from rapport.builtin.language.words import content_words, words
from rapport.builtin.perspective import turn_around
from rapport.builtin.phrasing import Phrasebook, capitalise, quotable
from rapport.builtin.subjects import find_declarations, options, subject

_BAD = (
    "sad|tired|exhausted|anxious|worried|stressed|nervous|afraid|scared|angry|upset|lonely|depressed|frustrated|bored|overwhelmed|"
    "ill|sick|unhappy|disappointed|hurt|miserable|down|homesick|embarrassed|jealous|burnt out|burned out|heartbroken"
)
_GOOD = "happy|excited|glad|proud|delighted|relieved|grateful|thrilled|in love|cheerful|optimistic|looking forward"
_MOODS = tuple(
    (mood, re.compile(pattern, re.IGNORECASE))
    for mood, pattern in (
        ("bad", (rf"\b(?:i|we)(?:'m| am|'ve been| feel| have been| was|'re| are)\b[^.!?]{{0,25}}\b(?:{_BAD})\b|\bi miss\b"
          r"|\b(?:my|our) \w+(?: \w+)? (?:is|was|got|are|'s) (?:very |really |so )?(?:sick|ill|hurt|dying|in hospital)\b"
          r"|\b(?:rough|hard|bad|awful|terrible|horrible|tough) (?:day|week|time|night|month|year)\b")),
        ("good", rf"\b(?:i|we)(?:'m| am| feel|'re| are)\b[^.!?]{{0,25}}\b(?:{_GOOD})\b|\b(?:got|passed|won|finished)\b[^.!?]{{0,120}}!"),
        ("distaste", r"\b(?:i|we) (?:really |also |just |absolutely |still )?(?:hate|dislike|don't like|can't stand|cannot stand|detest)\b"),
        ("problem", (r"\b(?:can't|cannot|doesn't work|not working|won't|broken|broke|error|errors|fail(?:s|ed|ing)?|problem|issue|stuck|lost|bug|"
         r"crash(?:es|ed|ing)?|late|trouble|stopped working|struggling|hurts|refused|denied|timed? ?out|nothing works|didn't (?:help|work)|slow|missing|died|annoying|leak(?:s|ed|ing)?)\b")),
        ("opinion", r"\b(?:i|we) (?:really |just |still )?(?:think|believe|guess|suppose|feel like|feel that|reckon|doubt|agree|disagree)\b|\bin my opinion\b|\bimo\b"),
        ("taste", r"\b(?:i|we) (?:really |also |quite |just |absolutely )?(?:like|love|enjoy|prefer|adore|hate|dislike|don't like)\b|\bmy favou?rite\b"),
        ("plan", (r"\b(?:i'll|we'll|i will|we will|going to|gonna|plan(?:ning|s)? (?:to|on|for|a)|want to|would like to|i'd like to|hope to|hoping to|thinking (?:of|about)|"
         r"next (?:week|month|year|weekend|summer|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|tomorrow|this weekend|tonight|moving to|"
         r"preparing|need to|have to|trying to|working on|started|building|learning)\b")),
        ("date", (r"\b(?:my|our|the)\b[^.!?]{0,60}\b(?:is|are|starts?|leaves?|begins?|ends?|arrives?|gets in|lands?|departs?|opens?|closes?|takes place)\b[^.!?]{0,60}\b(?:on|at|in|until)\b"
         r"|\b(?:i|we) have an? [\w ]{3,30} (?:on|at|next|this) \w")),
        ("past", r"\b(?:went|visited|met|saw|watched|read|bought|had|did|finished|cooked|made|played|walked|was|were|travelled|spent|yesterday|last (?:week|night|month|year))\b"),
        ("self", r"\b(?:i|we) (?:live|work|run|manage|study|am|grew up|come|have|own|speak|teach)\b|\bi'm\b"),
    )
)  # fmt: skip

_WITH_STATEMENT: dict[str, tuple[str, ...]] = {
    "bad": (
        "I'm sorry to hear {s}. What would make it a little easier?",
        "That doesn't sound easy: {s}. How are you holding up?",
        "That must weigh on you: {s}. What has it been like?",
    ),
    "good": (
        "Good to hear {s}! What's the best part of it?",
        "That's nice: {s}. How did it come about?",
        "Lovely, {s}. What comes next?",
    ),
    "problem": (
        "That sounds annoying: {s}. What have you tried so far?",
        "Got it: {s}. When did it start?",
        "So {s}. What would a good outcome look like?",
        "Hm, {s}. What has changed since it last went well?",
    ),
    "opinion": (
        "So {s}. What makes you say so?",
        "Fair enough: {s}. What would change your mind?",
        "I follow: {s}. What points that way?",
    ),
    "distaste": (
        "So {s}. What do you go for instead?",
        "Fair enough: {s}. What is it about it?",
    ),
    "taste": (
        "So {s}. How did that start?",
        "Good to know: {s}. What is it about it?",
        "Right, {s}. What else do you like?",
    ),
    "plan": (
        "So {s}. What has to happen first?",
        "Right, {s}. What are you looking forward to most?",
        "All right: {s}. What could still get in the way?",
        "I see: {s}. How far along are you?",
    ),
    "date": (
        "All right: {s}. Is there anything left to prepare?",
        "Good to know: {s}. What happens after that?",
        "So {s}. What is the plan around it?",
    ),
    "past": (
        "So {s}. How was it?",
        "Right, {s}. How did it turn out?",
        "Ah, {s}. What happened next?",
    ),
    "self": (
        "Good to know: {s}. What's that like?",
        "So {s}. How long has that been so?",
        "Right, {s}. What does that look like day to day?",
    ),
    "other": (
        "Got it: {s}. What matters most to you there?",
        "So {s}. What else should I know?",
        "I see: {s}. How do you feel about it?",
        "Right, {s}. What's the story there?",
    ),
}  # fmt: skip
_BARE_MOOD = re.compile(rf"^\W*(?:so |very |really |feeling |a bit )*(?:{_BAD})\W*$", re.IGNORECASE)
_BAD_AROUND = (
    "I'm sorry to hear that. How are you holding up?",
    "That doesn't sound easy. What has it been like for you?",
    "I'm sorry. What would make it a little easier?",
)
_AIMS = re.compile(
    r"^(?:i|we)(?:'ve|'d)? (?:\w+ )?(?:should|need to|have to|must|ought to|got to|better)\b", re.IGNORECASE
)
_WITH_SUBJECT = (
    "Tell me more about {topic}. What's on your mind there?",
    "What about {topic} matters most to you?",
    "Let's take {topic}. Where would you like to start?",
    "There's probably more to {topic}. What's the story?",
)
_BOTH = (
    "{A}, or {b}: which would you be sorrier to give up?",
    "{A}, or {b}. What speaks for the one, in your eyes, that the other can't offer?",
    "{A}, or {b}: which way are you leaning, and why?",
)
_FRAGMENT = (
    "“{text}”, I see. What makes it so?",
    "All right, “{text}”. What else plays a part?",
    "“{text}”: good to know. How does that fit with the rest?",
)
_GO_ON = (
    "I'm listening. What's the story?",
    "Go on, I'm with you. What else is there to it?",
    "Tell me more. What matters most to you there?",
)
_NOTHING = (
    "I'm listening. What's on your mind?",
    "Go on, I'm with you. What would you like to talk about?",
    "What would you like to get into?",
)
_YES = re.compile(r"^(?:yes|yeah|yep|yup|sure|of course|right|exactly|definitely|absolutely|correct|true|i do|it is|y|indeed)(?: (?:please|it is|i do|that's right))?$", re.IGNORECASE)  # fmt: skip
_NO = re.compile(
    r"^(?:no|nope|nah|not really|not yet|n|never|i don't|no way|not at all)(?: (?:thanks|thank you|it isn't|i don't))?$",
    re.IGNORECASE,
)
_OK = re.compile(r"^(?:ok|okay|k|cool|nice|great|good|fine|alright|all right|got it|i see|makes sense|interesting|hmm+|hm|wow|oh|ah|aha|perfect|awesome)$", re.IGNORECASE)  # fmt: skip
_UNSURE = re.compile(r"^(?:i (?:don't|dont|do not) know|not sure|no idea|dunno|idk|maybe|perhaps|i guess|hard to say|whatever|i'm not sure|(?:i'm )?still (?:thinking|deciding)|thinking about it|let me think|we'll see|not decided)(?: yet| about it)?$", re.IGNORECASE)  # fmt: skip
_WHY = re.compile(r"^(?:but )?(?:why|how so|how come|what do you mean|why (?:do you ask|not))$", re.IGNORECASE)
_SHORT: tuple[tuple[re.Pattern[str], tuple[str, ...], tuple[str, ...]], ...] = (
    (_YES, ("Good. What would be the next step with {topic}?", "All right. What else should I know about {topic}?", "Good to know. How do you feel about {topic} now?"),
     ("Good. Tell me more?", "All right. What comes next?")),
    (_NO, ("Fair enough. What would you rather see happen with {topic}?", "All right, no. What else is there to {topic}?"),
     ("Fair enough. What would you rather talk about?", "All right. What would suit you better?")),
    (_UNSURE, ("That's fine. What would you need to know to be surer?", "No rush. What's the least clear part of it?"),
     ("That's fine. What would you need to know to be surer?", "That's fine, there's no rush. What's the first thing that comes to mind?")),
    (_OK, ("Good. Is there more to say about {topic}?", "All right. Where does that leave {topic}?"),
     ("Good. What else is on your mind?", "All right. What shall we turn to?")),
    (_WHY, ("I ask because you brought up {topic}, and I only go by what you tell me. How do you see it?",),
     ("I only go by what you tell me here, so I ask. How do you see it?",)),
)  # fmt: skip


_LONGEST_FRAGMENT = 6  # words of an answer that is repeated whole
_SHORTEST_SAID = 3  # words that are their own subject

_ORDER = [*(mood for mood, _ in _MOODS), "other"]
_GUESS = re.compile(r"^(?:maybe|perhaps|probably|could it be|what if(?: it's)?|or)\b,? (.{2,80}?)\?+$", re.IGNORECASE)
_ON_GUESS = ("“{guess}” could be it. What would confirm that?", "Possibly, yes: “{guess}”. How could you check?")


def continue_with(text: str, book: Phrasebook, *, answering: bool = False) -> str:
    """Return one sentence taking up the message and one open question; always something, never at length."""
    if both := options(text):
        first, second = both
        return capitalise(book.pick(_BOTH).format(A=capitalise(first), b=second))
    if guessed := _GUESS.match(text.strip()):
        return book.pick(_ON_GUESS).format(guess=quotable(guessed.group(1), 60))
    if stated := find_declarations(text):
        # What weighs most is taken up: "my daughter is sick" before "the report is due".
        said = min(stated, key=_weight)
        templates = _phrasings(said, text)
        # "You need paint first. What has to happen first?" reads as not listening.
        fresh = [each for each in templates if set(content_words(each)).isdisjoint(words(said))]
        return book.pick(fresh or templates).format(s=said)
    if _mood_of(text) == "bad":
        return book.pick(_BAD_AROUND)
    if answering and (content_words(text) or " " in text) and len(words(text)) <= _LONGEST_FRAGMENT and len(text) <= 60:
        return book.pick(_FRAGMENT).format(text=quotable(text, 80).rstrip(" .!"))
    topic = subject(text)
    # A few words out of a longer message are hardly ever its subject.
    if topic and (not topic.startswith("“") or len(words(text)) <= _SHORTEST_SAID):
        return book.pick(_WITH_SUBJECT).format(topic=topic)
    return book.pick(_GO_ON if content_words(text) else _NOTHING)


def _phrasings(said: str, text: str) -> tuple[str, ...]:
    """Return the ways to take up a statement, by its own mood, or else by that of the message around it."""
    own = turn_around(said)  # turned twice it is in the user's person again
    mood = _mood_of(own)
    if mood != "bad" and _mood_of(text) == "bad":
        return _BAD_AROUND
    if mood in (None, "problem") and _AIMS.match(own):
        return _WITH_STATEMENT["plan"]
    if mood is None:
        around = _mood_of(text)
        # What is wrong elsewhere in the message is not what is repeated here.
        return _WITH_STATEMENT["other" if around in (None, "problem", "distaste") else around]
    return _WITH_STATEMENT[mood]


def is_guess(text: str) -> bool:
    """Return a guess put as a question ("maybe the pool?"): the asker wants it weighed, not answered."""
    return bool(_GUESS.match(text.strip()))


def short_answer(text: str, topic: str | None, book: Phrasebook) -> str | None:
    """Return the reply to yes, no, maybe, fine and why; None if the text says more than that."""
    bare = text.replace("’", "'").strip(" .!?,…")
    for pattern, about, bare_replies in _SHORT:
        if pattern.match(bare):
            return book.pick(about).format(topic=topic) if topic else book.pick(bare_replies)
    return None


def _mood_of(text: str) -> str | None:
    part = text.replace("’", "'")[:1500]
    if brings_bad_news(part) or _BARE_MOOD.match(part):
        return "bad"
    return next((mood for mood, pattern in _MOODS if pattern.search(part)), None)


def _weight(said: str) -> int:
    """Return how much weighs what is said, the heaviest first."""
    own = turn_around(said)
    return _ORDER.index(_mood_of(own) or "other")
