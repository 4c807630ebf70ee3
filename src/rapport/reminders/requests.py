"""Tell whether a person's words ask for a reminder. The words are data, one file a language."""

from __future__ import annotations

from rapport.domain.phrases import find_any, load_phrases
from rapport.followups.word_stems import plain

DATA = "rapport.reminders"
_MAX_READ_CHARACTERS = 2_000
_CUES = find_any(load_phrases(DATA, "cues"))


def asks_for_reminder(text: str) -> bool:
    """Return True if the text has a word by which people ask for reminders."""
    return _CUES.search(plain(text[:_MAX_READ_CHARACTERS])) is not None
