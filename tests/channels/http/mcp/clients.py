"""Connect the official MCP client with a server, and make the objects that its tools are about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
from mcp import types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from rapport.domain.memory import MemoryCandidate
from rapport.storage.access.api_keys import ApiKeys
from tests.channels.http.test_auth import until_closed
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World

JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@dataclass(frozen=True, slots=True)
class Client:
    """The official client, connected."""

    session: ClientSession
    initialized: types.InitializeResult

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured result, which the client has checked against the tool's schema."""
        result = await self.session.call_tool(tool, arguments)
        assert not result.isError, result
        assert result.structuredContent is not None
        return result.structuredContent

    async def refuse(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must refuse, and return its sentence."""
        result = await self.session.call_tool(tool, arguments)
        assert result.isError, result
        [content] = result.content
        assert isinstance(content, types.TextContent)
        assert "\n" not in content.text
        return content.text

    async def list_uris(self) -> list[str]:
        """Return the addresses of all resources, page by page."""
        uris: list[str] = []
        cursor: str | None = None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self.session.list_resources(params=params)
            uris += [str(resource.uri) for resource in page.resources]
            cursor = page.nextCursor
            if cursor is None:
                return uris

    async def read(self, uri: str) -> str:
        [content] = (await self.session.read_resource(AnyUrl(uri))).contents
        assert isinstance(content, types.TextResourceContents)
        return content.text


@contextlib.asynccontextmanager
async def connected(url: str, key: str | None = None) -> AsyncGenerator[Client]:
    """Connect over streamable HTTP, with a key if there is one."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx.AsyncClient(headers=headers, timeout=LIMIT_SECONDS) as http,
        streamable_http_client(f"{str(url).rstrip('/')}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        yield Client(session, await session.initialize())


@contextlib.asynccontextmanager
async def held_open(url: str, key: str | None = None) -> AsyncGenerator[Client]:
    """Connect in a task of its own, because the client must be opened and closed in one task, which a fixture is not."""
    ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with connected(url, key) as client:
            ready.set_result(client)
            await done.wait()

    holding = asyncio.create_task(hold())
    await asyncio.wait([holding, ready], return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        await holding
    try:
        yield ready.result()
    finally:
        done.set()
        await holding


async def make_key(world: World, owner: str) -> str:
    """Return the secret of a new key, and wait until the server asks for keys."""
    async with world.database.statement() as connection:
        _, secret = await ApiKeys(connection).create(owner, name="laptop")
    return secret


@dataclass(frozen=True, slots=True)
class Belongings:
    """The objects of one owner. Every text of theirs holds `word`."""

    word: str
    key: str
    conversation_id: str
    message_id: str
    note_id: str


async def make_belongings(world: World, owner: str, *, word: str) -> Belongings:
    """Make a key, a conversation, a note and a memory of an owner."""
    key = await make_key(world, owner)
    await until_closed(world)  # until then everybody is the local user
    headers = {"Authorization": f"Bearer {key}"}

    async def send(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await world.http.post(path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    thread = (await send("/api/threads", {"title": f"About the {word}"}))["id"]
    reply = await send(f"/chat/conversations/{thread}/messages", {"content": f"I saw a {word} at the harbour."})
    note = await send("/api/notes", {"title": word, "text": f"A {word} lives on an island in the north."})
    await world.app.memory.create(owner, "companion", MemoryCandidate(f"The user keeps a {word}."))
    return Belongings(word, key, thread, reply["reply_to_id"], note["id"])


async def post(world: World, body: bytes, **headers: str) -> httpx.Response:
    """Send bytes as a message."""
    return await world.http.post("/mcp", content=body, headers={**JSON_HEADERS, **headers})
