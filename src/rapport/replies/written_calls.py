"""Read tool calls that a model has written as text: as JSON, as a Python-like call, or in tags."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

MAX_PARSED_CHARACTERS: Final = 16_000
"""A longer value is not parsed: its call is cut out and not executed."""
NAME_KEYS: Final = ("name", "tool", "function", "tool_name", "function_name", "action", "recipient_name")
_TOOL_NAME_KEYS: Final = ("name", "tool", "tool_name", "function_name", "recipient_name")
ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params", "kwargs")
WRAPPING_KEYS: Final = ("tool_calls", "tool_call", "function_call", "function_calls", "tool_uses", "calls", "function")
OTHER_KEYS: Final = ("type", "id", "index", "call_id", "tool_call_id")
CALL_KEYS: Final = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPING_KEYS, *OTHER_KEYS})

_STRUCTURE = re.compile(r"[\[\](){}\"']")
_STRINGS = {'"': re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL), "'": re.compile(r"'(?:[^'\\]|\\.)*+'", re.DOTALL)}
_OPENS_VALUE = re.compile(r"[\[{]")
_PARAMETER = re.compile(
    r"<(?:\W\w{1,20}\W|\w{1,20}:)?parameter\s*(?:=|name=)\s*[\"']?(\w+)[\"']?[^<>]{0,60}>([^<]*+(?:<(?!/?(?:\W\w{1,20}\W|\w{1,20}:)?parameter)[^<]*+)*+)<"
    r"|<arg_key>\s*(\w+)\s*</arg_key>\s*<arg_value>([^<]*+(?:<(?!/arg_value|arg_key)[^<]*+)*+)<"
    r"|<(\w+)>([^<]*+)</\w+>"
)
_BARE_KEY = re.compile(r"(?<=[{,])\s*(\w+)\s*:")
_NOT_SPACE = re.compile(r"[^\s,;]")
_OTHER_QUOTES = re.compile(r"<escape>|<\|\"\|>")
_TOOL_NAME = re.compile(r"[\w.:-]{1,64}")
_PREFIX = r"(?:functions[.:]|default_api\.|tools\.|call:)?"
_NAME_PREFIX = re.compile(_PREFIX)


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A tool call that a model wrote as text."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class OfferedTools:
    """The names and parameters of the tools that a model is offered."""

    parameters: Mapping[str, tuple[str, ...]]
    required: Mapping[str, frozenset[str]]

    @classmethod
    def from_schemas(cls, tools: Sequence[Mapping[str, Any]]) -> OfferedTools:
        """Return the tools that these schemas, in the form of the OpenAI API, describe."""
        functions = [tool["function"] for tool in tools]
        schemas: dict[str, dict[str, Any]] = {
            function["name"]: function.get("parameters") or {} for function in functions
        }
        return cls(
            {name: tuple(schema.get("properties") or ()) for name, schema in schemas.items()},
            {name: frozenset(schema.get("required") or ()) for name, schema in schemas.items()},
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parameters)

    def accept(self, call: WrittenCall) -> bool:
        """Return True if the call has every required argument and no unknown one."""
        given = set(call.arguments)
        return given <= set(self.parameters[call.name]) and self.required[call.name] <= given

    @cached_property
    def mention(self) -> re.Pattern[str]:
        """Match the name of a tool, with the prefix that some models write."""
        names = "|".join(re.escape(name) for name in self.names) or r"(?!)"
        return re.compile(rf"(?<![\w.]){_PREFIX}({names})(?!\w)")


def find_value_end(text: str, start: int) -> int | None:
    """Return the end of the bracketed value that starts here; None if it is not finished."""
    depth, position = 0, start
    while match := _STRUCTURE.search(text, position):
        mark, position = match.group(), match.end()
        if mark in _STRINGS:
            string = _STRINGS[mark].match(text, match.start())
            if string is None:
                return None
            position = string.end()
        else:
            depth += 1 if mark in "[({" else -1
            if depth <= 0:
                return position
    return None


def read_value(text: str) -> Any:
    """Return the value of JSON, or of a Python literal; None if it is neither."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    try:
        return json.loads(_BARE_KEY.sub(r'"\1":', text), strict=False)
    except (ValueError, RecursionError):
        return None


def read_json_calls(value: Any, tools: OfferedTools) -> list[WrittenCall]:
    """Return the calls of a JSON value; an empty list if it is, even in part, something else."""
    if isinstance(value, list):
        found = [read_json_calls(item, tools) for item in cast("list[Any]", value)]
        return [call for calls in found for call in calls] if all(found) else []
    if not isinstance(value, dict):
        return []
    fields = cast("dict[str, Any]", value)
    for key in WRAPPING_KEYS:
        if isinstance(fields.get(key), dict | list) and (calls := read_json_calls(fields[key], tools)):
            return calls
    for key in NAME_KEYS:
        if isinstance(name := fields.get(key), str) and (known := strip_prefix(name)) in tools.parameters:
            return [WrittenCall(known, _read_arguments(fields, key, tools.parameters[known]))]
    if len(fields) == 1 and (name := next(iter(fields))) in tools.parameters and isinstance(fields[name], dict):
        return [WrittenCall(name, fields[name])]
    return []


def is_any_call(value: Any) -> bool:
    """Return True if the value has the form of a call, of whatever tool: a name, arguments and nothing else."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return bool(items) and all(map(is_any_call, items))
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)
    if any(isinstance(fields.get(key), dict | list) and is_any_call(fields[key]) for key in WRAPPING_KEYS):
        return fields.keys() <= CALL_KEYS
    names = [fields[key] for key in _TOOL_NAME_KEYS if isinstance(fields.get(key), str)]
    arguments = [fields[key] for key in ARGUMENT_KEYS if isinstance(fields.get(key), dict | str)]
    is_named = len(names) == 1 and _TOOL_NAME.fullmatch(names[0]) is not None
    return is_named and len(arguments) == 1 and fields.keys() <= CALL_KEYS


def strip_prefix(name: str) -> str:
    """Return the tool's name without the prefix that some models write before it."""
    stripped = name.strip()
    match = _NAME_PREFIX.match(stripped)
    return stripped[match.end() :] if match else stripped


def _read_arguments(fields: dict[str, Any], name_key: str, parameters: Sequence[str]) -> dict[str, Any]:
    for key in ARGUMENT_KEYS:
        arguments = fields.get(key)
        if isinstance(arguments, str):  # the API's own form: JSON in a string
            arguments = read_value(arguments)
        if isinstance(arguments, dict):
            return cast("dict[str, Any]", arguments)
    return {key: value for key, value in fields.items() if key in parameters and key != name_key}


def read_python_call(text: str, tools: OfferedTools) -> WrittenCall | None:
    """Return the call that this Python-like text is; None if it is no call of an offered tool with literal arguments."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Call):
        return None
    name = strip_prefix(ast.unparse(node.func))
    if name not in tools.parameters:
        return None
    try:
        positional = [ast.literal_eval(value) for value in node.args]
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    except (ValueError, TypeError, RecursionError):
        return None
    return WrittenCall(name, {**dict(zip(tools.parameters[name], positional, strict=False)), **named})


def read_calls(text: str, tools: OfferedTools) -> list[WrittenCall]:
    """Return the calls in text that is known to be machinery, in whatever form they are written."""
    text = _OTHER_QUOTES.sub('"', text[:MAX_PARSED_CHARACTERS])
    return list(_read_values(text, tools)) or _read_tags(text, tools) or list(_read_python_calls(text, tools))


def _read_values(text: str, tools: OfferedTools) -> Iterator[WrittenCall]:
    """Yield the calls of JSON values: whole calls, or arguments after a tool's name."""
    position = 0
    while opening := _OPENS_VALUE.search(text, position):
        end = find_value_end(text, opening.start())
        if end is None:
            return
        value = read_value(text[opening.start() : end])
        names: list[str] = tools.mention.findall(text, position, opening.start())
        calls = read_json_calls(value, tools)
        if not calls and names and isinstance(value, dict):
            calls = [WrittenCall(names[-1], cast("dict[str, Any]", value))]
        yield from calls
        # Brackets that hold no value, such as `[ARGS]`, may be followed by one that belongs to the same name.
        position = end if value is not None else opening.end()
        if value is None and names:
            yield from _read_named_value(text, position, names[-1])
            return


def _read_named_value(text: str, position: int, name: str) -> Iterator[WrittenCall]:
    start = text.find("{", position)
    end = find_value_end(text, start) if start >= 0 else None
    value = read_value(text[start:end]) if end is not None else None
    if isinstance(value, dict):
        yield WrittenCall(name, cast("dict[str, Any]", value))


def _read_tags(text: str, tools: OfferedTools) -> list[WrittenCall]:
    """Return the calls whose arguments are elements: `<parameter=x>…</parameter>`, `<arg_key>…`, `<x>…</x>`."""
    mentions = list(tools.mention.finditer(text))
    calls: list[WrittenCall] = []
    for number, mention in enumerate(mentions):
        name: str = mention.group(1)
        end = mentions[number + 1].start() if number + 1 < len(mentions) else len(text)
        arguments: dict[str, Any] = {}
        for match in _PARAMETER.finditer(text, mention.end(), end):
            key, value = next((match[at], match[at + 1]) for at in (1, 3, 5) if match[at])
            if key in tools.parameters[name]:
                arguments[key] = value.strip()
        if arguments:
            calls.append(WrittenCall(name, arguments))
    return calls


def _read_python_calls(text: str, tools: OfferedTools) -> Iterator[WrittenCall]:
    position = 0
    while mention := tools.mention.search(text, position):
        position = mention.end()
        opening = text.find("(", position)
        if opening < 0 or text[position:opening].strip():
            continue
        end = find_value_end(text, opening)
        if end is None:
            return
        if call := read_python_call(text[mention.start() : end], tools):
            yield call
        position = end


def read_only_calls(text: str, tools: OfferedTools) -> list[WrittenCall]:
    """Return the calls of a code block; an empty list if it holds anything else than calls."""
    if text.lstrip().startswith("<"):
        return read_calls(text, tools)
    calls: list[WrittenCall] = []
    position = 0
    while match := _NOT_SPACE.search(text, position):
        start = match.start()
        opening = start if text[start] in "[{" else text.find("(", start)
        end = find_value_end(text, opening) if opening >= 0 else None
        if end is None:
            return []
        item = text[start:end]
        if text[start] in "[{":
            found = read_json_calls(read_value(item), tools) or list(_read_python_calls(item, tools))
        else:
            call = read_python_call(item, tools)
            found = [call] if call else []
        if not found:
            return []
        calls += found
        position = end
    return calls
