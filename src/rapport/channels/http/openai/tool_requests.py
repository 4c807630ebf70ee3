"""Parse requests with tools of the client: the tools, the choice among them, and messages with calls and results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from rapport.channels.http.openai.errors import UnsupportedField
from rapport.channels.http.openai.requests import (
    MAX_NAME,
    CompletionBody,
    CompletionMessage,
    name_field,
    read_content,
)
from rapport.domain.client_tools import ClientCall, ClientMessage, ClientToolRequest, ToolMode, ToolOffer
from rapport.domain.conversation import extract_text
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import check_text, has_visible_text
from rapport.ingest.content import check_content

MAX_TOOLS = 128
MAX_CALLS = 128
"""The number of calls in one message."""
MAX_DESCRIPTION_CHARACTERS = 32_000

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MODES: Mapping[str, ToolMode] = {"auto": "auto", "none": "none", "required": "required"}


def parse_tool_request(body: CompletionBody, owner_id: str, *, max_characters: int) -> ClientToolRequest:
    """Return the request, checked; raise UnsupportedField, which names the field, for one that OpenAI refuses too."""
    tools = _parse_tools(body.tools or [])
    names = {str(tool["function"]["name"]) for tool in tools}
    mode, only = _parse_choice(body.tool_choice, names)
    settings, messages = _parse_messages(body.messages, max_characters=max_characters)
    return ClientToolRequest(
        owner_id, settings, messages, ToolOffer(tools, mode, only, parallel=body.parallel_tool_calls)
    )


# ---- tools


def _parse_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    if len(tools) > MAX_TOOLS:
        raise UnsupportedField(f"There are {len(tools)} tools; at most {MAX_TOOLS} are accepted.", param="tools")
    parsed: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, tool in enumerate(tools):
        checked = _parse_tool(tool, f"tools[{number}]")
        name = str(checked["function"]["name"])
        if name in names:
            raise UnsupportedField(f"Two tools are called {name!r}.", param=f"tools[{number}].function.name")
        names.add(name)
        parsed.append(checked)
    return parsed


def _parse_tool(tool: object, param: str) -> dict[str, Any]:
    """Return the tool as it is given, after a check of the fields that the API defines."""
    value = _require_object(tool, param, 'A tool is `{"type": "function", "function": {"name": "…"}}`.')
    if value.get("type") != "function":
        raise UnsupportedField("The type of a tool must be `function`.", param=f"{param}.type")
    function = _require_object(value.get("function"), f"{param}.function", "A tool needs its `function`, an object.")
    _check_name(function.get("name"), f"{param}.function.name")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise UnsupportedField("A description is a text.", param=f"{param}.function.description")
    with name_field(f"{param}.function.description"):
        check_text(description or "", what="description", limit=MAX_DESCRIPTION_CHARACTERS)
    if (parameters := function.get("parameters")) is not None:
        schema = _require_object(
            parameters, f"{param}.function.parameters", "The parameters of a tool are a JSON schema: an object."
        )
        _check_schema(schema, f"{param}.function.parameters")
    if not isinstance(function.get("strict"), bool | None):
        raise UnsupportedField("`strict` is true or false.", param=f"{param}.function.strict")
    # An empty value is the same as none, and not every provider takes it.
    fields = {name: field for name, field in function.items() if field is not None}
    return {"type": "function", "function": fields}


def _check_schema(schema: Mapping[str, Any], param: str) -> None:
    """Check the parts of a schema that are read here: what it says of its properties is for the model."""
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict | None):
        raise UnsupportedField("The parameters of a tool are the schema of an object with `properties`.", param=param)
    names = cast("list[object] | None", required)
    if not isinstance(required, list | None) or not all(isinstance(name, str) for name in names or ()):
        raise UnsupportedField("`required` is a list of names.", param=param)
    try:
        orjson.dumps(schema)
    except TypeError as error:
        raise UnsupportedField("The parameters of this tool are nested too deeply.", param=param) from error


def _parse_choice(choice: str | Mapping[str, Any] | None, names: set[str]) -> tuple[ToolMode, str | None]:
    if choice is None:
        return "auto", None
    if isinstance(choice, str):
        if choice not in _MODES:
            raise UnsupportedField(
                "`tool_choice` is `auto`, `none`, `required` or names a function.", param="tool_choice"
            )
        return _MODES[choice], None
    function = choice.get("function")
    name: object = cast("Mapping[str, Any]", function).get("name") if isinstance(function, dict) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        raise UnsupportedField(
            'A named `tool_choice` is `{"type": "function", "function": {"name": "…"}}`.', param="tool_choice"
        )
    if name not in names:
        raise UnsupportedField(f"`tool_choice` names {name[:64]!r}, which is not in `tools`.", param="tool_choice")
    return "required", name


# ---- messages


def _parse_messages(messages: Sequence[CompletionMessage], *, max_characters: int) -> tuple[str, list[ClientMessage]]:
    """Return what the client has set, as one text, and all other messages in their order."""
    settings: list[str] = []
    parsed: list[ClientMessage] = []
    open_calls: dict[str, int] = {}
    for number, message in enumerate(messages):
        param = f"messages.{number}"
        with name_field(param):
            if message.role in ("system", "developer"):
                text = extract_text(read_content(message.content or ""))
                settings.append(check_text(text, what="content", limit=max_characters))
                continue
            checked = _parse_message(message, param, max_characters=max_characters)
        if checked.role == "tool":
            if checked.call_id not in open_calls:
                raise UnsupportedField(
                    "A message of the role `tool` must answer a call in `tool_calls` of the assistant's message before it.",
                    param=f"{param}.tool_call_id",
                )
            del open_calls[checked.call_id]
        else:
            _refuse_open_calls(open_calls)
            open_calls = {call.id: number for call in checked.calls}
        parsed.append(checked)
    _refuse_open_calls(open_calls)
    if not parsed or parsed[-1].role == "assistant":
        raise UnsupportedField("The last message must have the role `user` or `tool`.", param="messages")
    if all(message.role != "user" for message in parsed):
        raise UnsupportedField("One of the messages must have the role `user`.", param="messages")
    return "\n\n".join(text for text in settings if has_visible_text(text)), parsed


def _refuse_open_calls(open_calls: Mapping[str, int]) -> None:
    if open_calls:
        call_id, number = next(iter(open_calls.items()))
        raise UnsupportedField(
            "A message with `tool_calls` must be followed by one of the role `tool` for each call:"
            f" {call_id[:64]!r} has none.",
            param=f"messages.{number}.tool_calls",
        )


def _parse_message(message: CompletionMessage, param: str, *, max_characters: int) -> ClientMessage:
    content = read_content(message.content or "")
    if message.role == "user":
        name = check_text(message.name, what="name", limit=MAX_NAME) if message.name else None
        return ClientMessage("user", check_content(content, limit=max_characters), name)
    text = check_text(extract_text(content), what="content", limit=max_characters)
    if message.role == "tool":
        return ClientMessage("tool", text, call_id=message.tool_call_id or "")
    if message.role == "assistant":
        calls = _parse_calls(message.tool_calls or [], f"{param}.tool_calls", max_characters=max_characters)
        if not calls and not has_visible_text(text):
            raise InvalidInput("A message of the assistant needs a text or `tool_calls`.")
        return ClientMessage("assistant", text, calls=calls)
    raise UnsupportedField("`function` messages are not supported: send the role `tool`.", param=f"{param}.role")


def _parse_calls(calls: Sequence[Any], param: str, *, max_characters: int) -> list[ClientCall]:
    if len(calls) > MAX_CALLS:
        raise UnsupportedField(f"There are {len(calls)} calls; at most {MAX_CALLS} are accepted.", param=param)
    parsed: list[ClientCall] = []
    for number, call in enumerate(calls):
        place = f"{param}[{number}]"
        value = _require_object(call, place, "A call is an object with `id`, `type` and `function`.")
        function = _require_object(value.get("function"), f"{place}.function", "A call needs its `function`.")
        call_id, arguments = value.get("id"), function.get("arguments", "{}")
        if not isinstance(call_id, str) or not call_id:
            raise UnsupportedField("A call needs its `id`, a text.", param=f"{place}.id")
        if any(call_id == other.id for other in parsed):
            raise UnsupportedField("Two calls have the same `id`.", param=f"{place}.id")
        if not isinstance(arguments, str):
            raise UnsupportedField("The arguments of a call are JSON in a text.", param=f"{place}.function.arguments")
        check_text(call_id, what="id", limit=MAX_NAME)
        check_text(arguments, what="arguments", limit=max_characters)
        parsed.append(ClientCall(call_id, _check_name(function.get("name"), f"{place}.function.name"), arguments))
    return parsed


def _check_name(name: object, param: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnsupportedField(
            "The name of a function has 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.", param=param
        )
    return name


def _require_object(value: object, param: str, sentence: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnsupportedField(sentence, param=param)
    return cast("Mapping[str, Any]", value)
