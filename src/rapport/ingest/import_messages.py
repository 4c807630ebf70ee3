"""Import archives in small transactions, so that live conversations hardly wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rapport.domain.chat_archive import Archive, RowProblem
from rapport.domain.conversation_kind import ConversationKind
from rapport.ingest.archive_rows import LEGACY_MARKER, describe_unknown_type, find_legacy_trigger
from rapport.storage.database import Database
from rapport.storage.messages.import_export import Archives, ImportCounts

BATCH_MESSAGES = 1_000
"""Messages per transaction: each locks the conversation for a fraction of a second."""


async def import_archive(
    database: Database,
    archive: Archive,
    *,
    owner_id: str,
    agent_id: str,
    conversation_id: str | None = None,
    kind: ConversationKind | None = None,
    title: str | None = None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> ImportCounts:
    """Store an archive in the given conversation, or in its own one, which is created if needed.

    After an interruption, the same import continues.
    """
    counts = ImportCounts()
    target = conversation_id or archive.derive_conversation_id(owner_id)
    for first in range(0, len(archive.messages), BATCH_MESSAGES):
        batch = archive.messages[first : first + BATCH_MESSAGES]
        async with database.transaction() as connection:
            archives = Archives(connection)
            if first == 0 and conversation_id is None:
                await archives.create_conversation(
                    owner_id,
                    target,
                    agent_id=agent_id,
                    kind=kind or archive.kind,
                    title=title if title is not None else archive.title,
                    at=batch[0].created_at,
                )
            counts += await archives.import_messages(owner_id, target, batch, prefix=archive.prefix)
        on_progress(len(batch))
    return counts


@dataclass(frozen=True, slots=True)
class LegacyTagCounts:
    """Counts of the messages of older systems that were tagged."""

    triggers: int
    replies: int
    warnings: list[RowProblem]


async def tag_legacy(database: Database, owner_id: str) -> LegacyTagCounts:
    """Tag the triggers of older systems, and the replies to them, in all of an owner's conversations. Idempotent."""
    triggers, replies, warnings = 0, 0, list[RowProblem]()
    async with database.statement() as connection:
        conversations = await Archives(connection).list_conversation_ids(owner_id)
    for conversation_id in conversations:
        async with database.transaction() as connection:
            archives = Archives(connection)
            for message, reply_id in await archives.find_suspects(owner_id, conversation_id, marker=LEGACY_MARKER):
                trigger = find_legacy_trigger(message.content)
                if trigger is None:
                    continue
                if trigger.unknown is not None:
                    warnings.append(RowProblem(f"message {message.id}", describe_unknown_type(trigger)))
                await archives.tag(owner_id, conversation_id, message.id, trigger.tags)
                triggers += 1
                if reply_id is not None:
                    await archives.tag(owner_id, conversation_id, reply_id, trigger.reply_tags)
                    replies += 1
    return LegacyTagCounts(triggers, replies, warnings)
