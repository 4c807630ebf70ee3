"""Check the arguments of a call against its tool's schema, in bounded time whatever the schema says.

Patterns run on RE2, references to other documents are not followed, and a schema whose parts refer to each other again and again
ends at a number of steps. A schema that can't be applied checks nothing: the server checks its arguments itself.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

from rapport.agents.mcp.texts import clean_text
from rapport.domain.patterns import Pattern, compile_linear, re2

MAX_ARGUMENT_CHARACTERS: Final = 100_000
MAX_STEPS: Final = 5_000
_MAX_SENTENCE_CHARACTERS: Final = 300
_NOT_CHECKED: Final = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords that walk through the schema on their own, without counting steps."""

_jsonschema: Any = importlib.import_module("jsonschema")  # its types are unknown to the type checker
_referencing: Any = importlib.import_module("referencing")

_steps: ContextVar[list[int]] = ContextVar("steps")


class _TooManySteps(Exception):
    """The schema needs more steps than are allowed."""


def find_argument_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return a sentence about the first argument that does not fit the schema; None if all do."""
    try:
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        written.encode()  # half of a surrogate pair can't be sent
    except (TypeError, ValueError, RecursionError):
        return "The arguments are not valid JSON in UTF-8."
    size = len(written)
    if size > MAX_ARGUMENT_CHARACTERS:
        return f"The arguments have {size:,} characters; the limit is {MAX_ARGUMENT_CHARACTERS:,}."
    _steps.set([MAX_STEPS])
    try:
        validator = _make_class("draft-07" in str(schema.get("$schema", "")))(schema, registry=_referencing.Registry())
        error = next(iter(validator.iter_errors(arguments)), None)
    except Exception:  # noqa: BLE001 - a schema from outside may fail in any way, and the server checks its arguments too
        return None
    return None if error is None else _describe(error)


@lru_cache(2)
def _make_class(is_draft_7: bool) -> Any:
    base = _jsonschema.Draft7Validator if is_draft_7 else _jsonschema.Draft202012Validator
    checks = {name: _count(check) for name, check in base.VALIDATORS.items()}
    checks |= dict.fromkeys(_NOT_CHECKED, _accept)
    checks["pattern"] = _count(_check_pattern)
    checks["patternProperties"] = _accept
    if "additionalProperties" in checks:
        checks["additionalProperties"] = _skip_with_patterns(checks["additionalProperties"])
    return _jsonschema.validators.extend(base, checks)


def _count(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def count_and_check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps = _steps.get()
        steps[0] -= 1
        if steps[0] < 0:
            raise _TooManySteps
        yield from check(validator, value, instance, schema) or ()

    return count_and_check


def _accept(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> Iterator[Any]:
    return iter(())


def _skip_with_patterns(check: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Leave `additionalProperties` out beside `patternProperties`: it would run their patterns with `re`."""

    def check_others(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        return iter(()) if "patternProperties" in schema else check(validator, value, instance, schema)

    return check_others


def _check_pattern(_validator: Any, pattern: object, instance: object, _schema: Any) -> Iterator[Any]:
    if not isinstance(pattern, str) or not isinstance(instance, str):
        return
    compiled = _compile(pattern)
    if compiled is not None and not compiled.search(instance):
        yield _jsonschema.ValidationError("has not the required form")


@lru_cache(256)
def _compile(pattern: str) -> Pattern | None:
    """Return the pattern; None for one that RE2 does not know, such as one that looks ahead."""
    try:
        return compile_linear(pattern)
    except re2.error:
        return None


def _describe(error: Any) -> str:
    """Return a sentence that names the field and the rule. The value itself is not repeated if it is long."""
    field = ".".join(str(part) for part in error.absolute_path)
    message = clean_text(str(error.message)[: 2 * _MAX_SENTENCE_CHARACTERS])
    if len(message) > _MAX_SENTENCE_CHARACTERS:
        message = f"{message[:_MAX_SENTENCE_CHARACTERS]}…"
    return f"The argument `{field[:100]}` is wrong: {message}." if field else f"The arguments are wrong: {message}."
