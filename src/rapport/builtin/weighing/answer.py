"""An answer to a question that a group is weighing: what is asked, who stands where, what the notes say, what follows, what is open.

Everything is in people's own words or in a document's; a leaning is given only where a limit, a document or a majority gives one.
"""

import re
from collections import Counter

from rapport.builtin.groups import is_substantive
from rapport.builtin.language.words import stem, words
from rapport.builtin.phrasing import capitalise, join_list
from rapport.builtin.prompt_reader import Turn, Window
from rapport.builtin.question_kinds import is_question
from rapport.builtin.source_reader import Source
from rapport.builtin.weighing.bearing import Noted, cite_notes, figures
from rapport.builtin.weighing.choosing import choose_between
from rapport.builtin.weighing.open_question import (
    Asked,
    Table,
    find_telling_words,
    find_unanswered,
    is_among_people,
    lay,
)
from rapport.builtin.weighing.stances import Stance, decides, find_asked_for, is_reversed, stance, suggests
from rapport.builtin.weighing.voices import Voices, quote

_VERB = re.compile(r"\b(?:do|should|shall|can|could|may|must) (?:i|we|you) ([a-z]+)\b", re.IGNORECASE)
_MOST_OPEN = 2
_MOST_SAID = 3
_LONGEST_REASON = 90
_LONGEST_OPEN = 110
_LATELY = 8


def weigh(window: Window, sources: list[Source], own: str | None = None, *, whole: bool = False) -> str | None:
    """Return the answer to what is to be decided, to the call's `own` question if it has one; None if nothing is to be decided.

    `whole` says that somebody wants to know where the talk stands, whatever they themselves have said in it.
    """
    table = lay(window, own, whole=whole)
    if table is None or not (table.options or decides(table.question)):
        return None
    voices = Voices(window.last.speaker if window.last else None)
    found = cite_notes(table, sources)
    told = choose_between(table, found, voices) if table.options else _yes_or_no(table, found, voices)
    if own is not None and table.text == own and not (table.options and told) and not found.decide(table.subject):
        return None  # nobody has talked about it: a question like any other
    # Who asks in full words need not be told what is asked.
    lead = (
        []
        if own is not None and (find_telling_words(own) or table.asker == voices.caller)
        else [_opening(table, voices)]
    )
    nothing = ["Nobody has said anything for or against it yet, so I can't tell."] if not told else []
    return _write_answer([*lead, *told, *nothing, *_open(table, found, window, voices)], found)


def gather(window: Window, sources: list[Source]) -> str | None:
    """Return what was said to an open question ("where do we meet?"), with what most people name; None if nobody said anything."""
    table = lay(window)
    if table is None or table.options or decides(table.question):
        return None
    voices = Voices(window.last.speaker if window.last else None)
    latest: dict[str | None, Turn] = {}
    for turn in table.after:
        if turn.speaker != table.asker and (suggests(turn.text) or not is_question(turn.text)):
            latest[turn.speaker] = turn
    found = cite_notes(table, sources)
    if not latest and not found.passages:
        return None
    told = [voices.quote(turn) for turn in list(latest.values())[-_MOST_SAID:]]
    if found.passages:
        told.append(found.tell())
    return _write_answer([_opening(table, voices), *told, _majority(table, latest)], found)


def still_open(window: Window) -> str | None:
    """Return what nobody has answered or decided yet, in the words of those who asked."""
    turns = is_among_people(window)
    voices = Voices(window.last.speaker if window.last else None)
    table = lay(window, whole=True)
    asked = find_unanswered(turns)
    left = [(each.turn.speaker, each.turn.text) for each in asked]
    if table is not None and all(text != table.text for _, text in left):
        left.append((table.asker, table.text))
    if not left:
        return None
    parts = [f"{voices.whose(speaker)} question {quote(text, _LONGEST_OPEN)}" for speaker, text in left[-_MOST_SAID:]]
    parts += [what for turn in turns[-_LATELY:] if (what := find_asked_for(turn.text))][-1:]
    return _end_sentence(f"Still open: {'; '.join(parts)}")


def _opening(table: Table, voices: Voices) -> str:
    return f"{capitalise(voices.name(table.asker))} asked: {quote(table.text, whole=True)}"


def _yes_or_no(table: Table, found: Noted, voices: Voices) -> list[str]:
    if is_reversed(table.question):
        return [*(voices.quote(turn) for turn in table.after[-2:]), *([found.tell()] if found.passages else [])]
    stands = _stands(table)
    told = [_sides(stands, voices)] if any(each.side for _, each in stands.values()) else []
    told += _report_words(table, stands, voices, room=1 if told else 2) if not found.passages else []
    if found.passages:
        told.append(found.tell())
    if told:
        told.append(_verdict(table, stands, found))
    return [each for each in told if each]


def _stands(table: Table) -> dict[str | None, tuple[Turn, Stance]]:
    """Return where each stands by their latest word; a condition that they made before still holds."""
    stands: dict[str | None, tuple[Turn, Stance]] = {}
    verb = _VERB.search(table.question)
    for turn in table.after:
        taken = stance(turn.text)
        if taken.side is None and verb and words(turn.text)[:1] == [verb.group(1).lower()]:
            taken = Stance("for")  # "Should we revert it?" "Revert."
        if taken.side is None or (turn.speaker == table.asker and turn.speaker is not None):
            continue
        earlier = stands.get(turn.speaker) if turn.speaker is not None else None
        if earlier and earlier[1].condition and taken.side == "for" and taken.condition is None:
            taken = Stance("for", earlier[1].condition, taken.has_reason)
        stands[turn.speaker] = (turn, taken)
    return stands


def _sides(stands: dict[str | None, tuple[Turn, Stance]], voices: Voices) -> str:
    """ "Ana and Ben are for it; Cara is for it if it rains; Dan is against it: “…”"."""
    plain = [speaker for speaker, (_, each) in stands.items() if each.side == "for" and not each.condition]
    parts = [f"{voices.are(plain)} for it"] if plain else []
    if len(plain) == 1 and stands[plain[0]][1].has_reason:
        parts = [f"{parts[0]} ({quote(stands[plain[0]][0].text, _LONGEST_REASON)})"]
    for speaker, (_, each) in stands.items():
        if each.condition:
            parts.append(f"{voices.are([speaker])} for it {each.condition}")
    for speaker, (turn, each) in stands.items():
        if each.side == "against":
            why = f" ({quote(turn.text, _LONGEST_REASON)})" if each.has_reason else ""
            parts.append(f"{voices.are([speaker])} against it{why}")
    return f"{capitalise('; '.join(parts))}."


def _report_words(
    table: Table, stands: dict[str | None, tuple[Turn, Stance]], voices: Voices, *, room: int
) -> list[str]:
    """Return what else was said to it, by those who took no side."""
    others = [
        turn
        for turn in table.after
        if turn.speaker not in stands and turn.speaker != table.asker and is_substantive(turn.text)
    ]
    return [voices.quote(turn) for turn in others[-room:]]


def _verdict(table: Table, stands: dict[str | None, tuple[Turn, Stance]], found: Noted) -> str:
    pros = sum(each.side == "for" for _, each in stands.values())
    cons = sum(each.side == "against" for _, each in stands.values())
    if found.named and found.limit:
        return _by_limit(found, pros, cons)
    if (allowed := found.allows(table.subject)) is not None:
        return "By that it is all right." if allowed else "By that it is not."
    if pros and not cons:
        return "Nobody has spoken against it, so I lean to yes." if pros > 1 else "Nobody has spoken against it so far."
    if cons and not pros:
        return "Nobody has spoken for it, so I lean to no." if cons > 1 else "Nobody has spoken for it so far."
    if pros != cons:
        return f"Most are {'for' if pros > cons else 'against'} it, so I lean to {'yes' if pros > cons else 'no'}."
    return "I can't tell from what was said which weighs more." if pros else ""


def _by_limit(found: Noted, pros: int, cons: int) -> str:
    assert found.named is not None
    assert found.limit is not None
    named = capitalise(found.named.words)
    limit = f"{found.limit.value:g}" if found.named.unit == found.limit.unit else found.limit.words
    if not found.keeps:
        beyond = "more than the limit of" if found.limit.bound == "most" else "less than the required"
        return f"{named} is {beyond} {limit}, so by the notes it doesn't fit: I lean to no."
    within = "within the limit of" if found.limit.bound == "most" else "no less than the required"
    if cons > pros:
        return f"{named} is {within} {limit}, so that is not what stands in the way."
    return f"{named} is {within} {limit}, so I lean to yes."


def _majority(table: Table, latest: dict[str | None, Turn]) -> str:
    """Return what most of them name that the question itself doesn't."""
    named = Counter(
        term for turn in latest.values() for term in find_telling_words(turn.text) - find_telling_words(table.text)
    )
    top = named.most_common(2)
    if not top or top[0][1] < 2 or (len(top) > 1 and top[1][1] == top[0][1]):
        return "More than that wasn't said."
    told = (word for turn in latest.values() for word in words(turn.text) if stem(word) == top[0][0])
    return f"Most name “{next(told, top[0][0])}”, so I lean to that."


def _open(table: Table, found: Noted, window: Window, voices: Voices) -> list[str]:
    """Return what is left: conditions that nothing settles, limits that nobody has checked, questions that nobody has taken up."""
    left: list[str] = []
    for turn in table.after:
        condition = stance(turn.text).condition
        if condition and not _settle(condition, found):
            left.append(f"whether {condition.partition(' ')[2]}" if condition.startswith("if ") else condition)
    if found.unchecked is not None:
        far = join_list(figures(table)[:3])
        left.append(f"whether it all stays within {found.unchecked.words}{f' (named so far: {far})' if far else ''}")
    left += [
        f"{voices.whose(asked.turn.speaker)} question {quote(asked.turn.text, _LONGEST_OPEN)}"
        for asked in _others_ask(table, window)
    ]
    return [_end_sentence(f"Still open: {'; '.join(list(dict.fromkeys(left))[:_MOST_OPEN])}")] if left else []


def _end_sentence(text: str) -> str:
    return text if text.endswith(("?”", "!”", "…”")) else f"{text}."


def _settle(condition: str, found: Noted) -> bool:
    wanted = find_telling_words(condition)
    return any(wanted & passage.terms for passage in found.passages)


def _others_ask(table: Table, window: Window) -> list[Asked]:
    """Questions since then, or on the same subject, that nobody has taken up."""
    turns = is_among_people(window)
    return [
        asked
        for asked in find_unanswered(turns)
        if asked.turn.text not in table.text and table.subject & find_telling_words(asked.turn.text)
    ]


def _write_answer(parts: list[str], found: Noted) -> str:
    text = " ".join(capitalise(part) for part in parts if part)
    return f"{text}\n\nSources: {', '.join(found.ids)}" if found.ids else text
