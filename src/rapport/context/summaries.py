"""When what the model is given becomes too long, and what of it a summary takes over (SUM-1…4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rapport.domain.conversation import Message

MAX_CHAT_HISTORY = 12
"""Messages that the model is given as they are."""
MAX_TOKENS = 6_000
KEPT = MAX_CHAT_HISTORY - 2
KEPT_QUESTIONS = 2
"""So many of the newest user messages are never summed up."""
PROMPT = (
    "Summarize conversation so far highlighting user goals, resolved questions, outstanding issues, "
    "and relevant source ids. Keep <= 180 tokens."
)
MAX_SUMMARY_CHARACTERS = 2_000
"""A model that doesn't keep to 180 tokens is cut off here."""

_PIECES = re.compile(r"\w+|[^\w\s]")
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
_LONGEST_TOKEN = 6
_PART_TOKENS = 3_000
_LINE_CHARACTERS = 4_000


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has, never far too few: words and punctuation marks, every CJK character by itself,
    and long unbroken strings by their length."""
    total = 0
    for match in _PIECES.finditer(text):
        piece = match[0]
        if len(piece) <= _LONGEST_TOKEN:
            total += max(1, len(_WIDE.findall(piece))) if not piece.isascii() else 1
            continue
        wide = 0 if piece.isascii() else len(_WIDE.findall(piece))
        total += wide + -(-(len(piece) - wide) // _LONGEST_TOKEN)
    return total


def is_crowded(messages: Sequence[Message]) -> bool:
    """Whether the model-facing messages, without the summary before them, are too many or too long."""
    if len(messages) > MAX_CHAT_HISTORY:
        return True
    # No text has more tokens than characters, and most conversations are known to be short by that alone.
    return sum(len(message.text) for message in messages) > MAX_TOKENS and _tokens(messages) > MAX_TOKENS


def to_cover(messages: Sequence[Message]) -> Sequence[Message]:
    """The earliest of these messages (oldest first) that a summary shall stand for; empty when it is not time yet."""
    if not is_crowded(messages):
        return ()
    keep = min(KEPT, len(messages))
    while keep and _tokens(messages[-keep:]) > MAX_TOKENS:
        keep -= 1
    return messages[: len(messages) - max(keep, _untouchable(messages))]


def _untouchable(messages: Sequence[Message]) -> int:
    """How many of the newest messages reach back to the last questions that stay whole."""
    questions = [index for index, message in enumerate(messages) if message.role == "user"]
    return len(messages) - questions[-KEPT_QUESTIONS] if len(questions) >= KEPT_QUESTIONS else len(messages)


def _tokens(messages: Sequence[Message]) -> int:
    return sum(estimated_tokens(message.text) for message in messages)


def parts(messages: Sequence[Message]) -> Iterator[str]:
    """The messages as transcripts, each short enough for one call."""
    lines: list[str] = []
    size = 0
    for message in messages:
        line = _line(message)
        tokens = estimated_tokens(line)
        if lines and size + tokens > _PART_TOKENS:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += tokens
    if lines:
        yield "\n".join(lines)


def _line(message: Message) -> str:
    if message.role == "assistant":
        speaker = "Assistant"
    else:
        speaker = " ".join(message.author.name.split())[:80] if message.author else "User"
    text = " ".join(message.text.split())
    half = _LINE_CHARACTERS // 2
    return f"{speaker}: {text if len(text) <= _LINE_CHARACTERS else f'{text[:half]} … {text[-half:]}'}"


def source_ids(summary: Message | None, messages: Sequence[Message]) -> list[str]:
    """The notes that these messages cite, with those of the summary that they follow."""
    earlier: Sequence[str] = summary.metadata.get("source_ids", []) if summary else []
    cited = [source["id"] for message in messages for source in message.sources]
    return list(dict.fromkeys([*earlier, *cited]))
