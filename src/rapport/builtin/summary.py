"""Sum up a conversation by extraction: goals, resolved questions, open questions and what people said of themselves."""

import re
from collections.abc import Sequence

from rapport.builtin.language.words import content_words, find_phrase, is_question, sentences, words
from rapport.builtin.phrases import PHRASES, clip, finish_sentence
from rapport.builtin.prompt import SUMMARY_SECTIONS, Turn

MAX_TOKENS = 180
_WORDS = PHRASES["summary"]
_ABOUT_SELF = frozenset(_WORDS["about_self"].split())
_PIECE = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
_MAX_ITEMS, _MAX_ITEM_CHARACTERS = 8, 110
_FIRST_DROPPED = ("Resolved", "Goals", "Outstanding", "User said")  # when the summary is too long


def estimate_tokens(text: str) -> int:
    """Return a number of tokens that is never far too low: long words and scripts without spaces count by their length."""
    return sum(max(1, len(piece) // 6) for piece in _PIECE.findall(text))


def summarize(turns: Sequence[Turn], earlier_summary: str = "") -> str:
    """Return a summary of at most 180 tokens, without citation tags; an earlier one of this model is folded in."""
    found: dict[str, list[str]] = {section: [] for section in SUMMARY_SECTIONS}
    for line in earlier_summary.splitlines():
        section, _, items = line.partition(": ")
        if section in found:
            found[section] += (clip(item, _MAX_ITEM_CHARACTERS) for item in items.strip(" .").split("; ") if item)
    _sort_turns(turns, found)
    kept = {section: list(dict.fromkeys(items))[-_MAX_ITEMS:] for section, items in found.items()}
    for section in _FIRST_DROPPED:
        while kept[section] and estimate_tokens(_write(kept)) > MAX_TOKENS:
            del kept[section][0]  # the oldest
    return _write(kept) or _WORDS["empty"]


def _sort_turns(turns: Sequence[Turn], found: dict[str, list[str]]) -> None:
    for place, turn in enumerate(turns):
        if turn.role != "user":
            continue
        prefix = f"{clip(turn.speaker, 40)}: " if turn.speaker else ""
        answer = _find_answer(turns[place + 1 : place + 2])
        for sentence in sentences(turn.text)[-40:]:
            item = prefix + _make_item(sentence)
            if not content_words(sentence):
                continue
            if is_question(sentence):
                found["Resolved" if answer else "Outstanding"].append(f"{item} → {answer}" if answer else item)
            elif find_phrase(sentence, _WORDS["goals"]):
                found["Goals"].append(item)
            elif turn.speaker or not _ABOUT_SELF.isdisjoint(words(sentence)):
                found["User said"].append(item)


def _find_answer(following: Sequence[Turn]) -> str:
    """Return the first sentence of the agent's reply, if it answered."""
    reply = following[0].text if following and following[0].role == "assistant" else ""
    told = [one for one in sentences(reply.partition("\nSources:")[0]) if not one.endswith("?")]
    return _make_item(told[0]) if told and not find_phrase(reply, _WORDS["no_answer"]) else ""


def _make_item(sentence: str) -> str:
    """Return a sentence as one item: without tags, and without the sign that separates items."""
    bare, _, _ = sentence.partition("[source:")
    return clip(bare or sentence, _MAX_ITEM_CHARACTERS).replace(";", ",").rstrip(" .!")


def _write(kept: dict[str, list[str]]) -> str:
    return "\n".join(f"{section}: {finish_sentence('; '.join(items))}" for section, items in kept.items() if items)
