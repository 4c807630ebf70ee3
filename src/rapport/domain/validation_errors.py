"""Describe the validation errors of a request in sentences for its sender.

The sent value is never repeated: it may be huge, or not text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_ERRORS = 3
_MAX_FIELD_CHARACTERS = 80
_MAX_MESSAGE_CHARACTERS = 300
_NO_OBJECT = "The body is not a JSON object (is the header `Content-Type: application/json` set?)."

_OBJECT_TYPES = frozenset({"model_attributes_type", "dict_type", "model_type"})
_EXPECTED = {
    "string_type": "a text",
    "list_type": "a list",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(_OBJECT_TYPES, "an object with fields"),
}
_FORMS = {"author": '`{"id": ..., "name": ...}`', "context_snapshot": '`{"text": ..., ...}`'}
"""The form of a field that is an object, by its name."""
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_LARGE_DIGITS = 18
"""A whole number with more digits is read as another type by JSON and YAML."""


def describe_errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence for each of the first fields with an error."""
    by_field: dict[str, list[Mapping[str, Any]]] = {}
    for error in errors:
        by_field.setdefault(name_field(error), []).append(error)
    fields = [field for field in by_field if not any(_is_inside(other, field) for other in by_field)]
    return " ".join(_describe_field(field, by_field[field]) for field in fields[:MAX_ERRORS])


def name_field(error: Mapping[str, Any]) -> str:
    """Return the field of an error as the sender wrote it, such as `messages.0.content`; empty for the whole body."""
    location: Sequence[str | int] = error.get("loc", ())
    parts = [part for number, part in enumerate(location) if number > 0 or part not in ("body", "query", "path")]
    last = len(parts) - 1
    is_unknown = error.get("type") == "extra_forbidden"
    names = [
        str(part) for number, part in enumerate(parts) if (is_unknown and number == last) or not _is_type_name(part)
    ]
    return ".".join(names).encode("utf-8", "replace").decode()[:_MAX_FIELD_CHARACTERS]


def _is_type_name(part: str | int) -> bool:
    """Return True if Pydantic added this part: the name of a type, where a field allows several types."""
    if isinstance(part, int):
        return False
    return part in ("str", "int", "float", "bool", "constrained-str") or "[" in part or not part.islower()


def _is_inside(field: str, outer: str) -> bool:
    """Return True if `field` is a part of the value of `outer`: then its error is the more precise one."""
    return bool(outer) and field.startswith(f"{outer}.")


def _describe_field(field: str, errors: Sequence[Mapping[str, Any]]) -> str:
    types = [str(error.get("type", "")) for error in errors]
    if types[0] == "extra_forbidden":
        return f"There is no field `{field}`."
    if types[0] == "missing":
        return f"The field `{field}` is missing." if field else "The body is missing: send a JSON object."
    if not field and types[0] in _OBJECT_TYPES:
        return _NO_OBJECT
    if field and types[0] == "int_type" and _is_large_number(errors[0].get("input")):
        return f"`{field}` is too large."
    if field and all(type_ in _EXPECTED for type_ in types):
        form = _FORMS.get(field.rpartition(".")[2])
        expected = [f"an object {form}" if form and type_ in _OBJECT_TYPES else _EXPECTED[type_] for type_ in types]
        return f"`{field}` must be {' or '.join(dict.fromkeys(expected))}."
    message = _describe_limit(errors[0]) or str(errors[0].get("msg", "invalid"))
    message = message.encode("utf-8", "replace").decode()[:_MAX_MESSAGE_CHARACTERS]
    if not field:
        return f"{message}."
    # Sentences of ours go on after the field's name; those of Pydantic are whole ones.
    return f"`{field}` {message}." if message[:1].islower() else f"`{field}`: {message}."


def describe_problem(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, without the value: the end of a sentence that begins with its field."""
    kind = str(error.get("type"))
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}"
    return _describe_limit(error) or f"is wrong: {str(error['msg'])[:_MAX_MESSAGE_CHARACTERS]}"


def _describe_limit(error: Mapping[str, Any]) -> str | None:
    """Return what a value that is over a limit, or none of a few words, must be; None for another error."""
    kind = str(error.get("type"))
    limits: Mapping[str, Any] = error.get("ctx") or {}
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {_write_number(limits[name])}"
    if kind == "literal_error":
        if error.get("loc", ())[-1:] == ("[key]",):
            return f"is none of {str(limits['expected']).replace(chr(39), '`')}"
        return f"must be {str(limits['expected']).replace(chr(39), '`')}"
    if kind.startswith("url_"):
        return "must be a whole address, such as `https://example.org/page`"
    if kind not in ("too_long", "too_short", "string_too_long", "string_too_short"):
        return None
    entries = "characters" if kind.startswith("string") or isinstance(error.get("input"), str) else "entries"
    if kind.endswith("too_long"):
        return f"must have at most {_write_number(limits['max_length'])} {entries}"
    least = limits["min_length"]
    return "must not be empty" if least == 1 else f"must have at least {_write_number(least)} {entries}"


def _write_number(number: float) -> str:
    return f"{int(number) if number == int(number) else number:,}"


def _is_large_number(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > _LARGE_DIGITS and value.isdecimal()
    return isinstance(value, float) and value.is_integer() and abs(value) >= 10**_LARGE_DIGITS
