"""Take the server's note out of a message that a model was given."""

from __future__ import annotations

import re

from rapport.domain.server_note import split_note

# The sentences of `TranscriptRenderer.describe_task`, as `add_note` puts them after the message.
_TASK = re.compile(r"\s*\((?:Answer what [^\n]* asks here|[^\n]* asks for your view on the talk above)[^\n]*\)\Z")


def split_whole_note(text: str) -> tuple[str, str]:
    """Return the note before and after a message's words, and the words."""
    before, words = split_note(text)
    task = _TASK.search(words)
    return (before, words) if task is None else (f"{before}{task.group()}", words[: task.start()])


def strip_whole_note(text: str) -> str:
    """Return the words of a message, without the note before and after them."""
    return split_whole_note(text)[1]
