"""Test that no route shows or changes anything of another user, whatever the role: a table of all routes (SEC, AGT-3)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from rapport.channels.http.requests.cursors import format_cursor
from rapport.cli.serve import web_app
from rapport.domain.caller import Role
from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from rapport.storage.access.api_keys import ApiKeys
from tests.channels.http.test_auth import until_closed
from tests.support.listening import listening
from tests.support.routes import fields_of, routes_of
from tests.support.world import World, open_world

VICTIM = "zuleika"
SECRET = "quokka"
"""A word that only texts of the victim contain."""
ZONE = "Asia/Kathmandu"
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)

SHARED = {
    "version": "1",
    "owner": "nobody",
    "agent_id": "companion",
    "model_id": "companion",
    "name": "index.html",
    "path": "embeddings",
}
"""Values of placeholders that are the same for everybody. All other placeholders name objects of one person."""

_PLAIN = """
    after at author author.id author.name author_id autonomy client_message_id content days decision delay_seconds file
    hours include is_bot key kind last-event-id limit mentions minutes past personal platform_id q quiet_from quiet_to reason render rrule zone
    reply_to_platform_id seconds strategy text thread_id time_zone title topic trigger_type until
    context_snapshot.author context_snapshot.author.id context_snapshot.author.name context_snapshot.created_at
    context_snapshot.id context_snapshot.text
"""
PLAIN_FIELDS = frozenset(_PLAIN.split())
"""Fields that name no object, or only one inside of the conversation that the path names."""

_PLAIN_AGENT = """
    agent before by id name collection collections context description fallback_model for_everyone from greeting grounding guard_text handles
    max_chat_history memory shared_with min_similarity model model_options monthly_token_budget monthly_tokens owner persona
    reflection to tools tools_without_approval version
"""
PLAIN_AGENT_FIELDS = frozenset(_PLAIN_AGENT.split())
"""The same, of agents, their versions and their cost, and their parts."""

_PLAIN_OPENAI = """
    function_call functions messages messages.content messages.name messages.role messages.tool_call_id
    messages.tool_calls n parallel_tool_calls response_format stream stream_options stream_options.include_usage
    tool_choice tools
"""
PLAIN_OPENAI_FIELDS = frozenset(_PLAIN_OPENAI.split())
"""The same, of requests in OpenAI's format."""


BACKGROUND_TABLES = frozenset({"embedding_progress", "message_vectors"})
"""Tables that a background job fills from messages, at any time."""


@dataclass(frozen=True, slots=True)
class Way:
    """The call of a route. `{name}` in its path, query, headers or body is an object: each person has one of that name.

    If any object is another person's, the answer has a status of `refused`, and is the one that an unknown id gets.
    """

    status: int = 200
    """For a caller whose own objects these are."""
    refused: Sequence[int] = (404,)
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Any] | None = None
    files: Mapping[str, Any] | None = None
    fill: Mapping[str, str] = field(default_factory=dict[str, str])
    """The object for a placeholder of the path, if its name differs."""
    shows: bool = False
    """The victim's own answer has data of the victim, so the check of the others' answers can fail."""
    is_public: bool = False
    """Needs no key."""
    is_for_operators: bool = False
    """Others get 403. docs/operators.md names the route."""
    is_live: bool = False
    """A stream: it is only opened where it is refused. A separate test reads it."""


MINE = Way(shows=True)
TIMER = {"trigger_type": "check_in", "delay_seconds": 3600}
REMINDER = {"text": "Buy a ticket.", "at": "2060-01-01T09:00", "rrule": "FREQ=DAILY"}
NOTE = {"title": "Trains", "text": "The night train to Lisbon leaves at nine."}
OWN_AGENT = {"agent_id": "own_agent"}
POET: dict[str, object] = {"name": "Poet", "persona": "You are a poet.", "handles": []}
COMPLETION = {"model": "{agent_id}", "messages": [{"role": "user", "content": "How are you?"}]}
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]


def mcp(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def mcp_call(tool: str, *, shows: bool = False, **arguments: Any) -> Way:
    """Return a call of an MCP tool: what is refused is an answer, too."""
    return Way(body=mcp("tools/call", name=tool, arguments=arguments), refused=(200,), shows=shows)


# Every route of the application. A new route needs an entry here: how to call it, and which of its fields name objects.
# A new kind of object needs one line in `make_person`.
WAYS: dict[str, list[Way]] = {
    "GET /": [Way(is_public=True)],
    "GET /page/{name:path}": [Way(is_public=True)],
    "GET /docs": [Way(is_public=True)],
    "GET /docs.css": [Way(is_public=True)],
    "GET /openapi.json": [Way(is_public=True)],
    "HEAD /openapi.json": [Way(is_public=True)],
    "GET /healthz": [Way(is_public=True)],
    "GET /readyz": [Way(is_public=True)],
    "GET /metrics": [Way(is_for_operators=True)],
    "GET /api/session": [Way(is_public=True)],
    "POST /api/session": [Way(401, body={"key": "rapport_none"}, headers={"X-Rapport": "page"}, is_public=True)],
    "DELETE /api/session": [Way(204, headers={"X-Rapport": "page"}, is_public=True)],
    "GET /api/agents": [Way()],
    "GET /api/agents/{agent_id}": [Way(), Way(fill=OWN_AGENT, shows=True)],
    "GET /api/agent-defaults": [Way()],
    "GET /api/tools": [Way()],
    "POST /api/agents": [Way(201, body=POET)],
    "POST /api/agents/try": [Way(body={"content": "How are you?", "agent": POET})],
    "PUT /api/agents/{agent_id}": [Way(body=POET, fill=OWN_AGENT)],
    "PATCH /api/agents/{agent_id}": [Way(body={"greeting": "Hi."}, fill=OWN_AGENT)],
    "POST /api/agents/{agent_id}/copy": [Way(201, body={"name": "Twin"}, fill=OWN_AGENT)],
    "POST /api/agents/{agent_id}/reset": [Way(400, fill=OWN_AGENT, refused=(400, 404))],
    "POST /api/agents/{agent_id}/try": [Way(body={"content": "How are you?"}, fill=OWN_AGENT)],
    "GET /api/agents/{agent_id}/versions": [Way(fill=OWN_AGENT)],
    "GET /api/agents/{agent_id}/versions/{version}": [Way(fill=OWN_AGENT, shows=True)],
    "POST /api/agents/{agent_id}/versions/{version}/restore": [Way(fill=OWN_AGENT)],
    "DELETE /api/agents/{agent_id}": [Way(204, fill=OWN_AGENT)],
    "GET /api/usage": [Way()],
    "PUT /api/usage/budgets/{owner}": [Way(body={"monthly_tokens": None}, is_for_operators=True)],
    "GET /api/collections": [Way()],
    "PATCH /api/notes/{note_id}": [Way(body={"collections": ["animals"]})],
    "GET /api/insight": [Way()],
    "GET /api/samples": [MINE],
    "POST /api/samples": [MINE],
    "DELETE /api/samples": [Way(204)],
    "POST /chat/conversations": [Way(201, body={"agent": "{agent_id}", "title": "New"})],
    "GET /chat/conversations/{conversation_id}": [MINE],
    "POST /chat/conversations/{conversation_id}/messages": [
        Way(body={"content": "What else?"}),
        Way(body={"content": "What else?"}, headers={"Accept": "text/event-stream"}),
        Way(body={"content": "And this?", "reply_to_id": "{message_id}"}, refused=(400, 404)),
        Way(409, body={"content": "Once", "client_message_id": "{sent_key}"}, refused=(200, 404)),
    ],
    "POST /chat/conversations/{conversation_id}/cancel": [Way()],
    "DELETE /chat/conversations/{conversation_id}": [Way(204)],
    "POST /api/threads": [Way(201, body={"agent": "{agent_id}"})],
    "GET /api/threads": [
        MINE, Way(query={"q": SECRET}, shows=True), Way(query={"before": "{cursor}"}, refused=(200,), shows=True)
    ],
    "PATCH /api/threads/{thread_id}": [Way(body={"title": "Animals"}, shows=True)],
    "GET /api/threads/{thread_id}/messages/{message_id}": [MINE],
    "GET /api/threads/{thread_id}/people": [MINE],
    "GET /api/threads/{thread_id}/history": [MINE, Way(query={"before": "{message_id}"}, refused=(400, 404))],
    "GET /api/threads/{thread_id}/events": [Way(is_live=True), Way(query={"after": "0"}, is_live=True)],
    "ANY /api/chat/ws": [Way(query={"threadId": "{thread_id}"}, is_live=True)],
    "GET /api/threads/{thread_id}/context": [
        MINE,
        Way(query={"message_id": "{message_id}", "include": "timeline"}, shows=True),
        Way(query={"message_id": "{message_id}", "strategy": "relevant"}, shows=True),
    ],
    "GET /api/threads/{thread_id}/approvals": [MINE],
    "POST /api/threads/{thread_id}/approvals/{approval_id}": [Way(body={"decision": "deny"}, shows=True)],
    "GET /api/threads/{thread_id}/search": [Way(query={"q": SECRET}, shows=True)],
    "GET /api/threads/{thread_id}/timers": [MINE],
    "POST /api/threads/{thread_id}/timers": [Way(200, body={**TIMER, "timer_id": "{moved_timer}"}, refused=(201, 404))],
    "PATCH /api/threads/{thread_id}/timers/{timer_id}": [Way(body={"delay_seconds": 1800}, shows=True)],
    "DELETE /api/threads/{thread_id}/timers/{timer_id}": [Way(204)],
    "PUT /api/threads/{thread_id}/mute": [Way(body={"seconds": 60})],
    "GET /api/reminders": [Way(query={"conversation_id": "{thread_id}"}, shows=True), Way(query={"past": "true"})],
    "GET /api/reminders.ics": [MINE],
    "POST /api/reminders": [Way(201, body={**REMINDER, "conversation_id": "{thread_id}"})],
    "GET /api/reminders/{reminder_id}": [MINE],
    "PATCH /api/reminders/{reminder_id}": [Way(body={"at": "2061-01-01T09:00"}, shows=True)],
    "POST /api/reminders/{reminder_id}/snooze": [Way(body={"minutes": 5}, shows=True)],
    "POST /api/reminders/{reminder_id}/skip": [Way(body={}, shows=True)],
    "DELETE /api/reminders/{reminder_id}": [Way(204)],
    "GET /api/preferences": [MINE],
    "PUT /api/preferences": [Way(body={"time_zone": "Europe/Berlin"})],
    "GET /api/autonomy/stats": [Way()],
    "GET /api/notes": [MINE, Way(query={"before": "{cursor}"}, refused=(200,), shows=True)],
    "POST /api/notes": [
        Way(200, body={**NOTE, "id": "{added_note}"}, refused=(200, 201)),
        Way(201, files={"file": ("boats.txt", b"The boat leaves at ten.")}),
    ],
    "GET /api/notes/search": [Way(query={"q": SECRET}, shows=True)],
    "GET /api/notes/{note_id}": [MINE, Way(query={"thread": "{thread_id}"}, shows=True)],
    "PUT /api/notes/{note_id}": [
        Way(body={**NOTE, "id": "{replaced_note}"}, fill={"note_id": "replaced_note"})
    ],
    "DELETE /api/notes/{note_id}": [Way(204)],
    "GET /api/memories": [
        Way(query={"agent": "{agent_id}"}, shows=True), Way(query={"before": "{cursor}"}, refused=(200,), shows=True)
    ],
    "POST /api/memories": [Way(201, query={"agent": "{agent_id}"}, body={"content": "The user collects stamps."})],
    "GET /api/memories/search": [Way(query={"q": SECRET, "agent": "{agent_id}"}, shows=True)],
    "GET /api/memories/stats": [Way(query={"agent": "{agent_id}"})],
    "PATCH /api/memories/{memory_id}": [Way(query={"agent": "{agent_id}"}, body={"key": "pet"}, shows=True)],
    "DELETE /api/memories/{memory_id}": [Way(204, query={"agent": "{agent_id}"})],
    "GET /v1/models": [Way()],
    "GET /v1/models/{model_id}": [Way()],
    "POST /v1/chat/completions": [
        Way(body=COMPLETION),
        Way(body={**COMPLETION, "tools": TOOLS}),
        Way(body={**COMPLETION, "tools": TOOLS, "stream": True}),
        Way(body=COMPLETION, headers={"X-Conversation-Id": "{thread_id}"}),
        Way(body={**COMPLETION, "stream": True}, headers={"X-Conversation-Id": "{thread_id}"}),
        Way(body=COMPLETION, headers={"X-Conversation-Id": "{named_thread}"}),
        Way(body={**COMPLETION, "user": "{openai_user}"}, refused=(200,)),
    ],
    "POST /mcp": [
        Way(body=mcp("tools/list")),
        Way(body=mcp("resources/list"), shows=True),
        Way(body=mcp("resources/read", uri="rapport://notes/{note_id}"), refused=(200,), shows=True),
        Way(body=mcp("resources/read", uri="rapport://conversations/{thread_id}"), refused=(200,), shows=True),
        Way(body=mcp("resources/list", cursor="conversations:{cursor}"), refused=(200,), shows=True),
        mcp_call("ask", message="What else?", conversation_id="{named_thread}"),
        mcp_call("ask", message="What else?", agent="{own_agent}"),
        mcp_call("add_note", text="The ferry leaves at noon."),
        mcp_call("search_notes", query=SECRET, shows=True),
        mcp_call("search_conversation", query=SECRET, conversation_id="{thread_id}", shows=True),
        mcp_call("get_smart_context", question="And?", conversation_id="{thread_id}", shows=True),
        mcp_call("get_smart_context", question="^", conversation_id="{thread_id}", anchor_id="{message_id}", shows=True),
        mcp_call("search_memories", query=SECRET, shows=True),
        mcp_call("search_memories", query=SECRET, agent="{own_agent}"),
        mcp_call("list_conversations", shows=True),
        mcp_call("list_conversations", before="{cursor}", shows=True),
    ],
    "GET /v1/{path:path}": [Way(404, is_public=True)],
    "POST /v1/{path:path}": [Way(404, is_public=True)],
    "PUT /v1/{path:path}": [Way(404, is_public=True)],
    "PATCH /v1/{path:path}": [Way(404, is_public=True)],
    "DELETE /v1/{path:path}": [Way(404, is_public=True)],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Person:
    """A user with a key, and one object of each kind."""

    name: str
    headers: Mapping[str, str]
    objects: Mapping[str, str]
    marks: frozenset[str]
    """Texts that nobody else may see. Names that a user chooses, such as a note's id, are none: others may choose them too."""


async def make_person(world: World, name: str, role: Role, *, word: str, zone: str) -> Person:
    async with world.database.statement() as connection:
        _, secret = await ApiKeys(connection).create(name, name="laptop", role=role)
    headers = {"Authorization": f"Bearer {secret}"}

    async def send(method: str, path: str, body: Any = None, **more: str) -> httpx.Response:
        answer = await world.http.request(method, path, json=body, headers={**headers, **more})
        assert answer.is_success, answer.text
        return answer

    thread = (await send("POST", "/api/threads", {"title": f"About the {word}"})).json()["id"]
    said = {"content": f"I saw a {word}.", "author": {"id": f"id-{word}", "name": word}}
    said["client_message_id"] = sent_key = f"sent-{len(name)}"
    reply = (await send("POST", f"/chat/conversations/{thread}/messages", said)).json()["id"]
    named = await send("POST", "/v1/chat/completions", {**_filled(COMPLETION, SHARED), "user": f"user-{len(name)}"})
    for kind in ("read", "replaced", "added"):
        text = {"id": f"{kind}-{len(name)}", "text": f"A {word} lives on an island, which is {kind}."}
        await send("POST", "/api/notes", text if kind != "added" else {**NOTE, "id": text["id"]})
    for kind in ("kept", "moved"):
        await send(
            "POST", f"/api/threads/{thread}/timers", {**TIMER, "timer_id": f"{kind}-{len(name)}", "reason": word}
        )
    await send("PUT", "/api/preferences", {"time_zone": zone})
    group = (await send("POST", "/api/threads", {"title": f"All about the {word}", "kind": "group"})).json()["id"]
    await send("POST", "/api/agents", {**POET, "id": f"agent-{len(name)}", "persona": f"You keep a {word}."})
    samples = (await send("POST", "/api/samples")).json()["thread_id"]
    memory = await world.app.memory.create(name, "companion", MemoryCandidate(f"The user keeps a {word}."))
    approval = new_id()
    await world.sql(
        "INSERT INTO tool_calls (conversation_id, message_id, key, owner_id, tool, server, arguments, state, approval_id, expires_at)"
        " VALUES (%s, %s, '1.0', %s, 'files__write', 'files', %s, 'denied', %s, clock_timestamp())",
        *(thread, reply, name, json.dumps({"path": f"{word}.txt"}), approval),
    )
    reminder = await send(
        "POST", "/api/reminders", {**REMINDER, "conversation_id": thread, "text": f"Feed the {word}."}
    )
    objects = {
        "reminder_id": reminder.json()["id"],
        "approval_id": approval,
        "own_agent": f"agent-{len(name)}",
        "group_id": group,
        "thread_id": thread,
        "conversation_id": thread,
        "message_id": reply,
        "sent_key": sent_key,
        "named_thread": named.headers["X-Conversation-Id"],
        "openai_user": f"user-{len(name)}",
        "note_id": f"read-{len(name)}",
        "replaced_note": f"replaced-{len(name)}",
        "added_note": f"added-{len(name)}",
        "memory_id": memory.id,
        "timer_id": f"kept-{len(name)}",
        "moved_timer": f"moved-{len(name)}",
        "cursor": format_cursor(FUTURE, thread),
    }
    ids = {thread, group, reply, approval, memory.id, samples, named.headers["X-Conversation-Id"]}
    return Person(name, headers, objects, frozenset({name, word, zone, *ids}))


@dataclass(slots=True)
class Scene:
    world: World
    victim: Person
    strangers: Sequence[Person]
    """A user and an operator."""

    async def ask(
        self, route: str, way: Way, values: Mapping[str, str], headers: Mapping[str, str], *, masked: bool = True
    ) -> tuple[int, str]:
        """Return the status and all text of an answer; `masked` writes `ID` for the objects that the request named."""
        method, _, path = route.partition(" ")
        filled = re.sub(r"\{(\w+)(:path)?\}", lambda one: values[way.fill.get(one[1], one[1])], path)
        query, body = _filled(way.query, values), _filled(way.body, values)
        sent = {**_filled(way.headers, values), **headers}
        if method == "ANY":
            status, text = await self._open_socket(filled, query, sent)
        else:
            answer = await self.world.http.request(
                method, filled, params=query, json=body, files=way.files, headers=sent
            )
            status, text = answer.status_code, f"{answer.text}\n{answer.headers}"
        for value in (each for each in values.values() if masked and len(each) > 1):
            text = text.replace(value, "ID") if value in str((filled, query, body, sent)) else text
        return status, text

    async def _open_socket(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, str]:
        address = httpx.URL(f"{self.world.http.base_url}".replace("http://", "ws://")).join(path)
        try:
            async with connect(str(address.copy_merge_params(query)), additional_headers=headers):
                return 101, ""
        except InvalidStatus as error:
            return error.response.status_code, (error.response.body or b"").decode()

    async def rows_of_the_victim(self) -> dict[str, list[str]]:
        """Return every row that has the victim as owner, or one of the victim's conversations."""
        rows: dict[str, list[str]] = {}
        for column, values in (
            ("owner_id", "SELECT %s::text"),
            ("conversation_id", "SELECT id FROM conversations WHERE owner_id = %s"),
        ):
            tables = await self.world.sql(
                "SELECT table_name::text FROM information_schema.columns"
                " WHERE table_schema = 'public' AND column_name = %s ORDER BY 1",
                column,
            )
            for table in (row[0] for row in tables if row[0] not in BACKGROUND_TABLES):
                query = f'SELECT t::text FROM "{table}" t WHERE {column} IN ({values}) ORDER BY 1'
                rows[f"{table} by {column}"] = [one for (one,) in await self.world.sql(query, self.victim.name)]
        return rows


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    return json.loads(re.sub(r"\{(\w+)\}", lambda one: values[one[1]], text))


def objects_of(route: str, way: Way) -> list[str]:
    """Return the names of a call's objects, each once."""
    path = [way.fill.get(name, name) for name in re.findall(r"\{(\w+)(?::path)?\}", route)]
    elsewhere = re.findall(r"\{(\w+)\}", json.dumps([way.query, way.headers, way.body]))
    return [name for name in dict.fromkeys([*path, *elsewhere]) if name not in SHARED]


def fields_with_objects(way: Way) -> Iterator[str]:
    """Yield the fields of the query and the body that hold placeholders."""
    for name, value in [*way.query.items(), *(way.body or {}).items()]:
        if re.search(r"\{\w+\}", json.dumps(value)):
            yield name


@pytest.fixture
async def scene(database_url: str) -> AsyncGenerator[Scene]:
    async with open_world(database_url) as world:
        yield Scene(
            world,
            await make_person(world, VICTIM, "user", word=SECRET, zone=ZONE),
            [
                await make_person(world, "ben", "user", word="walrus", zone="Europe/Oslo"),
                await make_person(world, "otto", "operator", word="heron", zone="Europe/Rome"),
            ],
        )


async def test_every_route_and_every_field_is_in_the_table(world: World) -> None:
    web = web_app(world.app, None)
    assert sorted(set(routes_of(web.routes))) == sorted(WAYS), "a route needs an entry in WAYS"
    for route, fields in fields_of(web.openapi()).items():
        path = next(one for one in WAYS if one.replace(":path}", "}") == route)
        known = {*re.findall(r"\{(\w+)", route)}.union(*(fields_with_objects(way) for way in WAYS[path]))
        plain = PLAIN_FIELDS | (PLAIN_OPENAI_FIELDS if path.endswith("/completions") else frozenset[str]())
        if path.split(" ")[1].startswith(("/api/agents", "/api/usage", "/api/collections", "/api/notes")):
            plain |= PLAIN_AGENT_FIELDS
        unknown = {name for name in fields - known if not {name.lower(), name.lower().partition(".")[0]} & plain}
        assert unknown == set(), f"{route}: give its entry an object for these fields, or add them to PLAIN_FIELDS"


async def test_nobody_sees_or_changes_anything_of_another_user(scene: Scene) -> None:
    """For every route: the same answer as for an unknown id, and nothing of the victim; then the victim's own calls work."""
    world, victim = scene.world, scene.victim
    await world.drain()
    before, prompts = await scene.rows_of_the_victim(), len(world.model.prompts)
    assert {table.partition(" ")[0] for table, rows in before.items() if rows} >= {
        "api_keys", "chunks", "conversations", "memories", "messages", "notes", "preferences", "timers"
    }  # fmt: skip
    for stranger in scene.strangers:
        for route, ways in WAYS.items():
            for way in ways:
                await refuse_stranger(scene, stranger, route, way)
    await world.drain()
    assert await scene.rows_of_the_victim() == before
    assert not [prompt for prompt in world.model.prompts[prompts:] if SECRET in str(prompt)]

    for route, ways in sorted(WAYS.items(), key=lambda item: order_of(item[0])):
        for way in ways if not ways[0].is_live else ():
            status, text = await scene.ask(route, way, SHARED | dict(victim.objects), victim.headers, masked=False)
            assert status == (403 if way.is_for_operators else way.status), (route, way, text)
            assert not way.shows or any(mark in text for mark in victim.marks), (route, way, text)


def order_of(route: str) -> int:
    """Return when the victim's own call comes: a message cancels the timers, and nothing comes after the conversation's end."""
    if route == "DELETE /chat/conversations/{conversation_id}":
        return 3
    if route == "POST /mcp":
        return -1  # its search for notes needs them as they were
    if route.endswith(("/messages", "/completions")):
        return 2
    return 1 if route.startswith("DELETE") else 0


async def refuse_stranger(scene: Scene, stranger: Person, route: str, way: Way) -> None:
    names = objects_of(route, way)
    foreign = SHARED | dict(scene.victim.objects)
    if not names:
        status, text = await scene.ask(route, way, foreign, stranger.headers)
        is_refused = way.is_for_operators and stranger.name == "ben"
        assert status == (403 if is_refused else way.status), (route, way, text)
        assert [mark for mark in scene.victim.marks if mark in without_question(text, way)] == [], (route, way)
        return
    unknown = {name: new_id() for name in names} | {"cursor": format_cursor(FUTURE, new_id())}
    for choice in product((False, True), repeat=len(names)):
        if not any(choice):
            continue
        chosen = {name for name, is_foreign in zip(names, choice, strict=True) if is_foreign}
        own = SHARED | dict(stranger.objects)
        status, text = await scene.ask(route, way, own | {name: foreign[name] for name in chosen}, stranger.headers)
        nothing = await scene.ask(route, way, own | {name: unknown[name] for name in chosen}, stranger.headers)
        assert status in way.refused, (route, way, chosen, text)
        assert status == nothing[0], (route, way, chosen, nothing)
        assert [mark for mark in scene.victim.marks if mark in without_question(text, way)] == [], (route, way, chosen)
        if status >= 400:
            assert without_date(text) == without_date(nothing[1]), (route, way, chosen)


def without_question(text: str, way: Way) -> str:
    """Leave out what the request itself asked for."""
    return text.replace(way.query["q"], "") if "q" in way.query else text


def without_date(text: str) -> str:
    return re.sub(r"'(date|content-length|x-request-id)': '[^']*'", "", text)


async def test_without_a_key_every_other_route_refuses(scene: Scene) -> None:
    await until_closed(scene.world)
    revoked = scene.strangers[1]
    await scene.world.sql("UPDATE api_keys SET revoked_at = clock_timestamp() WHERE owner_id = %s", revoked.name)
    before = await scene.rows_of_the_victim()
    for headers in (dict[str, str](), revoked.headers):
        for route, ways in WAYS.items():
            for way in ways:
                status, text = await scene.ask(route, way, SHARED | dict(scene.victim.objects), headers)
                assert status == (way.status if way.is_public else 401), (route, text)
                assert [mark for mark in scene.victim.marks if mark in without_question(text, way)] == [], route
    assert await scene.rows_of_the_victim() == before


async def test_a_stream_tells_nothing_of_other_users(scene: Scene) -> None:
    """While the victim writes, is remembered and is answered, streams of others on their own conversations are silent."""
    world, victim = scene.world, scene.victim
    await until_closed(world)
    ben, otto = scene.strangers
    address = str(world.http.base_url).replace("http://", "ws://").rstrip("/")
    socket = f"{address}/api/chat/ws?threadId={otto.objects['thread_id']}"
    async with (
        listening(world.http, victim.objects["thread_id"], **victim.headers) as hers,
        listening(world.http, ben.objects["thread_id"], **ben.headers) as his,
        connect(socket, additional_headers=otto.headers) as phone,
    ):
        await talk(world, victim, f"One more {SECRET}")
        await world.http.post("/api/memories", json={"content": f"A {SECRET} again."}, headers=victim.headers)
        await hers.until(lambda: hers.named("memory.created") and len(hers.messages) == 2)
        for stranger in (ben, otto):
            await talk(world, stranger, "That is all")
        await his.until(lambda: len(his.messages) == 2)
        frames = [str(await phone.recv()) for _ in range(2)]
    assert SECRET in str(hers.events)
    assert [mark for mark in victim.marks if mark in str(his.events) + str(frames)] == []
    assert {event.name for event in his.events} <= {
        "hello",
        "message",
        "approvals",
        "started",
        "token",
        "ended",
        "timers",
    }


async def talk(world: World, person: Person, text: str) -> None:
    path = f"/chat/conversations/{person.objects['thread_id']}/messages"
    assert (await world.http.post(path, json={"content": text}, headers=person.headers)).status_code == 200


async def test_the_docs_name_every_route_for_operators() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
    for route, ways in WAYS.items():
        if any(way.is_for_operators for way in ways):
            assert f"`{route}`" in docs
