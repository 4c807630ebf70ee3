"""Join the texts of an answer that took several tool rounds."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from rapport.agents.model_client import OnToken

MAX_HELD_CHARACTERS = 200
"""Number of characters to hold back while a round may still end with a chat tool call."""


class Rounds:
    """Join the text of all tool rounds of one answer, with a blank line between rounds.

    Text beside a call that saves a fact is part of the answer. Text beside a chat tool call only announces the call and counts
    if there is no other text: so the beginning of a round is held back while it may still end with such a call.
    """

    def __init__(self, on_token: OnToken | None, *, looks_up: bool) -> None:
        self._on_token = on_token
        self._looks_up = looks_up
        self._parts: list[str] = []
        self._held: str | None = "" if looks_up else None
        self._has_relayed = False
        self._owes_break = False

    @property
    def text(self) -> str:
        return "\n\n".join(self._parts)

    @property
    def on_token(self) -> OnToken | None:
        return None if self._on_token is None else self._relay

    def end_round(self, text: str) -> None:
        """Record the text of a round that ended with a tool call."""
        if stripped := text.strip():
            self._parts.append(stripped)
            self._owes_break = self._has_relayed
        self._held = "" if self._looks_up else None

    def begin_last_round(self) -> None:
        """Stop holding text back: the last round can't call tools."""
        self._held = None

    def join_rounds(self, reply: AIMessage) -> AIMessage:
        """Return the last round's reply with the text of earlier rounds, unless it repeats that text."""
        last = str(reply.text).strip()
        earlier = [] if self._looks_up and last else [part for part in self._parts if part not in last]
        if not earlier:
            return reply
        return AIMessage(
            "\n\n".join([*earlier, last] if last else earlier), usage_metadata=reply.usage_metadata, id=reply.id
        )

    def _relay(self, token: str) -> None:
        assert self._on_token is not None
        if self._held is not None:
            self._held += token
            if len(self._held) <= MAX_HELD_CHARACTERS:
                return
            token, self._held = self._held, None
        self._on_token(f"\n\n{token}" if self._owes_break else token)
        self._owes_break = False
        self._has_relayed = True
