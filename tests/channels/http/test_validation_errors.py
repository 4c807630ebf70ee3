"""Test that a validation error names the field as its sender wrote it, and the expected form."""

from __future__ import annotations

from typing import Any

from tests.support.cases import every_case
from tests.support.world import World


@every_case(
    ("body", "detail"),
    [
        ({"content": 5}, "`content` must be a text or a list."),
        ({"content": ["hi"]}, "`content.0` must be a JSON object."),
        ({}, "The field `content` is missing."),
        ({"content": "hi", "is_bot": "no"}, "`is_bot` must be true or false."),
        ({"content": "hi", "author": "ana"}, '`author` must be a JSON object `{"id": ..., "name": ...}`.'),
        ({"content": "hi", "author": {"id": "ana"}}, "The field `author.name` is missing."),
        (
            {"content": "hi", "context_snapshot": {"text": "hi", "author": 5}},
            '`context_snapshot.author` must be a text or a JSON object `{"id": ..., "name": ...}`.',
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
        ({"q": "hi", "limit": 0}, "`limit`: Input should be greater than or equal to 1."),
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
