"""Render a group chat for the model: selected messages with speakers, times and gaps, quoted as data (CTX-2, 3, 8)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage

from rapport.context.fence import (
    MAX_ANCHOR_CHARACTERS,
    build_anchor_sentence,
    clean_name,
    clip,
    fence,
    indent,
    sanitize,
    sanitize_all,
)
from rapport.context.question import PICTURE, is_bare
from rapport.context.situation import get_zone_name
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.context_selection import MAX_LINE_CHARACTERS, ChosenMessage, ContextSelection
from rapport.domain.conversation import Block, Content, Message

MAX_IMAGES = 4
"""The number of images of the replied-to message that the model gets."""
LONG_SILENCE = timedelta(hours=1)
"""A gap that gets a line of its own."""

PRECEDING_SOURCE = "context"
"""The `lc_source` of the message before a call that quotes its context."""
_HEADING = (
    "What was said in this group chat before, as far as it may belong to the call, oldest first (times in {zone}):"
)
UNNAMED = "someone"
_RESERVED = frozenset(
    {"system", "assistant", "developer", "user", "human", "ai", "model", "tool", "function", "agent", "you", "me"}
)  # fmt: skip
_CLAIMS = ("system", "assistant", "developer")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def trim_selection(selection: ContextSelection, *, characters: int) -> ContextSelection:
    """Return the selection without the oldest messages that do not fit; the call and its anchor stay."""
    anchor = selection.anchor.id if selection.anchor else None
    kept: list[ChosenMessage] = []
    for entry in reversed(selection.chosen):
        size = 0 if "trigger" in entry.reasons else min(len(entry.message.text), MAX_LINE_CHARACTERS) + 80
        if size <= characters or entry.message.id == anchor:
            kept.append(entry)
            characters -= size
    if len(kept) == len(selection.chosen):
        return selection
    return replace(selection, chosen=kept[::-1])


Quote: TypeAlias = Callable[[Message], Message]
"""Removes text from a message that could be read as the agent's own."""


def _keep_unchanged(message: Message) -> Message:
    return message


class TranscriptRenderer:
    """Renders messages of one chat for one call, with the same names and numbers from line to line."""

    def __init__(
        self,
        agent: AgentProfile,
        call: Message,
        *,
        quote: Quote = _keep_unchanged,
        numbered: bool = False,
        zone: tzinfo = UTC,
    ) -> None:
        self._agent = agent
        self._call = call
        self._now = call.created_at.astimezone(zone)
        self._zone = get_zone_name(zone)
        self._quote = quote
        self._labels: dict[str, str] = {}
        self._known: dict[str, Message] = {}
        self._numbers: dict[str, int] | None = {} if numbered else None

    def render_history(
        self, selection: ContextSelection, *, recent: Sequence[Message] = (), replied_to: Message | None = None
    ) -> list[BaseMessage]:
        """Return the message before the call; `recent` is the unbroken run of messages that was selected from."""
        messages = [chosen.message for chosen in selection.earlier]
        quoted = ""
        if messages:
            heading = _HEADING.format(zone=self._zone)
            quoted = f"{heading}\n{self.quote_messages(messages, recent=recent, until=self._call.created_at)}"
        if not quoted and replied_to is None:
            return []
        return [render_preceding_message(self._call, quoted, replied_to=replied_to, quote=self._quote)]

    def render_call(self) -> HumanMessage:
        """Return the whole call with its images, and with the date that all times refer to."""
        head = (
            f"[{self._render_head(self._call, f'{self._now:%a} {self._now.day} {self._now:%b %Y %H:%M} {self._zone}')}]"
        )
        content = _clean(self._call, self._quote).content
        if isinstance(content, str):
            return HumanMessage(f"{head} {indent(content)}", id=self._call.id)
        # Indented, because only a speaker may begin a line.
        blocks = (
            {**block, "text": f"  {indent(str(block['text']))}"} if block["type"] == "text" else block
            for block in content
        )
        return HumanMessage(to_langchain_content([{"type": "text", "text": head}, *blocks]), id=self._call.id)

    def describe_task(self) -> str:
        """Return a sentence about what the model shall do with the call. A small model goes by what it reads last."""
        asker = self._get_label(self._call)
        if is_bare(self._call.text):
            return f"{asker} asks for your view on the talk above. Give {asker} your view on it, in a few sentences."
        return f"Answer what {asker} asks here; it is about the talk above."

    def quote_messages(
        self,
        messages: Sequence[Message],
        *,
        recent: Sequence[Message] = (),
        until: datetime | None = None,
        line: int = MAX_LINE_CHARACTERS,
        in_order: bool = True,
    ) -> str:
        """Return the messages, fenced, with a line for every long silence and for omitted messages.

        With `in_order=False`, for messages that are not in the order of time, there are no such lines.
        """
        self._remember([*recent, *messages])
        positions = [_get_position(message) for message in recent]
        lines: list[str] = []
        for before, message in pairwise([None, *messages]):
            assert message is not None
            if before is not None and in_order:
                lines += _describe_gap(before, message, positions)
            lines.append(self._render_line(message, line))
        if until is not None and (gap := _format_silence(until - messages[-1].created_at)):
            lines.append(f"— {gap} —")
        return fence("\n".join(lines), seed=self._call.id)

    def find_id(self, reference: str) -> str:
        """Return the message id for a line number; any other text is returned as the id."""
        number = reference.strip().removeprefix("#")
        return next(
            (id_ for id_, line_number in (self._numbers or {}).items() if str(line_number) == number), reference.strip()
        )

    def _remember(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._known[message.id] = message

    def _render_line(self, message: Message, limit: int) -> str:
        text = indent(_quote_words(message, limit, self._quote))
        return f"[{self._render_head(message, _format_time(message.created_at, self._now))}] {text}".rstrip()

    def _render_head(self, message: Message, time: str) -> str:
        parts = [self._get_label(message), time]
        if (number := self._assign_number(message)) is not None:
            parts.append(f"#{number}")
        if self._call.thread_id not in (None, message.thread_id):
            parts.append("in another topic")
        return ", ".join([*parts, *self._describe_reply(message)])

    def _assign_number(self, message: Message) -> int | None:
        if self._numbers is None:
            return None
        return self._numbers.setdefault(message.id, len(self._numbers) + 1)

    def _describe_reply(self, message: Message) -> Iterator[str]:
        """Yield whose message it replies to, if that is known."""
        target = message.reply_to_id or (message.event_id if message.role == "assistant" else None)
        if target is None and message.context_snapshot is None:
            return
        parent = self._known.get(target or "")
        if parent is None:
            if message.role != "assistant":
                yield "replying to an earlier message"
        else:
            number = self._numbers.get(parent.id) if self._numbers is not None else None
            yield f"replying to {self._get_label(parent)}{f' #{number}' if number else ''}"

    def _get_label(self, message: Message) -> str:
        """Return the speaker's label. Parentheses and quotation marks are ours: no name has any."""
        if message.role == "assistant":
            return f"you ({self._agent.name})"
        if message.author is None:
            return UNNAMED
        key = message.author.id
        if key not in self._labels:
            self._labels[key] = self._make_label(message.author.name, is_bot=message.is_bot)
        return self._labels[key]

    def _make_label(self, name: str, *, is_bot: bool) -> str:
        plain = clean_name(name) or UNNAMED
        if plain != UNNAMED and self._is_reserved(plain):
            plain = f"a person named “{plain}”"
        label = f"{plain} (bot)" if is_bot else plain
        used = set(self._labels.values())
        return next(
            candidate for number in range(1, 1_000_000) if (candidate := _number_label(label, number)) not in used
        )

    def _is_reserved(self, name: str) -> bool:
        key = "".join(character for character in name.casefold() if character.isalnum())
        names = {self._agent.name, self._agent.id, *self._agent.handles}
        reserved = tuple("".join(each.casefold().split()) for each in names)
        return (
            key in _RESERVED
            or key.removeprefix("you") in reserved
            or key.startswith((*_CLAIMS, self._agent.name.casefold()))
        )


def render_preceding_message(
    call: Message, quoted: str = "", *, replied_to: Message | None = None, quote: Quote = _keep_unchanged
) -> HumanMessage:
    """Return the message before a call: quoted messages, and last the replied-to message with its images."""
    images: list[Block] = []
    if replied_to is not None:
        sentence = build_anchor_sentence(_quote_words(replied_to, MAX_ANCHOR_CHARACTERS, quote))
        quoted = f"{quoted}\n\n{sentence}" if quoted else sentence
        if not isinstance(replied_to.content, str):
            images = [block for block in replied_to.content if block["type"] != "text"]
    content = to_langchain_content([{"type": "text", "text": quoted}, *images[:MAX_IMAGES]]) if images else quoted
    return HumanMessage(content, id=f"{call.id}-before", additional_kwargs={"lc_source": PRECEDING_SOURCE})


def to_langchain_content(content: Content) -> str | list[str | dict[str, Any]]:
    """Return the content in LangChain's format."""
    return content if isinstance(content, str) else [dict(block) for block in content]


def _clean(message: Message, quote: Quote) -> Message:
    """Remove hidden characters first, then text that could be read as ours: removing characters can form such text."""
    content = message.content
    if isinstance(content, str):
        return quote(replace(message, content=sanitize(content)))
    texts = iter(sanitize_all([str(block["text"]) for block in content if block["type"] == "text"]))
    blocks = [{**block, "text": next(texts)} if block["type"] == "text" else block for block in content]
    return quote(replace(message, content=blocks))


def _quote_words(message: Message, limit: int, quote: Quote) -> str:
    """Return the text of a message, with a mark for each image. It is clipped before it is cleaned, which saves work."""
    return _clean(replace(message, content=clip(_join_words(message.content), limit)), quote).text


def _join_words(content: Content) -> str:
    if isinstance(content, str):
        return content
    return " ".join(str(block["text"]) if block["type"] == "text" else PICTURE for block in content)


def _number_label(label: str, number: int) -> str:
    return label if number == 1 else f"{label} ({number})"


def _format_time(time: datetime, now: datetime) -> str:
    """Return a readable time: with the weekday within a week, otherwise with the date."""
    time = time.astimezone(now.tzinfo)
    days = (now.date() - time.date()).days
    if 0 <= days < 7:
        return f"{time:%a %H:%M}"
    return f"{time:%a} {time.day} {time:%b %H:%M}" if time.year == now.year else f"{time.day} {time:%b %Y %H:%M}"


def _describe_gap(earlier: Message, later: Message, positions: Sequence[tuple[datetime, str]]) -> list[str]:
    """Return a line about the gap between two messages. It has the number of omitted messages if that is known: within the
    run of messages at these positions."""
    lines: list[str] = []
    if gap := _format_silence(later.created_at - earlier.created_at):
        lines.append(gap)
    if positions and _get_position(earlier) >= positions[0]:
        left_out = bisect_left(positions, _get_position(later)) - bisect_right(positions, _get_position(earlier))
        if left_out > 0:
            lines.append(f"{_spell_number(left_out)} message{'s' if left_out > 1 else ''} left out")
    return [f"— {'; '.join(lines)} —"] if lines else []


def _get_position(message: Message) -> tuple[datetime, str]:
    return message.created_at, message.id


def _format_silence(gap: timedelta) -> str | None:
    if gap < LONG_SILENCE:
        return None
    hours = gap / timedelta(hours=1)
    for unit, size, limit in (("hour", 1, 24), ("day", 24, 14 * 24), ("week", 168, 9 * 168), ("month", 730.5, 17_532)):
        if hours < limit:
            return _format_duration(max(round(hours / size), 1), unit)
    return _format_duration(round(hours / 8_766), "year")


def _format_duration(count: int, unit: str) -> str:
    if count == 1:
        return f"{'an' if unit == 'hour' else 'a'} {unit} later"
    return f"{_spell_number(count)} {unit}s later"


def _spell_number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"
