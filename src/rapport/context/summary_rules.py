"""Decide whether a conversation is too long for the model, and which messages a summary covers (SUM-1…4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rapport.domain.conversation import Message
from rapport.domain.token_estimate import estimate_tokens

MAX_CHAT_HISTORY = 12
"""The default of the setting: above this number of messages a conversation gets its first summary."""
SLACK = 10
"""The number of further messages that a later summary waits for: a summary costs a model call, and a new beginning costs a prompt
cache (ADR 81)."""
MAX_TOKENS = 6_000
KEPT_QUESTIONS = 2
"""The number of newest user messages that a summary never covers."""
SUMMARY_PROMPT = (
    "Summarize conversation so far highlighting user goals, resolved questions, outstanding issues, "
    "and relevant source ids. Keep <= 180 tokens."
)
SUMMARY_TASK = "(End of the conversation. Write its summary now; don't answer it.)"
"""The last line of the request: a small model answers the transcript if that stands last."""
SHORTER_PLEASE = "Write at most five short sentences in your own words. Don't copy the lines above."
"""The end of the second request, after a summary that was too long or copied."""
MAX_SUMMARY_TOKENS = 270
"""A longer summary is written again: half as long again as the prompt allows, because token counts differ."""
MAX_SUMMARY_CHARACTERS = 2_000
"""A longer summary is cut."""
_MIN_COPIED_WORDS = 40
_COPIED_RUN = 6
"""The number of words in a row that count as copied."""
_MAX_COPIED_SHARE = 0.6

_PART_TOKENS = 3_000
_LINE_CHARACTERS = 4_000


def get_window_limit(max_history: int = MAX_CHAT_HISTORY) -> int:
    """Return how many uncovered messages the model gets at most: more than a summary leaves, because no turn waits for one."""
    return 2 * max_history + SLACK


def needs_summary(messages: Sequence[Message], *, has_summary: bool, max_history: int = MAX_CHAT_HISTORY) -> bool:
    """Return True if the uncovered messages need a summary: above `max_history` of them, with `SLACK` for a later summary, or
    if they have too many tokens."""
    threshold = max_history + SLACK if has_summary else max_history
    return len(messages) > threshold or _has_too_many_tokens(messages)


def select_messages_to_cover(
    messages: Sequence[Message], *, has_summary: bool = False, max_history: int = MAX_CHAT_HISTORY
) -> Sequence[Message]:
    """Return the oldest messages that a summary shall cover; none if it is not needed yet."""
    if not needs_summary(messages, has_summary=has_summary, max_history=max_history):
        return ()
    # Never all of them: a limit below three messages still keeps one.
    newest = messages[-max(max_history - 2, 1) :]
    kept_count = max(_count_fitting(newest), _count_protected(messages))
    return messages[: len(messages) - kept_count]


def fit_window(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the newest messages that fit into the token limit, and at least those that a summary never covers."""
    if not _has_too_many_tokens(messages):
        return messages
    return messages[-max(_count_fitting(messages), _count_protected(messages)) :]


def _has_too_many_tokens(messages: Sequence[Message]) -> bool:
    # No text has more tokens than characters: this shows for most conversations that they are short enough.
    return sum(len(message.text) for message in messages) > MAX_TOKENS and _count_fitting(messages) < len(messages)


def _count_fitting(messages: Sequence[Message]) -> int:
    """Return how many of the newest messages fit into the token limit."""
    tokens_left = MAX_TOKENS
    for count, message in enumerate(reversed(messages)):
        tokens_left -= estimate_tokens(message.text)
        if tokens_left < 0:
            return count
    return len(messages)


def _count_protected(messages: Sequence[Message]) -> int:
    """Return how many of the newest messages are protected: back to the newest user messages that stay uncovered."""
    questions = [index for index, message in enumerate(messages) if message.role == "user"]
    return len(messages) - questions[-KEPT_QUESTIONS] if len(questions) >= KEPT_QUESTIONS else len(messages)


def is_poor_summary(summary: str, transcript: str) -> bool:
    """Return True if a summary is too long, or mostly copied from the transcript, as weak models do."""
    if estimate_tokens(summary) > MAX_SUMMARY_TOKENS:
        return True
    words, source = summary.casefold().split(), transcript.casefold().split()
    if len(words) < _MIN_COPIED_WORDS:
        return False
    runs = {tuple(source[at : at + _COPIED_RUN]) for at in range(len(source) - _COPIED_RUN + 1)}
    starts = range(len(words) - _COPIED_RUN + 1)
    copied = sum(tuple(words[at : at + _COPIED_RUN]) in runs for at in starts)
    return copied > _MAX_COPIED_SHARE * len(starts)


def split_transcript(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the messages as transcripts, each short enough for one call."""
    lines: list[str] = []
    size = 0
    for message in messages:
        line = _render_line(message)
        tokens = estimate_tokens(line)
        if lines and size + tokens > _PART_TOKENS:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += tokens
    if lines:
        yield "\n".join(lines)


def _render_line(message: Message) -> str:
    if message.role == "assistant":
        speaker = "Assistant"
    else:
        speaker = " ".join(message.author.name.split())[:80] if message.author else "User"
    text = " ".join(message.text.split())
    half = _LINE_CHARACTERS // 2
    return f"{speaker}: {text if len(text) <= _LINE_CHARACTERS else f'{text[:half]} … {text[-half:]}'}"


def collect_source_ids(summary: Message | None, messages: Sequence[Message]) -> list[str]:
    """Return the ids of the notes that the messages and the summary before them cite."""
    earlier: Sequence[str] = summary.metadata.get("source_ids", []) if summary else []
    cited = [source["id"] for message in messages for source in message.sources]
    return list(dict.fromkeys([*earlier, *cited]))
