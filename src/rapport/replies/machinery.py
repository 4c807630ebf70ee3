"""Cut machinery out of a model's reply: tool calls written as text, thoughts and special tokens.

`MachineryFilter` reads a reply in pieces of any size and gives the same result for every cutting. It releases ordinary text at
once, and holds text back only while it may be the beginning of machinery. `machinery_decisions.py` decides about one position,
`machinery_forms.py` lists the forms, and `written_calls.py` reads the calls, so that the caller can execute them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from rapport.replies import machinery_forms as forms
from rapport.replies.echoes import cut_echoes
from rapport.replies.leading_thought import LeadingThought
from rapport.replies.machinery_decisions import MAX_HELD_CHARACTERS, Decider, Step
from rapport.replies.written_calls import (
    MAX_PARSED_CHARACTERS,
    OfferedTools,
    WrittenCall,
    find_value_end,
    read_calls,
)

MAX_LEADING_THOUGHT_CHARACTERS: Final = 2_000
"""A reply that begins like a thought is held back for this long, because some servers leave out the tag that begins it."""
MAX_HEADER_CHARACTERS: Final = 200
PIECE_CHARACTERS: Final = 1_000
_SHORT: Final = 400
"""Held text that is shorter than this is looked at again with each piece; longer text when a piece may decide about it."""
_DECIDES: Final = frozenset("}])>`\n▷")
_MAYBE = re.compile(r"[<\[{`~◁]|(?<=\n).|(?<=[.!?:…][ \n])\S|(?<!\w)t(?=o=|o?\Z)", re.DOTALL)
_SIGN = re.compile(
    r"[<\[{`~◁(]|to=|Action:|\A\s{0,99}(?:analysis|commentary|(?i:assistant):)"
    r"|>>>|— end of note|quoted as data"
)
"""Text without any of these has no machinery: a mark, a call's arguments or recipient, the name of a channel, an echo."""
_MAYBE_FENCE_END = re.compile(r"(?<=\n)[ \t`~]")
_LEAD = re.compile(r"[ \t>*-]{0,8}+")
_VALUE = re.compile(r"\[(?![A-Z_]+\])|[{(]")
_TAIL_CHARACTERS: Final = 4


@dataclass(frozen=True, slots=True)
class Visible:
    """The part of a reply that a person may see, and the calls that were written in it."""

    text: str
    calls: tuple[WrittenCall, ...] = ()
    began_in_thought: bool = False
    """True if the model ended a thought that it had not begun: its server's template had, outside of the reply."""


def cut_machinery(text: str, tools: OfferedTools, *, begins_in_thought: bool = False) -> Visible:
    """Return the reply without machinery, and the calls that could be read in it.

    Text without machinery is returned unchanged. If no visible text is left, the model has answered a tool offer with a call
    and nothing else: the caller executes the calls, or asks again without tools; it must not show an empty reply.
    `begins_in_thought` says that this model does so: whatever it wrote before the closing tag is cut out unread.
    """
    if _SIGN.search(text) is None:
        return Visible(text)
    reply = MachineryFilter(tools, begins_in_thought=begins_in_thought)
    parts = [reply.feed(text[start : start + PIECE_CHARACTERS]) for start in range(0, len(text), PIECE_CHARACTERS)]
    visible = "".join([*parts, reply.finish()])
    visible = visible[reply.thought_end :].lstrip() if reply.thought_end else visible
    return Visible(cut_echoes(visible), tuple(reply.calls), reply.began_in_thought)


@dataclass(slots=True)
class _Block:
    """Text that is cut out until its closing mark."""

    mark: forms.Mark
    is_call: bool
    body: list[str] = field(default_factory=list[str])
    length: int = 0

    def add(self, text: str) -> None:
        self.length += len(text)
        if self.length <= MAX_PARSED_CHARACTERS:
            self.body.append(text)


class MachineryFilter:
    """Cuts machinery out of a reply that arrives in pieces. Shown text is never withdrawn."""

    def __init__(self, tools: OfferedTools, *, begins_in_thought: bool = False) -> None:
        self._decider = Decider(tools)
        self._tools = tools
        self._leading = LeadingThought() if begins_in_thought else None
        self._buffer = ""
        self._tail: str = "\n"  # the end of the text before the buffer
        self._space: str = ""  # whitespace that is shown with the next text
        self._held = ""  # sentences that are cut out if a call follows
        self._block: _Block | None = None
        self._fence = ""  # what ends the code block that is shown
        self._is_at_start = True
        self._after_call = False
        self._after_cut = False
        self._takes_role = False
        self._has_strike = False
        self._is_over = False
        self._shown = 0
        self.calls: list[WrittenCall] = []
        self.thought_end = 0
        """The number of shown characters that turned out to be a thought, because only its closing tag was written."""
        self.began_in_thought = False
        """True once a thought was closed that nothing in the reply had begun."""

    def feed(self, piece: str) -> str:
        """Read the next piece and return the text that may be shown now."""
        return self._read(self._leading.feed(piece) if self._leading else piece)

    def _read(self, piece: str) -> str:
        if self._is_over or not piece:
            return ""
        if not self._buffer and self._is_ordinary(piece):
            return self._show(piece)
        self._buffer += piece
        is_undecided = self._block is None and _SHORT < len(self._buffer) <= MAX_HELD_CHARACTERS
        if is_undecided and len(piece) < _SHORT and _DECIDES.isdisjoint(piece):
            return ""
        return self._drain(is_end=False)

    def finish(self) -> str:
        """Return the rest of the text. Call it once, at the end."""
        shown = self._read(self._leading.finish()) if self._leading else ""
        shown += self._drain(is_end=True)
        if self._held:
            shown += self._show(self._held)
        if not self._after_cut:
            shown += self._space
        return shown

    def _is_ordinary(self, piece: str) -> bool:
        """Return True if nothing in the piece may begin machinery."""
        if self._block or self._held or self._after_cut or self._after_call or self._is_at_start:
            return False
        maybe = _MAYBE_FENCE_END if self._fence else _MAYBE
        return maybe.search(self._tail + piece, len(self._tail)) is None

    def _show(self, text: str) -> str:
        """Return text to show; whitespace at its end waits for the next text."""
        self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
        text = self._space + text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        self._shown += len(shown)
        return shown

    def _drain(self, *, is_end: bool) -> str:
        parts: list[str] = []
        while self._buffer and not self._is_over:
            if self._block is not None:
                if not self._skip_block(self._block, is_end=is_end):
                    break
                continue
            if self._after_cut and not self._close_gap():
                break
            start = self._find_start()
            step = Step("pass", start) if start else self._decide(is_end=is_end)
            if step is None:
                break
            parts.append(self._apply(step))
        return "".join(parts)

    def _find_start(self) -> int:
        """Return the position of the next text that may begin machinery."""
        if self._is_at_start or self._takes_role or (self._after_call and not self._fence):
            return 0
        maybe = _MAYBE_FENCE_END if self._fence else _MAYBE
        match = maybe.search(self._tail + self._buffer, len(self._tail))
        return match.start() - len(self._tail) if match else len(self._buffer)

    def _close_gap(self) -> bool:
        """Join the whitespace around a cut; return False if there may be more of it."""
        rest = self._buffer.lstrip()
        self._space += self._buffer[: len(self._buffer) - len(rest)]
        self._buffer = rest
        if not rest:
            return False
        breaks = self._space.count("\n")
        self._space = "" if not self._shown else "\n" * min(breaks, 2) if breaks else self._space[:1]
        self._tail = "\n" if breaks or not self._shown else self._tail.rstrip() + self._space
        self._after_cut = False
        return True

    # ---- decisions

    def _decide(self, *, is_end: bool) -> Step | None:
        text = self._buffer
        if self._takes_role:
            return self._decide_role(text, is_end=is_end)
        if self._fence:
            return self._decide_fence_end(text, is_end=is_end)
        if self._is_at_start and (step := self._decide_start(text, is_end=is_end)) is not _GO_ON:
            return step
        if not self._shown and not self._held:
            is_whole = self._decider.decide_whole(text.lstrip(), is_end=is_end)
            if is_whole is not False:
                return Step("cut", len(text), read_calls(text, self._tools), is_call=True) if is_whole else None
        at_line_start = self._tail.endswith("\n")
        lead = _LEAD.match(text) if at_line_start else None
        skipped = lead.end() if lead else 0
        rest = text[skipped:]
        if not rest:
            return Step("pass", len(text)) if is_end or skipped == 8 else None
        step = self._decide_at(rest, at_line_start=at_line_start, is_end=is_end)
        if step is None:
            return None
        return Step(step.action, max(step.length, 1) + skipped, step.calls, step.mark, step.fence, step.is_call)

    def _decide_at(self, text: str, *, at_line_start: bool, is_end: bool) -> Step | None:
        """Decide about text by its first character."""
        decider, first = self._decider, text[0]
        if first in "`~":
            if at_line_start and (text[:3] in ("```", "~~~") or (not is_end and text in ("`", "``", "~", "~~"))):
                return decider.decide_fence(text, is_end=is_end) if len(text) > 2 else None
            is_run = not text.strip("`")  # the run of backticks may become longer
            if first == "~" or (is_run and is_end):
                return Step("pass", len(text) if is_run else 1)
            return None if is_run else decider.decide_inline_code(text, at_line_start=at_line_start, is_end=is_end)
        if first in "<[◁":
            step = decider.decide_mark(text, is_end=is_end)
            if step is None or step.action != "pass" or first != "[":
                return step
        if first in "{[":
            return decider.decide_value(text, is_end=is_end)
        return self._decide_words(text, at_line_start=at_line_start, is_end=is_end)

    def _decide_words(self, text: str, *, at_line_start: bool, is_end: bool) -> Step | None:
        if text[0] == "t":
            step = self._decider.decide_recipient(text, is_end=is_end)
            if step is None or step.action != "pass":
                return step
        if at_line_start:
            after_call = self._after_call or bool(self._held)
            step = self._decider.decide_line(text, after_call=after_call, is_end=is_end)
            if step is None or step.length:
                return step
        if at_line_start or self._after_call or self._tail[-2:].strip() in tuple(".!?:…"):
            return self._decider.decide_sentence(text, after_call=self._after_call, is_end=is_end)
        return Step("pass", 1)

    def _decide_start(self, text: str, *, is_end: bool) -> Step | None:
        """Decide about the start of the reply: it may be a thought whose opening tag is missing, or the label of a role."""
        stripped = text.lstrip()
        if not is_end and forms.may_become_opening(stripped):
            return None
        if named := forms.CHANNEL_NAMES_AS_TEXT.match(stripped):
            self._is_at_start = False
            mark = forms.Mark("thought", named.group(), forms.FINAL_CHANNEL_AS_TEXT)
            return Step("block", len(text) - len(stripped) + named.end(), mark=mark, is_call=True)
        if forms.STARTS_IN_THOUGHT.match(stripped):
            if closing := forms.CLOSES_THOUGHT.search(text):
                self.began_in_thought = forms.OPENS_THOUGHT.search(text, 0, closing.start()) is None
                return Step("cut", closing.end())
            if not is_end and len(text) <= MAX_LEADING_THOUGHT_CHARACTERS:
                return None
        self._is_at_start = False
        if label := forms.ROLE_LABEL.match(stripped):
            return Step("cut", len(text) - len(stripped) + label.end())
        return _GO_ON

    def _decide_role(self, text: str, *, is_end: bool) -> Step | None:
        """Cut out the name of the role after a token that begins a turn."""
        if "\n" not in text and len(text) < MAX_HEADER_CHARACTERS and not is_end and not text.rstrip().endswith("|>"):
            return None
        self._takes_role = False
        match = forms.ROLE.match(text)
        return Step("cut", match.end() if match else 0)

    def _decide_fence_end(self, text: str, *, is_end: bool) -> Step | None:
        """Show code as it is, and notice the line that ends it."""
        stripped = text.lstrip(" \t")
        skipped = len(text) - len(stripped)
        if stripped.startswith(self._fence):
            length, self._fence = skipped + len(self._fence), ""
            return Step("pass", length)
        if not is_end and skipped <= 3 and self._fence.startswith(stripped):
            return None
        return Step("pass", max(skipped, 1))

    # ---- steps

    def _apply(self, step: Step) -> str:
        """Carry out a step; return the text to show."""
        self._is_at_start = self._is_at_start and step.action == "block"
        text, self._buffer = self._buffer[: step.length], self._buffer[step.length :]
        if step.action == "hold":
            self._held += text
            self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
            return ""
        if step.action in ("pass", "code"):
            return self._pass(text, step)
        self._is_at_start = False
        mark = step.mark
        if mark is None or step.action == "block":
            if mark is not None:
                self._block = _Block(mark, step.is_call or mark.kind == "call", [text], len(text))
            self._cut(step)
            return ""
        return self._cut_token(mark, text)

    def _pass(self, text: str, step: Step) -> str:
        self._fence = step.fence or self._fence
        if self._held and not text.strip():
            self._held += text
            self._tail = (self._tail + text)[-_TAIL_CHARACTERS:]
            return ""
        held, self._held, self._after_call = self._held, "", False
        return self._show(held + text)

    def _cut(self, step: Step) -> None:
        self._after_cut = True
        if step.is_call or (step.mark is not None and step.mark.kind == "call"):
            self._held, self._after_call = "", True
        self.calls += step.calls

    def _cut_token(self, mark: forms.Mark, text: str) -> str:
        """Cut out a single token. One that ends a turn ends the reply; a closing tag of a thought says that it was one."""
        if mark.text in ("<s>", "</s>") and (self._has_strike or (mark.text == "<s>" and self._shown)):
            self._has_strike = mark.text == "<s>"  # HTML: struck-out text
            return self._show(text)
        self._after_cut = True
        if mark.kind == "thought":
            self.began_in_thought = True
            self.thought_end = self._shown
            self._held, self._space = "", "\n\n" if self._shown else ""
        elif (mark.kind == "end" or mark.text == "</s>") and (self._shown or self._held):
            self._is_over, self._buffer = True, ""
        self._takes_role = mark.text in forms.TAKES_ROLE
        return ""

    # ---- blocks

    def _skip_block(self, block: _Block, *, is_end: bool) -> bool:
        """Skip to the end of the block; return False if all text is read."""
        assert block.mark.closer is not None
        closing = block.mark.closer.search(self._buffer)
        is_header = block.mark.kind == "channel"
        if closing and not (is_header and block.length + closing.start() > MAX_HEADER_CHARACTERS):
            block.add(self._buffer[: closing.start()])
            self._buffer = self._buffer[closing.end() :]
            self._end_block(block, closing.group())
            return True
        split = len(self._buffer) if is_end else max(len(self._buffer) - forms.MAX_CLOSER_CHARACTERS, 0)
        block.add(self._buffer[:split])
        self._buffer = self._buffer[split:]
        if is_header and block.length > MAX_HEADER_CHARACTERS:
            self._block, self._buffer = None, "".join(block.body)[len(block.mark.text) :] + self._buffer
            return True
        if is_end:
            self._end_unfinished(block)
            return bool(self._buffer)
        return False

    def _end_block(self, block: _Block, closing: str) -> None:
        self._block, self._after_cut = None, True
        text = "".join(block.body)
        if block.mark.kind == "channel":
            self._begin_channel(text)
        elif block.is_call:
            self._after_call = True
            self.calls += read_calls(text, self._tools)
        if closing in ("<|channel|>", "<|start|>"):
            self._buffer = closing + self._buffer

    def _begin_channel(self, header: str) -> None:
        """Read the header of a channel: only the final one, and a message without a channel, are shown."""
        if "final" in header or "<|channel|>" not in header:
            return
        mark = forms.Mark("thought", header, forms.ENDS_CHANNEL)
        self._block = _Block(mark, "to=" in header, [header], len(header))

    def _end_unfinished(self, block: _Block) -> None:
        """End a block that has no closing mark. Text after a complete call is shown."""
        self._block, self._after_cut = None, True
        if not block.is_call or block.length > MAX_PARSED_CHARACTERS:
            return
        text = "".join(block.body)
        self._after_call = True
        self.calls += read_calls(text, self._tools)
        value = _VALUE.search(text, len(block.mark.text))
        end = find_value_end(text, value.end() - 1) if value else None
        if end is not None and self.calls:
            self._buffer = text[end:]


_GO_ON: Final = Step("pass", -1)
