"""Decide whether the text at one position begins machinery: a call, a thought or a special token.

Each function looks at the text from a position on and returns a step, or None while more text may change the decision. More
text never changes a step: that is why the result does not depend on how a reply is cut into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import regex

from rapport.replies import machinery_forms as forms
from rapport.replies.written_calls import (
    CALL_KEYS,
    NAME_KEYS,
    OfferedTools,
    WrittenCall,
    find_value_end,
    is_any_call,
    read_calls,
    read_json_calls,
    read_only_calls,
    read_python_call,
    read_value,
    strip_prefix,
)

MAX_HELD_CHARACTERS: Final = 4_000
"""The text that is held back while it may be a call. A longer one is a call if it names a tool, and ordinary text if not."""
MAX_SENTENCE_CHARACTERS: Final = 300
MAX_INLINE_CODE_CHARACTERS: Final = 200
MAX_GAP_CHARACTERS: Final = 80
"""The text between a recipient and its arguments."""

# At most 80 brackets: without a limit, a reply of nothing but brackets is held to its end and takes the square of its length.
_FIRST_FIELD = re.compile(r"[\[\s]{0,80}+\{\s*+[\"']?(\w+)[\"']?\s*+:\s*+(?:[\"']([^\"'\n]{0,80}+)[\"']|([^\s\"']))")
_UNFINISHED_FIELD = re.compile(
    r"[\[\s]{0,80}+(?:\{\s*+(?:[\"']?(\w{0,40}+)(?:([\"'\s:])\s*+:?\s*+(?:[\"']([^\"'\n]{0,80}+))?)?)?)?\Z"
)
_CALL_TYPES: Final = frozenset({"function", "tool_use", "tool_call", "function_call"})
_SENTENCE_END = re.compile(r"[.!?:…](?=\s)|\n|(?=[{<])|(?=\[\{)")
_LINE_END = re.compile(r"\n")
_FENCE = re.compile(r"(`{3,}+|~{3,}+)([^\n`]{0,60}+)\n")
_UNFINISHED_FENCE = re.compile(r"(?:`{3,}+|~{3,}+)[^\n`]{0,60}+\Z")
_BACKTICKS = re.compile(r"`++")
_REST_OF_LINE = re.compile(r"[ \t;`.]*+(\n|\Z)")
_ACTION = re.compile(r"Action:[ \t]*[`\"']?([\w.]+)[^\n]{0,20}\n", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_ENDS_ACTION = re.compile(r"\n(?=Observation:|Thought:|Final Answer:)|\n\n", re.IGNORECASE)

# A reply that is nothing but an empty value or a call is machinery, whatever the call's name: models call tools that nobody offered.
_EMPTY_VALUE = re.compile(r"\{\s{0,9}\}|\[\s{0,9}\]")
_WHOLE_FENCE = re.compile(r"```[ \t]{0,3}(?:json|tool_call|text)?[ \t]{0,3}\n\s{0,9}(?=[{\[])")
_WHOLE_FENCE_END = re.compile(r"\s{0,9}```\s{0,99}\Z")
_UNFINISHED_WHOLE = regex.compile(
    r"(?:```[ \t]{0,3}(?:json|tool_call|text)?[ \t]{0,3}\n\s{0,9})?(?:[{\[]\s{0,9}.)?", regex.DOTALL
)

Action = Literal["pass", "cut", "hold", "block", "code"]


@dataclass(frozen=True, slots=True)
class Step:
    """Say how to treat the first `length` characters: show them, cut them out, hold them back, or begin a block."""

    action: Action
    length: int
    calls: Sequence[WrittenCall] = ()
    mark: forms.Mark | None = None
    fence: str = ""
    is_call: bool = False


def cut_call(length: int, calls: Sequence[WrittenCall] = ()) -> Step:
    return Step("cut", length, calls, is_call=True)


PASS_ONE: Final = Step("pass", 1)


@dataclass(frozen=True)
class Decider:
    """Decides about text, for a set of offered tools."""

    tools: OfferedTools

    @cached_property
    def _line_words(self) -> tuple[str, ...]:
        prefixes = ("", "functions.", "default_api.", "print(", "print(default_api.", "call:", "tools.")
        words = [prefix + name for prefix in prefixes for name in self.tools.names]
        return (*words, "Action: ", "functools[", "Observation:", "Final Answer:")

    @cached_property
    def _line_call(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, self.tools.names)) or r"(?!)"
        return re.compile(
            rf"(?:print\()?(?:functions\.|default_api\.|call:|tools\.)?({names})"
            r"(?:(?=\()|(?::\d{1,3})?(?:<\|tool_call_argument_begin\|>)?\s{0,3}(?=\{))"
        )

    @cached_property
    def _python_list(self) -> re.Pattern[str]:
        return re.compile(rf"\[\s{{0,3}}(?:{'|'.join(map(re.escape, self.tools.names)) or '(?!)'})\(")

    # ---- whole replies

    def decide_whole(self, text: str, *, is_end: bool) -> bool | None:
        """Return True if the reply is nothing but an empty value or a call, of any tool; None if more text may make it one."""
        if text[:1] not in ("{", "[", "`"):
            return False
        fence = _WHOLE_FENCE.match(text)
        start = fence.end() if fence else 0
        if text[start] == "`":
            return None if not is_end and _UNFINISHED_WHOLE.fullmatch(text, partial=True) else False
        empty = _EMPTY_VALUE.match(text, start)
        end = empty.end() if empty else self._find_whole_end(text, start, is_end=is_end)
        if not end:
            return None if end is None else False
        rest = text[end:]
        if rest.strip() and not (fence and ("```".startswith(rest.strip()) or _WHOLE_FENCE_END.match(rest))):
            return False
        if not is_end:
            return None
        return empty is not None or is_any_call(read_value(text[start:end]))

    def _find_whole_end(self, text: str, start: int, *, is_end: bool) -> int | None:
        """Return the end of a value that may be a call; 0 if it is none, None if more text is needed."""
        first = _FIRST_FIELD.match(text, start)
        if first is None:
            is_begun = not is_end and len(text) - start < MAX_INLINE_CODE_CHARACTERS
            return None if is_begun and _UNFINISHED_FIELD.match(text, start) else 0
        if first[1] not in CALL_KEYS:
            return 0
        end = find_value_end(text, start)
        if end is None and not is_end and len(text) <= MAX_HELD_CHARACTERS:
            return None
        return end or 0

    # ---- marks

    def decide_mark(self, text: str, *, is_end: bool) -> Step | None:
        """Decide about a tag or a token."""
        if not is_end and forms.may_become_longer_mark(text):
            return None
        mark = forms.find_mark(text)
        if mark is None:
            return PASS_ONE
        return Step("block" if mark.closer else "cut", len(mark.text), mark=mark)

    # ---- JSON and lists of calls

    def decide_value(self, text: str, *, is_end: bool) -> Step | None:
        """Decide about a JSON value, or a list of Python-like calls."""
        if self._python_list.match(text):
            return self._finish_value(text, 0, is_end=is_end)
        first = _FIRST_FIELD.match(text)
        if first is None:
            return self._decide_unfinished_field(text, is_end=is_end)
        key, value = first[1], first[2]
        if key not in CALL_KEYS and key not in self.tools.parameters:
            return PASS_ONE
        if key in NAME_KEYS and value is not None and strip_prefix(value) not in self.tools.parameters:
            return PASS_ONE
        if key == "type" and value not in _CALL_TYPES:
            return PASS_ONE
        return self._finish_value(text, 0, is_end=is_end)

    def _decide_unfinished_field(self, text: str, *, is_end: bool) -> Step | None:
        begun = _UNFINISHED_FIELD.match(text)
        if begun is None:
            return None if not is_end and self._may_become_list(text) else PASS_ONE
        key, after_key, value = begun[1] or "", begun[2], begun[3] or ""
        known = (*CALL_KEYS, *self.tools.names)
        if (after_key and key not in known) or not any(word.startswith(key) for word in known):
            return PASS_ONE
        if not is_end:
            return None
        is_cut_off = len(value) > 2 and any(name.startswith(strip_prefix(value)) for name in self.tools.names)
        return cut_call(len(text)) if is_cut_off and key in NAME_KEYS else PASS_ONE

    def _may_become_list(self, text: str) -> bool:
        rest = text[1:].lstrip()
        return len(text) < MAX_INLINE_CODE_CHARACTERS and any(f"{name}(".startswith(rest) for name in self.tools.names)

    def _finish_value(self, text: str, start: int, *, is_end: bool) -> Step | None:
        """Decide about a value that looks like a call: it is one if it is complete and has the form, or names a tool."""
        end = find_value_end(text, start)
        if end is None:
            if not is_end and len(text) <= MAX_HELD_CHARACTERS:
                return None
            if not self.tools.mention.search(text):
                return PASS_ONE
            if is_end:
                return cut_call(len(text))
            return Step("block", len(text), mark=forms.Mark("call", text, _BLANK_LINE), is_call=True)
        value = read_value(text[start:end])
        calls = read_calls(text[:end], self.tools) if value is None or start else read_json_calls(value, self.tools)
        if calls or (value is None and self.tools.mention.search(text, 0, end)):
            return cut_call(end, calls)
        return PASS_ONE

    # ---- code

    def decide_fence(self, text: str, *, is_end: bool) -> Step | None:
        """Decide about a code block: it is cut out if it holds nothing but calls that fit their tools."""
        opening = _FENCE.match(text)
        if opening is None:
            return None if not is_end and _UNFINISHED_FENCE.match(text) else PASS_ONE
        fence, language = opening[1], opening[2].strip().lower()
        closer = re.compile(rf"(?:^|\n)[ \t]{{0,3}}{fence}")
        code = Step("code", opening.end(), fence=fence)
        if language in forms.CALL_LANGUAGES:
            return Step("block", opening.end(), mark=forms.Mark("call", opening.group(), closer), is_call=True)
        body = text[opening.end() :]
        if language not in forms.DATA_LANGUAGES:
            return code
        begins = self._begins_call(body.lstrip(), is_end=is_end)
        if not begins:
            return code if begins is False else None
        closing = closer.search(body)
        if closing:
            calls = read_only_calls(body[: closing.start()], self.tools)
            fits = calls and all(self.tools.accept(call) for call in calls)
            return cut_call(opening.end() + closing.end(), calls) if fits else code
        if is_end:
            return cut_call(len(text)) if self.tools.mention.search(body) else code
        if len(text) <= MAX_HELD_CHARACTERS:
            return None
        if not self.tools.mention.search(body, 0, MAX_SENTENCE_CHARACTERS):
            return code
        return Step("block", len(text), mark=forms.Mark("call", text, closer), is_call=True)

    def _begins_call(self, body: str, *, is_end: bool) -> bool | None:
        """Return whether code begins like a call; None if more text is needed."""
        if not body:
            return False if is_end else None
        if body[0] in "{[":
            step = self.decide_value(body, is_end=is_end)
            # An unfinished value is held back only once it is known to begin like a call.
            is_begun = _FIRST_FIELD.match(body) or self._python_list.match(body)
            return (True if is_begun else None) if step is None else step.action != "pass"
        if body[0] == "<":
            step = self.decide_mark(body, is_end=is_end)
            return None if step is None else step.mark is not None and step.mark.kind == "call"
        if self._line_call.match(body):
            return True
        return None if not is_end and self._may_become_line_call(body) else False

    def decide_inline_code(self, text: str, *, at_line_start: bool, is_end: bool) -> Step | None:
        """Decide about code between backticks: it is shown whole, unless it is a call."""
        opening = _BACKTICKS.match(text)
        assert opening is not None
        run = opening.group()
        line_end = text.find("\n", 0, MAX_INLINE_CODE_CHARACTERS)
        end = line_end if line_end >= 0 else MAX_INLINE_CODE_CHARACTERS
        closing = text.find(run, len(run), end)
        if closing < 0:
            return None if not is_end and len(text) < end else Step("pass", len(run))
        code, end = text[len(run) : closing], closing + len(run)
        if code[:1] in ("{", "[") and (calls := read_json_calls(read_value(code), self.tools)):
            return cut_call(end, calls)
        call = read_python_call(code, self.tools) if at_line_start and self._line_call.match(code) else None
        if call is None:
            return Step("pass", end)
        rest = _REST_OF_LINE.match(text, end)
        if rest is None:
            return Step("pass", end)
        return cut_call(rest.start(1), [call]) if rest[1] or is_end else None

    # ---- words

    def decide_line(self, text: str, *, after_call: bool, is_end: bool) -> Step | None:
        """Decide about the words that a line begins with; a step of length 0 says that they begin no machinery."""
        if match := self._line_call.match(text):
            return self._decide_line_call(text, match.end(), is_end=is_end)
        if (match := _ACTION.match(text)) and strip_prefix(match[1]) in self.tools.parameters:
            mark = forms.Mark("call", match.group(), _ENDS_ACTION)
            return Step("block", match.end() - 1, mark=mark, is_call=True)
        if text.startswith("functools["):
            return self._finish_value(text, len("functools"), is_end=is_end)
        if after_call and text.startswith("Observation:"):
            end = text.find("\n")
            return cut_call(end if end >= 0 else len(text)) if end >= 0 or is_end else None
        if after_call and text.startswith("Final Answer:"):
            return cut_call(len("Final Answer:"))
        if not is_end and (self._may_become_line_call(text) or (text.startswith("Action:") and "\n" not in text[:80])):
            return None
        return Step("pass", 0)

    def _may_become_line_call(self, text: str) -> bool:
        return any(word.startswith(text[: len(word)]) and len(text) < len(word) + 4 for word in self._line_words)

    def _decide_line_call(self, text: str, start: int, *, is_end: bool) -> Step | None:
        """Decide about a tool's name before `(` or `{`. A Python-like call must be alone on its line."""
        is_python = text[start] == "("
        opening = text.index("(") if is_python else start
        end = find_value_end(text, opening)
        if end is None:
            return self._finish_value(text, opening, is_end=is_end)
        calls = read_calls(text[:end], self.tools)
        if not is_python:
            return cut_call(end, calls)
        rest = _REST_OF_LINE.match(text, end)
        if rest is None:
            return PASS_ONE
        return cut_call(rest.start(1), calls) if rest[1] or is_end else None

    def decide_recipient(self, text: str, *, is_end: bool) -> Step | None:
        """Decide about `to=functions.name` and the arguments after it."""
        words = [f"to=functions.{name}" for name in self.tools.names]
        found = next((word for word in words if text.startswith(word)), None)
        if found is None:
            return None if not is_end and any(word.startswith(text) for word in words) else PASS_ONE
        opening = text.find("{", len(found), len(found) + MAX_GAP_CHARACTERS)
        if opening >= 0:
            return self._finish_value(text, opening, is_end=is_end)
        return cut_call(len(found)) if is_end or len(text) > len(found) + MAX_GAP_CHARACTERS else None

    def decide_sentence(self, text: str, *, after_call: bool, is_end: bool) -> Step | None:
        """Decide about a sentence that may introduce a call, or that follows one; length 0 if it does neither."""
        lowered = text[:40].lower()
        if not after_call and not lowered.startswith(tuple(forms.INTRODUCTIONS)):
            may_follow = not is_end and any(words.startswith(lowered) for words in forms.INTRODUCTIONS)
            return None if may_follow else Step("pass", 0)
        ending = _LINE_END if lowered.startswith("thought:") else _SENTENCE_END
        end = ending.search(text, 1, MAX_SENTENCE_CHARACTERS + 1)
        if end is None and not is_end and len(text) <= MAX_SENTENCE_CHARACTERS:
            return None
        sentence = text[: end.end()] if end else text
        talks = forms.TALKS_OF_CALLS.search(sentence)
        leads_to_call = talks and (after_call or sentence.rstrip().endswith(":") or ending is _LINE_END)
        if not (leads_to_call or self.tools.mention.search(sentence)) or (end is None and not is_end):
            return Step("pass", 0)
        return Step("cut" if after_call else "hold", len(sentence))
