"""Test that a key reaches its owner's things alone, through every tool and resource, and nothing once it is revoked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import McpError

from rapport.channels.http.mcp.tools import TOOLS
from rapport.domain.ids import new_id
from tests.channels.http.mcp.clients import Belongings, Client, connected, make_belongings, make_key, post
from tests.support.world import World

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


def calls_about(things: Belongings) -> Mapping[str, dict[str, Any]]:
    """Return a call of every tool, about the things of somebody."""
    here = {"conversation_id": things.conversation_id}
    return {
        "ask": {**here, "message": "What did I see?"},
        "search_notes": {"query": f"Where does a {things.word} live?"},
        "add_note": {"title": things.word, "text": f"A {things.word} lives on an island in the north."},
        "search_conversation": {**here, "query": things.word},
        "get_smart_context": {**here, "question": f"What about the {things.word}?", "anchor_id": things.message_id},
        "search_memories": {"query": f"Which animal? A {things.word}?"},
        "list_conversations": {"query": things.word},
    }


async def answer(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the call was refused, and all text of the answer without what the call itself said."""
    result = await client.session.call_tool(tool, arguments)
    told = json.dumps([content.model_dump(mode="json") for content in result.content] + [result.structuredContent])
    return bool(result.isError), told


async def test_another_owners_things_are_not_found(world: World) -> None:
    ana = await make_belongings(world, "ana", word="quokka")
    ben = await make_belongings(world, "ben", word="walrus")
    await world.drain()
    before = await rows_of(world, "ana")
    url = str(world.http.base_url)
    async with connected(url, ana.key) as hers, connected(url, ben.key) as his:
        assert set(calls_about(ana)) == set(TOOLS), "a new tool needs its call here"
        for tool, arguments in calls_about(ana).items():
            is_refused, told = await answer(his, tool, arguments)
            assert is_refused is ("conversation_id" in arguments), (tool, told)
            if is_refused:
                nobody = new_id()
                _, nothing = await answer(his, tool, {**arguments, "conversation_id": nobody})
                assert told.replace(ana.conversation_id, "ID") == nothing.replace(nobody, "ID")
            assert "quokka" not in told or tool == "add_note", tool  # the note that he has just written himself
        listed = await his.list_uris()
        assert not [uri for uri in listed if ana.conversation_id in uri]
        for uri in (f"rapport://conversations/{ana.conversation_id}", f"rapport://notes/{ana.note_id}-x"):
            with pytest.raises(McpError) as failed:
                await his.read(uri)
            assert failed.value.error.message.startswith("There is no ")
        assert "walrus" in await his.read(f"rapport://conversations/{ben.conversation_id}")
        await world.drain()
        assert await rows_of(world, "ana") == before
        assert not [prompt for prompt in world.model.prompts[2:] if "quokka" in str(prompt)]

        for tool, arguments in calls_about(ana).items():
            is_refused, told = await answer(hers, tool, arguments)
            assert not is_refused, (tool, told)
            assert tool == "ask" or "quokka" in told, (tool, told)
        assert "quokka" in await hers.read(f"rapport://conversations/{ana.conversation_id}")
        assert "quokka" in await hers.read(f"rapport://notes/{ana.note_id}")
        assert {f"rapport://conversations/{ana.conversation_id}", f"rapport://notes/{ana.note_id}"} <= set(
            await hers.list_uris()
        )


async def rows_of(world: World, owner: str) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("conversations", "messages", "notes", "memories", "timers")
    return {
        table: await world.sql(f"SELECT t::text FROM {table} t WHERE owner_id = %s ORDER BY 1", owner)
        for table in tables
    }


async def test_a_note_of_the_same_id_is_ones_own(world: World) -> None:
    ana = await make_belongings(world, "ana", word="quokka")
    ben = await make_belongings(world, "ben", word="walrus")
    async with connected(str(world.http.base_url), ben.key) as his:
        added = await his.call("add_note", title=ana.word, text="Mine.")
        assert added["id"] == ana.note_id
        assert await his.read(added["uri"]) == "Mine."
    async with connected(str(world.http.base_url), ana.key) as hers:
        assert "island" in await hers.read(f"rapport://notes/{ana.note_id}")


async def test_a_revoked_key_ends_at_once(world: World) -> None:
    key = await make_key(world, "ana")
    async with connected(str(world.http.base_url), key) as client:
        assert await client.call("list_conversations") == {"conversations": [], "next": None}
        await world.sql("UPDATE api_keys SET revoked_at = clock_timestamp()")
        refused = await post(world, PING, Authorization=f"Bearer {key}")
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert refused.json()["detail"] == "This key is not valid, or was revoked."


async def test_without_a_key_nothing_is_told(world: World) -> None:
    await make_key(world, "ana")
    for headers in ({}, {"Authorization": "Bearer rapport_none"}, {"Mcp-Session-Id": "somebody"}):
        refused = await post(world, PING, **headers)
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")


async def test_a_server_without_keys_answers_no_page_of_another_site(world: World) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
    ):
        assert (await post(world, PING, **headers)).status_code == 401, headers
    assert (await post(world, PING)).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
