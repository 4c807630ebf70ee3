"""Summarize a conversation for the model, after its turns. A failure is retried after the next turn (SUM)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from rapport.agents.failures import ModelFailed
from rapport.agents.tools import ALL_TOOLS
from rapport.context.summary_rules import (
    MAX_SUMMARY_CHARACTERS,
    SUMMARY_PROMPT,
    collect_source_ids,
    select_messages_to_cover,
    split_transcript,
)
from rapport.domain.conversation import Message
from rapport.replies.defusing import defuse, make_storable
from rapport.replies.machinery import cut_machinery
from rapport.storage.database import Database
from rapport.storage.messages.summaries import Summaries

log = structlog.get_logger()

BATCH_MESSAGES = 1_000
"""The number of messages that are read at once. A longer backlog gets several summaries, each including the one before."""


class SummaryWriter(Protocol):
    """A model that writes summaries."""

    async def ask(self, system: str, text: str) -> str: ...


async def summarize(owner_id: str, conversation_id: str, *, database: Database, writer: SummaryWriter) -> None:
    """Summarize the oldest messages of a conversation that is too long for the model. If the model fails, change nothing."""
    started_at = time.perf_counter()
    try:
        while await _summarize_once(owner_id, conversation_id, database, writer):
            pass
    except ModelFailed as failure:
        log.warning("chat.error", errorType=failure.kind, message=f"no summary this time: {failure}")
    log.info("chat.metrics", phase="summary", ms=round((time.perf_counter() - started_at) * 1000, 2))


async def _summarize_once(owner_id: str, conversation_id: str, database: Database, writer: SummaryWriter) -> bool:
    """Write one summary. Return True if there may be more to cover."""
    async with database.statement() as connection:
        backlog = await Summaries(connection).load_backlog(owner_id, conversation_id, limit=BATCH_MESSAGES)
    covered = select_messages_to_cover(backlog.messages)
    if not covered:
        return False
    text = await _write_summary(backlog.summary, covered, writer)
    async with database.statement() as connection:
        summary = await Summaries(connection).store(
            owner_id,
            conversation_id,
            text=text,
            upto=covered[-1],
            previous=backlog.summary,
            source_ids=collect_source_ids(backlog.summary, covered),
        )
    if summary is None:  # another process was faster, or the conversation was deleted
        return False
    log.info("chat.summary", replacedCount=summary.metadata["replaced"], summaryId=summary.id)
    return len(backlog.messages) == BATCH_MESSAGES


async def _write_summary(previous: Message | None, messages: Sequence[Message], writer: SummaryWriter) -> str:
    """Return the summary's text. Long transcripts are summarized part by part, each with the summary so far."""
    text = previous.text if previous else ""
    for part in split_transcript(messages):
        text_to_cover = f"Summary so far:\n{text}\n\n{part}" if text else part
        written = make_storable(await writer.ask(SUMMARY_PROMPT, text_to_cover))
        text = defuse(cut_machinery(written, ALL_TOOLS).text).strip()[:MAX_SUMMARY_CHARACTERS]
        if not text:  # an empty summary would replace the earlier one
            raise ModelFailed("empty", "nothing that can be stored is left of the summary")
    return text
