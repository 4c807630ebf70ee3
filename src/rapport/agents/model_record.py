"""Record what a model has been seen to do, and decide by it what is asked of the model (ADR 63)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_COUNTS = (
    "tool_calls",
    "text_calls",
    "follow_ups",
    "answered_triggers",
    "refused_pictures",
    "bare_closings",
    "answers_since",
    "plain_triggers",
)
ANSWERS_TO_FORGET_THOUGHTS = 20
"""After this many answers without one, a model is no longer expected to end thoughts that it has not begun."""

PLAIN_TRIGGERS_BEFORE_RETRY = 10
"""After this many plain triggers the agent's own one is tried again: the model, or the agent's prompt, may be another by now."""


@dataclass(slots=True)
class ModelRecord:
    """Counts of what a model has done. A server learns them from the turns it runs: no call is made only to find out."""

    tool_calls: int = 0
    """Answers with a tool call in the provider's form."""
    text_calls: int = 0
    """Answers with a tool call written as text."""
    follow_ups: int = 0
    """Triggers on which it wrote to the person."""
    answered_triggers: int = 0
    """Triggers that it answered as if the person had said them."""
    refused_pictures: int = 0
    """Prompts that it took only without their pictures."""
    bare_closings: int = 0
    """Answers that ended a thought which they had not begun: the server's template begins it."""
    answers_since: int = 0
    """Answers without that, since the last one with it."""
    plain_triggers: int = 0
    """Triggers that were written plainly, since the usual one was last tried."""
    _stored: tuple[bool, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._stored = self.conclusions

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> ModelRecord:
        """Return the record with these facts; facts that it does not know are left out."""
        return cls(**{name: int(facts[name]) for name in _COUNTS if name in facts})

    @property
    def facts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _COUNTS}

    @property
    def may_have_tools(self) -> bool:
        """Return False if the model writes tool calls as text: then it is offered no tools."""
        return self.text_calls <= self.tool_calls

    @property
    def has_called_tools(self) -> bool:
        """Return True if the model decides by tools what to remember and when to follow up; otherwise rules do."""
        return self.tool_calls > 0

    @property
    def needs_plain_trigger(self) -> bool:
        """Return True if the model answers more than every fourth trigger as if the person had said it, or can't call tools."""
        return not self.may_have_tools or 3 * self.answered_triggers > self.follow_ups

    @property
    def takes_pictures(self) -> bool:
        return self.refused_pictures == 0

    @property
    def begins_in_thought(self) -> bool:
        """Return True if the beginning of its answers is held back, because it may be a thought (ADR 99)."""
        return self.bare_closings > 0 and self.answers_since < ANSWERS_TO_FORGET_THOUGHTS

    def has_news(self) -> bool:
        """Return True once after what is concluded from the counts has changed: then the record is stored."""
        changed = self._stored != self.conclusions
        self._stored = self.conclusions
        return changed

    @property
    def conclusions(self) -> tuple[bool, ...]:
        """Return what decides about prompts."""
        return (
            self.may_have_tools,
            self.has_called_tools,
            self.needs_plain_trigger,
            self.takes_pictures,
            self.begins_in_thought,
        )

    def count_beginning(self, *, was_thought: bool) -> None:
        """Count an answer with text by whether it began inside a thought."""
        if was_thought:
            self.bare_closings, self.answers_since = self.bare_closings + 1, 0
        elif self.bare_closings:
            self.answers_since += 1

    def count_trigger(self, *, was_answered: bool) -> None:
        """Count a usual trigger that the model answered as if the person had said it, or on which it wrote to the person."""
        if was_answered:
            self.answered_triggers += 1
        else:
            self.follow_ups += 1

    def count_plain_trigger(self) -> None:
        """Count a plain trigger. After some of them the counts of usual triggers begin again, so the next trigger is a usual one."""
        self.plain_triggers += 1
        if self.plain_triggers >= PLAIN_TRIGGERS_BEFORE_RETRY:
            self.plain_triggers = self.answered_triggers = self.follow_ups = 0

    def describe(self) -> str:
        """Return sentences about what is asked of the model, for an operator."""
        if not self.may_have_tools:
            tools = "gets no tools, because it writes tool calls as text; rules find what to remember"
        elif self.has_called_tools:
            tools = "calls tools: it decides what to remember and when to follow up"
        else:
            tools = "has called no tool yet; rules find what to remember and when to follow up"
        trigger = "; follow-ups are asked for in simpler words" if self.needs_plain_trigger else ""
        pictures = "" if self.takes_pictures else "; it gets no pictures, because its server refused them"
        thoughts = "; its answers are not streamed before it ends a thought" if self.begins_in_thought else ""
        return f"it {tools}{trigger}{pictures}{thoughts}"
