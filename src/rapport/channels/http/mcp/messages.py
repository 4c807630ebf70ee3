"""Answer one message of the protocol (JSON-RPC 2.0). Nothing is kept between two messages, so any replica can answer the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import orjson
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ValidationError

from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.server import make_server
from rapport.domain.validation_errors import describe_errors

METHODS: Mapping[str, type[BaseModel]] = {
    "initialize": types.InitializeRequest,
    "ping": types.PingRequest,
    "tools/list": types.ListToolsRequest,
    "tools/call": types.CallToolRequest,
    "resources/list": types.ListResourcesRequest,
    "resources/templates/list": types.ListResourceTemplatesRequest,
    "resources/read": types.ReadResourceRequest,
}


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """The answer to a message: one line of JSON, or none for a notification."""

    data: bytes | None
    is_malformed: bool = False
    """True if the message was not one of the protocol."""


class _Malformed(Exception):
    """The message can't be answered: the code, the sentence, and the id of the request if it has one."""

    def __init__(self, code: int, sentence: str, id_: str | int | None = None, *, is_request: bool = False) -> None:
        super().__init__(sentence)
        self.answer = McpAnswer(format_error(code, sentence, id_), is_malformed=not is_request)


async def answer_message(access: CallerAccess, data: bytes) -> McpAnswer:
    """Return the answer to a message of this caller."""
    try:
        message = _read_message(data)
    except _Malformed as error:
        return error.answer
    if not isinstance(message.root, types.JSONRPCRequest):
        return McpAnswer(None)  # a notification: nothing is kept that it could change
    return McpAnswer(await _answer_request(make_server(access), message))


def format_error(code: int, sentence: str, id_: str | int | None) -> bytes:
    """Return an error of the protocol as one line of JSON."""
    return orjson.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": sentence}})


def _read_message(data: bytes) -> types.JSONRPCMessage:
    """Return the message; raise _Malformed unless it is one that the server's session accepts.

    The session writes a message that it can't read to the log, with its text.
    """
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _Malformed(types.PARSE_ERROR, f"The message is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise _Malformed(types.INVALID_REQUEST, "A message is one JSON object; several at once are not accepted.")
    fields = cast("dict[str, Any]", value)
    id_: object = fields.get("id")
    id_ = id_ if isinstance(id_, str | int) and not isinstance(id_, bool) else None
    try:
        message = types.JSONRPCMessage.model_validate(fields)
    except ValidationError as error:
        sentence = 'A message is `{"jsonrpc": "2.0", "id": …, "method": …, "params": {…}}`.'
        raise _Malformed(types.INVALID_REQUEST, sentence, id_) from error
    if isinstance(message.root, types.JSONRPCRequest):
        _check_request(message.root)
    return message


def _check_request(request: types.JSONRPCRequest) -> None:
    kind = METHODS.get(request.method)
    if kind is None:
        sentence = f"There is no method {request.method[:64]!r}; there are {', '.join(METHODS)}."
        raise _Malformed(types.METHOD_NOT_FOUND, sentence, request.id, is_request=True)
    try:
        kind.model_validate(request.model_dump(by_alias=True, mode="json", exclude_none=True))
    except ValidationError as error:
        raise _Malformed(types.INVALID_PARAMS, describe_errors(error.errors()), request.id, is_request=True) from error


async def _answer_request(server: Server[Any], message: types.JSONRPCMessage) -> bytes:
    """Return the response of the server, which runs for this one request."""
    to_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    sent, from_server = anyio.create_memory_object_stream[SessionMessage](1)
    response: types.JSONRPCMessage | None = None
    async with to_server, from_server, anyio.create_task_group() as tasks:
        run = partial(server.run, received, sent, server.create_initialization_options(), stateless=True)
        tasks.start_soon(run)
        await to_server.send(SessionMessage(message))
        async for answer in from_server:
            if isinstance(answer.message.root, types.JSONRPCResponse | types.JSONRPCError):
                response = answer.message
                break
        tasks.cancel_scope.cancel()
    assert response is not None
    return response.model_dump_json(by_alias=True, exclude_none=True).encode()
