"""Find what the writer of a message states in their own name: no quotations, questions, conditions, hearsay, jokes, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rapport.domain.text_bounds import collapse_runs
from rapport.memory.word_lists import DIETS

MAX_CHARACTERS = 2_500
"""A person who writes more than this at once has pasted it."""
MAX_WHEN_ASKED = 600
""""Please note" in a long text stands in a letter, and the letter is not to us."""
LONGEST_CLAUSE = 240
QUOTED = "◇"
"""Stands where a quotation stood."""

_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "´": "'", "ʼ": "'", "\u00a0": " ", "\u202f": " ", "…": "."})


@dataclass(frozen=True, slots=True)
class Statement:
    """One clause, without what only leads into it; `is_asked_for` if the writer wants it remembered."""

    text: str
    is_asked_for: bool = False


_SECRET = re.compile(
    r"\b(?:pass ?(?:word|wort|code|phrase)|mot de passe|contraseñ|api[ _-]?key|(?:access|secret|private|recovery|licen[cs]e) key"
    r"|secret|token|cvv|cvc|pin(?: (?:code|number|is))?\b|iban|ssn|social security|credit card|debit card|card number|account number"
    r"|seed phrase|2fa|otp|log-?in (?:is|data|details)|credentials|(?:security|door|gate|alarm|safe) code|code (?:is|to|for) )"
    r"|(?:\d[ -]?){12,}|\b[A-Z]{2}\d{2}(?: ?\w{4}){3,}"
    r"|\b(?:sk|pk|ghp|gho|hf|xai|gsk|rapport|AKIA|AIza|eyJ|xox[abp])[-_]?[\w-]{12,}|(?<![\w+/=-])(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+/=-]{24,}",
    re.IGNORECASE,
)
_JOKE = re.compile(
    r"\b(?:lol|lmao|rofl|(?:ha){2,}h?|(?:he){2,}|jk|j/k|(?:just |only |not )?kidding|joking|joke|sarcasm|sarcastic|yeah right|"
    r"in (?:my|your) dreams)\b|(?<!\S)/s\b|[😂🤣😉😜😝🙃🤪😆]",
    re.IGNORECASE,
)
# Somebody's text is handed over to be worked on, or a part is played: nothing in the message is said in one's own name.
_POLITE = r"(?:^|[.!?:;,\n]|\band)[\s,]{0,3}(?:(?:hi|hello|hey)[\s,]{1,3})?(?:please |kindly |can you |could you |would you |will you |i (?:want|need) you to |help me (?:to )?)*(?:please )?"
_HANDED_OVER = re.compile(
    _POLITE
    + r"(?:translate|proofread|proof-read|correct|rephrase|reword|rewrite|paraphrase|summari[sz]e|analy[sz]e|edit|fix|check|review|"
    r"improve|shorten|classify|tag|parse|complete the|finish (?:this|the|my)|fill in|spell)\b"
    r"|\b(?:pretend|imagine|role-?play|suppose|supposing|hypothetical(?:ly)?|let'?s say|what if|act as|for the sake of|in character|"
    r"thought experiment|song lyrics|the lyrics|screenplay|übersetze?|traduis|traduce|traduire|traducir|traduci[rs]?)\b"
    r"|\b(?:make|turn|put|convert|change) (?:this|it|that|these)\b"
    r"|\bhow (?:do|would|can|should|could) (?:you|i|we|one) (?:say|write|spell|translate|pronounce)\b|\bhow to say\b"
    r"|\bwhat(?:'s| is| does)\b.{0,80}\b(?:mean|in (?:english|german|french|spanish|italian))\b"
    r"|\b(?:the following|this|following) (?:text|sentence|paragraph|mail|e-?mail|letter|message|review|article|cv|bio|profile|essay|"
    r"story|poem|quote|conversation|chat)\b",
    re.IGNORECASE,
)
# After these a text is ordered; what follows belongs to it.
_ORDERED = re.compile(
    _POLITE
    + r"(?:write|draft|compose|create|generate|make (?:up|me)|tell me a|give me (?:a|an|some) (?:story|example|sample|"
    r"sentence|poem|bio|profile)|invent|continue|type|repeat|say)\b",
    re.IGNORECASE,
)
_MAIL = re.compile(
    r"^[ \t]*(?:-{2,}\s*(?:original|forwarded|weitergeleitet|urspr|message transf).*|begin forwarded.*|"
    r"(?:from|to|cc|sent|subject|date|von|an|gesendet|betreff|de|à|objet|para|asunto)\s*:.*|on .{4,80} wrote:.*|am .{4,80} schrieb.*|"
    r"le .{4,80} a écrit\s*:.*|dear (?:mr|mrs|ms|sir|madam|dr|prof|team|hiring|all|customer|\w+ team)\b.*|to whom it may concern.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_SPEAKER = re.compile(
    r"^\s*(?:[\[(<]?\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?: ?[ap]m)?[\])>]?|\[[^\]]{3,30}\])?\s*[-–]?\s*<?([\w'. @-]{1,40})>?:(?=\s|$)",
    re.IGNORECASE,
)
_LEADS_IN = re.compile(
    r"^(?:(?:p\.?s\.?|fyi|btw|by the way|fun fact|(?:a (?:bit|little) )?about me|intro(?:duction)?|hi|hello|hey|ok|okay|also|so|"
    r"background|context|my situation|for context|important|info|update|correction|quick (?:intro|note))\b\W*+)++$",
    re.IGNORECASE,
)
_ASKED_FOR = (
    r"(?:(?:please|pls|kindly|also|and|but|so|ok|okay|hey|hi|can you|could you|would you|will you|i(?:'d| would) like you to|"
    r"i want you to|you (?:should|can|must))\b[\s,]*)*"
    r"(?:remember|note(?: down)?|memori[sz]e|don't forget|do not forget|never forget|keep in mind|bear in mind|make a note|take note|"
    r"write down|for the record|note for (?:the )?(?:future|later))"
)
_TO_REMEMBER = re.compile(
    rf"^{_ASKED_FOR}(?: (?:about|of) me)?(?:\s*[,:–-]\s*|\s+(?:of |the fact )*that\s*:?\s+|\s+(?:this|the following)\s*[:–-]\s*"
    r"|\s+(?=(?:i|i'm|i've|my|our|we|we're)\b))(?:that )?",
    re.IGNORECASE,
)
_OPENERS = re.compile(
    r"^(?:(?:by the way|btw|well|oh|so|also|and|but|actually|fyi|ok|okay|anyway|yes|yeah|yep|no|nope|hi|hello|hey|hmm|ah|plus|"
    r"good (?:morning|afternoon|evening)|just so you know|for your information|thanks|thank you|sorry|look|listen|honestly|"
    r"fun fact|you (?:should|must) know(?: that)?|as you know|you know|(?:as|like) i (?:said|mentioned|told you)(?: before| earlier)?|"
    r"i (?:said|mean|meant|told you|mentioned)(?: that| already)*|to introduce myself|first of all|because|since|see|there|"
    r"nice to meet you|pleased to meet you|in fact|i should (?:mention|add|say)(?: that)?|the thing is|unfortunately|luckily|sadly|"
    r"let me introduce myself|about me|a (?:bit|little) about me|great|cool|right|sure|interesting|wow|for context|context)\b[\s,:;.!–-]*)+",
    re.IGNORECASE,
)

_DOUBLE = re.compile(
    r"\"([^\"]*)\"|“([^“”]*)”|„([^“”„]*)[“”]|«([^«»]*)»|»([^«»]*)«|(?<![\w])'((?:[^'\n]|'(?=\w)){1,300})'(?!\w)|`([^`]*)`"
)
_ONE_NAME = re.compile(r"[A-ZÀ-Þ][\w-]{1,30}")
_ABBREVIATED = re.compile(r"\b(Mr|Mrs|Ms|Dr|St|Prof|approx|vs|[A-Z]|[ei]\.[ge])\.(?=\s)")
_ENDS = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+|;\s+|\s+[–—-]+\s+|(?<=[.!?])(?=[A-Z])|\s*—\s*")
_PARENTHESES = re.compile(r"\s*[(\[][^()\[\]]*[)\]]")
_BULLET = re.compile(r"^\s*(?:[-*•·]|\d+[.)])\s+")

_CONDITION = re.compile(
    r"\b(?:if|unless|whether|were i|wish|provided that|in case|as though|as long as|assuming|had i|rumou?r|apparently|supposedly|"
    r"allegedly|anything but|nothing but|all but|falls|wenn|ob|si|au cas où)\b",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?!i\b)\w+\s+(?:always |often |just |once |never |also |even |still )?(?:says?|said|saying|tells?|told|claims?|claimed|thinks?|"
    r"thought|believes?|believed|wrote|writes|texted|asks?|asked|insists?|insisted|swears?|sings?|sang|goes|reads|shouts?|shouted|"
    r"yelled|replied|answered|admitted|confessed|accused|assumes?|assumed|reckons?|quotes?|sagt|sagte|meint|dit|dice|guess(?:es|ed)?)"
    r"(?=\W*(?:$|[,:◇]| (?:me|that|he|she|they|i|i'm|i've|my|we|we're|us|like|to|about|about me)\b))|,\s*(?:said|says|he|she)\b(?!')|\baccording to\b|(?:'s|'re|'m|\bis|\bare|\bwas|\bwere) (?:all )?like,",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:would|wouldn't|could|couldn't|might|maybe|perhaps|probably|possibly|presumably|i (?:may|think|guess|suppose|believe|doubt|"
    r"assume|suspect|wonder|hope|fear|feel like)|not sure|unsure|no idea|i'd|we'd|almost|nearly|kind of|sort of|kinda|sorta|someday|"
    r"seem(?:s|ed)? to|as if|used to|no longer|not anymore|any ?more|any longer|so-called|as a (?:kid|child|teenager|student)|when i was|"
    r"back then|in theory|technically|feel like|far from|hardly|barely|about to)\b",
    re.IGNORECASE,
)
_MOMENTARY = re.compile(
    r"\b(?:today|tonight|right now|at the moment|just now|tomorrow|yesterday|for now|temporarily|until|till|"
    r"this (?:morning|afternoon|evening|week|weekend|month|time|minute|second|very)|(?:last|next) (?:night|week|weekend|month|time)|"
    r"for the (?:day|week|weekend|night|moment|time being)|in a (?:minute|moment|sec|second|bit)|so far|on (?:my|our) way|at last|"
    r"these few days|for a (?:few|couple of) (?:days|hours|minutes|weeks))\b",
    re.IGNORECASE,
)
# What changed at some moment has changed for good: the moment is left out, and the change stays.
_CHANGED = re.compile(
    r"^((?:i|we|i've|we've|i have|we have) (?:\w+ )?(?:moved|relocated) (?:here )?to .{2,60}?)(?:,? (?:today|yesterday|recently|just now|"
    r"(?:(?:earlier|later) )?(?:this|last) (?:morning|night|week|weekend|month|year|spring|summer|autumn|fall|winter|\w+day)|"
    r"(?:just |about |only )?(?:an?|one|two|three|four|five|six|a few|a couple of|several|\d{1,2}) (?:days?|weeks?|months?) ago))+$",
    re.IGNORECASE,
)
_GAVE_UP = re.compile(
    rf"^(?:i'm|i am|im) (?:no longer|not) (?:an? )?(?:{'|'.join(sorted(DIETS))})(?: any ?more| any longer)?$",
    re.IGNORECASE,
)
_INTERROGATIVE = re.compile(
    r"^(?:so |and |but |then )*(?:what|which|who|whom|whose|when|where|why|how|can|could|should|would|will|shall|do|does|did|is|are|"
    r"was|were|may|might|must|have|has|any|am)\b(?:'s|'re)?",
    re.IGNORECASE,
)
_TAG_QUESTION = re.compile(r"^(?:(?:\w+n't|am|are|is|do|does|did|have|has|can|will) (?:i|you|we|it|they|he|she)|right|no|yes|correct|ok|okay|huh|eh|innit)\W*$", re.IGNORECASE)  # fmt: skip

_SELF = r"(?:call me|you can call me|i|i'm|i've|im|ive|my|our|we|we're|we've)"
_CLAUSE = re.compile(
    rf"(?:,?\s+(?:and|but|so|plus|because|since|although|though|while|whereas|that's why)\s+(?:also |then )?|,\s+)(?={_SELF}\b)",
    re.IGNORECASE,
)
_SAME_SUBJECT = re.compile(
    r",?\s+(?:and|but|plus)\s+(?:also\s+|really\s+|currently\s+|absolutely\s+|now\s+)?(?=(?:am|work|live|love|like|hate|enjoy|speak|play|"
    r"study|teach|have|don't|do not|can't|cannot|prefer|dislike|collect|drink|eat|smoke|suffer|adore|detest|practise|practice|run an?)\b)",
    re.IGNORECASE,
)
_SAME_VERB = re.compile(
    r"(?:,\s+(?:and\s+)?|\s+(?:and|but)\s+)(?:also\s+|currently\s+|originally\s+)?(?=(?:allergic|vegan|vegetarian|pescatarian|an?\b|\d|from|married|divorced|"
    r"widowed|afraid|scared|terrified|fluent|based|living|working|lactose|gluten|diabetic|asthmatic|left-handed|learning|training|"
    r"interested|fond|retired|self-employed|dyslexic|autistic)\b)",
    re.IGNORECASE,
)
_CLOSERS = re.compile(
    r"(?<![\s,])(?:[\s,]++(?:by the way|btw|as you know|actually|of course|unfortunately|sadly|luckily|you know|thanks|thank you|please|pls|"
    r"though|tho|fyi|nice to meet you|pleased to meet you|good to meet you|to be honest|tbh|honestly|in fact|haha|right|for what it's worth|"
    r"and you|just so you know|for your information|for the record|ok|okay|yes|yeah|[:;]-?[)D(]))++$|(?<![^\w\s)'%+])[^\w\s)'%+]++$",
    re.IGNORECASE,
)
_OTHER_LANGUAGE = re.compile(
    r"(?:,?\s+(?:und|et|y)\s+|,\s+)(?=(?:ich|wohne|lebe|bin|j'|je|vivo|tengo|soy|me)\b)", re.IGNORECASE
)
_I_DO = re.compile(r"^(?:i|we|i'm)\b", re.IGNORECASE)
_ICH = re.compile(r"^(?:ich|mein|je|j'|mon|me|mi|soy|vivo|tengo)\b", re.IGNORECASE)
_HAS_SUBJECT = re.compile(r"^(?:ich|j'|je|vivo|tengo|soy|me)(?:\b|(?<='))", re.IGNORECASE)
_I_AM = re.compile(r"^(?:i'm|i am|im)\b(?! (?:in|at) )", re.IGNORECASE)


def statements_in(text: str) -> list[Statement]:
    """Return the clauses of a message that its writer means as they stand."""
    if len(text) > MAX_CHARACTERS:
        return []
    text = collapse_runs(text.translate(_STRAIGHT))
    if _SECRET.search(text) or _JOKE.search(text) or _HANDED_OVER.search(text):
        return []
    if ordered := _ORDERED.search(text):
        text = text[: ordered.start()]
    found: list[Statement] = []
    for line in _find_own_lines(text):
        for sentence in _ENDS.split(_ABBREVIATED.sub(r"\1", line)):
            found += _find_statements(sentence.strip(), may_ask=len(text) <= MAX_WHEN_ASKED)
    return found


def _find_own_lines(text: str) -> Iterator[str]:
    """Yield the lines that are not somebody else's: no code, forwarded mail, quoted lines or transcripts."""
    text = _CODE.sub("\n", text)
    if mail := _MAIL.search(text):
        text = text[: mail.start()]
    for line in text.splitlines():
        if line.lstrip().startswith((">", "|", "#", "//", "<")):
            continue
        line = _drop_quotations(_BULLET.sub("", line)).strip()
        speaker = _SPEAKER.match(line)
        if speaker is None:
            yield line
        elif _LEADS_IN.match(speaker[1].strip()):
            yield line[speaker.end() :].strip()
        elif _TO_REMEMBER.match(line):
            yield line


def _drop_quotations(line: str) -> str:
    """With a mark where a quotation stood; a single name in quotation marks is only a name."""

    def replace_quotation(match: re.Match[str]) -> str:
        inner = next((part for part in match.groups() if part is not None), "").strip()
        return inner if _ONE_NAME.fullmatch(inner) else QUOTED

    line = _DOUBLE.sub(replace_quotation, line)
    opened = min((place for mark in '"“„«' if (place := line.find(mark)) >= 0), default=None)
    return line if opened is None else line[:opened] + QUOTED


def _find_statements(sentence: str, *, may_ask: bool) -> Iterator[Statement]:
    body = _OPENERS.sub("", sentence)
    to_remember = _TO_REMEMBER.match(body)
    if to_remember:
        if not may_ask:
            return
        body = body[to_remember.end() :].rstrip("?! ")
    if sentence.endswith("?") and not to_remember:
        body = _before_the_question(body)
    if not body or QUOTED in body or _CONDITION.search(body) or _REPORTED.search(body) or _has_colon(body):
        return
    for clause in _clauses(_PARENTHESES.sub("", body)):
        lasting = _CHANGED.sub(r"\1", clause)
        if len(lasting) <= LONGEST_CLAUSE and _is_meant(lasting):
            yield Statement(lasting, to_remember is not None)


def _is_meant(clause: str) -> bool:
    """Return whether it is said without reserve, and holds beyond this moment."""
    return bool(_GAVE_UP.match(clause)) or not (_HEDGED.search(clause) or _MOMENTARY.search(clause))


def _has_colon(body: str) -> bool:
    """Return whether something is announced before it is said; a time of day is not."""
    return bool(re.search(r":(?!\d\d)", body))


def _before_the_question(sentence: str) -> str:
    """Return what is stated before it is asked: "I'm vegan, what can I eat?"; nothing when the statement itself is the question."""
    parts = re.split(r",\s*|\s+(?:and|so|but)\s+", sentence)
    for place in range(1, len(parts)):
        rest = ", ".join(parts[place:])
        if _INTERROGATIVE.match(rest) and len(rest.split()) >= 2 and not _TAG_QUESTION.match(rest):
            asked = sentence.rfind(parts[place])
            stated = re.sub(r"(?<![,\s])[,\s]++(?:and|so|but)?[,\s]*+$", "", sentence[:asked])
            return "" if _INTERROGATIVE.match(stated) else stated
    return ""


def _clauses(body: str) -> Iterator[str]:
    for part in _CLAUSE.split(body):
        for foreign in _with_subject(_OTHER_LANGUAGE, part.strip(), _ICH, "ich "):
            for clause in _with_subject(_SAME_SUBJECT, foreign, _I_DO, "I "):
                yield from filter(None, map(_trim, _with_subject(_SAME_VERB, clause, _I_AM, "I'm ")))


def _trim(clause: str) -> str:
    bare = _CLOSERS.sub("", _OPENERS.sub("", clause).strip(" ,.!?-–*_~")).strip(" ,.!?-–*_~")
    return bare.lower() if bare.isupper() and len(bare) > 6 else bare


def _with_subject(split: re.Pattern[str], clause: str, begins: re.Pattern[str], subject: str) -> Iterator[str]:
    """Yield the parts of a clause that share its subject, each with it; the whole clause if it does not begin with one."""
    if not begins.match(clause):
        yield clause
        return
    first, *others = split.split(clause)
    yield first
    for other in others:
        yield other if _HAS_SUBJECT.match(other) else subject + other
