"""Read a message of a server at a cost that its size bounds, before the official package sees it.

The package validates a message as Python objects, several times: four megabytes of nested lists hold the event loop for twelve
seconds. Here a message is read once by orjson, and its content goes on as one text (ADR 92).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import orjson

MAX_CONTAINERS: Final = 50_000
"""The number of lists and objects in a message; braces and brackets in its texts count too."""
MAX_COMMAS: Final = 250_000
_CONTAINERS_PER_TOKEN: Final = 500
_PACKED: Final = "packed"
_MAX_METHOD_CHARACTERS: Final = 200
_MAX_ERROR_CHARACTERS: Final = 2_000


class TooComplex(ValueError):
    """A message has too many parts."""


def estimate_cost(data: bytes) -> float:
    """Return the tokens that reading a message costs, by the number of its lists and objects."""
    containers = _count_containers(data)
    return 0.0 if containers > MAX_CONTAINERS else containers / _CONTAINERS_PER_TOKEN  # too many are not read at all


def pack(data: bytes) -> bytes:
    """Return the message with its params or result as one text. Raise ValueError if it is no message of JSON-RPC."""
    if _count_containers(data) > MAX_CONTAINERS or data.count(b",") > MAX_COMMAS:
        raise TooComplex("a message is too complex")
    value: object = orjson.loads(data)
    message = cast("Mapping[str, Any]", value if isinstance(value, dict) else {})
    number, method = message.get("id"), message.get("method")
    packed: dict[str, Any] = {"jsonrpc": "2.0"}
    if number is not None:
        if not isinstance(number, int | str) or isinstance(number, bool):
            raise ValueError("the id of a message is neither a number nor a text")
        packed["id"] = number
    if isinstance(method, str):
        packed |= {"method": method[:_MAX_METHOD_CHARACTERS], "params": _pack_fields(message.get("params"))}
    elif "result" in message:
        packed["result"] = _pack_fields(message["result"])
    elif isinstance(error := message.get("error"), dict):
        packed["error"] = _clean_error(cast("Mapping[str, Any]", error))
    else:
        raise ValueError("neither a request nor an answer")
    return orjson.dumps(packed)


def unpack(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the params or the result that `pack` has packed; empty if they are no object."""
    text = (fields or {}).get(_PACKED)
    value: object = orjson.loads(text) if isinstance(text, str) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _pack_fields(value: object) -> dict[str, Any]:
    fields: dict[str, Any] = {_PACKED: orjson.dumps(value).decode()}
    version = cast("Mapping[str, Any]", value).get("protocolVersion") if isinstance(value, dict) else None
    if isinstance(
        version, str
    ):  # the official transport reads the answer to `initialize`, to name the version from then on
        server = {"name": "-", "version": "-"}
        fields |= {"protocolVersion": version[:40], "capabilities": {}, "serverInfo": server}
    return fields


def _clean_error(error: Mapping[str, Any]) -> dict[str, Any]:
    code, text = error.get("code"), error.get("message")
    is_code = isinstance(code, int) and abs(code) < 2**31
    return {
        "code": code if is_code else -32_603,
        "message": text[:_MAX_ERROR_CHARACTERS] if isinstance(text, str) else "",
    }


def _count_containers(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")
