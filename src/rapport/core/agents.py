"""Agents: list, create, change, copy, reset and delete them, and read their versions.

A user makes agents for themselves, an operator also for everyone. Nobody sees another user's agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from rapport.agents.directory import AgentDirectory, read_profile
from rapport.agents.document import AgentDocument, make_id, merge_document, read_document, write_document
from rapport.agents.profiles import SHARED_HANDLES, SHIPPED
from rapport.domain.agent_profile import EVERYONE, AgentProfile
from rapport.domain.caller import Caller
from rapport.domain.conversation import Conversation
from rapport.domain.errors import Conflict, InvalidInput, NotFound
from rapport.domain.follow_up import PLANNED_TIMER_ID
from rapport.domain.tool_names import is_outside_name
from rapport.storage.agents import Agents, AgentVersion, StoredAgent, make_outdated_error, no_such_agent
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Connection, Database
from rapport.storage.followups.timers import Timers
from rapport.storage.memories import Memories

log = structlog.get_logger()

SHIPPED_BY = "rapport"
"""The author of versions that come with Rapport."""
_VERSIONS_PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """An agent as one person sees it."""

    profile: AgentProfile
    document: Mapping[str, Any]
    may_edit: bool
    may_read_text: bool
    """True if the person may read its persona and prompts, and so copy it."""
    is_shipped: bool
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A version, with the fields that it changed: their values before and after."""

    version: AgentVersion
    changes: Mapping[str, tuple[Any, Any]]


class AgentStore:
    """Reads agents for the directory, each in a statement of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, owner_id: str, agent_id: str) -> StoredAgent | None:
        async with self._database.statement() as connection:
            return await Agents(connection).find(owner_id, agent_id)

    async def list_visible(self, owner_id: str) -> Sequence[StoredAgent]:
        async with self._database.statement() as connection:
            return await Agents(connection).list_visible(owner_id)


async def store_shipped_agents(database: Database) -> None:
    """Store the agents that ship as agents for everyone. One that nobody has edited gets the text of this version."""
    async with database.transaction() as connection:
        agents = Agents(connection)
        known = {stored.id: stored for stored in await agents.list_visible(EVERYONE)}
        for agent_id, shipped in SHIPPED.items():
            document, stored = write_document(shipped), known.get(agent_id)
            if stored is None:
                await agents.insert(EVERYONE, agent_id, document, author_id=SHIPPED_BY)
            elif stored.document != document:
                [newest] = await agents.list_versions(EVERYONE, agent_id, limit=1)
                if newest.author_id == SHIPPED_BY:
                    await agents.update(EVERYONE, agent_id, document, author_id=SHIPPED_BY)


@dataclass(frozen=True, slots=True)
class AgentLibrary:
    """Every method raises NotFound for an agent that the person may not use."""

    database: Database
    directory: AgentDirectory

    async def list_visible(self, editor: Caller) -> list[ListedAgent]:
        """Return the agents that the person may use: those of everyone first, then their own."""
        async with self.database.statement() as connection:
            return [_describe(stored, editor) for stored in await Agents(connection).list_visible(editor.owner_id)]

    async def get(self, editor: Caller, agent_id: str) -> ListedAgent:
        async with self.database.statement() as connection:
            return _describe(await _find(connection, editor, agent_id), editor)

    async def require(self, owner_id: str, agent_id: str) -> AgentProfile:
        """Return an agent that the owner may use; raise InvalidInput with all their ids if there is none."""
        profile = await self.directory.find(owner_id, agent_id)
        if profile is None:
            ids = ", ".join(each.id for each in await self.directory.list_visible(owner_id))
            raise InvalidInput(f"There is no agent {agent_id[:64]!r}; there are {ids}.")
        return profile

    async def get_for_conversation(self, conversation: Conversation) -> AgentProfile:
        """Return the agent that answers in a conversation."""
        return await self.directory.reload(conversation.owner_id, conversation.agent_id)

    async def list_usable(self, owner_id: str) -> list[AgentProfile]:
        """Return the agents that the owner may use: those of everyone first, then their own."""
        return await self.directory.list_visible(owner_id)

    async def choose(self, conversation: Conversation, agent_id: str) -> AgentProfile:
        """Let another agent of its owner answer in a conversation from the next message on.

        A follow-up that the planner has set is cancelled: the other agent would send it.
        """
        profile = await self.require(conversation.owner_id, agent_id)
        ids = (conversation.owner_id, conversation.id)
        async with self.database.transaction() as connection:
            await Conversations(connection).set_agent(*ids, profile.id)
            await Timers(connection).cancel(*ids, PLANNED_TIMER_ID, origin="planner")
        return profile

    async def create(self, editor: Caller, document: AgentDocument) -> ListedAgent:
        """Create an agent: for the person, or for everyone if an operator asks for that."""
        self.check_rights(document, editor)
        owner_id = EVERYONE if document.for_everyone else editor.owner_id
        agent_id = document.id or make_id(document.name)
        async with self.database.transaction() as connection:
            agents = Agents(connection)
            if await agents.find(owner_id, agent_id) is not None:
                raise Conflict(f"`id`: there is an agent {agent_id!r} already.")
            await _check_handles(connection, owner_id, agent_id, document)
            stored = await agents.insert(owner_id, agent_id, write_document(document), author_id=editor.owner_id)
        return self._announce("agent.created", stored, editor)

    async def replace(
        self, editor: Caller, agent_id: str, document: AgentDocument, *, version: int | None = None
    ) -> ListedAgent:
        """Store a new version of an agent. With `version` only if that is the newest; raise Conflict otherwise."""
        async with self.database.transaction() as connection:
            stored = await _find_editable(connection, editor, agent_id)
            if document.id not in (None, stored.id):
                raise InvalidInput("`id` can't be changed: copy the agent under another id.")
            if document.for_everyone not in (None, stored.owner_id == EVERYONE):
                raise InvalidInput("`for_everyone` can't be changed: copy the agent.")
            return await self._store(connection, editor, stored, document, version)

    async def change(
        self, editor: Caller, agent_id: str, changes: Mapping[str, Any], *, version: int | None = None
    ) -> ListedAgent:
        """Store a new version with these changes of the newest one: parts are merged, null restores a default."""
        async with self.database.transaction() as connection:
            stored = await _find_editable(connection, editor, agent_id)
            if fixed := {"id", "for_everyone"} & changes.keys():
                raise InvalidInput(f"`{min(fixed)}` can't be changed: copy the agent.")
            document = read_document(merge_document(stored.document, changes))
            return await self._store(connection, editor, stored, document, version or stored.version)

    async def copy(self, editor: Caller, agent_id: str, *, new_id: str | None, name: str | None) -> ListedAgent:
        """Create an agent of the person with the settings of another one, under handles of its own."""
        listed = await self.get(editor, agent_id)
        if not listed.may_read_text:
            raise InvalidInput(f"The agent {agent_id!r} can't be copied: only an operator may read its instructions.")
        new_name = name or f"{listed.profile.name} (copy)"[:80]
        copied: dict[str, Any] = {**listed.document, "id": new_id or make_id(new_name), "name": new_name, "handles": []}
        return await self.create(editor, read_document(copied))

    async def reset(self, editor: Caller, agent_id: str) -> ListedAgent:
        """Store the shipped settings of an agent that ships with Rapport as a new version."""
        if agent_id not in SHIPPED:
            raise InvalidInput(f"The agent {agent_id[:64]!r} does not ship with Rapport: restore one of its versions.")
        return await self.replace(editor, agent_id, SHIPPED[agent_id].model_copy(update={"id": None}))

    async def delete(self, editor: Caller, agent_id: str) -> None:
        """Delete an agent. Its conversations are answered by the default agent, which says so once."""
        async with self.database.transaction() as connection:
            stored = await _find_editable(connection, editor, agent_id)
            if stored.owner_id == EVERYONE and agent_id in SHIPPED:
                raise Conflict(f"{agent_id!r} ships with Rapport: it can be edited, copied and reset, but not deleted.")
            await Agents(connection).delete(stored.owner_id, agent_id)
            await Memories(connection).delete_of_agent(stored.owner_id, agent_id)
        self.directory.forget_handles()
        log.info("agent.deleted", agentId=agent_id)

    async def list_versions(
        self, editor: Caller, agent_id: str, *, before: int | None = None
    ) -> Sequence[VersionChange]:
        """Return versions with their changes, the newest first; `before` is the last version of the page before."""
        async with self.database.statement() as connection:
            stored = await _find_editable(connection, editor, agent_id)
            ids = (stored.owner_id, stored.id)
            versions = await Agents(connection).list_versions(*ids, limit=_VERSIONS_PER_PAGE + 1, before=before)
        older = [*versions[1:], None]
        return [
            VersionChange(version, _compare(previous, version))
            for version, previous in list(zip(versions, older, strict=True))[:_VERSIONS_PER_PAGE]
        ]

    async def get_version(self, editor: Caller, agent_id: str, version: int) -> AgentVersion:
        async with self.database.statement() as connection:
            stored = await _find_editable(connection, editor, agent_id)
            found = await Agents(connection).find_version(stored.owner_id, stored.id, version)
        if found is None:
            raise NotFound(f"The agent {agent_id!r} has no version {version}.")
        return found

    async def restore(self, editor: Caller, agent_id: str, version: int) -> ListedAgent:
        """Store the settings of an earlier version as a new one."""
        old = await self.get_version(editor, agent_id, version)
        return await self.replace(editor, agent_id, read_document(dict(old.document)))

    def check_rights(self, document: AgentDocument, editor: Caller, *, before: Mapping[str, Any] | None = None) -> None:
        """Raise InvalidInput if a user makes an agent for everyone, or one that has the server call an address, read a key, or
        use a tool of an MCP server, of their choice."""
        if editor.is_operator:
            return
        if document.for_everyone:
            raise InvalidInput("`for_everyone`: only an operator makes agents for everyone.")
        options = document.model_options
        for name in ("base_url", "key_variable"):
            if getattr(options, name) and (
                before is None or before["model_options"].get(name) != getattr(options, name)
            ):
                raise InvalidInput(f"`model_options.{name}`: only an operator may set it.")
        for name in ("tools", "tools_without_approval"):
            chosen = getattr(document, name) or ()
            known = (before or {}).get(name) or ()
            if any(is_outside_name(tool) and tool not in known for tool in chosen):
                raise InvalidInput(f"`{name}`: only an operator may add tools of MCP servers.")

    async def _store(
        self,
        connection: Connection,
        editor: Caller,
        stored: StoredAgent,
        document: AgentDocument,
        version: int | None,
    ) -> ListedAgent:
        """Store a new version, or none if nothing is different."""
        self.check_rights(document, editor, before=stored.document)
        written = write_document(document)
        if written == stored.document:
            if version not in (None, stored.version):
                raise make_outdated_error(stored)
            return _describe(stored, editor)
        kept = read_profile(stored).handles
        await _check_handles(connection, stored.owner_id, stored.id, document, kept=kept)
        updated = await Agents(connection).update(
            stored.owner_id, stored.id, written, author_id=editor.owner_id, version=version
        )
        return self._announce("agent.changed", updated, editor)

    def _announce(self, event: str, stored: StoredAgent, editor: Caller) -> ListedAgent:
        self.directory.forget_handles()
        log.info(event, agentId=stored.id, version=stored.version)
        return _describe(stored, editor)


async def _find(connection: Connection, editor: Caller, agent_id: str) -> StoredAgent:
    stored = await Agents(connection).find(editor.owner_id, agent_id)
    if stored is None:
        raise no_such_agent(agent_id)
    return stored


async def _find_editable(connection: Connection, editor: Caller, agent_id: str) -> StoredAgent:
    stored = await _find(connection, editor, agent_id)
    if not _may_edit(stored, editor):
        raise InvalidInput(describe_refused_edit(_describe(stored, editor)))
    return stored


def describe_refused_edit(listed: ListedAgent) -> str:
    """Return the sentence for a person who may not change an agent."""
    sentence = f"The agent {listed.profile.id!r} is for everyone: only an operator may change it."
    return f"{sentence} You can copy it." if listed.may_read_text else sentence


def _may_edit(stored: StoredAgent, editor: Caller) -> bool:
    return stored.owner_id == editor.owner_id or (stored.owner_id == EVERYONE and editor.is_operator)


def _describe(stored: StoredAgent, editor: Caller) -> ListedAgent:
    may_edit = _may_edit(stored, editor)
    is_shipped = stored.owner_id == EVERYONE and stored.id in SHIPPED
    may_read = may_edit or (is_shipped and stored.document == write_document(SHIPPED[stored.id]))
    return ListedAgent(read_profile(stored), stored.document, may_edit, may_read, is_shipped, stored.updated_at)


async def _check_handles(
    connection: Connection, owner_id: str, agent_id: str, document: AgentDocument, *, kept: Sequence[str] = ()
) -> None:
    """Raise Conflict for a new handle that another agent has which the owner may use: people could not tell them apart.

    A handle that it has stays its own: an operator may have given it to an agent for everyone since.
    """
    before = {handle.casefold() for handle in kept}
    handles = {handle.casefold() for handle in document.handles or [agent_id]} - SHARED_HANDLES - before
    for other in await Agents(connection).list_visible(owner_id):
        if other.id == agent_id:
            continue
        theirs = {handle.casefold() for handle in (other.id, *read_profile(other).handles)}
        if taken := handles & theirs:
            raise Conflict(f"`handles`: @{min(taken)} belongs to the agent {other.id!r}.")


def _compare(before: AgentVersion | None, after: AgentVersion) -> dict[str, tuple[Any, Any]]:
    if before is None:
        return {}
    names = {*before.document, *after.document}
    pairs = {name: (before.document.get(name), after.document.get(name)) for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
