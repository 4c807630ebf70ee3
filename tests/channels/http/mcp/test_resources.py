"""Test the resources, notes and conversations, over streamable HTTP with the official client."""

from __future__ import annotations

import json

import pytest
from mcp import McpError
from mcp.types import PaginatedRequestParams

from rapport.channels.http.mcp.addresses import parse_uri
from rapport.channels.http.mcp.resources import PAGE, READ_MESSAGES
from rapport.channels.http.mcp.search_tools import MAX_TEXT_CHARACTERS
from rapport.channels.http.mcp.server import RESOURCE_NOT_FOUND
from tests.channels.http.mcp.clients import connected
from tests.support.world import World


async def test_notes_and_conversations_are_listed_page_by_page_and_read(world: World) -> None:
    notes = [f"note-{number}" for number in range(3)]
    for number, name in enumerate(notes):
        body = {"id": name, "title": f"Title {number}", "text": f"Text of {name}."}
        assert (await world.http.post("/api/notes", json=body)).is_success
    # Rows of the tables, because a thousand embeddings take a minute.
    await world.sql(
        "INSERT INTO conversations (id, owner_id, agent_id, kind, channel, title)"
        " SELECT lpad(n::text, 26, '0'), 'local', 'companion', 'direct', 'api', 'Chat ' || n FROM generate_series(1, %s) n",
        PAGE + 7,
    )
    async with connected(str(world.http.base_url)) as client:
        first = await client.session.list_resources()
        assert len(first.resources) == len(notes) + PAGE
        assert first.nextCursor is not None
        uris = await client.list_uris()
        assert len(uris) == len(set(uris)) == len(notes) + PAGE + 7
        assert uris[: len(notes)] == [f"rapport://notes/{name}" for name in notes[::-1]]
        assert [resource.title for resource in first.resources[:3]] == ["Title 2", "Title 1", "Title 0"]
        assert await client.read(uris[0]) == "Text of note-2."
        assert json.loads(await client.read(uris[-1]))["title"].startswith("Chat ")
        templates = (await client.session.list_resource_templates()).resourceTemplates
        assert [template.uriTemplate for template in templates] == [
            "rapport://notes/{note_id}",
            "rapport://conversations/{conversation_id}",
        ]


async def test_more_notes_than_a_page_come_before_the_conversations(world: World) -> None:
    assert (await world.http.post("/api/notes", json={"id": "first", "text": "A note."})).is_success
    copied = "owner_id, title, text, hash, embedder, chunks"
    await world.sql(
        f"INSERT INTO notes (id, updated_at, {copied}) SELECT 'copy-' || n, updated_at + n * interval '1 s', {copied}"
        " FROM notes, generate_series(1, %s) n",
        2 * PAGE,
    )
    here = await world.conversation()
    async with connected(str(world.http.base_url)) as client:
        uris = await client.list_uris()
    assert len(uris) == len(set(uris)) == 2 * PAGE + 2
    assert uris[-2:] == ["rapport://notes/first", f"rapport://conversations/{here}"]


async def test_a_conversation_is_read_with_its_latest_messages(world: World) -> None:
    here = await world.conversation(title="Plans")
    said = await world.says(here, "Hello " + "x" * 9_000, author={"id": "ana", "name": "Ana"})
    async with connected(str(world.http.base_url)) as client:
        read = json.loads(await client.read(f"rapport://conversations/{here}"))
        assert (read["id"], read["title"], read["has_earlier"]) == (here, "Plans", False)
        question, answer = read["messages"]
        assert (question["role"], question["author"]) == ("user", "Ana")
        assert len(question["text"]) <= MAX_TEXT_CHARACTERS
        assert (answer["id"], answer["role"], answer["reply_to_id"]) == (said["id"], "assistant", question["id"])
        await world.sql(
            "INSERT INTO messages (id, conversation_id, owner_id, role, content, created_at)"
            " SELECT lpad(n::text, 26, '0'), %s, 'local', 'user', 'old ' || n, now() - n * interval '1 h'"
            " FROM generate_series(1, %s) n",
            here,
            READ_MESSAGES,
        )
        read = json.loads(await client.read(f"rapport://conversations/{here}"))
    assert (len(read["messages"]), read["has_earlier"]) == (READ_MESSAGES, True)
    assert read["messages"][-1]["id"] == said["id"]


@pytest.mark.parametrize(
    "uri",
    [
        "rapport://conversations/01M7S4SDV71MQ795W4YS14BQXH",
        "rapport://notes/nothing",
        "rapport://notes/a%20b",
        "rapport://notes/../conversations/x",
        "rapport://memories/x",
        "rapport://notes/",
        "file:///etc/passwd",
        "http://127.0.0.1:9/x",
        "rapport://conversations/" + "x" * 5_000,
    ],
)
async def test_an_address_of_nothing_is_not_found(world: World, uri: str) -> None:
    async with connected(str(world.http.base_url)) as client:
        with pytest.raises(McpError) as failed:
            await client.read(uri)
    assert failed.value.error.code == RESOURCE_NOT_FOUND
    assert failed.value.error.message.startswith("There is no ")
    assert len(failed.value.error.message) < 250


async def test_a_cursor_of_nothing_is_refused(world: World) -> None:
    async with connected(str(world.http.base_url)) as client:
        for cursor in ("x", "notes:x", "conversations:x", "conversations:2026-01-01T00:00:00.000000Z~x"):
            with pytest.raises(McpError) as failed:
                await client.session.list_resources(params=PaginatedRequestParams(cursor=cursor))
            assert "is not a cursor of this list" in failed.value.error.message


def test_an_address_is_read_as_it_was_made() -> None:
    assert parse_uri("rapport://notes/on-call_2") == ("notes", "on-call_2")
    assert parse_uri("rapport://conversations/01M7S1HJ8TS1M8YC35BNTS1CDT") == (
        "conversations",
        "01M7S1HJ8TS1M8YC35BNTS1CDT",
    )
    assert parse_uri("rapport://notes/a\n") is None
