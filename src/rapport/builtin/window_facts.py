"""Find what people have said of themselves in this window, and answer from it in their own words."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapport.builtin.care import in_danger
from rapport.builtin.language.word_lists import NOT_NAMES, STOP_WORDS, word_set
from rapport.builtin.language.words import sentences, stem, terms, words
from rapport.builtin.perspective import clauses, is_first_person, turn_around
from rapport.builtin.phrasing import capitalise, finish_sentence, quotable
from rapport.builtin.prompt_reader import Turn, Window
from rapport.builtin.question_kinds import Kind, asks, gives, kind_of
from rapport.builtin.themes import THEMES

_NAME = (
    re.compile(r"\b[Mm]y name(?:'s| is)(?! not\b) ([^\W\d_][\w'-]{0,30})"),
    re.compile(
        r"\b(?:[Cc]all me|[Tt]he name's|[Tt]his is) ([A-Z][\w'-]{1,30})(?=\s*(?:$|[.,!;)]| and | here| from | by ))"
    ),
    re.compile(r"\bI(?:'m| am) ([A-Z][\w'-]{1,30})(?=\s*(?:$|[.,!;)]| and | from | by ))"),
)
_BARE_NAME = re.compile(r"^([^\W\d_][\w'-]{1,30})[.!]?$")
ASK_NAME = "What should I call you?"
_ASKS_NAME = re.compile(r"\b(?:my name|who am i|who i am|what am i called|what i'm called)\b", re.IGNORECASE)
_ASKS_ALL = re.compile(
    r"\b(?:what|everything|anything|something) (?:do you|can you|else do you|that you|you) (?:\w+ )?(?:know|remember|recall)(?: about (?:me|us)\b|\s*[?.!]*$)"
    r"|\bdo you (?:\w+ )?(?:know|remember) (?:anything|something|everything)(?: about (?:me|us)\b|\s*[?.!]*$)"
    r"|\bwhat (?:have i|did i) (?:told|tell|say|said)(?: to)?(?: you)?(?: so far| about (?:me|myself))?\s*[?.!]*$"
    r"|\bsum(?:mari[sz]e| up) (?:our|this|the) (?:chat|conversation|talk|discussion)\b"
    r"|\btell me (?:what you know )?about (?:me|myself)\b|\bwho am i\b",
    re.IGNORECASE,
)
_ASKS_LIST = re.compile(
    r"\b(?:on|in) (?:my|the|our) (?:\w+ )?list\b|\b(?:asked|told) you to (?:remember|note|keep)\b|\byou to remember\b"
    r"|\bwhat (?:should|must|do) (?:i|we) (?:need to )?(?:buy|get|bring|pack)\b",
    re.IGNORECASE,
)
_LIST = re.compile(
    r"^\W*(?:please )?(?:remember|note|keep in mind|(?:my |our |the )?(?:shopping |packing |to-?do )?list(?: is| for \w+)?)"
    r"(?: these| this)?\s*[:–-]\s*(.+)$",
    re.IGNORECASE | re.DOTALL,
)
_ABOUT = re.compile(
    r"\b(?:i|we)\b (?:\w+ )?(?:say|said|tell|told|mention|mentioned)(?: \w+)? (?:about|of) (.+?)[?.!]*$",
    re.IGNORECASE,
)
_KNOWN_OF = re.compile(r"\byou (?:know|remember|recall) (?:about|of) (.+?)[?.!]*$", re.IGNORECASE)
_SELF = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|my|me|mine|we|we're|our|us)\b", re.IGNORECASE)
# Questions about oneself that only one's own words can answer; "what do I do now?" is not one of them.
_ABOUT_SELF = re.compile(
    r"\b(?:what|when|where|which|who|whose|how (?:old|many|much|long))(?:'s|\b)(?: \w+){0,3}? (?:my|our|i|we)\b"
    r"|^\W*(?:and |what about |how about )+(?:my|our) [\w ]{2,40}\?"
    r"|\b(?:do you (?:know|remember)|remind me|did i|have i|do i (?:like|love|hate|live|work|have)|am i (?:allergic|married|single|intolerant|an?|called))\b"
    r"|\b(?:can't|cannot|shouldn't|mustn't) (?:i|we) (?:eat|drink)\b",
    re.IGNORECASE,
)
_WANTS_ADVICE = re.compile(r"\b(?:what|how|when|where|which) (?:do|can|should|could|would|must|might|may) (?:i|we)\b(?! like| love| live| work| hate| prefer| enjoy| come| have| do for)", re.IGNORECASE)  # fmt: skip
_DEFINES = re.compile(r"^\W*(?:what(?:'s| is| are) an?\b|define\b|what does .+ mean|how does .+ work)", re.IGNORECASE)

_ASKING_WORDS = frozenset(
    map(stem, word_set("remember remind told tell said say mention recall know name time day many long due"))
)
_MEMORY_HEADING = re.compile(r"^.*\b(?:memor(?:y|ies)|remember|know about|facts about)\b.*:\s*$", re.IGNORECASE)
_LONGEST_HEADING = 120
_LONGEST_ECHO = 120  # once this much is repeated, nothing more is added
_LONGEST_ACCOUNT = 400  # unless everything is asked for
_MOST_TOLD = 10
_HOW = re.compile(r"\bhow (?:fast|big|large|tall|far|often|old|long|much|many|soon|late|early|heavy)\b", re.IGNORECASE)
_DEMANDING = frozenset({Kind.TIME, Kind.NUMBER, Kind.PLACE})
_SUMMARY_LINE = re.compile(r"^User said: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement, in the words of whoever made it."""

    clause: str
    speaker: str | None = None


def find_name(window: Window) -> str | None:
    """Return what the person writing now is called, if they or the chat have said so."""
    last = window.last
    if last and last.speaker:
        return quotable(last.speaker, 40)
    told = [name_in(fact.clause) for fact in _from_prompt(window.instructions)]
    asked = False
    for turn in window.turns:
        if turn.role == "user":
            told.append(name_in(turn.text) or (_bare_name(turn.text) if asked else None))
        asked = turn.role == "assistant" and turn.text.endswith(ASK_NAME)
    return next((name for name in reversed(told) if name), None)


def _bare_name(text: str) -> str | None:
    """Return a name given as the whole answer to being asked for it."""
    match = _BARE_NAME.match(text.strip())
    return capitalise(match.group(1)) if match and match.group(1).lower() not in NOT_NAMES | STOP_WORDS else None


def name_in(text: str) -> str | None:
    for pattern in _NAME:
        match = pattern.search(text.replace("’", "'")[:500])
        if match and match.group(1).lower() not in NOT_NAMES:
            return capitalise(match.group(1).rstrip("'-"))
    return None


def list_in(text: str) -> list[str]:
    """Return the items of "remember: milk, eggs"; empty if the text is no such list."""
    match = _LIST.match(text.strip())
    if not match:
        return []
    items = re.split(r"\s*[,;\n]\s*(?:and\s+)?|\s+and\s+", match.group(1).strip(" .!"))
    return [quotable(item, 60) for item in items if item.strip()][:12]


def statements(turns: Iterable[Turn]) -> list[Fact]:
    """Everything stated in the turns, clause by clause; questions state nothing."""
    return [
        Fact(clause, turn.speaker)
        for turn in turns
        if turn.role == "user"
        for sentence in sentences(turn.text)
        if not asks(sentence) and not in_danger(sentence)
        for clause in clauses(sentence)
        if len(words(clause)) >= 3
    ]


def recall(window: Window, question: str) -> str | None:
    """Return an answer from what was said earlier; None if the question is not of that kind or nothing fits."""
    if _DEFINES.match(question):
        return None
    if _ASKS_NAME.search(question):
        name = find_name(window)
        return f"Your name is {name}." if name else f"You haven't told me your name yet. {ASK_NAME}"
    if _ASKS_LIST.search(question) and (listed := _find_last_list(window)):
        return f"You gave me this list: {quotable(', '.join(listed), 180)}."
    handed, stated = _from_prompt(window.instructions), statements(window.earlier)
    facts = [*handed, *stated]
    asker = window.last.speaker if window.last else None
    if _ASKS_ALL.search(question):
        return _account(handed, stated, find_name(window), asker)
    if about := _ABOUT.search(question):
        return _tell(_matching(facts, about.group(1), 0.5)[:3], asker, lead="You said that ") or (
            f"You haven't said anything about {turn_around(quotable(about.group(1), 60))} here."
        )
    if (known_of := _KNOWN_OF.search(question)) and (found := _matching(facts, known_of.group(1), 0.5)[:3]):
        return _tell(found, asker)
    return _tell(_answer_by_theme(facts, question) or _matching(facts, question, 0.6)[:1], asker)


def asks_about_self(question: str) -> bool:
    """Return whether only the asker's own words could answer."""
    return bool(_ABOUT_SELF.search(question)) and bool(_SELF.search(question)) and not _WANTS_ADVICE.search(question)


def _account(handed: Sequence[Fact], stated: Sequence[Fact], name: str | None, asker: str | None) -> str:
    """Everything known of the asker, as far as it can be said in one go: what is remembered, then what they said last."""
    known = [Fact(f"my name is {name}", asker)] if name else []
    own = [f for f in stated if f.speaker == asker and _SELF.search(f.clause) and not name_in(f.clause)]
    remembered = [fact for fact in handed if _SELF.search(fact.clause) and not name_in(fact.clause)][:_MOST_TOLD]
    told = [*known, *remembered, *own[-4:]]
    return _tell(told, asker, longest=_LONGEST_ACCOUNT) or (
        "Nothing yet: you haven't told me anything about yourself here."
    )


def _find_last_list(window: Window) -> list[str]:
    lists = (list_in(turn.text) for turn in reversed(window.earlier))
    return next(filter(None, lists), list[str]())


def _answer_by_theme(facts: Sequence[Fact], question: str) -> list[Fact]:
    """Return what was said on the theme of the question; of a theme's own words only those beyond it narrow the choice."""
    own = [fact for fact in facts if _SELF.search(fact.clause)]
    for theme in THEMES:
        if theme.asked.search(question):
            subject = set(terms(theme.asked.sub(" ", question.replace("’", "'")))) - _ASKING_WORDS
            narrowed = [fact for fact in own if subject & set(terms(fact.clause))] if subject else own
            return [narrowed[place] for place in theme.find_matches(fact.clause for fact in narrowed)][-3:]
    return []


def _matching(facts: Sequence[Fact], question: str, share: float) -> list[Fact]:
    """Return the statements that share enough of the question's words, best and latest first."""
    wanted = set(terms(_HOW.sub("", question))) - _ASKING_WORDS
    if not wanted:
        return []
    kind = kind_of(question)
    scored: list[tuple[float, int, Fact]] = []
    for order, fact in enumerate(facts):
        score = len(wanted & set(terms(f"{fact.speaker or ''} {fact.clause}"))) / len(wanted)
        # "My daughter is sick" does not say how old she is, however well its words match.
        if score and (kind not in _DEMANDING or gives(kind, fact.clause)):
            scored.append((score, order, fact))
    return [fact for score, _, fact in sorted(scored, key=lambda s: s[:2], reverse=True) if score >= share]


def _tell(facts: Sequence[Fact], asker: str | None, lead: str = "", longest: int = _LONGEST_ECHO) -> str | None:
    told: list[str] = []
    for fact in facts:
        clause = quotable(fact.clause, 160)
        if fact.speaker is None or fact.speaker == asker:
            turned = turn_around(clause)
            told.append(finish_sentence(capitalise(lead + turned[:1].lower() + turned[1:] if lead else turned)))
        else:
            told.append(f"{quotable(fact.speaker, 40)} said: “{finish_sentence(capitalise(clause))}”")
        if sum(map(len, told)) > longest:
            break
    return " ".join(dict.fromkeys(told)) or None


def _from_prompt(system: str) -> list[Fact]:
    """Statements the prompt hands over: a list of memories, or an earlier summary's own line."""
    found = [Fact(item) for line in _SUMMARY_LINE.findall(system) for item in line.split("; ")]
    remembering = False
    for line in system.splitlines():
        if len(line) <= _LONGEST_HEADING and _MEMORY_HEADING.match(line):
            remembering = True
        elif remembering and line.lstrip().startswith(("- ", "* ", "• ")):
            found.append(Fact(is_first_person(line.lstrip(" -*•").strip())))
        elif line.strip():
            remembering = False
    return [fact for fact in found if fact.clause.strip()]
