"""Test that a validation error names the field as its sender wrote it, and the expected form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rapport.cli.serve import web_app
from tests.support.cases import every_case
from tests.support.world import World


@every_case(
    ("body", "detail"),
    [
        ({"content": 5}, "`content` must be a text or a list."),
        ({"content": ["hi"]}, "`content.0` must be an object with fields."),
        ({}, "The field `content` is missing."),
        ({"content": "hi", "is_bot": "no"}, "`is_bot` must be true or false."),
        ({"content": "hi", "author": "ana"}, '`author` must be an object `{"id": ..., "name": ...}`.'),
        ({"content": "hi", "author": {"id": "ana"}}, "The field `author.name` is missing."),
        (
            {"content": "hi", "context_snapshot": {"text": "hi", "author": 5}},
            '`context_snapshot.author` must be a text or an object `{"id": ..., "name": ...}`.',
        ),
        ({"content": "hi", "str": 1, "Metadata": {}}, "There is no field `str`. There is no field `Metadata`."),
        ({"content": "hi", "mentions": [3]}, "`mentions.0` must be a text."),
    ],
)
async def test_an_error_names_the_field_and_the_expected_form(world: World, body: dict[str, Any], detail: str) -> None:
    conversation_id = (await world.http.post("/chat/conversations", json={})).json()["id"]
    response = await world.http.post(f"/chat/conversations/{conversation_id}/messages", json=body)
    assert (response.status_code, response.json()["detail"]) == (422, detail)


@every_case(
    ("parameters", "detail"),
    [
        ({}, "The field `q` is missing."),
        ({"q": "hi", "limit": 0}, "`limit` must be at least 1."),
        ({"q": "?!"}, "`q` needs at least one word."),
    ],
)
async def test_an_error_of_the_search_names_its_parameter(
    world: World, parameters: dict[str, Any], detail: str
) -> None:
    thread_id = (await world.http.post("/api/threads", json={})).json()["id"]
    response = await world.http.get(f"/api/threads/{thread_id}/search", params=parameters)
    assert response.json()["detail"] == detail


async def test_an_error_of_a_completion_names_the_field(world: World) -> None:
    body = {"model": "companion", "messages": [{"role": "user", "content": 5}]}
    error = (await world.http.post("/v1/chat/completions", json=body)).json()["error"]
    assert (error["param"], error["message"]) == (
        "messages.0.content",
        "`messages.0.content` must be a text or a list.",
    )


async def test_no_number_in_an_address_is_a_server_error(world: World) -> None:
    """For every described number of a path or a query: too large or too small for the database is a mistake of the sender."""
    thread_id = await world.conversation()
    message_id = (await world.says(thread_id, "hello"))["id"]
    ids = {"thread_id": thread_id, "conversation_id": thread_id, "agent_id": "companion", "version": "1"}
    others = {"q": "hello", "message_id": message_id}
    tried: set[str] = set()
    for path, operations in web_app(world.app, None).openapi()["paths"].items():
        for method, operation in operations.items():
            parameters = {one["name"]: one for one in operation.get("parameters", ())}
            required = {name: others.get(name, "x") for name, one in parameters.items() if one["required"]}
            for name in (name for name, one in parameters.items() if _is_number(one["schema"])):
                for number in ("99999999999999999999", "-99999999999999999999", str(2**63), str(2**31), "0"):
                    filled = path.format_map(defaultdict(lambda: "x", {**ids, name: number}))
                    query = {one: value for one, value in required.items() if parameters[one]["in"] == "query"}
                    if parameters[name]["in"] == "query":
                        query[name] = number
                    answer = await world.http.request(method, filled, params=query, json={})
                    assert answer.status_code < 500, (method, filled, query, answer.text)
                    tried.add(f"{method} {path} {name}")
    versions = "/api/agents/{agent_id}/versions"
    assert {f"get {versions} before", f"post {versions}/{{version}}/restore version"} <= tried


def _is_number(schema: Mapping[str, Any]) -> bool:
    return any(each.get("type") in ("integer", "number") for each in (schema, *schema.get("anyOf", ())))
