"""Bind the tools of one turn: those that its agent names, as far as the conversation's kind allows them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from rapport.agents.tools.recorded import Requests, bind_follow_up, bind_set_reminder, bind_upsert_memory
from rapport.agents.tools.registry import (
    CHAT_TOOLS,
    CURRENT_TIME,
    SEARCH_MEMORIES,
    SEARCH_NOTES,
    is_chosen,
)
from rapport.agents.tools.toolbox import BoundTool
from rapport.context.situation import Situation
from rapport.context.source_block import render_sources
from rapport.domain.errors import InvalidInput, Permanent, Transient
from rapport.domain.ids import is_ephemeral_id
from rapport.domain.token_estimate import estimate_tokens
from rapport.domain.tool import SERVER_SEPARATOR, ToolSpec
from rapport.domain.tool_names import is_named, is_outside_name
from rapport.memory.query import Query
from rapport.memory.recall import render_memories
from rapport.replies.defusing import defuse_ids
from rapport.replies.quoting import quote_passages
from rapport.turns.findings import Search, search_notes
from rapport.turns.outside_tools import run_outside_tool
from rapport.turns.plan import make_plan_check
from rapport.turns.prompt_input import PromptInput
from rapport.turns.remember import make_save_check
from rapport.turns.set_reminders import make_reminder_check, may_set_reminders
from rapport.turns.turn import Turn

log = structlog.get_logger()

MAX_QUERY_CHARACTERS = 1_000
FIRST_CONNECTION_SECONDS = 5.0
"""How long a turn waits for the servers of its agent that were not tried yet, right after the start of the process."""
MAX_FOUND_PASSAGES = 20
"""The number of passages that all searches of a turn may add to its sources."""
_NOT_NOW = "That can't be looked up right now. Answer with what there is."


def bind_tools(turn: Turn, prompt_input: PromptInput, search: Search, requests: Requests) -> list[BoundTool]:
    """Return the tools that the model may use in this turn; facts, plan and reminders that it asks for are added to `requests`."""
    if not turn.calls_tools:
        return []
    chosen = turn.profile.tools
    tools = [
        tool for tool in _bind_available(turn, prompt_input, search, requests) if is_chosen(tool.spec.name, chosen)
    ]
    outside = [
        BoundTool(spec, partial(_call_outside, turn, prompt_input, search, spec)) for spec in list_outside_tools(turn)
    ]
    return [*tools, *outside]


def list_outside_tools(turn: Turn) -> list[ToolSpec]:
    """Return the tools outside Rapport that the agent may use; none for an agent that names none.

    An ephemeral conversation is gone before a person could decide about a call.
    """
    chosen, free = turn.profile.tools, turn.profile.tools_without_approval
    if chosen is None or not turn.calls_tools:
        return []
    may_ask = not is_ephemeral_id(turn.event.conversation_id)
    return [
        spec
        for spec in turn.deps.tool_source.list_tools()
        if is_chosen(spec.name, chosen) and (may_ask or spec.only_reads or is_named(spec.name, free))
    ]


async def wait_for_tools(turn: Turn) -> None:
    """Wait a little for the servers of the agent's tools, which are not connected right after a start."""
    names = [name for name in turn.profile.tools or () if is_outside_name(name)]
    if not names or not turn.calls_tools:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CONNECTION_SECONDS):
            await turn.deps.tool_source.wait_for(names)


def is_away(turn: Turn, name: str) -> bool:
    """Return True if the agent may use this tool outside Rapport, and its server is not connected."""
    if not is_outside_name(name) or not is_chosen(name, turn.profile.tools or ()):
        return False
    server = name.partition(SERVER_SEPARATOR)[0]
    return all(spec.server != server for spec in turn.deps.tool_source.list_tools())


def offers_reminders(turn: Turn) -> bool:
    """Return True if the model is offered the tool that sets reminders."""
    return turn.calls_tools and may_set_reminders(turn)


def _bind_available(turn: Turn, prompt_input: PromptInput, search: Search, requests: Requests) -> Iterator[BoundTool]:
    """Yield the built-in tools that this conversation allows, the default ones first. Nothing personal in a group."""
    if (may_save := make_save_check(turn)) is not None:
        yield bind_upsert_memory(may_save, requests)
    if turn.types_to_plan:
        yield bind_follow_up(turn.types_to_plan, make_plan_check(turn), requests)
    if offers_reminders(turn):
        is_group = turn.event.traits.has_many_speakers
        yield bind_set_reminder(make_reminder_check(turn), requests, is_group=is_group)
    if (lookups := prompt_input.lookups) is not None:
        for spec in CHAT_TOOLS:
            yield BoundTool(spec, partial(lookups.use, spec.name))
    if turn.profile.tools is None:  # the others are never default tools
        return
    if turn.profile.grounding != "none":
        yield BoundTool(SEARCH_NOTES, partial(_search_notes, turn, search))
    if turn.may_use_memory:
        yield BoundTool(SEARCH_MEMORIES, partial(_search_memories, turn, search))
    yield BoundTool(CURRENT_TIME, partial(_tell_time, turn))


async def _search_notes(turn: Turn, search: Search, arguments: Mapping[str, Any]) -> str:
    if (query := _read_query(arguments)) is None:
        return "`query` must be a short, plain text."
    try:
        retrieval = await search_notes(turn, query)
    except (Transient, Permanent, InvalidInput) as error:
        log.warning("chat.error", errorType="lookup", message=f"search_notes: {error}")
        return _NOT_NOW
    found = quote_passages(retrieval.passages) if retrieval is not None and retrieval.is_relevant else []
    known = {(passage.note_id, passage.text) for passage in search.findings.passages}
    new = [passage for passage in found if (passage.note_id, passage.text) not in known]
    if not found:
        return "The notes have nothing relevant about that."
    search.looked_up += new[: max(0, MAX_FOUND_PASSAGES - len(search.looked_up))]
    return render_sources(found, "")


async def _search_memories(turn: Turn, search: Search, arguments: Mapping[str, Any]) -> str:
    if (query := _read_query(arguments)) is None:
        return "`query` must be a short, plain text."
    event = turn.event
    asked = Query(query, "last_user_message")
    memories = await turn.deps.recall.recall(event.owner_id, event.agent_id, asked, tokens=estimate_tokens)
    if not memories:
        return "Nothing about that is remembered."
    citable_ids = {passage.note_id for passage in search.findings.passages}
    return defuse_ids(render_memories(memories), citable_ids)


async def _tell_time(turn: Turn, _arguments: Mapping[str, Any]) -> str:
    return Situation(turn.deps.now(), turn.input.time_zone).time_sentence


async def _call_outside(
    turn: Turn, prompt_input: PromptInput, search: Search, spec: ToolSpec, arguments: Mapping[str, Any]
) -> str:
    prompt_input.tools_used.append({"name": spec.name, "server": spec.server, "state": "read"})
    citable_ids = {passage.note_id for passage in search.findings.passages}
    return await run_outside_tool(turn, spec, arguments, citable_ids=citable_ids)


def _read_query(arguments: Mapping[str, Any]) -> str | None:
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip() or len(query) > MAX_QUERY_CHARACTERS:
        return None
    is_storable = "\x00" not in query and not any("\ud800" <= character <= "\udfff" for character in query)
    return query.strip() if is_storable else None
