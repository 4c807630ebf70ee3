"""Build the prompt of a request with a client's tools: all of its messages, in the form that the model has for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage

from rapport.context.transcript import to_langchain_content
from rapport.domain.client_tools import ClientCall, ClientMessage
from rapport.domain.server_note import ServerNote, add_note

NOTE_RULE = "The newest message of the person begins with a server note: use it, never mention it."
_SETTINGS = (
    "The application through which you are asked has set the following. Follow it as far as your rules above allow:"
)


def build_client_prompt(
    instructions: str, settings: str, messages: Sequence[ClientMessage], note: ServerNote
) -> list[BaseMessage]:
    """Return one system message and all messages, with the note beside the newest message of the user.

    What the client has set is part of the system message: many chat templates refuse a second one.
    """
    system = f"{instructions}\n\n{_SETTINGS}\n\n{settings}" if settings else instructions
    prompt: list[BaseMessage] = [SystemMessage(system), *map(_build_message, messages)]
    newest = max(number for number, message in enumerate(prompt) if isinstance(message, HumanMessage))
    prompt[newest] = add_note(prompt[newest], note)
    return prompt


def _build_message(message: ClientMessage) -> BaseMessage:
    if message.role == "tool":
        return ToolMessage(message.text, tool_call_id=message.call_id)
    if message.role == "assistant":
        return AIMessage(message.text, tool_calls=[_build_call(call) for call in message.calls])
    return HumanMessage(to_langchain_content(message.content))


def _build_call(call: ClientCall) -> ToolCall:
    """Return an earlier call. Arguments that are no JSON object become an empty one, because some servers refuse others."""
    try:
        arguments: object = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    args = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    return ToolCall(name=call.name, args=args, id=call.id)
