"""Test every output of the server: none shows the trigger of a follow-up or its reason (AUTO-7)."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from rapport.cli.serve import web_app
from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES
from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from rapport.turns.speak_first import HIDDEN_TEXTS
from tests.e2e.scripted import ScriptedModel, chat_model, scripted_model
from tests.support.commands import Home, Ran
from tests.support.listening import listening
from tests.support.routes import routes_of
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until
from tests.turns.test_autonomous_messages import everything_logged, pause

SECRET = "quokka"
"""A word that only the reasons of follow-ups contain."""
SAID = "walrus"
"""A word that every message of people contains."""


@dataclass(slots=True)
class Scene:
    """A server with all data that could reveal a trigger."""

    world: World
    model: ScriptedModel
    ids: dict[str, str]
    triggers: set[str] = field(default_factory=set[str])
    """The ids of the triggers."""

    async def ask(self, method: str, path: str, way: Way, **query: str) -> httpx.Response:
        ids = self.ids | {name: self.ids[other] for name, other in way.fill.items()}
        filled = path.replace(":path}", "}").format(**ids)
        body = way.body and json.loads(re.sub(r"\{(\w+)\}", lambda one: ids[one[1]], json.dumps(way.body)))
        return await self.world.http.request(
            method, filled, params=query, json=body, files=way.files, headers=way.headers
        )


@dataclass(frozen=True, slots=True)
class Way:
    """The call of a route, and its expected response."""

    status: int = 200
    body: Mapping[str, Any] | None = None
    """`{name}` in it is the scene's id of that name."""
    queries: Sequence[Mapping[str, str]] = ({},)
    fill: Mapping[str, str] = field(default_factory=dict[str, str])
    """The scene's id for a parameter of the path, if its name differs."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, Any] | None = None
    shows_reasons: bool = False
    """The owner's own list of follow-ups says why each was set."""
    shows_prompts: bool = False
    """Who makes an agent sees the prompts that its own may replace."""
    is_live: bool = False
    """A stream, which a separate test reads."""


WORDS = [*PROMPTS.values(), SECRET, "synthetic", "follow up trigger", "autonomy"]
SEARCHES = [{"q": word} for word in WORDS]
REMINDER = {"conversation_id": "{thread_id}", "text": "Feed it.", "at": "2060-01-01T09:00", "rrule": "FREQ=DAILY"}
NOTE = {"title": "Trains", "text": "The night train to Lisbon leaves at nine."}
TIMER = {"trigger_type": "check_in", "delay_seconds": 3600, "reason": f"because of a {SECRET}"}
COMPLETION = {"model": "companion", "messages": [{"role": "user", "content": f"And a {SAID} abroad?"}]}
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
CHATS = ("thread_id", "group", "pushed")
MCP_SEARCHES = ("search_notes", "search_memories", "list_conversations")


def mcp(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def mcp_call(tool: str, **arguments: Any) -> dict[str, Any]:
    return mcp("tools/call", name=tool, arguments=arguments)


# Every route of the application. A new route needs an entry here that says how to call it; then it is checked like the others.
WAYS: dict[str, list[Way]] = {
    "GET /": [Way()],
    "GET /page/{name:path}": [Way()],
    "GET /docs": [Way()],
    "GET /docs.css": [Way()],
    "GET /openapi.json": [Way()],
    "HEAD /openapi.json": [Way()],
    "GET /healthz": [Way()],
    "GET /readyz": [Way()],
    "GET /metrics": [Way()],
    "GET /api/session": [Way()],
    "POST /api/session": [Way(204, body={"key": "none"}, headers={"X-Rapport": "page"})],
    "DELETE /api/session": [Way(204, headers={"X-Rapport": "page"})],
    "GET /api/agents": [Way()],
    "GET /api/agents/{agent_id}": [Way()],
    "POST /api/agents": [Way(201, body={"id": "poet", "name": "Poet", "persona": "You are a poet.", "handles": ["poet"]})],
    "PUT /api/agents/{agent_id}": [Way(body={"name": "Spare", "persona": "You are spare."}, fill={"agent_id": "spare_agent"})],
    "PATCH /api/agents/{agent_id}": [Way(body={"greeting": "Hi."}, fill={"agent_id": "spare_agent"})],
    "POST /api/agents/{agent_id}/copy": [Way(201, body={"name": "Twin"}, fill={"agent_id": "spare_agent"})],
    "POST /api/agents/{agent_id}/reset": [Way()],
    "POST /api/agents/{agent_id}/try": [Way(body={"content": f"A {SAID}?"})],
    "GET /api/agents/{agent_id}/versions": [Way()],
    "GET /api/agents/{agent_id}/versions/{version}": [Way(fill={"agent_id": "spare_agent"})],
    "POST /api/agents/{agent_id}/versions/{version}/restore": [Way(fill={"agent_id": "spare_agent"})],
    "DELETE /api/agents/{agent_id}": [Way(204, fill={"agent_id": "spare_agent"})],
    "GET /api/agent-defaults": [Way(shows_prompts=True)],
    "GET /api/tools": [Way()],
    "POST /api/agents/try": [Way(body={"content": f"A {SAID}?", "agent": {"name": "Poet", "persona": "You are a poet."}})],
    "GET /api/collections": [Way()],
    "PATCH /api/notes/{note_id}": [Way(body={"collections": ["animals"]})],
    "GET /api/insight": [Way(queries=({}, {"hours": "1"}))],
    "GET /api/usage": [Way(queries=({}, {"by": "conversation,purpose", "owner": "*"}))],
    "PUT /api/usage/budgets/{owner}": [Way(body={"monthly_tokens": 1_000_000_000}, fill={"owner": "spare"})],
    "GET /api/samples": [Way()],
    "POST /api/samples": [Way()],
    "DELETE /api/samples": [Way(204)],
    "POST /chat/conversations": [Way(201, body={"agent": "companion", "title": "New"})],
    "GET /chat/conversations/{conversation_id}": [Way()],
    "POST /chat/conversations/{conversation_id}/messages": [
        Way(body={"content": f"What about the {SAID}?"}, fill={"conversation_id": "spare"}),
        Way(
            body={"content": f"And the {SAID}?"},
            fill={"conversation_id": "spare"},
            headers={"Accept": "text/event-stream"},
        ),
        Way(202, body={"content": f"A {SAID}, everybody"}, fill={"conversation_id": "group"}),
    ],
    "POST /chat/conversations/{conversation_id}/cancel": [Way()],
    "DELETE /chat/conversations/{conversation_id}": [Way(204, fill={"conversation_id": "spare"})],
    "POST /api/threads": [Way(201, body={"agent": "companion"})],
    "GET /api/threads": [Way(queries=({}, {"limit": "1"}, {"q": SAID}, *SEARCHES))],
    "PATCH /api/threads/{thread_id}": [Way(body={"title": "Animals"})],
    "GET /api/threads/{thread_id}/messages/{message_id}": [Way(queries=({}, {"render": "html"}))],
    "GET /api/threads/{thread_id}/people": [Way(), Way(fill={"thread_id": "group"})],
    "GET /api/threads/{thread_id}/history": [
        Way(queries=({}, {"limit": "500"}, {"limit": "1"}, {"limit": "3"}, {"render": "html"})),
        Way(fill={"thread_id": "group"}),
    ],
    "GET /api/threads/{thread_id}/events": [Way(is_live=True)],
    "ANY /api/chat/ws": [Way(is_live=True)],
    "GET /api/threads/{thread_id}/approvals": [Way()],
    "POST /api/threads/{thread_id}/approvals/{approval_id}": [Way(body={"decision": "deny"})],
    "GET /api/threads/{thread_id}/context": [
        Way(queries=({}, {"strategy": "recent"}, {"strategy": "relevant"}, {"include": "timeline"})),
        Way(queries=({}, {"strategy": "time_gap"}, {"include": "timeline"}), fill={"thread_id": "group"}),
    ],
    "GET /api/threads/{thread_id}/search": [
        Way(queries=({"q": SAID}, *SEARCHES)),
        Way(queries=SEARCHES, fill={"thread_id": "group"}),
    ],
    "GET /api/threads/{thread_id}/timers": [Way(shows_reasons=True), Way(fill={"thread_id": "group"}, shows_reasons=True)],
    "POST /api/threads/{thread_id}/timers": [Way(201, body=TIMER, shows_reasons=True)],
    "PATCH /api/threads/{thread_id}/timers/{timer_id}": [Way(body={"delay_seconds": 1800}, shows_reasons=True)],
    "DELETE /api/threads/{thread_id}/timers/{timer_id}": [Way(204, fill={"timer_id": "spare_timer"})],
    "PUT /api/threads/{thread_id}/mute": [Way(body={"seconds": 60})],
    "GET /api/reminders": [Way(queries=({}, {"past": "true"}))],
    "GET /api/reminders.ics": [Way()],
    "POST /api/reminders": [Way(201, body=REMINDER)],
    "GET /api/reminders/{reminder_id}": [Way()],
    "PATCH /api/reminders/{reminder_id}": [Way(body={"text": "Feed the cat."})],
    "POST /api/reminders/{reminder_id}/snooze": [Way(body={"minutes": 5})],
    "POST /api/reminders/{reminder_id}/skip": [Way(body={})],
    "DELETE /api/reminders/{reminder_id}": [Way(204)],
    "GET /api/preferences": [Way()],
    "PUT /api/preferences": [Way(body={"time_zone": "Europe/Berlin"})],
    "GET /api/autonomy/stats": [Way()],
    "GET /api/notes": [Way()],
    "POST /api/notes": [Way(201, body=NOTE), Way(201, files={"file": ("boats.txt", b"The boat leaves at ten.")})],
    "GET /api/notes/search": [Way(queries=SEARCHES)],
    "GET /api/notes/{note_id}": [Way()],
    "PUT /api/notes/{note_id}": [Way(body=NOTE)],
    "DELETE /api/notes/{note_id}": [Way(204, fill={"note_id": "spare_note"})],
    "GET /api/memories": [Way(queries=({}, {"agent": "librarian"}))],
    "POST /api/memories": [Way(201, body={"content": "The user collects stamps from Portugal."})],
    "GET /api/memories/search": [Way(queries=SEARCHES)],
    "GET /api/memories/stats": [Way()],
    "PATCH /api/memories/{memory_id}": [Way(body={"key": "pet"})],
    "DELETE /api/memories/{memory_id}": [Way(204, fill={"memory_id": "spare_memory"})],
    "GET /v1/models": [Way()],
    "GET /v1/models/{model_id}": [Way()],
    "POST /v1/chat/completions": [
        Way(body=COMPLETION),
        Way(body={**COMPLETION, "stream": True, "stream_options": {"include_usage": True}}),
        Way(body={**COMPLETION, "tools": TOOLS}),
        Way(body={**COMPLETION, "tools": TOOLS, "stream": True}),
        Way(body={**COMPLETION, "user": "anna"}),
        Way(body={**COMPLETION, "user": "anna", "stream": True}),
        Way(404, body={**COMPLETION, "model": "gpt"}),
    ],
    "POST /mcp": [
        Way(body=mcp("tools/list")),
        Way(body=mcp("resources/list")),
        Way(body=mcp("resources/templates/list")),
        Way(body=mcp("resources/read", uri="rapport://notes/{note_id}")),
        *(Way(body=mcp("resources/read", uri=f"rapport://conversations/{{{name}}}")) for name in CHATS),
        Way(body=mcp_call("ask", message=f"A {SAID}?")),
        Way(body=mcp_call("ask", message=f"A {SAID}?", keep=True)),
        Way(body=mcp_call("ask", message=f"A {SAID}?", conversation_id="{pushed}")),
        Way(body=mcp_call("add_note", text=NOTE["text"])),
        Way(body=mcp_call("list_conversations")),
        Way(body=mcp_call("get_smart_context", question=WORDS[0], messages=[])),
        *(Way(body=mcp_call(tool, query=word)) for tool in MCP_SEARCHES for word in WORDS),
        *(
            Way(body=mcp_call(tool, conversation_id=f"{{{name}}}", **{field: word}))
            for tool, field in (("search_conversation", "query"), ("get_smart_context", "question"))
            for name in CHATS
            for word in WORDS
        ),
        *(
            Way(body=mcp_call("get_smart_context", question="^", conversation_id="{group}", strategy=strategy))
            for strategy in ("relevant", "time_gap", "thread", "recent")
        ),
    ],
    "GET /v1/{path:path}": [Way(404)],
    "POST /v1/{path:path}": [Way(404, body=COMPLETION)],
    "PUT /v1/{path:path}": [Way(404)],
    "PATCH /v1/{path:path}": [Way(404)],
    "DELETE /v1/{path:path}": [Way(404)],
}  # fmt: skip


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        listening.replies |= {prompt: f"Number {number}: how is it?" for number, prompt in enumerate(PROMPTS.values())}
        yield listening


@pytest.fixture
async def scene(database_url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Scene]:
    for place in ("rapport.turns.reflect.PAUSE_SECONDS", "rapport.runtime.post_turn_jobs.PAUSE_SECONDS"):
        monkeypatch.setattr(place, 0.0)
    async with open_world(database_url, model=chat_model(model), reflection="always") as world:
        yield await made(world, model)


async def made(world: World, model: ScriptedModel) -> Scene:
    await world.http.post("/api/notes", json={"id": "note", "text": "Walruses live in the Arctic. They eat clams."})
    await world.http.post("/api/notes", json={"id": "spare-note", "text": "Ferries leave from the old harbour."})
    spare_agent: dict[str, object] = {"id": "spare-agent", "name": "Spare", "persona": "You are spare.", "handles": []}
    await world.http.post("/api/agents", json=spare_agent)
    memory = await world.app.memory.create("local", "companion", MemoryCandidate("The user has a dog called Rex."))
    spare_memory = await world.app.memory.create("local", "companion", MemoryCandidate("The user plays the cello."))
    spare = await talked(world, follow_ups=1)
    group = await talked(world, follow_ups=4, kind="group")
    pushed = await talked(world, follow_ups=2, channel="recording")
    here = await talked(world, follow_ups=8)
    approval = new_id()
    await world.sql(
        "INSERT INTO tool_calls (conversation_id, message_id, key, owner_id, tool, server, arguments, state, approval_id, expires_at)"
        " VALUES (%s, %s, '1.0', 'local', 'files__write', 'files', '{}', 'denied', %s, clock_timestamp())",
        *(here, (await world.history(here))[-1]["id"], approval),
    )
    ids = {
        "approval_id": approval,
        "thread_id": here,
        "conversation_id": here,
        "spare": spare,
        "group": group,
        "pushed": pushed,
        "note_id": "note",
        "spare_note": "spare-note",
        "memory_id": memory.id,
        "spare_memory": spare_memory.id,
        "timer_id": "mine",
        "spare_timer": "spare",
        "message_id": (await world.history(here))[-1]["id"],
        "agent_id": "companion",
        "spare_agent": "spare-agent",
        "version": "1",
        "name": "index.html",
        "model_id": "companion",
        "path": "embeddings",
    }
    reminder = await world.http.post("/api/reminders", json={**REMINDER, "conversation_id": here})
    ids["reminder_id"] = reminder.json()["id"]
    for name in ("mine", "spare"):
        set_ = await world.http.post(f"/api/threads/{here}/timers", json={**TIMER, "timer_id": name})
        assert set_.status_code == 201
    rows = await world.sql("SELECT id FROM messages WHERE synthetic")
    return Scene(world, model, ids, {row[0] for row in rows})


async def talked(world: World, *, follow_ups: int, **settings: Any) -> str:
    """A conversation with follow-ups of all types, long enough for a summary when there are many."""
    here = await world.conversation(**settings)
    if settings.get("kind") == "group":
        await world.sql("UPDATE conversations SET autonomy_enabled = true WHERE id = %s", here)
    for number in range(follow_ups):
        await world.says(here, f"@bot tell me more about {SAID} number {number}.")
        await pause(world, here)
        became = await world.silence(here, TRIGGER_TYPES[number % 4], reason=f"a {SECRET} made me")
        assert became.state == "delivered"
        await world.drain()  # what is not sent when somebody speaks is taken back
    await quiet(world)
    return here


async def quiet(world: World) -> None:
    """Wait until no post-turn job runs."""
    await world.drain()
    names = ("reflection ", "summary ")
    await until(lambda: not any(task.get_name().startswith(names) for task in asyncio.all_tasks()))


def leaks_in(text: str, scene: Scene, *, reasons: bool = False, prompts: bool = False) -> list[str]:
    """Return all parts of a text that reveal a trigger."""
    plain = html.unescape(text).casefold()
    words = [*HIDDEN_TEXTS, "synthetic", *scene.triggers, *([] if reasons else [SECRET])]
    words += () if prompts else PROMPTS.values()
    return [word for word in words if word.casefold() in plain]


async def test_every_route_is_called_and_none_shows_a_trigger(scene: Scene) -> None:
    web = web_app(scene.world.app, None)
    assert sorted(set(routes_of(web.routes))) == sorted(WAYS)
    assert set(web.openapi()["paths"]) <= {way.partition(" ")[2] for way in WAYS}
    assert len(scene.triggers) == 15
    [(summaries,)] = await scene.world.sql(
        "SELECT count(DISTINCT conversation_id) FROM messages WHERE role = 'system-summary'"
    )
    assert summaries >= 1
    seen_reason: set[str] = set()
    for route, ways in sorted(WAYS.items(), key=lambda item: item[0].startswith("DELETE")):
        method, _, path = route.partition(" ")
        for way in ways:
            for query in () if way.is_live else way.queries:
                answer = await scene.ask(method, path, way, **query)
                assert answer.status_code == way.status, (route, answer.text)
                told = f"{answer.text}\n{answer.headers}\n{answer.url.path}"
                assert leaks_in(told, scene, reasons=way.shows_reasons, prompts=way.shows_prompts) == [], route
                seen_reason |= {route} if SECRET in answer.text else set()
    assert seen_reason == {
        "GET /api/threads/{thread_id}/timers",
        "POST /api/threads/{thread_id}/timers",
        "PATCH /api/threads/{thread_id}/timers/{timer_id}",
    }


async def test_live_streams_show_no_trigger(scene: Scene) -> None:
    """The whole history, and a follow-up that is delivered while a client listens."""
    world, here = scene.world, scene.ids["thread_id"]
    said = len(await world.history(here))
    address = str(world.http.base_url).replace("http://", "ws://").rstrip("/")
    async with (
        listening(world.http, here, after="0") as listener,
        connect(f"{address}/api/chat/ws?threadId={here}&after=0") as phone,
    ):
        await pause(world, here)
        assert (await world.silence(here, reason=f"a {SECRET} made me")).state == "delivered"
        await listener.until(lambda: len(listener.messages) == said + 1)
        frames = [str(await asyncio.wait_for(phone.recv(), LIMIT_SECONDS)) for _ in range(said + 1)]
    assert listener.named("message")[-1]["autonomous"] is True
    told = [*map(str, listener.events), *frames]
    rows = await world.sql("SELECT id FROM messages WHERE synthetic")
    scene.triggers |= {row[0] for row in rows}
    assert [leaks_in(one, scene) for one in told] == [[]] * len(told)


async def test_the_list_of_follow_ups_shows_reasons_and_neither_prompts_nor_ids_of_triggers(scene: Scene) -> None:
    listed = (await scene.world.http.get(f"/api/threads/{scene.ids['thread_id']}/timers")).json()
    assert len(listed["past"]) == 8
    assert {one["reason"] for one in listed["past"]} == {f"a {SECRET} made me"}
    shown = {message["id"] for message in await scene.world.history(scene.ids["thread_id"])}
    assert {one["message_id"] for one in listed["past"]} <= shown


async def test_the_id_of_a_trigger_is_as_if_it_did_not_exist(scene: Scene) -> None:
    """In every path parameter, as a cursor, and as a replied-to id: the same answer as for an unknown id."""
    world, here = scene.world, scene.ids["thread_id"]
    [(trigger,)] = await world.sql(
        "SELECT id FROM messages WHERE synthetic AND conversation_id = %s ORDER BY created_at LIMIT 1", here
    )
    stranger = new_id()

    async def same(method: str, path: str, **more: Any) -> httpx.Response:
        answers: list[httpx.Response] = []
        for one in (trigger, stranger):
            text = json.dumps([path, more]).replace("THE-ID", one)
            filled, options = json.loads(text)
            answers.append(await world.http.request(method, filled, **options))
        known, unknown = answers
        assert known.status_code == unknown.status_code, (method, path, known.text)
        assert known.text.replace(trigger, "ID") == unknown.text.replace(stranger, "ID")
        return known

    for route, ways in WAYS.items():
        method, _, path = route.partition(" ")
        for name in ("thread_id", "conversation_id", "message_id", "timer_id", "note_id", "memory_id"):
            if f"{{{name}}}" in path and not (method == "PUT" and name == "note_id"):
                filled = path.format(**{**scene.ids, name: "THE-ID"})
                params = {"params": {"q": SAID}} if path.endswith("/search") else {}
                answer = await same(method, filled, json=ways[0].body, **params)
                assert answer.status_code == 404, (route, answer.text)
    cursor = await same("GET", f"/api/threads/{here}/history", params={"before": "THE-ID"})
    assert cursor.status_code == 400
    for asked in ({}, {"strategy": "relevant"}):
        explained = await same("GET", f"/api/threads/{here}/context", params={"message_id": "THE-ID", **asked})
        assert explained.status_code == 404
    for conversation in (here, scene.ids["group"]):
        for reply_to in (trigger, stranger):
            body = {"content": "hm", "reply_to_id": reply_to}
            said = await world.http.post(f"/chat/conversations/{conversation}/messages", json=body)
            assert said.status_code == 400
    same_words = {"content": f"hello {SAID}", "client_message_id": trigger}
    said = await world.http.post(f"/chat/conversations/{here}/messages", json=same_words)
    assert (said.status_code, said.json()["content"]) == (200, f"re: hello {SAID}")


async def test_nothing_of_a_trigger_but_its_prompt_reaches_the_model_and_that_only_once(scene: Scene) -> None:
    """Not in later turns, summaries or reflections; and a reason never."""
    world, model = scene.world, scene.model
    await world.says(scene.ids["thread_id"], f"One more {SAID}.")
    await quiet(world)
    summaries = [call for call in model.calls if call.is_summary]
    assert summaries
    assert model.reflections
    follow_ups = 0
    for call in [*model.calls, *model.reflections]:
        prompts = [text for _, text in call.window if any(prompt in text for prompt in PROMPTS.values())]
        is_follow_up = call.text in PROMPTS.values()
        follow_ups += is_follow_up
        assert prompts == ([call.text] if is_follow_up else [])
        assert not any(prompt in call.system for prompt in PROMPTS.values())
        assert not any(word in call.body for word in (SECRET, "synthetic", *scene.triggers))
    assert follow_ups == len(scene.triggers)
    assert not any(call.text in PROMPTS.values() for call in [*summaries, *model.reflections])


async def test_nothing_of_a_trigger_is_planned_remembered_sent_or_summed_up(scene: Scene) -> None:
    world = scene.world
    rows = [
        *await world.sql("SELECT topic, reason FROM timers WHERE origin = 'planner'"),
        *await world.sql("SELECT content, key, conversation_id, message_id FROM memories"),
        *await world.sql("SELECT content, metadata::text FROM messages WHERE NOT synthetic"),
        *await world.sql("SELECT text FROM chunks"),
        *await world.sql("SELECT message_id FROM outbox"),
        *await world.sql("SELECT title FROM conversations"),
    ]
    assert len(rows) > 40
    for row in rows:
        assert leaks_in(json.dumps(row), scene) == []
    assert len(world.channel.sent) == 4
    assert leaks_in(json.dumps(world.channel.sent), scene) == []
    covered = await world.sql("SELECT 1 FROM messages WHERE synthetic AND summary_id IS NOT NULL")
    assert covered == []


async def test_the_log_tells_neither_prompts_nor_reasons_nor_what_was_said(
    database_url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("rapport.turns.reflect.PAUSE_SECONDS", "rapport.runtime.post_turn_jobs.PAUSE_SECONDS"):
        monkeypatch.setattr(place, 0.0)
    with everything_logged() as logs:
        async with open_world(database_url, model=chat_model(model), reflection="always") as world:
            scene = await made(world, model)
            await world.history(scene.ids["thread_id"], limit=500)
            model.replies[PROMPTS["check_in"]] = f"The system triggered me about a {SAID}."
            await pause(world, scene.ids["thread_id"])
            await world.says(scene.ids["thread_id"], f"A last {SAID}.")
            await pause(world, scene.ids["thread_id"])
            assert (await world.silence(scene.ids["thread_id"], reason=SECRET)).state == "leaked"
            await pause(world, scene.ids["pushed"])
            model.fails = True
            assert (await world.silence(scene.ids["pushed"], reason=SECRET)).state == "failed"
    assert {"info", "warning"} <= {line["log_level"] for line in logs}
    for line in logs:
        told = json.dumps(line, default=str).casefold()
        assert not any(prompt.casefold() in told for prompt in PROMPTS.values()), line
        assert SECRET not in told, line
        assert line["log_level"] == "debug" or SAID not in told, line
    loud = [line for line in logs if line["log_level"] in {"error", "critical"}]
    assert loud == []


# ---- commands


@pytest.mark.e2e
async def test_commands_show_no_trigger_unless_an_operator_asks_for_them(
    scene: Scene, database_url: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    here = scene.ids["thread_id"]
    # While the server runs, which is told to leave the timers alone.
    assert (await scene.world.http.put(f"/api/threads/{here}/mute", json={"until": "forever"})).status_code == 200

    async def run(*arguments: str, stdin: str = "") -> Ran:
        ran = await asyncio.to_thread(home.run, *arguments, stdin=stdin, DATABASE_URL=database_url)
        assert ran.code == 0, ran
        return ran

    for form in ("jsonl", "markdown"):
        shown = await run("export", here, "--format", form)
        whole = await run("export", here, "--format", form, "--include-synthetic")
        assert leaks_in(shown.out, scene) == []
        assert SAID in shown.out
        assert all(prompt in whole.out.replace("\\", "") for prompt in PROMPTS.values())
        assert ("synthetic" in whole.out) is (form == "jsonl")
    exported = [json.loads(line) for line in (await run("export", here)).out.splitlines()]
    told = [one for one in await scene.world.history(here) if one["role"] != "system-summary"]
    assert [one["id"] for one in exported] == [one["id"] for one in told]

    chatted = await run("chat", "--continue", stdin="/history\n/quit\n")
    assert SAID in chatted.out
    assert leaks_in(chatted.out, scene) == []
    assert leaks_in((await run("chat", "--continue", stdin="/followups\n/quit\n")).out, scene, reasons=True) == []
    for command in ("memory", "notes"):
        assert leaks_in((await run(command, "search", " ".join(WORDS))).out, scene) == []
        assert leaks_in((await run(command, "list")).out, scene) == []
