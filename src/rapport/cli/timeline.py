"""Print a timeline: which messages of a chat were selected for a call, which were not, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from rich.console import Console
from rich.text import Text

from rapport.domain.context_selection import SESSION_GAP_MINUTES
from rapport.domain.conversation import Conversation, Message
from rapport.retrieval.files.document import fit_on_one_line

FOLDED_FROM = 4
"""From this many consecutive skipped messages on, one line counts them."""
WORDS, WORDS_OF_REPLY = 400, 600
"""Characters shown of a message and of the reply."""
NARROW = 50
"""On a narrower terminal the margin is smaller."""

REASONS: Mapping[str, str] = {
    "trigger": "the call itself",
    "anchor": "what the call is about: what it replies to, or else the asker's own latest words",
    "reply_chain": "linked by a reply to that or to another that is chosen",
    "session": "said in one go with what follows it, without a long silence",
    "topic": "continues or answers something that is chosen",
    "addressed": "said to somebody who takes part, by name",
    "semantic": "close in meaning to what is asked, wherever in the chat it was said",
    "neighbour": "stands beside what the call is about",
    "recent": "one of the latest messages",
}
STRATEGIES: Mapping[str, str] = {
    "relevant": "message by message",
    "time_gap": "everything since the last long silence",
    "thread": "what is linked by replies",
    "recent": "the latest messages",
}

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_UNITS = (
    ("year", 365 * 86_400, 2),
    ("month", 30 * 86_400, 2),
    ("week", 7 * 86_400, 2),
    ("day", 86_400, 1),
    ("hour", 3_600, 1),
    ("minute", 60, 1),
)
_BAR = 10


@dataclass(frozen=True, slots=True)
class ChoiceReason:
    """The reasons for which a message was chosen, and its score."""

    reasons: Sequence[str]
    score: float


@dataclass(frozen=True, slots=True)
class UsedSource:
    """A memory or a note in the context of the reply."""

    id: str
    score: float
    words: str = ""


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The data of the timeline of one call."""

    conversation: Conversation
    agent_name: str
    call: Message | None
    """None for a follow-up."""
    strategy: str
    is_stored: bool
    """True if it is the stored context of the reply; False if it is what would be selected now."""
    messages: Sequence[Message]
    """Messages up to the call, oldest first; shown from the oldest chosen one on."""
    chosen: Mapping[str, ChoiceReason]
    anchor: Message | None = None
    whole_from: datetime | None = None
    """From this time on `said` is complete; before it there are only selected messages."""
    passed_over: Mapping[str, float] | None = None
    """Scores of messages that were considered and not selected."""
    reply: Message | None = None
    has_summary: bool = False
    """True if the context had a summary of earlier messages."""
    memories: Sequence[UsedSource] = ()
    notes: Sequence[UsedSource] = ()
    looked_up: Sequence[str] = ()
    """The tools that the model used to read more."""
    tools: Sequence[str] = ()
    """The tools of other programs that were used, in words."""

    def is_call(self, message: Message) -> bool:
        return self.call is not None and message.id == self.call.id


def draw(console: Console, view: TimelineView) -> None:
    """Print header, timeline, reply, other sources and legend, without control characters of messages."""
    output = _Output(console)
    _header(output, view)
    day: date | None = None
    for item in _items(view):
        if isinstance(item, Message):
            if (today := item.created_at.astimezone().date()) != day:
                day = today
                output.write("", Text(f"{item.created_at.astimezone():%a} {day.day} {day:%b %Y}", "bold"))
            _line(output, view, item)
        else:
            output.write(output.margin, Text(item, "dim"))
    if view.reply is not None:
        _reply(output, view, view.reply)
    _draw_used(output, view)
    _legend(output, view)


@dataclass(frozen=True, slots=True)
class _Output:
    """A console that indents continued lines; in a pipe lines are not wrapped."""

    console: Console

    @property
    def margin(self) -> str:
        """Return spaces as wide as the mark and the time before every message, fewer on a narrow terminal."""
        return " " * (3 if self.console.is_terminal and self.console.width < NARROW else 10)

    def write(self, lead: str | Text, body: Text, *, in_one_row: bool = False) -> None:
        lead = Text(lead) if isinstance(lead, str) else lead
        width = max(self.console.width, 12)
        if not self.console.is_terminal:
            rows: Iterable[Text] = [_join_parts(lead, body)]
        elif in_one_row:
            row = _join_parts(lead, body)
            row.truncate(width, overflow="ellipsis")
            rows = [row]
        elif width < NARROW:
            rows = _join_parts(lead, body).wrap(self.console, width)
        else:
            wrapped = body.wrap(self.console, width - lead.cell_len)
            indent = " " * lead.cell_len
            rows = [_join_parts(indent if number else lead, row) for number, row in enumerate(wrapped)]
        for row in rows:
            row.rstrip()
            self.console.print(row, soft_wrap=True)

    def skip(self) -> None:
        self.console.print()


def _header(output: _Output, view: TimelineView) -> None:
    conversation = view.conversation
    title = plain(conversation.title or "") or conversation.traits.default_title
    output.write(
        "", Text.assemble((title, "bold"), f"  {conversation.kind}, with {view.agent_name}  ", (conversation.id, "dim"))
    )
    strategy = STRATEGIES.get(view.strategy, "")
    earlier = sum("trigger" not in why.reasons for why in view.chosen.values())
    given_text = f"{_count(earlier)}{' and a summary' if view.has_summary else ''}"
    basis = "as the reply was given" if view.is_stored else "as it would be chosen now"
    output.write(
        "",
        Text.assemble(
            (plain(view.strategy), "bold cyan"), f" ({strategy}): {given_text} for {_occasion(view)}, {basis}"
        ),
    )
    if view.anchor is not None:
        anchor = view.anchor
        at = anchor.created_at.astimezone()
        quoted = f'{_speaker(view, anchor)}, {at:%a} {at.day} {at:%b %H:%M}: "{plain(words_of(anchor), limit=200)}"'
        output.write("", Text.assemble(("It is about ", ""), (quoted, "cyan")))
    output.skip()


def _occasion(view: TimelineView) -> str:
    subject = view.call or view.reply
    if subject is None:
        return "nothing"
    at = subject.created_at.astimezone()
    return f"{'the call' if view.call else 'what was said unasked'} on {at:%a} {at.day} {at:%b %Y, %H:%M %Z}"


def _items(view: TimelineView) -> Iterator[Message | str]:
    """Yield messages, and remarks between them about omitted messages and silences."""
    run: list[Message] = []
    before: Message | None = None
    for message in view.messages:
        if message.id not in view.chosen and not view.is_call(message):
            if before is not None:
                run.append(message)
            continue
        if before is not None and view.whole_from is not None and before.created_at < view.whole_from:
            yield "… others between them skipped"
        if len(run) >= FOLDED_FROM:
            yield from _silence(before, run[0])
            yield _fold_skipped(run)
            before = run[-1]
        else:
            for one in run:
                yield from _silence(before, one)
                yield one
                before = one
        run = []
        yield from _silence(before, message)
        yield message
        before = message


def _fold_skipped(run: Sequence[Message]) -> str:
    duration = run[-1].created_at - run[0].created_at
    duration_text = f" over {span(duration)}" if duration > timedelta(minutes=SESSION_GAP_MINUTES) else ""
    return f"… {len(run):,} skipped{duration_text}"


def _silence(before: Message | None, after: Message) -> Iterator[str]:
    if before is None:
        return
    gap = after.created_at - before.created_at
    if gap > timedelta(minutes=SESSION_GAP_MINUTES):
        yield f"── {span(gap)} ──"


def _line(output: _Output, view: TimelineView, message: Message) -> None:
    why, is_call = view.chosen.get(message.id), view.is_call(message)
    words = plain(words_of(message), limit=WORDS)
    if why is None and not is_call:
        score = (view.passed_over or {}).get(message.id)
        score_text = "" if score is None else f"({score:.2f}) "
        text = Text(f"{_who(view, message)}  {score_text}{words}", "dim")
        output.write(_lead(message, "·", "dim"), text, in_one_row=True)
        return
    speaker = Text(_who(view, message), "bold magenta" if message.role == "assistant" else "bold")
    output.write(
        _lead(message, *(("▶", "bold yellow") if is_call else ("●", "bold green"))), _join_parts(speaker, f"  {words}")
    )
    if is_call:
        output.write(output.margin, Text("the call", "yellow"))
    elif why is not None:
        reasons = Text(", ".join(plain(reason) for reason in why.reasons), "green")
        output.write(output.margin, _join_parts(_bar(why.score), f" {why.score:.2f} ", reasons))


def _lead(message: Message, mark: str, style: str) -> Text:
    time = f"{message.created_at.astimezone():%H:%M}"
    return Text.assemble(" ", (mark, style), " ", (f"{time}  ", style if style == "dim" else ""))


def _join_parts(*parts: Text | str) -> Text:
    return Text.assemble(*parts)


def _bar(score: float) -> Text:
    full = round(min(max(score, 0.0), 1.0) * _BAR)
    style = "green" if score >= 0.67 else "yellow" if score >= 0.33 else "red"
    return Text.assemble(("▰" * full, style), ("▱" * (_BAR - full), "dim"))


def _who(view: TimelineView, message: Message) -> str:
    """Return the speaker, and whom the message replies to."""
    label = _speaker(view, message)
    if message.reply_to_id is None:
        return f"{label} ↩ something older" if message.context_snapshot else label
    parent = next((other for other in view.messages if other.id == message.reply_to_id), None)
    if parent is None and view.anchor is not None and view.anchor.id == message.reply_to_id:
        parent = view.anchor
    if parent is None:
        return f"{label} ↩ something older"
    at = parent.created_at.astimezone()
    is_same_day = at.date() == message.created_at.astimezone().date()
    return f"{label} ↩ {_speaker(view, parent)}, {at:%H:%M}" + ("" if is_same_day else f" on {at.day} {at:%b}")


def _speaker(view: TimelineView, message: Message) -> str:
    if message.role == "assistant":
        return f"◆ {view.agent_name}"
    name = plain(message.author.name.replace("◆", ""), limit=40) if message.author else ""
    return (name or "somebody") + (" (a bot)" if message.is_bot else "")


def _reply(output: _Output, view: TimelineView, reply: Message) -> None:
    speaker = Text(_speaker(view, reply), "bold magenta")
    words = plain(words_of(reply), limit=WORDS_OF_REPLY)
    output.write(_lead(reply, "◀", "bold magenta"), _join_parts(speaker, f"  {words}"))
    if not view.is_stored:
        output.write(output.margin, Text("said then, and made from what was chosen then", "dim"))


def _draw_used(output: _Output, view: TimelineView) -> None:
    for name, items in (("Memories", view.memories), ("Notes", view.notes)):
        if items:
            output.skip()
            output.write("", Text(name, "bold"))
        for item in items:
            output.write(
                Text.assemble(" ", _bar(item.score), f" {item.score:.2f} "),
                Text.assemble((plain(item.id), "blue"), f"  {plain(item.words)}"),
                in_one_row=True,
            )
    if view.looked_up:
        output.skip()
        output.write("", Text(f"The model looked further by itself: {plain(', '.join(view.looked_up))}."))
    if view.tools:
        output.skip()
        output.write("", Text("Tools", "bold"))
    for tool in view.tools:
        output.write(" ", Text(plain(tool)))


def _legend(output: _Output, view: TimelineView) -> None:
    shown_reasons = {reason for why in view.chosen.values() for reason in why.reasons}
    told_reasons = [
        (reason, words) for reason, words in REASONS.items() if reason in shown_reasons and reason != "trigger"
    ]
    if told_reasons:
        output.skip()
    for reason, words in told_reasons:
        output.write(Text(f"{reason:<12}", "green"), Text(words, "dim"))


def plain(text: str, *, limit: int = 200) -> str:
    """Return another person's text as one line without control characters."""
    return fit_on_one_line(text.encode(errors="replace").decode(), limit=limit)


def words_of(message: Message) -> str:
    """Return the text of a message, with pictures as placeholders."""
    if isinstance(message.content, str):
        return message.content
    return " ".join(
        str(block.get("text", "")) if block.get("type") == "text" else "[image]" for block in message.content
    )


def span(lasted: timedelta) -> str:
    """Return a duration in words: `two days`."""
    seconds = lasted.total_seconds()
    for name, length, least in _UNITS:
        count = round(seconds / length)
        if count >= least and seconds >= length * least * 0.9:
            number = _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"
            return f"{number} {name}{'' if count == 1 else 's'}"
    return "a moment"


def _count(earlier: int) -> str:
    return f"{earlier:,} earlier {'message' if earlier == 1 else 'messages'}"
