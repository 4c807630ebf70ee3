"""People's words with their names, told to one of them: whoever asks is "you"."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapport.builtin.language.words import sentences
from rapport.builtin.phrasing import capitalise, finish_sentence, join_list, quotable
from rapport.builtin.prompt_reader import Turn
from rapport.builtin.question_kinds import is_question

_LONGEST_NAME = 40
_LONGEST_QUOTE = 150


@dataclass(frozen=True, slots=True)
class Voices:
    """The names of the participants, as the asker reads them."""

    caller: str | None

    def name(self, speaker: str | None) -> str:
        if speaker is None:
            return "somebody"
        return "you" if speaker == self.caller else quotable(speaker, _LONGEST_NAME)

    def whose(self, speaker: str | None) -> str:
        name = self.name(speaker)
        return "your" if name == "you" else f"{name}'s"

    def are(self, speakers: Iterable[str | None]) -> str:
        """`Ana is`, `Ana and Ben are`, `you are`."""
        names = list(dict.fromkeys(self.name(each) for each in speakers))
        return f"{join_list(names)} {'is' if len(names) == 1 and names != ['you'] else 'are'}"

    def quote(self, turn: Turn) -> str:
        """`Ana said: “…”` or `You asked: “…”`, as a sentence of its own."""
        verb = "asked" if is_question(turn.text) else "said"
        return f"{capitalise(self.name(turn.speaker))} {verb}: {quote(turn.text, whole=True)}"


def quote(text: str, limit: int = _LONGEST_QUOTE, *, whole: bool = False) -> str:
    """Return somebody's words between quotation marks: as a sentence, or within one. Of a long message its last fitting sentences."""
    said = text
    if len(said) > limit:
        said = _end_of(sentences(text), limit) or text
    shown = capitalise(quotable(said, limit).replace("“", "‘").replace("”", "’"))
    if not whole:
        return f"“{shown.rstrip(' .!')}”"
    return f"“{finish_sentence(shown) if shown[-1:].isalnum() else shown}”"


def _end_of(parts: Sequence[str], limit: int) -> str:
    taken: list[str] = []
    for part in reversed(parts):
        if sum(map(len, taken)) + len(part) + len(taken) > limit:
            break
        taken.insert(0, part)
    return " ".join(taken)
