"""Read archives row by row: each row becomes a message, or a problem with a reason.

A file is outside data: metadata and sources of a message are used only if the file is trusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.chat_archive import (
    MAX_REASON_CHARACTERS,
    Archive,
    ArchivedMessage,
    Format,
    RowProblem,
    select_portable_metadata,
)
from rapport.domain.conversation import Author, Content, extract_text
from rapport.domain.conversation_kind import ConversationKind
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import TriggerType, find_trigger_type
from rapport.domain.synthetic import is_synthetic
from rapport.domain.text_checks import check_text
from rapport.ingest.content import MAX_CHARACTERS, MAX_NAME_CHARACTERS, check_content, check_mentions, check_snapshot

MAX_ID = 120
MAX_SOURCE = 160
LEGACY_MARKER = "[AUTONOMOUS_FOLLOWUP:"
"""The beginning of synthetic messages of older systems. Only archives are searched for it."""

_LEGACY = re.compile(r"\[AUTONOMOUS_FOLLOWUP:([^\]\r\n]*)\](.*)", re.DOTALL)
_EPOCH = re.compile(r"-?\d{9,}(\.\d+)?")
_NOTE_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = 100_000_000_000
"""A number from here on is a time in milliseconds: in seconds it would be the year 5138."""


@dataclass
class ArchiveBuilder:
    """Collect the rows of one chat."""

    messages: list[ArchivedMessage] = field(default_factory=list[ArchivedMessage])
    problems: list[RowProblem] = field(default_factory=list[RowProblem])
    warnings: list[RowProblem] = field(default_factory=list[RowProblem])
    skipped: int = 0
    _places: dict[str, str] = field(default_factory=dict[str, str])
    _platform: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, place: str, message: ArchivedMessage) -> None:
        """Add a message; raise InvalidInput if another row has its id or its platform id."""
        if first := self._places.get(message.row_id):
            raise InvalidInput(f"The id {message.row_id[:60]!r} was used on {first} already.")
        if message.platform_id is not None:
            if first := self._platform.get(message.platform_id):
                raise InvalidInput(f"The platform_id {message.platform_id[:60]!r} was used on {first} already.")
            self._platform[message.platform_id] = place
        self._places[message.row_id] = place
        self.messages.append(message)

    def build(self, form: Format, chat_id: str, *, title: str | None, kind: ConversationKind) -> Archive:
        """Return the archive, oldest message first, with the synthetic messages of older systems tagged."""
        messages = self.messages
        if messages and messages[0].created_at > messages[-1].created_at:
            messages.reverse()  # newest first, also among rows with the same time
        messages.sort(key=lambda message: message.created_at)
        self._tag_legacy(messages)
        # A reply to a hidden message loses its link.
        synthetic_ids = {message.row_id for message in messages if is_synthetic(message)}
        for number, message in enumerate(messages):
            if message.reply_to in synthetic_ids:
                messages[number] = replace(message, reply_to=None)
        return Archive(form, chat_id, title, kind, messages, self.problems, self.warnings, self.skipped)

    def _tag_legacy(self, messages: list[ArchivedMessage]) -> None:
        for number, message in enumerate(messages):
            trigger = (
                find_legacy_trigger(message.content) if message.role == "user" and not is_synthetic(message) else None
            )
            if trigger is None:
                continue
            if trigger.unknown is not None:
                self.warnings.append(RowProblem(self._places[message.row_id], describe_unknown_type(trigger)))
            messages[number] = replace(message, metadata={**message.metadata, **trigger.tags})
            following = messages[number + 1] if number + 1 < len(messages) else None
            if following is not None and following.role == "assistant":
                messages[number + 1] = replace(following, metadata={**following.metadata, **trigger.reply_tags})


@dataclass(frozen=True, slots=True)
class LegacyTrigger:
    """A message that an older system made to start a follow-up."""

    trigger_type: TriggerType
    reason: str | None
    unknown: str | None
    """The type's name in the archive, if there is no such type here."""

    @property
    def tags(self) -> dict[str, Any]:
        """Return the metadata of the message itself."""
        tags: dict[str, Any] = {"synthetic": True, "trigger_type": self.trigger_type, "lc_source": "autonomy"}
        return tags if self.reason is None else {**tags, "trigger_reason": self.reason}

    @property
    def reply_tags(self) -> dict[str, Any]:
        """Return the metadata of the reply that follows it."""
        return {"autonomous": True, "trigger_type": self.trigger_type}


def find_legacy_trigger(content: Content) -> LegacyTrigger | None:
    """Return the trigger in an older system's `[AUTONOMOUS_FOLLOWUP: type]` message; None if it is no such message.

    A message with a picture is a person's: no system sent itself pictures.
    """
    if not isinstance(content, str) and any(block.get("type") != "text" for block in content):
        return None
    match = _LEGACY.fullmatch(extract_text(content).strip())
    if match is None:
        return None
    name = match[1].strip()
    trigger_type = find_trigger_type(name.lower())
    return LegacyTrigger(
        trigger_type or "check_in", match[2].strip()[:MAX_REASON_CHARACTERS] or None, None if trigger_type else name
    )


def describe_unknown_type(trigger: LegacyTrigger) -> str:
    """Return the warning about a follow-up of an unknown type."""
    return f"There is no trigger type {(trigger.unknown or '')[:60]!r}: it is taken as {trigger.trigger_type!r}."


def read_jsonl(
    lines: Iterable[bytes],
    *,
    agent: AgentProfile,
    now: datetime,
    trusted: bool = False,
    chat: str | None = None,
    title: str | None = None,
    limit: int = MAX_CHARACTERS,
) -> Archive:
    """Return the archive in the lines, one JSON object each; blank lines are skipped.

    A later import recognises it by `chat`, by the conversation in its rows, or else by its oldest row.
    """
    rows, conversation, oldest = ArchiveBuilder(), None, None
    chat = None if chat is None else read_id(chat, what="chat")
    for number, line in enumerate(lines, 1):
        location = f"line {number}"
        if not line.strip(b"\xef\xbb\xbf \t\r\n"):
            continue
        try:
            row = _row(line)
            created_at, row_id = read_time(row.get("created_at"), now=now), read_id(row.get("id"))
            # Before the text is checked: a row that is corrected later must not change the archive's identity.
            mark = (created_at, row_id, json.dumps(row.get("author"), sort_keys=True))
            oldest = min(oldest or mark, mark)
            conversation_name = row.get("conversation")
            if conversation_name is not None and chat is None:
                conversation = conversation or read_id(conversation_name, what="conversation")
                if read_id(conversation_name, what="conversation") != conversation:
                    raise InvalidInput(
                        f"It belongs to another conversation than those before, {str(conversation_name)[:60]!r}."
                    )
            rows.add(location, _message(row, row_id, created_at, agent=agent, trusted=trusted, limit=limit))
        except InvalidInput as error:
            rows.problems.append(RowProblem(location, str(error)))
    people = {message.author.id for message in rows.messages if message.role == "user" and message.author}
    return rows.build(
        "jsonl",
        chat or conversation or _fingerprint(oldest),
        title=title,
        kind="group" if len(people) > 1 else "direct",
    )


def _fingerprint(oldest: tuple[datetime, str, str] | None) -> str:
    description = "" if oldest is None else f"{oldest[0].isoformat()} {oldest[1]} {oldest[2]}"
    return hashlib.sha256(description.encode()).hexdigest()[:24]


def _row(line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line.removeprefix(b"\xef\xbb\xbf").decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"It isn't UTF-8 text (byte {error.start}).") from error
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep, or a number too long"
        raise InvalidInput(f"It isn't valid JSON: {reason}.") from error
    mapping = as_mapping(row)
    if mapping is None:
        raise InvalidInput("A row is a JSON object: `{id, author, text, created_at, …}`.")
    return mapping


def _message(
    row: Mapping[str, Any], row_id: str, created_at: datetime, *, agent: AgentProfile, trusted: bool, limit: int
) -> ArchivedMessage:
    if "author" not in row:
        raise InvalidInput("`author` is missing: a name, `{id, name}`, or null if nobody is named.")
    author = _author(row["author"])
    role = _role(row.get("role"), author, agent)
    metadata = select_portable_metadata(role, as_mapping(row.get("metadata")) or {}) if trusted else {}
    for name, value in metadata.items():
        check_text(str(value), what=f"metadata.{name}", limit=MAX_REASON_CHARACTERS)
    replied = row.get("reply_to")
    return ArchivedMessage(
        row_id,
        role,
        _content(row, limit=limit),
        created_at,
        author,
        None if replied is None else read_id(replied, what="reply_to"),
        _sources(row.get("sources")) if trusted and role == "assistant" else (),
        metadata,
        mentions=_mentions(row.get("mentions")),
        thread_id=_optional(row, "thread_id"),
        is_bot=role == "assistant" or row.get("is_bot") is True,
        platform_id=_optional(row, "platform_id"),
        context_snapshot=_snapshot(row.get("context_snapshot"), limit=limit),
    )


def _optional(row: Mapping[str, Any], name: str) -> str | None:
    return None if row.get(name) is None else read_id(row[name], what=name, limit=MAX_NAME_CHARACTERS)


def _snapshot(value: object, *, limit: int) -> Mapping[str, Any] | None:
    if value is None:
        return None
    mapping = as_mapping(value) or {}
    text, known_as, said_at = mapping.get("text"), mapping.get("id"), mapping.get("created_at")
    if not isinstance(text, str) or not isinstance(said_at, str | None):
        raise InvalidInput("`context_snapshot` is what is replied to: `{id?, author?, text, created_at?}`.")
    return check_snapshot(
        text,
        id=None if known_as is None else read_id(known_as, what="context_snapshot.id", limit=MAX_NAME_CHARACTERS),
        author=_author(mapping.get("author")),
        created_at=said_at,
        limit=limit,
    )


def _mentions(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in cast("list[Any]", value)):
        raise InvalidInput("`mentions` is a list of names or ids.")
    return check_mentions(cast("list[str]", value))


def _content(row: Mapping[str, Any], *, limit: int) -> Content:
    """Return the content: `text`, or the blocks in `content` of a message that has more than text."""
    blocks = row.get("content")
    if isinstance(blocks, list):
        mappings = [as_mapping(block) for block in cast("list[Any]", blocks)]
        if any(block is None for block in mappings):
            raise InvalidInput("`content` is a list of blocks: `{type, …}`.")
        return check_content([block for block in mappings if block is not None], limit=limit)
    text = row.get("text")
    if not isinstance(text, str):
        raise InvalidInput("`text` is missing or isn't a text.")
    return check_content(text, limit=limit)


def _role(value: object, author: Author | None, agent: AgentProfile) -> Literal["user", "assistant"]:
    if value not in ("user", "assistant", None):
        raise InvalidInput("`role` is `user` or `assistant`.")
    is_agent = author is not None and agent.id in (author.id, author.name.lower())
    return "assistant" if value == "assistant" or (value is None and is_agent) else "user"


def _author(value: object) -> Author | None:
    if value is None:
        return None
    if (mapping := as_mapping(value)) is not None:
        author_id = read_id(mapping.get("id"), what="author.id", limit=MAX_NAME_CHARACTERS)
        name = mapping.get("name")
        return Author(author_id, author_id if name is None else read_name(name, what="author.name"))
    name = read_name(value, what="author")
    return Author(name, name)


def _sources(value: object) -> Sequence[Mapping[str, str]]:
    if value is None:
        return ()
    sources: list[Mapping[str, str]] = []
    for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
        source = as_mapping(item) or {}
        note_id, text = source.get("id"), source.get("text")
        if not isinstance(note_id, str) or _NOTE_ID.fullmatch(note_id) is None or not isinstance(text, str):
            raise InvalidInput("`sources` is a list of `{id, text}`.")
        sources.append({"id": note_id, "text": check_text(text, what="sources", limit=MAX_SOURCE)})
    return sources


def as_mapping(value: object) -> Mapping[str, Any] | None:
    """Return `value` if it is a JSON object, else None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def read_name(value: object, *, what: str) -> str:
    """Return a name that can be stored; raises InvalidInput."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"`{what}` is missing or isn't a name.")
    return check_text(value, what=what, limit=MAX_NAME_CHARACTERS)


def read_id(value: object, *, what: str = "id", limit: int = MAX_ID) -> str:
    """Return an id, given as a text or a whole number; raises InvalidInput."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if value.bit_length() < 200 else None
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"`{what}` is missing or is neither a text nor a whole number.")
    return check_text(value, what=what, limit=limit)


def read_time(value: object, *, now: datetime, what: str = "created_at") -> datetime:
    """Read a time: ISO 8601 (UTC if it names no zone), or seconds or milliseconds since 1970."""
    if isinstance(value, str) and _EPOCH.fullmatch(value.strip()):
        value = float(value)
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
            time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = _BEGINNING + timedelta(seconds=value / 1000 if abs(value) >= _MILLISECONDS else value)
        else:
            raise InvalidInput(f"`{what}` is missing or isn't a time.")
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"`{what}` isn't a time: {str(value)[:40]!r}.") from error
    if not _BEGINNING <= time <= now:
        raise InvalidInput(f"`{what}` lies {'before 1970' if time < _BEGINNING else 'in the future'}: {time:%Y-%m-%d}.")
    return time
