"""Find agents by their id. Turns use known profiles, and learn from their own load statement whether one is outdated."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rapport.agents.document import STORED, AgentDocument, make_profile
from rapport.agents.profiles import COMPANION, DEFAULT_AGENT_ID
from rapport.domain.agent_profile import EVERYONE, AgentHandle, AgentProfile

MAX_KNOWN_PROFILES = 2_000
HANDLES_TTL_SECONDS = 1.0
"""After this time the handles of an owner's agents are read again. A change in this process, or a hint, makes it at once."""


class StoredAgent(Protocol):
    """A row of the store."""

    @property
    def owner_id(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def stamp(self) -> int: ...
    @property
    def document(self) -> Mapping[str, Any]: ...


class AgentStore(Protocol):
    """Reads stored agents: an owner's, and those of everyone."""

    async def find(self, owner_id: str, agent_id: str) -> StoredAgent | None: ...

    async def list_visible(self, owner_id: str) -> Sequence[StoredAgent]: ...


def read_profile(stored: StoredAgent) -> AgentProfile:
    """Return the profile of a stored agent. A field that this version does not know is ignored: a newer one wrote it."""
    known = {name: value for name, value in stored.document.items() if name in AgentDocument.model_fields}
    return make_profile(
        AgentDocument.model_validate(known, context=STORED),
        agent_id=stored.id,
        owner_id=stored.owner_id,
        version=stored.version,
        stamp=stored.stamp,
    )


class AgentDirectory:
    """The agents that each owner may use."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._profiles: OrderedDict[tuple[str, str], AgentProfile] = OrderedDict()
        self._handles: dict[str, tuple[float, Sequence[AgentHandle]]] = {}

    async def find(self, owner_id: str, agent_id: str) -> AgentProfile | None:
        """Return the newest version of an agent that the owner may use; None if there is none."""
        stored = await self._store.find(owner_id, agent_id)
        return read_profile(stored) if stored is not None else None

    async def list_visible(self, owner_id: str) -> list[AgentProfile]:
        """Return all agents that the owner may use."""
        return [read_profile(stored) for stored in await self._store.list_visible(owner_id)]

    async def get_known(self, owner_id: str, agent_id: str) -> AgentProfile:
        """Return the profile that this process knows, perhaps an outdated one: compare its stamp with the stored one."""
        key = (owner_id, agent_id)
        if (profile := self._profiles.get(key)) is None:
            return await self.reload(owner_id, agent_id)
        self._profiles.move_to_end(key)
        return profile

    def find_known(self, owner_id: str, agent_id: str) -> AgentProfile | None:
        """Return the profile that the latest turn with this agent used; None if this process has not run one."""
        return self._profiles.get((owner_id, agent_id))

    async def reload(self, owner_id: str, agent_id: str) -> AgentProfile:
        """Return the newest version; for an agent that does not exist the default agent, with the missing id in `replaces`."""
        profile = await self.find(owner_id, agent_id)
        if profile is None:
            self._profiles.pop((owner_id, agent_id), None)
            default = await self.find(EVERYONE, DEFAULT_AGENT_ID) or COMPANION
            return replace(default, stamp=0, replaces=agent_id)
        key = (owner_id, agent_id)
        self._profiles[key] = profile
        self._profiles.move_to_end(key)
        while len(self._profiles) > MAX_KNOWN_PROFILES:
            self._profiles.popitem(last=False)
        return profile

    async def list_handles(self, owner_id: str) -> Sequence[AgentHandle]:
        """Return the handles of the agents that the owner may use, at most HANDLES_TTL_SECONDS old."""
        until, handles = self._handles.get(owner_id, (0.0, ()))
        if time.monotonic() >= until:
            handles = [
                AgentHandle(profile.id, profile.handles, answers_for_deleted=profile.id == DEFAULT_AGENT_ID)
                for profile in await self.list_visible(owner_id)
            ]
            if len(self._handles) >= MAX_KNOWN_PROFILES:
                self._handles.clear()
            self._handles[owner_id] = (time.monotonic() + HANDLES_TTL_SECONDS, handles)
        return handles

    def forget_handles(self) -> None:
        """Read all handles again when they are next needed: an agent has changed."""
        self._handles.clear()


def add_chat_handle(profile: AgentProfile, chat_handle: str | None) -> AgentProfile:
    """Return the profile with one more handle, which the agent has in one chat."""
    return profile if chat_handle is None else replace(profile, handles=(chat_handle, *profile.handles))
