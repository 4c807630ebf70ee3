"""Describe archives: files that conversations are exported to and imported from."""

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
"""The prefix of the `client_message_id` of every imported message. No channel accepts one that begins so."""

MAX_REASON_CHARACTERS = 2_000

_FLAGS: dict[Role, tuple[str, ...]] = {
    "user": ("synthetic",),
    "assistant": ("autonomous", "guard_used", "fallback_used", "cancelled"),
    "system-summary": (),
}


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """One message of an archive: validated, not yet stored."""

    row_id: str
    """The id in the archive."""
    role: Literal["user", "assistant"]
    content: Content
    created_at: datetime
    author: Author | None = None
    reply_to: str | None = None
    """The `row_id` of the message it replies to."""
    sources: Sequence[Mapping[str, str]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mentions: Sequence[str] = ()
    thread_id: str | None = None
    is_bot: bool = False
    platform_id: str | None = None
    context_snapshot: Mapping[str, Any] | None = None
    """A copy of the replied-to message, for the case that the archive does not have it."""

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """Return the metadata under LangChain's name, for `is_synthetic`."""
        return self.metadata


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that has a problem, and the reason."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Archive:
    """One chat of a file."""

    format: Format
    chat_id: str
    """The id of the chat in the file. A second import of the same chat is recognised by it."""
    title: str | None
    kind: ConversationKind
    messages: Sequence[ArchivedMessage]
    """Oldest first."""
    problems: Sequence[RowProblem] = ()
    """Rows that are not imported."""
    warnings: Sequence[RowProblem] = ()
    """Rows that are imported with a change."""
    skipped: int = 0
    """Number of service rows without a message: somebody joined, a title changed."""

    @property
    def prefix(self) -> str:
        """Return the prefix that makes a row's id a `client_message_id`."""
        return f"{KEY_PREFIX}{self.format}:{self.chat_id}:"

    def derive_conversation_id(self, owner_id: str) -> str:
        """Return the id of this chat's conversation: always the same for the same owner and chat."""
        # Two exports of a chat can disagree about its time: the 48 time bits of the ULID stay 0.
        name = "\x00".join((owner_id, self.format, self.chat_id)).encode(errors="surrogatepass")
        return str(ULID.from_bytes(bytes(6) + hashlib.sha256(name).digest()[:10]))


def new_id_at(moment: datetime) -> str:
    """Return a new ULID with the given time."""
    return str(ULID.from_datetime(moment))


def space_out(times: Iterable[datetime], taken: Set[datetime]) -> list[datetime]:
    """Return sorted times, each moved by as few microseconds as needed to be later than the one before and not taken."""
    spaced: list[datetime] = []
    for time in times:
        moment = time if not spaced else max(time, spaced[-1] + TICK)
        while moment in taken:
            moment += TICK
        spaced.append(moment)
    return spaced


def select_portable_metadata(role: Role, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that an export writes and that an import of a trusted file may restore."""
    portable: dict[str, Any] = {name: True for name in _FLAGS[role] if metadata.get(name) is True}
    if portable.get("synthetic") or portable.get("autonomous"):
        portable["trigger_type"] = find_trigger_type(str(metadata.get("trigger_type"))) or "check_in"
    if portable.get("synthetic"):
        portable["lc_source"] = "autonomy"
    words = ("trigger_reason", "edited_at") if portable.get("synthetic") else ("edited_at",)
    return portable | {
        name: metadata[name][:MAX_REASON_CHARACTERS] for name in words if isinstance(metadata.get(name), str)
    }
