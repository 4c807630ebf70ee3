"""Test `/api/memories`: only the owner can list, change and erase memories (MEM-1, MEM-5, SEC)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import HTTPConnection

from rapport.channels.http.auth.authentication import Authenticator
from rapport.channels.http.problems import install_error_handlers
from rapport.channels.http.routes.memories import memory_routes
from rapport.domain.caller import Caller
from rapport.domain.errors import InvalidInput, Transient, Unauthorized
from rapport.domain.ids import is_id, new_id
from rapport.domain.memory import CAPACITY, MAX_CHARACTERS, MemoryCandidate
from rapport.memory.memory_store import MemoryStore
from rapport.storage.database import Database
from tests.memory.vectors import HandMade
from tests.support.cases import every_case

PROBLEM = "application/problem+json"
TEA = "I like green tea."
FIELDS = ["id", "agent", "key", "content", "origin", "conversation_id", "message_id", "created_at", "updated_at"]


@pytest.fixture
def embedder() -> HandMade:
    return HandMade()


@pytest.fixture
def book(database: Database, embedder: HandMade) -> MemoryStore:
    return MemoryStore(database, embedder)


class ByHeader(Authenticator):
    """Believes the header."""

    def __init__(self) -> None:
        pass

    async def authenticate(self, connection: HTTPConnection) -> Caller:
        if connection.headers["x-user"] == "nobody":
            raise Unauthorized("Send a key.")
        return Caller(connection.headers["x-user"], "user")


@pytest.fixture
async def http(book: MemoryStore) -> AsyncGenerator[httpx.AsyncClient]:
    """Only the routes, for the user that the header names: `ana` by default."""

    async def resolve(_owner: str, agent: str | None) -> str:
        if agent not in (None, "companion", "librarian"):
            raise InvalidInput(f"There is no agent {agent[:64]!r}; there are companion, librarian.")
        return agent or "companion"

    app = FastAPI()
    install_error_handlers(app)
    app.include_router(memory_routes(book, resolve, ByHeader()))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers={"x-user": "ana"}) as client:
        yield client


async def made(http: httpx.AsyncClient, content: str, **more: Any) -> dict[str, Any]:
    response = await http.post("/api/memories", json={"content": content, **more})
    assert response.status_code == 201, response.text
    return response.json()


async def listed(http: httpx.AsyncClient, **parameters: Any) -> list[str]:
    response = await http.get("/api/memories", params=parameters)
    assert response.status_code == 200, response.text
    return [one["content"] for one in response.json()["memories"]]


def assert_problem(response: httpx.Response, status: int, says: str = "") -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    assert response.json()["status"] == status
    assert says in response.json()["detail"]


async def test_a_memory_is_created_read_edited_and_deleted(http: httpx.AsyncClient) -> None:
    tea = await made(http, TEA, key="drink")
    assert list(tea) == FIELDS
    assert is_id(tea["id"])
    assert (tea["agent"], tea["key"], tea["content"], tea["origin"]) == ("companion", "drink", TEA, "user")
    assert (tea["conversation_id"], tea["message_id"]) == (None, None)
    assert tea["created_at"].endswith("Z")
    assert (await http.get("/api/memories")).json() == {"memories": [tea], "next": None}

    edited = await http.patch(f"/api/memories/{tea['id']}", json={"content": "I like coffee."})
    assert edited.status_code == 200
    assert {**edited.json(), "updated_at": ""} == {**tea, "content": "I like coffee.", "updated_at": ""}
    assert edited.json()["updated_at"] > tea["updated_at"]
    renamed = await http.patch(f"/api/memories/{tea['id']}", json={"key": "morning"})
    assert (renamed.json()["key"], renamed.json()["content"]) == ("morning", "I like coffee.")
    nameless = await http.patch(f"/api/memories/{tea['id']}", json={"key": None})
    assert nameless.json()["key"] is None

    erased = await http.delete(f"/api/memories/{tea['id']}")
    assert (erased.status_code, erased.content) == (204, b"")
    assert await listed(http) == []
    assert_problem(await http.delete(f"/api/memories/{tea['id']}"), 404)


async def test_where_it_comes_from_is_shown(http: httpx.AsyncClient, book: MemoryStore) -> None:
    await book.upsert("ana", "companion", MemoryCandidate(TEA, origin="extracted", conversation_id="C", message_id="M"))
    [shown] = (await http.get("/api/memories")).json()["memories"]
    assert (shown["origin"], shown["conversation_id"], shown["message_id"]) == ("extracted", "C", "M")


async def test_a_duplicate_is_refused_and_the_existing_memory_is_named(
    http: httpx.AsyncClient, embedder: HandMade
) -> None:
    embedder.alike(TEA, "I love green tea.", 0.95)
    embedder.alike("I have a cat.", "I have cats.", 0.96)
    tea, cat = await made(http, TEA, key="drink"), await made(http, "I have a cat.")
    assert_problem(await http.post("/api/memories", json={"content": "I love green tea."}), 409, tea["id"])
    assert_problem(await http.post("/api/memories", json={"content": "New.", "key": "drink"}), 409, tea["id"])
    own = await http.patch(f"/api/memories/{tea['id']}", json={"content": "I love green tea."})
    assert own.status_code == 200
    assert_problem(await http.patch(f"/api/memories/{tea['id']}", json={"content": "I have cats."}), 409, cat["id"])
    assert_problem(await http.patch(f"/api/memories/{cat['id']}", json={"key": "drink"}), 409, tea["id"])
    assert await listed(http) == ["I have a cat.", "I love green tea."]


async def test_a_full_memory_store_says_what_to_do(http: httpx.AsyncClient, database: Database) -> None:
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO memories (owner_id, agent_id, id, content, origin, embedder, embedding)"
            " SELECT 'ana', 'companion', 'id' || n, 'fact ' || n, 'user', 'elsewhere', '[1,0]' FROM generate_series(1, %s) n",
            (CAPACITY,),
        )
    assert_problem(await http.post("/api/memories", json={"content": TEA}), 409, "Forget some")
    stats = (await http.get("/api/memories/stats")).json()
    assert (stats["count"], stats["capacity"], stats["share"]) == (1000, 1000, 1.0)
    assert "forget" in stats["warning"]


async def test_stats_without_and_with_a_few_memories(http: httpx.AsyncClient) -> None:
    nobodys = {"user": 0, "agent": 0, "extracted": 0}
    assert (await http.get("/api/memories/stats")).json() == {
        "count": 0,
        "capacity": 1000,
        "share": 0.0,
        "warning": None,
        "oldest": None,
        "newest": None,
        "by_origin": nobodys,
    }
    tea = await made(http, TEA)
    stats = (await http.get("/api/memories/stats")).json()
    assert (stats["count"], stats["share"], stats["by_origin"]) == (1, 0.001, {**nobodys, "user": 1})
    assert stats["oldest"] == stats["newest"] == tea["created_at"]


async def test_a_search_says_how_similar(http: httpx.AsyncClient, embedder: HandMade) -> None:
    embedder.alike("what do I drink?", TEA, 0.8)
    embedder.alike("what do I drink?", "I have a cat.", 0.3)
    await made(http, "I have a cat.")
    tea = await made(http, TEA)
    found = await http.get("/api/memories/search", params={"q": "what do I drink?"})
    memories = found.json()["memories"]
    assert [one["content"] for one in memories] == [TEA, "I have a cat."]
    assert [round(one.pop("similarity"), 2) for one in memories] == [0.8, 0.3]
    assert memories[0] == tea
    one = await http.get("/api/memories/search", params={"q": "what do I drink?", "limit": 1})
    assert len(one.json()["memories"]) == 1
    assert (await http.get("/api/memories/search", params={"q": " "})).json() == {"memories": []}
    assert_problem(await http.get("/api/memories/search"), 422, "q")
    assert_problem(await http.get("/api/memories/search", params={"q": "x" * 4001}), 422)
    assert_problem(await http.get("/api/memories/search", params={"q": "a\x00b"}), 400, "NUL")
    for limit in (0, 101, "many"):
        assert_problem(await http.get("/api/memories/search", params={"q": "x", "limit": limit}), 422, "limit")


async def test_nobody_reaches_what_is_anothers(http: httpx.AsyncClient) -> None:
    tea = await made(http, TEA, key="drink")
    ben = {"x-user": "ben"}
    address = f"/api/memories/{tea['id']}"
    for response in (
        await http.patch(address, json={"content": "Mine."}, headers=ben),
        await http.delete(address, headers=ben),
        await http.patch(address, json={"content": "Mine."}, params={"agent": "librarian"}),
        await http.delete(address, params={"agent": "librarian"}),
    ):
        assert_problem(response, 404, tea["id"])
    # The answers for a missing id and for another owner's differ only in the id.
    missing = new_id()
    theirs = await http.delete(address, headers=ben)
    nobodys = await http.delete(f"/api/memories/{missing}", headers=ben)
    assert theirs.text.replace(tea["id"], missing) == nobodys.text
    for headers, query in ((ben, ""), ({}, "?agent=librarian")):
        assert (await http.get(f"/api/memories{query}", headers=headers)).json() == {"memories": [], "next": None}
        assert (await http.get(f"/api/memories/stats{query}", headers=headers)).json()["count"] == 0
        body = {"content": TEA, "key": "drink"}
        assert (await http.post(f"/api/memories{query}", json=body, headers=headers)).status_code == 201
    found = await http.get("/api/memories/search", params={"q": TEA}, headers=ben)
    assert [one["id"] for one in found.json()["memories"]] != [tea["id"]]
    assert len(found.json()["memories"]) == 1
    assert (await http.get("/api/memories")).json()["memories"] == [tea]


async def test_every_route_asks_who_is_calling(http: httpx.AsyncClient) -> None:
    nobody = {"x-user": "nobody"}
    for method, path in (
        ("GET", ""),
        ("POST", ""),
        ("GET", "/search?q=x"),
        ("GET", "/stats"),
        ("PATCH", f"/{new_id()}"),
        ("DELETE", f"/{new_id()}"),
    ):
        body = {"content": TEA} if method in {"POST", "PATCH"} else None
        assert_problem(await http.request(method, f"/api/memories{path}", json=body, headers=nobody), 401)


async def test_an_agent_that_does_not_exist_is_said_so(http: httpx.AsyncClient) -> None:
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/search"), ("GET", "/stats"), ("DELETE", "/x")):
        response = await http.request(
            method,
            f"/api/memories{path}",
            params={"agent": "nobody", "q": "x"},
            json={"content": TEA} if method == "POST" else None,
        )
        assert_problem(response, 400, "There is no agent 'nobody'; there are companion, librarian.")


@every_case(
    ("body", "status"),
    [
        (b'{"content": ""}', 400),
        (b'{"content": " \\n "}', 400),
        (b'{"content": "a\\u0000b"}', 400),
        (b'{"content": "\\ud800"}', 400),
        (b'{"content": "x", "key": "a\\u0000b"}', 400),
        (b'{"content": "%s"}' % (b"x" * (MAX_CHARACTERS + 1)), 413),
        (b'{"content": "x", "key": "%s"}' % (b"k" * 201), 413),
        (b'{"content": "x", "origin": "agent"}', 422),
        (b'{"content": "x", "message_id": "M"}', 422),
        (b'{"content": "x", "owner_id": "ben"}', 422),
        (b'{"content": 5}', 422),
        (b'{"content": null}', 422),
        (b"{}", 422),
        (b"[]", 422),
        (b"", 422),
        (b"{nonsense", 400),
        (b'{"content": NaN}', 400),
    ],
)
async def test_what_cannot_be_a_memory_is_refused(http: httpx.AsyncClient, body: bytes, status: int) -> None:
    json = {"content-type": "application/json"}
    assert_problem(await http.post("/api/memories", content=body, headers=json), status)
    assert await listed(http) == []


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"content": " "}, 400), ({"content": "a\x00"}, 400), ({"origin": "agent"}, 422), ({"key": 5}, 422)],
)
async def test_an_invalid_edit_is_refused(http: httpx.AsyncClient, body: dict[str, Any], status: int) -> None:
    tea = await made(http, TEA)
    assert_problem(await http.patch(f"/api/memories/{tea['id']}", json=body), status)
    assert (await http.get("/api/memories")).json()["memories"] == [tea]


@every_case("memory_id", ["nonsense", "%00", "%ED%A0%80", "'%20OR%201=1", "x" * 3000])
async def test_a_malformed_id_is_not_found(http: httpx.AsyncClient, memory_id: str) -> None:
    assert_problem(await http.delete(f"/api/memories/{memory_id}"), 404)
    assert_problem(await http.patch(f"/api/memories/{memory_id}", json={"content": TEA}), 404)


async def test_hostile_text_is_only_text(http: httpx.AsyncClient) -> None:
    texts = [
        "'; DROP TABLE memories; --",
        "\u202eevil\u202c مرحبا",
        "👩‍👩‍👧‍👦",
        "<script>alert(1)</script>",
        "x" * MAX_CHARACTERS,
    ]
    for text in texts:
        assert (await made(http, text))["content"] == text
    assert await listed(http) == texts[::-1]


async def test_pages_go_on_where_they_ended(http: httpx.AsyncClient) -> None:
    texts = [f"fact {number}" for number in range(23)]
    for text in texts:
        await made(http, text)
    seen: list[str] = []
    before: str | None = None
    while True:
        page = (await http.get("/api/memories", params={"limit": 5, **({"before": before} if before else {})})).json()
        seen += [one["content"] for one in page["memories"]]
        if (before := page["next"]) is None:
            break
        assert len(page["memories"]) == 5
    assert seen == texts[::-1]
    for cursor in ("nonsense", "", "2026-01-01T00:00:00.000000Z~x", f"~{new_id()}"):
        assert_problem(await http.get("/api/memories", params={"before": cursor}), 400, "`before`")
    for limit in (0, 501):
        assert_problem(await http.get("/api/memories", params={"limit": limit}), 422, "limit")


async def test_an_embedder_that_fails_is_a_503_and_nothing_stays(http: httpx.AsyncClient, embedder: HandMade) -> None:
    tea = await made(http, TEA)
    embedder.fails = Transient("The embedder can't be reached.", retry_after=7)
    for response in (
        await http.post("/api/memories", json={"content": "I have a cat."}),
        await http.patch(f"/api/memories/{tea['id']}", json={"content": "I have a cat.", "key": "pet"}),
        await http.get("/api/memories/search", params={"q": "cat"}),
    ):
        assert_problem(response, 503, "can't be reached")
        assert response.headers["retry-after"] == "7"
    assert (await http.get("/api/memories")).json()["memories"] == [tea]
