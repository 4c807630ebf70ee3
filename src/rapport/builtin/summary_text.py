"""A plain-text summary made of the conversation's own sentences, within the token limit."""

import re
from collections.abc import Iterable

from rapport.builtin.language.words import sentences, terms
from rapport.builtin.perspective import clauses
from rapport.builtin.phrasing import finish_sentence, quotable
from rapport.builtin.prompt_reader import Turn, Window
from rapport.builtin.question_kinds import is_question
from rapport.builtin.window_facts import list_in, name_in

TOKEN_LIMIT = 180
_SECTIONS = ("User said", "Goals", "Resolved", "Outstanding")
_EARLIER = re.compile(rf"^({'|'.join(_SECTIONS)}): (.+)$", re.MULTILINE)
_GOAL = re.compile(
    r"\b(?:want|need|plan|planning|would like|i'd like|going to|trying|hope|looking for|have to|must|decide|deciding|should|can't|problem|"
    r"issue|error|stuck|broken|help)\b",
    re.IGNORECASE,
)
_FACT = re.compile(r"^(?:i|i'm|i've|my|we|we're|our)\b", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"RAPPORT_MODEL|I don't know that|can't answer|don't cover|don't have sufficiently|not something I know|don't have an answer|I can't say|I can't tell",
)
_TOKEN = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
_MOST_ITEMS = 8
_MOST_SENTENCES = 40  # of one turn


def estimate(text: str) -> int:
    """Tokens, never wildly low: words and punctuation, each character of unspaced scripts, long strings by length."""
    return sum(max(1, len(piece) // 6) for piece in _TOKEN.findall(text))


def summarise(window: Window) -> str:
    """Goals, resolved questions and open issues in at most 180 tokens, without citation tags."""
    found = _earlier(window)
    _read(window.turns, found)
    items = [(section, item) for section in _SECTIONS for item in list(dict.fromkeys(found[section]))[-_MOST_ITEMS:]]
    # The oldest goes first when the limit is reached, but what the user said of themselves goes last.
    expendable = [
        pair for section in ("Resolved", "Goals", "Outstanding", "User said") for pair in items if pair[0] == section
    ]
    while items and estimate(_write_summary(items)) > TOKEN_LIMIT:
        items.remove(expendable.pop(0))
    return _write_summary(items) or "Nothing of substance has been said so far."


def _read(turns: tuple[Turn, ...], found: dict[str, list[str]]) -> None:
    for n, turn in enumerate(turns):
        if turn.role != "user" or _EARLIER.search(turn.text):
            continue
        prefix = f"{turn.speaker}: " if turn.speaker else ""
        answer = _answer_to(turns[n + 1 :])
        for sentence in sentences(turn.text)[-_MOST_SENTENCES:]:
            item = prefix + quotable(sentence, 110).replace("; ", ", ").rstrip(".!")
            if not terms(sentence):
                continue
            if is_question(sentence):
                found["Resolved" if answer else "Outstanding"].append(f"{item} → {answer}" if answer else item)
            elif _GOAL.search(sentence):
                found["Goals"].append(item)
            else:
                found["User said"].extend(prefix + fact for fact in _facts(sentence))
        if items := list_in(turn.text):
            found["User said"].append(f"{prefix}remember: {', '.join(items)}")


def _facts(sentence: str) -> Iterable[str]:
    for clause in clauses(sentence):
        if _FACT.match(clause) or name_in(clause):
            yield quotable(clause, 90).replace("; ", ", ")


def _answer_to(following: tuple[Turn, ...]) -> str:
    """Return the first sentence of the reply, if there was one and it answered."""
    reply = next((turn.text for turn in following[:1] if turn.role == "assistant"), "")
    told = [each for each in sentences(reply.split("\nSources:")[0]) if not each.endswith("?")]
    if not told or _NO_ANSWER.search(reply):
        return ""
    return quotable(told[0], 110).replace("; ", ", ").rstrip(".!")


def _earlier(window: Window) -> dict[str, list[str]]:
    """Return what an earlier summary of this conversation held: it is folded in, not lost."""
    found: dict[str, list[str]] = {section: [] for section in _SECTIONS}
    for text in (window.instructions, *(turn.text for turn in window.turns)):
        for section, items in _EARLIER.findall(text):
            found[section].extend(quotable(item, 110) for item in items.strip(" .").split("; ") if item.strip())
    return found


def _write_summary(items: list[tuple[str, str]]) -> str:
    lines = ((section, [item for s, item in items if s == section]) for section in _SECTIONS)
    return "\n".join(f"{section}: {finish_sentence('; '.join(own))}" for section, own in lines if own)
