"""Write first, about the person's own words: a quotation of theirs and one short question, with no machinery showing."""

from collections.abc import Sequence

from rapport.builtin.language.words import content_words, detect_language, find_phrase, is_question, sentences, words
from rapport.builtin.phrases import PHRASES, Phrasebook, capitalise, quote
from rapport.builtin.prompt import Prompt
from rapport.builtin.topics import find_options, has_bad_news, has_subject, is_in_danger

_LINES = PHRASES["follow_up"]
_TELLTALE = frozenset(_LINES["telltale"].split())
_MARKS: dict[str, list[str]] = {"task_incomplete": _LINES["tasks"], "waiting_for_decision": _LINES["decisions"]}
_MAX_LOOKED_BACK = 6
_MAX_SORE_MESSAGES = 8
"""The number of newest messages in which bad news sets the tone."""


def write_follow_up(trigger_type: str, prompt: Prompt, book: Phrasebook) -> str:
    """Return one or two short sentences that fit the kind of moment; never a word about why they are sent."""
    newest = [turn.text for turn in prompt.turns if turn.role == "user"][-_MAX_SORE_MESSAGES:]
    if any(has_bad_news(text) or is_in_danger(text) for text in newest):
        return book.pick(PHRASES["bad_news"]["replies"])
    said = _find_own_words(prompt)
    if not said:
        return book.pick(_LINES["general"])
    if (language := detect_language(said[0])) in PHRASES["follow_up_in"]:
        return book.pick(PHRASES["follow_up_in"][language], said=quote(_choose_sentence(said[0]), 90))
    if trigger_type in ("waiting_for_decision", "question_unanswered"):
        for first, second in filter(None, map(find_options, said)):
            return book.pick(_LINES["options"], A=capitalise(first), a=first, b=second)
    marks = _MARKS.get(trigger_type, ())
    if marked := next((text for text in said if find_phrase(text, marks)), None):
        return book.pick(_LINES[trigger_type], said=quote(_choose_sentence(marked, marks), 90))
    sentence = _choose_sentence(said[0])
    kind = "question_unanswered" if trigger_type == "question_unanswered" else "check_in"
    return book.pick(_LINES["question_asked" if is_question(sentence) else kind], said=quote(sentence, 90))


def _find_own_words(prompt: Prompt) -> list[str]:
    """Return what the person who wrote last has said that can be repeated, the newest first."""
    speaker = prompt.last.speaker if prompt.last else None
    own = [turn.text for turn in reversed(prompt.turns) if turn.role == "user" and turn.speaker == speaker]
    # A sentence with a word of the machinery would sound like it.
    kept = (
        " ".join(one for one in sentences(text) if _TELLTALE.isdisjoint(words(one))) for text in own[:_MAX_LOOKED_BACK]
    )
    return [text for text in kept if has_subject(text)]


def _choose_sentence(text: str, marks: Sequence[str] = ()) -> str:
    """Return the sentence with one of the marks, else the first that says something."""
    marked = (one for one in sentences(text) if find_phrase(one, marks))
    telling = (one for one in sentences(text) if len(content_words(one)) > 1)
    return next(marked, None) or next(telling, None) or text
