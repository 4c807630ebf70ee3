"""Find the open question of a group: the question, who asked it, what it weighs, and what people have said to it since."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rapport.builtin.groups import asks_view, is_substantive
from rapport.builtin.language.word_lists import word_set
from rapport.builtin.language.words import content_words, sentences, stem, terms
from rapport.builtin.phrasing import quotable
from rapport.builtin.prompt_reader import Turn, Window
from rapport.builtin.question_kinds import is_question
from rapport.builtin.rules import asks_to_break_rules
from rapport.builtin.subjects import drop_shared_words
from rapport.builtin.weighing.stances import decides, stance, suggests

_LEAD = re.compile(
    r"^\W*(?:(?:so|and|but|well|ok|okay|then|now|hey|hi|all|everyone|everybody|guys|folks|team|quick question|question)\b\W*)+",
    re.IGNORECASE,
)
_ASKS_WHICH = re.compile(
    r"^(?:(?:do|should|shall|can|could|would|will|may|must) (?:i|we|you|they|it|he|she)|(?:is|are|am) (?:it|we|i)|which(?: one)?(?: is better)?[:,]?|"
    r"what(?:'s| is) better[:,]?|either|whether)\s+(?:better |rather |going |be |to |prefer )*",
    re.IGNORECASE,
)
_OR = re.compile(r",?\s+or\s+", re.IGNORECASE)
_NO_OPTION = re.compile(
    r"^(?:not|so|no|what|whatever|something|else|not yet|anything|another|more|less)\b|\b(?:what|why|how|where|when)\b",
    re.IGNORECASE,
)
_MOST_OPTIONS, _LONGEST_OPTION = 4, 60
# What every second message has: it doesn't make two of them belong together.
_COMMON = frozenset(
    map(
        stem,
        word_set(
            """
            take get go come need want use make ask answer question look see know think say tell one two day days time today tomorrow tonight week
            place good great fine right sure back way new first last next people everybody anybody idea work works
            """
        ),
    )
)
_ASKED_BY_CALLER, _REPLIED, _DECIDING, _LATER = 1.5, 0.5, 1.0, 1.0
_STILL_THERE = 4  # messages after which somebody's own last words are no longer what they mean
_LONGEST_CHAIN = 3
_LOOKED_AT = 1_000  # characters: a longer message tells at its beginning what it is about
_LATER_REPLIES = 6  # a reply to somebody further on is a reply to something else


@dataclass(frozen=True, slots=True)
class Table:
    """A question that people have been talking about."""

    question: str
    """The sentence that asks."""
    text: str
    """The message that it stands in."""
    asker: str | None
    before: tuple[Turn, ...]
    """Earlier messages on the subject."""
    after: tuple[Turn, ...]
    """Messages about it since."""
    options: tuple[str, ...]
    """The options that it weighs; empty if it is no such question."""
    prompted_by: Turn | None = None
    """The message that the question replies to."""

    @property
    def subject(self) -> frozenset[str]:
        """Return the telling words of the question."""
        return find_telling_words(self.text) | find_telling_words(self.question)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in a chat: the place of its message, and the sentence."""

    place: int
    turn: Turn
    sentence: str


def find_telling_words(text: str) -> frozenset[str]:
    """Return the stems that make a message recognisable."""
    return frozenset(term for term in terms(text[:_LOOKED_AT]) if not term.isdigit()) - _COMMON


def lay(window: Window, own: str | None = None, *, whole: bool = False) -> Table | None:
    """Return the table that a call is about: its own question where it has one, else what it replies to, or the likeliest above it.

    `whole` says that the talk is meant and not what the caller had to do with it.
    """
    turns = is_among_people(window)
    caller = window.last.speaker if window.last and not whole else None
    above = _find_meant(window, turns, caller)
    if own is not None and (find_telling_words(own) or choices(own)):
        return _find_around(own, turns, caller, above)
    if above is None:
        return None
    after = tuple(_answers(above.turn, turns[above.place + 1 :]))
    before = tuple(_earlier(above.turn, turns[: max(above.place, 0)]))
    prompt = _find_replied_to(above.turn, turns[: max(above.place, 0)])
    return Table(above.sentence, above.turn.text, above.turn.speaker, before, after, choices(above.sentence), prompt)


def is_among_people(window: Window) -> list[Turn]:
    """Return what people have said to each other: not what they asked the agent and were told, unless it is still to be decided."""
    answered = {
        id(turn)
        for turn, following in pairwise(window.turns)
        if turn.role == "user" and following.role == "assistant" and not _is_left_to_decide(turn.text)
    }
    return [turn for turn in window.earlier if id(turn) not in answered]


def _is_left_to_decide(text: str) -> bool:
    """Return whether a call asked in full words for something to be decided: an answer of the agent's doesn't settle that."""
    return bool(find_telling_words(text)) and any(map(_is_to_decide, sentences(text)))


def questions(turns: Sequence[Turn]) -> list[Asked]:
    """Everything that people ask each other, in order; not what only asks for views."""
    found: list[Asked] = []
    for place, turn in enumerate(turns):
        asked = [each for each in sentences(turn.text) if _really_asks(each)]
        if asked and is_substantive(turn.text):
            found.append(Asked(place, turn, asked[-1]))
    return found


def _really_asks(sentence: str) -> bool:
    if not is_question(sentence) or sentence.endswith("!") or asks_view(sentence):  # "Do it!" asks nothing
        return False
    return bool(choices(sentence)) or decides(sentence) or not suggests(sentence)


def find_unanswered(turns: Sequence[Turn]) -> list[Asked]:
    """Return the questions that nobody has taken up: no reply to whoever asked, and no word right behind it that could be one."""
    return [asked for asked in questions(turns) if not _is_response(asked, turns)]


def choices(question: str) -> tuple[str, ...]:
    """Return the things that a question weighs against each other; empty if it doesn't."""
    bare = _ASKS_WHICH.sub("", _LEAD.sub("", question.replace("’", "'").strip()).strip()).rstrip(" ?!.")
    parts = _OR.split(bare)
    if len(parts) != 2:
        return ()
    *others, first = (part.strip() for part in parts[0].rsplit(": ", 1)[-1].split(","))
    second = _ASKS_WHICH.sub("", parts[1]).strip()
    first, second = drop_shared_words(first, second)
    found = [each for each in (*others, first, second) if each]
    fitting = 2 <= len(found) <= _MOST_OPTIONS and all(
        len(each) <= _LONGEST_OPTION and terms(each) and not _NO_OPTION.search(each) for each in found
    )
    return tuple(quotable(each, _LONGEST_OPTION) for each in found) if fitting else ()


def _find_meant(window: Window, turns: Sequence[Turn], caller: str | None) -> Asked | None:
    """Return the question that is pointed at."""
    asked = questions(turns)
    if window.anchor is not None:
        return _of_anchor(window, turns, asked)
    if followed := _follow_question(turns, asked, caller):
        return followed
    left = [each for each in asked if _is_to_decide(each.sentence) or not _is_response(each, turns)] or asked
    if own := _find_own_words(turns, caller):
        left = [each for each in left if each.place < own[0] and own[1] in _answers(each.turn, turns[each.place + 1 :])]
    return max(left, key=lambda each: _weight(each, turns, caller), default=None)


def _find_own_words(turns: Sequence[Turn], caller: str | None) -> tuple[int, Turn] | None:
    """Return what the caller has just said and may mean, if it says something."""
    place = _find_latest(turns, caller)
    return (place, turns[place]) if place is not None and is_substantive(turns[place].text) else None


def _find_latest(turns: Sequence[Turn], caller: str | None) -> int | None:
    """Return the place of the caller's last words, unless many have spoken since."""
    latest = range(len(turns) - 1, max(len(turns) - 2 - _STILL_THERE, -1), -1)
    return next((n for n in latest if caller is not None and turns[n].speaker == caller), None)


def _is_to_decide(sentence: str) -> bool:
    """Return whether something is to be decided, and not only to be told."""
    return not asks_view(sentence) and (decides(sentence) or bool(choices(sentence)))


def _follow_question(turns: Sequence[Turn], asked: Sequence[Asked], caller: str | None) -> Asked | None:
    """Return the question that the caller's own last words ask or, reply by reply, go back to; None if those are long past."""
    place = _find_latest(turns, caller)
    for _ in range(_LONGEST_CHAIN):
        if place is None:
            return None
        if found := next((each for each in asked if each.place == place), None):
            return found
        replied = turns[place].replying_to
        place = next((n for n in range(place - 1, -1, -1) if replied and turns[n].speaker == replied), None)
    return None


def _of_anchor(window: Window, turns: Sequence[Turn], asked: Sequence[Asked]) -> Asked | None:
    anchor = _flat(window.anchor or "")
    place = next((n for n in range(len(turns) - 1, -1, -1) if _flat(turns[n].text) == anchor), -1)
    if found := next((each for each in asked if each.place == place), None):
        return found
    if place >= 0 and (replied := turns[place].replying_to):
        return next((each for each in reversed(asked) if each.place < place and each.turn.speaker == replied), None)
    sentence = next((each for each in reversed(sentences(anchor)) if is_question(each)), None)
    if place >= 0 or sentence is None or asks_to_break_rules(anchor):
        return None
    speaker = window.last.replying_to if window.last else None
    return Asked(-1, Turn("user", anchor, speaker), sentence)


def _flat(text: str) -> str:
    return " ".join(text.replace("’", "'").split())


def _weight(asked: Asked, turns: Sequence[Turn], caller: str | None) -> float:
    """Return how likely a question is the one that is meant: the caller's own, one that was replied to, one to decide, a late one."""
    speaker = asked.turn.speaker
    following = turns[asked.place + 1 :]
    again = next(
        (n for n, turn in enumerate(following) if turn.speaker == speaker and "?" in turn.text), len(following)
    )
    replied = sum(turn.replying_to == speaker for turn in following[:again]) if speaker else 0
    own = speaker == caller and speaker is not None
    late = _LATER * asked.place / len(turns)
    return _ASKED_BY_CALLER * own + _REPLIED * min(replied, 3) + _DECIDING * _is_to_decide(asked.sentence) + late


def _find_around(own: str, turns: Sequence[Turn], caller: str | None, above: Asked | None) -> Table:
    """Return the table of a call that asks something itself: what shares its words, and what was said to the question it takes up."""
    wanted = find_telling_words(own)
    sentence = next((each for each in reversed(sentences(own)) if is_question(each)), own)
    options = choices(sentence)
    taken = _find_responses(wanted, turns, above)
    if taken is None:
        return Table(
            sentence, own, caller, tuple(turn for turn in turns if wanted & find_telling_words(turn.text)), (), options
        )
    after = tuple(_answers(taken.turn, turns[taken.place + 1 :]))
    known = wanted | find_telling_words(taken.turn.text)
    before = tuple(
        turn for turn in turns if turn not in after and turn is not taken.turn and known & find_telling_words(turn.text)
    )
    prompt = _find_replied_to(taken.turn, turns[: max(taken.place, 0)])
    options = options or choices(taken.sentence)
    return Table(sentence, taken.turn.text, taken.turn.speaker, before, after, options, prompt)


def _find_responses(wanted: frozenset[str], turns: Sequence[Turn], above: Asked | None) -> Asked | None:
    """Return the question that a call asks again: the one that has most of its words, or the likeliest one if its answers have some."""
    asked = [*([above] if above else []), *reversed(questions(turns))]
    closest = max(asked, key=lambda each: len(wanted & find_telling_words(each.turn.text)), default=None)
    if closest is not None and wanted & find_telling_words(closest.turn.text):
        return closest
    if above is not None and any(
        wanted & find_telling_words(turn.text) for turn in _answers(above.turn, turns[above.place + 1 :])
    ):
        return above
    return None


def _answers(question: Turn, following: Sequence[Turn]) -> Iterator[Turn]:
    """Yield what was said to a question: replies to those who take part, and what shares its words or takes a side."""
    taking_part = {question.speaker}
    known = find_telling_words(question.text)
    # To what is to be decided people say yes or no; to what is to be told, one after another says what they know.
    near = 1 if any(map(_is_to_decide, sentences(question.text))) else 2
    for n, turn in enumerate(following):
        says_something = content_words(turn.text) or stance(turn.text).side or (n < near == 2 and " " in turn.text)
        if asks_to_break_rules(turn.text) or not says_something:
            continue
        if turn.replying_to is not None:
            belongs = turn.replying_to in taking_part
        else:
            shares = bool(known & find_telling_words(turn.text))
            asks = any(map(_really_asks, sentences(turn.text)))
            belongs = shares or (not asks and (n < near or stance(turn.text).side is not None))
        if belongs:
            taking_part.add(turn.speaker)
            known |= find_telling_words(turn.text)
            yield turn


def _earlier(question: Turn, preceding: Sequence[Turn]) -> Iterator[Turn]:
    """Yield what was said before a question on its subject: what it replies to, and what shares its telling words."""
    known = find_telling_words(question.text)
    replied = _find_replied_to(question, preceding)
    for turn in preceding:
        if turn is replied or known & find_telling_words(turn.text):
            yield turn


def _find_replied_to(question: Turn, preceding: Sequence[Turn]) -> Turn | None:
    """Return the latest message before it of whomever it replies to."""
    if question.replying_to is None:
        return None
    return next((turn for turn in reversed(preceding) if turn.speaker == question.replying_to), None)


def _is_response(asked: Asked, turns: Sequence[Turn]) -> bool:
    following = turns[asked.place + 1 :]
    asker = asked.turn.speaker
    if asker is not None and any(turn.replying_to == asker for turn in following[:_LATER_REPLIES]):
        return True
    behind = next(iter(following), None)
    if behind is None or behind.speaker == asked.turn.speaker or behind.replying_to is not None:
        return False
    return not is_question(sentences(behind.text)[-1]) if sentences(behind.text) else False
