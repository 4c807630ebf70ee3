"""What `rapport context show` shows: a message found by its id, what belonged to it, and what was said around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ulid import ULID

from rapport.app import make_chooser
from rapport.cli.library import open_library
from rapport.cli.timeline import Told, Used, Why
from rapport.domain.agents import AGENTS, COMPANION
from rapport.domain.conversation import Message
from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.ids import is_id
from rapport.domain.selection import RECENT, Strategy
from rapport.domain.synthetic import is_synthetic
from rapport.receipts import Explanation, explain, timeline
from rapport.settings import Settings
from rapport.storage.archive import Archives
from rapport.storage.conversations import Conversations, no_such_conversation
from rapport.storage.database import Connection, Database
from rapport.storage.memories import Memories
from rapport.storage.messages import Messages
from rapport.storage.notes import Notes
from rapport.storage.surroundings import from_snapshot, in_order

SHORTEST = 8
"""So many characters of an id at least: they tell within a second when it was made."""
SLACK = timedelta(minutes=10)
"""So far the clock that made an id and the one that dated its message may be apart."""
_PAGE = 200


async def explained(
    settings: Settings, message: str, *, user: str, conversation: str | None, strategy: Strategy | None
) -> tuple[Explanation, Told]:
    """Why a reply was what it was, or what would be chosen for a message; raises NotFound, and InvalidInput if it isn't one."""
    async with open_library(settings) as (library, _):
        async with library.database.statement() as connection:
            conversation_id, message_id = await _meant(connection, user, message, conversation)
        chooser = make_chooser(settings, library.database, library.embedder)
        explanation = await explain(chooser, user, conversation_id, message_id, strategy=strategy)
        return explanation, await _told(library.database, explanation)


async def _meant(connection: Connection, user: str, message: str, conversation: str | None) -> tuple[str, str]:
    """The conversation and the message that are meant by their ids or the beginnings of those, in any case."""
    if conversation is not None:
        if not (conversation.isascii() and conversation.isalnum()):
            raise no_such_conversation(conversation.encode(errors="replace").decode())
        places = [(await Conversations(connection).beginning_with(user, conversation.upper())).id]
    else:
        places = await Archives(connection).every_conversation(user)
    beginning = message.strip().upper()
    if is_id(beginning):
        found = [(place, beginning) for place in places if await Messages(connection).get(user, place, beginning)]
    else:
        period = _period(beginning, message)
        found = [
            (place, one)
            for place in places
            for one in await _beginning_with(connection, user, place, beginning, period)
        ]
    if len(found) > 1:
        told = ", ".join(id_ for _, id_ in found[:5])
        raise InvalidInput(f"Several messages begin with {beginning!r}: give more of the id. ({told})")
    if not found:
        raise NotFound(f"There is no message {message[:64]!r}.")
    return found[0]


def _period(beginning: str, message: str) -> tuple[datetime, datetime]:
    """When ids that begin so were made."""
    first, last = beginning.ljust(26, "0"), beginning.ljust(26, "Z")
    if not (is_id(first) and is_id(last)):
        raise NotFound(f"There is no message {message[:64]!r}.")
    if len(beginning) < SHORTEST:
        raise InvalidInput(f"Give more of the id than {beginning!r}: at least {SHORTEST} characters.")
    try:
        return ULID.from_str(first).datetime - SLACK, ULID.from_str(last).datetime + SLACK
    except (ValueError, OverflowError) as error:  # later than any calendar
        raise NotFound(f"There is no message {message[:64]!r}.") from error


async def _beginning_with(
    connection: Connection, user: str, place: str, beginning: str, period: tuple[datetime, datetime]
) -> list[str]:
    """Those that were said in the period, by a short walk of what was said then."""
    found: list[str] = []
    cursor = (period[0], "")
    while page := await Archives(connection).after(user, place, limit=_PAGE, cursor=cursor):
        found += [one.id for one in page if one.id.startswith(beginning) and not is_synthetic(one)]
        cursor = (page[-1].created_at, page[-1].id)
        if len(page) < _PAGE or page[-1].created_at > period[1]:
            break
    return found


async def _told(database: Database, explanation: Explanation) -> Told:
    conversation, receipt = explanation.conversation, explanation.receipt
    said = await timeline(database, explanation)
    anchor = _anchor(explanation, said)
    if anchor is not None and all(one.id != anchor.id for one in said):
        said = in_order([anchor, *said])
    chosen = {one["id"]: Why(one["reasons"], one["score"]) for one in receipt["messages"]}
    gathered = explanation.gathered
    async with database.statement() as connection:
        return Told(
            conversation,
            AGENTS.get(conversation.agent_id, COMPANION).name,
            explanation.call,
            receipt["strategy"],
            explanation.stored,
            said,
            chosen,
            anchor,
            whole_from=_whole_from(said, explanation.call),
            passed_over={one.id: score for one, score in gathered.selection.passed_over} if gathered else None,
            reply=explanation.reply,
            has_summary=receipt.get("summary_id") is not None,
            memories=[await _memory(connection, explanation, one) for one in explanation.memories],
            notes=[await _note(connection, explanation, one) for one in explanation.notes],
            looked_up=receipt.get("looked_up", ()),
        )


def _anchor(explanation: Explanation, said: Sequence[Message]) -> Message | None:
    """What the call is about: among what was chosen, or else what the call itself has brought along."""
    anchor_id = explanation.receipt["anchor_id"]
    brought = from_snapshot(explanation.call) if explanation.call else None
    return next((one for one in [*said, *([brought] if brought else [])] if one.id == anchor_id), None)


def _whole_from(said: Sequence[Message], call: Message | None) -> datetime | None:
    """From where on nothing is missing: before the latest RECENT there is only what was chosen."""
    before = [one for one in said if call is None or one.id != call.id]
    return before[-RECENT].created_at if len(before) > RECENT else None


async def _memory(connection: Connection, explanation: Explanation, used: Mapping[str, Any]) -> Used:
    conversation = explanation.conversation
    try:
        memory = await Memories(connection).get(conversation.owner_id, conversation.agent_id, used["id"])
    except NotFound:  # forgotten since
        return Used(used["id"], used["score"])
    return Used(used["id"], used["score"], memory.content)


async def _note(connection: Connection, explanation: Explanation, used: Mapping[str, Any]) -> Used:
    try:
        note = await Notes(connection).get(explanation.conversation.owner_id, used["id"])
    except NotFound:  # deleted since
        return Used(used["id"], used["score"])
    return Used(used["id"], used["score"], note.title)
