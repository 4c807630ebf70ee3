"""Archives: conversations that took place elsewhere or at another time, on their way in and out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from ulid import ULID

from rapport.domain.conversation import Author, Content, Role
from rapport.domain.conversation_kind import ConversationKind
from rapport.domain.follow_up import find_trigger_type

Format: TypeAlias = Literal["jsonl", "telegram"]

TICK = timedelta(microseconds=1)

KEY_PREFIX = "import:"
"""How the `client_message_id` of an imported message begins, and of no other: no channel accepts one that does."""

MAX_REASON_CHARACTERS = 2_000

_FLAGS: dict[Role, tuple[str, ...]] = {
    "user": ("synthetic",),
    "assistant": ("autonomous", "guard_used", "fallback_used", "cancelled"),
    "system-summary": (),
}


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """One utterance as an archive tells it: checked, not yet stored."""

    row_id: str
    """What the archive calls it."""
    role: Literal["user", "assistant"]
    content: Content
    created_at: datetime
    author: Author | None = None
    reply_to: str | None = None
    """The row that it replies to."""
    sources: Sequence[Mapping[str, str]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mentions: Sequence[str] = ()
    thread_id: str | None = None
    is_bot: bool = False
    platform_id: str | None = None
    context_snapshot: Mapping[str, Any] | None = None
    """Of a reply that has brought along what it replies to: that, for when it isn't in the archive."""

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """Its metadata by LangChain's name, for `is_synthetic`."""
        return self.metadata


@dataclass(frozen=True, slots=True)
class RowProblem:
    """What is the matter with a row, and which one it is."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Archive:
    """One chat of a file."""

    format: Format
    chat_id: str
    """What the file calls the chat: the same chat again is known by it."""
    title: str | None
    kind: ConversationKind
    messages: Sequence[ArchivedMessage]
    """Oldest first."""
    problems: Sequence[RowProblem] = ()
    """Rows that are left out."""
    warnings: Sequence[RowProblem] = ()
    """Rows that are in, but not quite as the file says."""
    skipped: int = 0
    """Rows in which nobody said anything: somebody joined, a title changed."""

    @property
    def prefix(self) -> str:
        """What a row's id needs in front of it to be a `client_message_id`."""
        return f"{KEY_PREFIX}{self.format}:{self.chat_id}:"

    def derive_conversation_id(self, owner_id: str) -> str:
        """The id of this chat's conversation: the same for the same owner and chat, at any time and in any process."""
        # Without a time in it, which every file could tell differently: the first 48 bits stay 0.
        name = "\x00".join((owner_id, self.format, self.chat_id)).encode(errors="surrogatepass")
        return str(ULID.from_bytes(bytes(6) + hashlib.sha256(name).digest()[:10]))


def new_id_at(moment: datetime) -> str:
    """A fresh ULID that says it was made at that moment."""
    return str(ULID.from_datetime(moment))


def space_out(times: Iterable[datetime], taken: Set[datetime]) -> list[datetime]:
    """The times, which must be in order, moved on by as few microseconds as it takes: each later than the one before,
    and none of them taken."""
    placed: list[datetime] = []
    for time in times:
        moment = time if not placed else max(time, placed[-1] + TICK)
        while moment in taken:
            moment += TICK
        placed.append(moment)
    return placed


def select_portable_metadata(role: Role, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What of a message's metadata leaves with an export, and may come back from a file that is trusted."""
    kept: dict[str, Any] = {name: True for name in _FLAGS[role] if metadata.get(name) is True}
    if kept.get("synthetic") or kept.get("autonomous"):
        kept["trigger_type"] = find_trigger_type(str(metadata.get("trigger_type"))) or "check_in"
    if kept.get("synthetic"):
        kept["lc_source"] = "autonomy"
    words = ("trigger_reason", "edited_at") if kept.get("synthetic") else ("edited_at",)
    return kept | {
        name: metadata[name][:MAX_REASON_CHARACTERS] for name in words if isinstance(metadata.get(name), str)
    }
