"""Test that arguments are checked in bounded time, whatever a server's schema says."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rapport.agents.mcp.arguments import find_argument_problem


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def test_a_wrong_argument_is_a_sentence_that_names_it() -> None:
    count = schema(count={"type": "integer", "minimum": 1})
    assert find_argument_problem(count, {"count": 1}) is None
    assert (
        find_argument_problem(count, {"count": 0}) == "The argument `count` is wrong: 0 is less than the minimum of 1."
    )
    assert find_argument_problem(count, {}) == "The arguments are wrong: 'count' is a required property."
    strict = {**count, "additionalProperties": False}
    problem = find_argument_problem(strict, {"count": 1, "more": 2})
    assert problem == "The arguments are wrong: Additional properties are not allowed ('more' was unexpected)."


def test_draft_7_and_references_inside_the_schema_are_understood() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **schema(at={"$ref": "#/definitions/place"}),
        "definitions": {"place": schema(x={"type": "number"})},
    }
    assert find_argument_problem(old, {"at": {"x": 1}}) is None
    assert (
        find_argument_problem(old, {"at": {"x": "1"}}) == "The argument `at.x` is wrong: '1' is not of type 'number'."
    )


def test_patterns_are_linear_and_unknown_ones_are_not_checked() -> None:
    slow = schema(word={"type": "string", "pattern": "^(a+)+$"})
    began_at = time.process_time()
    assert find_argument_problem(slow, {"word": "a" * 50_000 + "!"}) is not None
    assert time.process_time() - began_at < 5
    assert find_argument_problem(slow, {"word": "aaa"}) is None
    assert find_argument_problem(schema(word={"pattern": "^(?!no).*"}), {"word": "no"}) is None
    named = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False}
    assert find_argument_problem(named, {"a" * 5_000 + "!": 1}) is None


@pytest.mark.parametrize(
    "properties",
    [
        {"$ref": "#/properties/a"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"type": "no such type"},
        {"required": 5},
        {"multipleOf": 0},
        {"$dynamicRef": "#nowhere"},
    ],
)
def test_a_schema_that_can_not_be_applied_checks_nothing(properties: dict[str, Any]) -> None:
    assert find_argument_problem(schema(a=properties), {"a": {"b": 1}}) is None


def test_a_schema_that_multiplies_ends_after_a_number_of_steps() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for number in range(1, 40):
        part = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"allOf": [part, part]}
    began_at = time.process_time()
    assert find_argument_problem({**schema(a={"$ref": "#/$defs/d39"}), "$defs": definitions}, {"a": 1}) is None
    assert time.process_time() - began_at < 5


def test_arguments_have_a_limit() -> None:
    problem = find_argument_problem(schema(), {"text": "x" * 200_000})
    assert problem == "The arguments have 200,012 characters; the limit is 100,000."
    circle: dict[str, Any] = {}
    circle["self"] = circle
    assert find_argument_problem(schema(), circle) == "The arguments are not valid JSON in UTF-8."
