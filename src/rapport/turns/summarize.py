"""Summarize a conversation for the model, after its turns. A failure is retried after the next turn (SUM)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog
from langchain_core.messages import HumanMessage, SystemMessage

from rapport.agents.failures import ModelFailed
from rapport.builtin import BuiltinChatModel
from rapport.context.summary_rules import (
    MAX_CHAT_HISTORY,
    MAX_SUMMARY_CHARACTERS,
    SHORTER_PLEASE,
    SUMMARY_PROMPT,
    SUMMARY_TASK,
    collect_source_ids,
    is_poor_summary,
    select_messages_to_cover,
    split_transcript,
)
from rapport.domain.conversation import Message
from rapport.replies.defusing import defuse, make_storable
from rapport.storage.database import Database
from rapport.storage.messages.summaries import Summaries

log = structlog.get_logger()

BATCH_MESSAGES = 1_000
"""The number of messages that are read at once. A longer backlog gets several summaries, each including the one before."""


class SummaryWriter(Protocol):
    """A model that writes summaries."""

    async def ask(self, system: str, text: str) -> str: ...


async def summarize(
    owner_id: str,
    conversation_id: str,
    *,
    database: Database,
    find_writer: Callable[[], Awaitable[SummaryWriter]],
    max_history: int = MAX_CHAT_HISTORY,
) -> None:
    """Summarize the oldest messages of a conversation that is too long for the model. If the model fails, change nothing.

    `find_writer` returns the agent's model, or raises ModelFailed.
    """
    started_at = time.perf_counter()
    try:
        writer = await find_writer()
        while await _summarize_once(owner_id, conversation_id, database, writer, max_history):
            pass
    except ModelFailed as failure:
        log.warning("chat.error", errorType=failure.kind, message=f"no summary this time: {failure}")
    log.info("chat.metrics", phase="summary", ms=round((time.perf_counter() - started_at) * 1000, 2))


async def _summarize_once(
    owner_id: str, conversation_id: str, database: Database, writer: SummaryWriter, max_history: int
) -> bool:
    """Write one summary. Return True if there may be more to cover."""
    async with database.statement() as connection:
        backlog = await Summaries(connection).load_backlog(owner_id, conversation_id, limit=BATCH_MESSAGES)
    covered = select_messages_to_cover(
        backlog.messages, has_summary=backlog.summary is not None, max_history=max_history
    )
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
        text = await _summarize_part(text_to_cover, writer)
        if not text:  # an empty summary would replace the earlier one
            raise ModelFailed("empty", "nothing that can be stored is left of the summary")
    return text


async def _summarize_part(transcript: str, writer: SummaryWriter) -> str:
    """Return the model's summary; after two that are too long or copied, an extract that the built-in model makes."""
    request = f"{transcript}\n\n{SUMMARY_TASK}"
    text = _clean(await writer.ask(SUMMARY_PROMPT, request))
    if not is_poor_summary(text, transcript):
        return text
    text = _clean(await writer.ask(SUMMARY_PROMPT, f"{request}\n{SHORTER_PLEASE}"))
    if not is_poor_summary(text, transcript):
        return text
    log.info("summary.extracted")
    extracted = await BuiltinChatModel().ainvoke([SystemMessage(SUMMARY_PROMPT), HumanMessage(request)])
    return _clean(str(extracted.text))


def _clean(text: str) -> str:
    return defuse(make_storable(text)).strip()[:MAX_SUMMARY_CHARACTERS]
