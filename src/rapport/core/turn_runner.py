"""The protocols that the runtime provides to channels: accept a message, wait for its reply, cancel, erase."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.client_tools import ClientToolReply, ClientToolRequest
from rapport.domain.conversation import Incoming, Message
from rapport.domain.event import Accepted, Reply


class Ticket(Protocol):
    """A stored message and, if it is to be answered, a way to wait for the reply."""

    accepted: Accepted

    def tokens(self) -> AsyncIterator[str]:
        """Yield the reply's tokens. An empty string only says that the turn still runs."""
        ...

    async def reply(self) -> Message: ...

    def close(self) -> None:
        """Stop waiting for the reply; the turn goes on."""
        ...


class ClientToolTicket(Protocol):
    """A request with a client's tools that is being answered."""

    id: str

    def tokens(self) -> AsyncIterator[str]:
        """Yield the text of the answer. An empty string only says that the model still works."""
        ...

    async def reply(self) -> ClientToolReply: ...

    def close(self) -> None:
        """Stop the model if it still works: nobody waits for the answer."""
        ...


class TurnRunner(Protocol):
    """Accepts messages, runs their turns, and cancels or erases them."""

    async def accept(self, incoming: Incoming, *, listen: bool = False) -> Ticket: ...

    async def cancel(self, owner_id: str, conversation_id: str, message_id: str | None = None) -> bool:
        """Stop the running turn; with a message's id only the turn that answers it, even if it has not begun yet."""
        ...

    async def try_agent(self, owner_id: str, profile: AgentProfile, text: str) -> Reply:
        """Return the agent's answer to one message, and store nothing."""
        ...

    async def notice_decision(self, conversation_id: str) -> None:
        """Go on with the turn of a conversation about whose tool calls a person has decided."""
        ...

    def begin_client_tools(
        self, request: ClientToolRequest, profile: AgentProfile, *, listen: bool = False
    ) -> ClientToolTicket:
        """Begin to answer a request with a client's tools, of which only the usage is stored. Raise Busy if there is no slot."""
        ...

    async def erase(self, owner_id: str, conversation_id: str) -> None:
        """Delete the conversation and all its data. Raises NotFound."""
        ...
