"""Define a request with tools of a client: its messages, its tools, and the answer with the calls for the client to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rapport.domain.conversation import Content, extract_text
from rapport.domain.errors import InvalidInput, RapportError
from rapport.domain.usage import Usage

ToolMode: TypeAlias = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call of a client's tool: in an earlier message, or in the answer."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: JSON of an object, or what it took for that."""


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One message of the request, checked. One of the role `tool` is the result of a call."""

    role: Literal["user", "assistant", "tool"]
    content: Content
    name: str | None = None
    calls: Sequence[ClientCall] = ()
    call_id: str = ""

    @property
    def text(self) -> str:
        return extract_text(self.content)


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools of a client, as it describes them in the form of OpenAI's API, and which of them may be called."""

    tools: Sequence[dict[str, Any]]
    mode: ToolMode = "auto"
    only: str | None = None
    """The name of the tool that must be called; None: any."""
    parallel: bool | None = None
    """False: at most one call in an answer; None: the model's default."""

    @property
    def is_required(self) -> bool:
        """Return True if the answer must be a call."""
        return self.mode == "required" or self.only is not None

    @property
    def callable_names(self) -> frozenset[str]:
        """Return the names of the tools that the answer may call."""
        if self.mode == "none":
            return frozenset()
        names = frozenset(str(tool["function"]["name"]) for tool in self.tools)
        return names if self.only is None else names & {self.only}


@dataclass(frozen=True, slots=True)
class ClientToolRequest:
    """A whole conversation with tools of the client. Nothing of it is stored."""

    owner_id: str
    settings: str
    """The text that the client adds to the agent's instructions; may be empty."""
    messages: Sequence[ClientMessage]
    """At least one is the user's. Every result follows the message with its call, and every call has a result."""
    offer: ToolOffer


@dataclass(frozen=True, slots=True)
class ClientToolReply:
    """The answer to such a request: text, calls for the client to run, or both."""

    text: str
    calls: Sequence[ClientCall] = ()
    sources: Sequence[Mapping[str, str]] = ()
    guard_used: bool = False
    tools_refused: bool = False
    """True if the model was asked without the tools, because it can't call any or its server refused them."""
    usage: Sequence[Usage] = ()


class ToolsRefused(InvalidInput):
    """The client demands a call, and the agent's model can't make one."""


class RequestRefused(InvalidInput):
    """The model's server refuses the request; a retry does not help."""

    def __init__(self, message: str, *, is_too_long: bool) -> None:
        super().__init__(message)
        self.is_too_long = is_too_long


class BudgetSpent(RapportError):
    """A budget of tokens is used up: the model was not called."""
