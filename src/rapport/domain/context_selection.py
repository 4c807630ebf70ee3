"""What of a chat belongs to a call: the messages that were chosen, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rapport.domain.conversation import Message

Strategy: TypeAlias = Literal["relevant", "time_gap", "thread", "recent"]
Reason: TypeAlias = Literal[
    "trigger",  # the call itself
    "anchor",  # what the call replies to, or else the asker's own latest words or what was last said
    "reply_chain",  # linked by a reply to the anchor or to another that is chosen
    "session",  # said in one go with what follows it, without a long silence
    "topic",  # continues or answers something that is chosen
    "addressed",  # said to somebody who takes part, by name
    "semantic",  # close in meaning to what is asked, wherever in the chat it was said
    "neighbour",  # stands beside an anchor from long ago
    "recent",  # one of the latest
]

MAX_RECENT_MESSAGES = 100
"""So many messages before a call are looked at, however long the chat is."""
LOOKBACK_LIMIT = 20
"""So many of them the strategies `time_gap` and `recent` look at (CTX-4)."""
SESSION_GAP_MINUTES = 60.0
"""Minutes of silence that end a session for `time_gap` (CTX-4)."""
MAX_CONTEXT_TOKENS = 4_000
"""About how many tokens the chosen messages may have together."""
MAX_LINE_CHARACTERS = 1_500
"""So much of one message is shown to the model."""


@dataclass(frozen=True, slots=True)
class CandidateMessages:
    """What a selection chooses from: loaded with a few indexed queries, and none of it grows with the chat."""

    recent: Sequence[Message]
    """The latest messages before the call, oldest first, at most RECENT."""
    anchor: Message | None = None
    """What the call replies to, however old it is."""
    chain: Sequence[Message] = ()
    """What the anchor replies to, what that replies to …, and what was replied to the anchor; oldest first."""
    around: Sequence[Message] = ()
    """Neighbours of an anchor that is older than `recent`, with the anchor; oldest first."""
    similar: Sequence[tuple[Message, float]] = ()
    """Messages close in meaning to what is asked, with their similarity, the closest first; they may be among the others."""


@dataclass(frozen=True, slots=True)
class ChosenMessage:
    """A message, why it was chosen, and how sure that is (0 to 1)."""

    message: Message
    reasons: tuple[Reason, ...]
    score: float


@dataclass(frozen=True, slots=True)
class ContextSelection:
    """What belongs to a call: what the prompt is built from, what the tool returns and what `why` shows (CTX-6)."""

    strategy: Strategy
    chosen: Sequence[ChosenMessage]
    """Oldest first, each message once, the call itself last."""
    anchor: Message | None = None
    """What the call is about."""
    passed_over: Sequence[tuple[Message, float]] = ()
    """What was looked at and not chosen, with its score; oldest first."""

    @property
    def ids(self) -> list[str]:
        return [one.message.id for one in self.chosen]

    @property
    def earlier(self) -> list[ChosenMessage]:
        """All but the call itself."""
        return [one for one in self.chosen if "trigger" not in one.reasons]

    @property
    def receipt(self) -> dict[str, Any]:
        """What is kept beside a reply: enough to show why, without any words."""
        return {
            "strategy": self.strategy,
            "anchor_id": self.anchor.id if self.anchor else None,
            "messages": [
                {"id": one.message.id, "reasons": list(one.reasons), "score": round(one.score, 3)}
                for one in self.chosen
            ],
        }
