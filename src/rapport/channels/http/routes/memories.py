"""Serve `/api/memories`: see, change and erase what an agent remembers about you (MEM-5)."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.rendering.json_views import (
    FoundMemoriesView,
    MemoriesView,
    MemoryStatsView,
    MemoryView,
    json_response,
    memory_stats_view,
    memory_view,
)
from rapport.channels.http.requests.cursors import format_cursor, parse_cursor
from rapport.channels.http.requests.json_bodies import MemoryBody, MemoryEdit, StrictRoute
from rapport.domain.ids import is_id
from rapport.domain.memory import MemoryCandidate
from rapport.memory.memory_store import MAX_QUERY_CHARACTERS, MemoryStore

Agent = Annotated[
    str | None, Query(max_length=64, description="The agent whose memories these are; `companion` by default")
]

ResolveAgent = Callable[[str, str | None], Awaitable[str]]
"""Returns the id of the agent that an owner names, or of the default agent; raises InvalidInput for an unknown one."""


def memory_routes(memories: MemoryStore, resolve: ResolveAgent, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/api/memories", tags=["memories"], route_class=StrictRoute)
    owner_id = Depends(auth.authenticate_owner)

    @router.post(
        "",
        status_code=201,
        response_model=MemoryView,
        responses={
            409: {"description": "A memory with the same content or key exists and is named; or the memory is full"}
        },
        summary="Add a memory",
    )
    async def create(body: MemoryBody, agent: Agent = None, owner: str = owner_id) -> Response:
        candidate = MemoryCandidate(body.content, key=body.key, origin="user")
        return json_response(memory_view(await memories.create(owner, await resolve(owner, agent), candidate)), 201)

    @router.get("", response_model=MemoriesView, summary="List what an agent remembers about you, newest first")
    async def page(
        agent: Agent = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        before: str | None = None,
        owner: str = owner_id,
    ) -> Response:
        cursor = None if before is None else parse_cursor(before, is_id=is_id)
        rows = await memories.page(owner, await resolve(owner, agent), limit=limit + 1, before=cursor)
        listed = rows[:limit]
        following = format_cursor(listed[-1].created_at, listed[-1].id) if len(rows) > limit else None
        return json_response({"memories": [memory_view(memory) for memory in listed], "next": following})

    @router.get("/search", response_model=FoundMemoriesView, summary="Search an agent's memories about you")
    async def search(
        q: Annotated[str, Query(max_length=MAX_QUERY_CHARACTERS)],
        agent: Agent = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 10,
        owner: str = owner_id,
    ) -> Response:
        rows = await memories.search(owner, await resolve(owner, agent), q, limit)
        return json_response(
            {"memories": [{**memory_view(memory), "similarity": similarity} for memory, similarity in rows]}
        )

    @router.get("/stats", response_model=MemoryStatsView, summary="Count an agent's memories about you")
    async def stats(agent: Agent = None, owner: str = owner_id) -> Response:
        return json_response(memory_stats_view(await memories.stats(owner, await resolve(owner, agent))))

    @router.patch(
        "/{memory_id}",
        response_model=MemoryView,
        responses={409: {"description": "Another memory has the same content or key, and is named"}},
        summary="Change a memory; `key: null` removes its key",
    )
    async def edit(memory_id: str, body: MemoryEdit, agent: Agent = None, owner: str = owner_id) -> Response:
        takes_key_away = body.key is None and "key" in body.model_fields_set
        edited = await memories.edit(
            owner, await resolve(owner, agent), memory_id, content=body.content, key="" if takes_key_away else body.key
        )
        return json_response(memory_view(edited))

    @router.delete("/{memory_id}", status_code=204, summary="Erase a memory")
    async def delete(memory_id: str, agent: Agent = None, owner: str = owner_id) -> Response:
        await memories.delete(owner, await resolve(owner, agent), memory_id)
        return Response(status_code=204)

    return router
