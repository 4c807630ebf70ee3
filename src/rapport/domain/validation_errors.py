"""Describe the validation errors of a request in sentences for its sender.

The sent value is never repeated: it may be huge, or not text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_ERRORS = 3
_MAX_FIELD_CHARACTERS = 80
_MAX_MESSAGE_CHARACTERS = 200
_NO_OBJECT = "The body is not a JSON object (is the header `Content-Type: application/json` set?)."

_OBJECT_TYPES = frozenset({"model_attributes_type", "dict_type", "model_type"})
_EXPECTED = {
    "string_type": "a text",
    "list_type": "a list",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    **dict.fromkeys(_OBJECT_TYPES, "a JSON object"),
}
_FORMS = {"author": '`{"id": ..., "name": ...}`', "context_snapshot": '`{"text": ..., ...}`'}
"""The form of a field that is a JSON object, by its name."""


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
    if field and all(type_ in _EXPECTED for type_ in types):
        form = _FORMS.get(field.rpartition(".")[2])
        expected = [
            f"{_EXPECTED[type_]} {form}" if form and type_ in _OBJECT_TYPES else _EXPECTED[type_] for type_ in types
        ]
        return f"`{field}` must be {' or '.join(dict.fromkeys(expected))}."
    limits: Mapping[str, Any] = errors[0].get("ctx") or {}
    if types[0] == "too_long" and limits.get("field_type") == "Value":  # Pydantic's words for a text with own checks
        return f"`{field}` must have at most {limits['max_length']} characters."
    message = str(errors[0].get("msg", "invalid")).encode("utf-8", "replace").decode()[:_MAX_MESSAGE_CHARACTERS]
    return f"`{field}`: {message}." if field else f"{message}."
