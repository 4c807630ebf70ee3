"""Test the tools over streamable HTTP with the official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rapport.agents.mcp.config import McpServer
from rapport.channels.http.mcp.asking import MAX_REPLY_CHARACTERS
from rapport.channels.http.mcp.schemas import MAX_SENT_MESSAGES
from rapport.channels.http.mcp.search_tools import MAX_TEXT_CHARACTERS
from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from tests.agents.mcp.connecting import running
from tests.channels.http.mcp.clients import Client, held_open
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World

READ_ONLY = {"search_notes", "search_conversation", "get_smart_context", "search_memories", "list_conversations"}


@pytest.fixture
async def client(world: World) -> AsyncGenerator[Client]:
    async with held_open(str(world.http.base_url)) as client:
        yield client


async def count_rows(world: World) -> dict[str, int]:
    tables = ("conversations", "messages", "events", "timers", "notes", "memories", "message_vectors")
    return {table: (await world.sql(f"SELECT count(*) FROM {table}"))[0][0] for table in tables}


async def test_the_server_says_what_it_is_and_what_its_tools_do(client: Client) -> None:
    assert client.initialized.serverInfo.name == "rapport"
    assert client.initialized.capabilities.tools is not None
    assert client.initialized.capabilities.resources is not None
    tools = {tool.name: tool for tool in (await client.session.list_tools()).tools}
    assert set(tools) == READ_ONLY | {"ask", "add_note"}
    assert "`companion`, `librarian`" in (tools["ask"].description or "")
    for name, tool in tools.items():
        assert tool.annotations is not None
        assert tool.annotations.readOnlyHint is (name in READ_ONLY), name
        assert tool.annotations.destructiveHint is (name == "ask"), name
        assert tool.outputSchema is not None
        assert tool.inputSchema["additionalProperties"] is False
    assert tools["add_note"].annotations is not None
    assert tools["add_note"].annotations.idempotentHint is True


async def test_a_message_to_a_conversation_is_stored_and_answered_once(world: World, client: Client) -> None:
    begun = await client.call("ask", message="Good morning", keep=True)
    assert begun["reply"] == "re: Good morning"
    here = begun["conversation_id"]
    first = await client.call("ask", message="And now?", conversation_id=here, client_message_id="mine")
    again = await client.call("ask", message="And now?", conversation_id=here, client_message_id="mine")
    assert (first, first["reply"]) == (again, "re: And now?")
    said = [(one["role"], one["content"]) for one in await world.history(here)]
    assert said == [
        ("user", "Good morning"),
        ("assistant", "re: Good morning"),
        ("user", "And now?"),
        ("assistant", "re: And now?"),
    ]


async def test_a_first_message_that_is_sent_again_begins_no_other_conversation(world: World, client: Client) -> None:
    first, second = await asyncio.gather(
        *(client.call("ask", message="Good morning", keep=True, client_message_id="mine") for _ in range(2))
    )
    third = await client.call("ask", message="Good morning", keep=True, client_message_id="mine")
    assert first == second == third
    assert [one["role"] for one in await world.history(first["conversation_id"])] == ["user", "assistant"]
    assert "different message" in await client.refuse("ask", message="Good night", keep=True, client_message_id="mine")
    other = await client.call("ask", message="Good night", keep=True, client_message_id="another")
    assert other["conversation_id"] != first["conversation_id"]
    assert await world.sql("SELECT DISTINCT autonomy_enabled FROM conversations") == [(None,)]


async def test_a_group_message_is_answered_though_it_names_nobody(world: World, client: Client) -> None:
    here = await world.conversation(kind="group")
    assert (await client.call("ask", message="Who has the keys?", conversation_id=here))["reply"].startswith("re: ")


async def test_without_a_conversation_nothing_is_kept(world: World, client: Client) -> None:
    before = await count_rows(world)
    asked = await client.call("ask", message="Just this once")
    assert (asked["reply"], asked["conversation_id"]) == ("re: Just this once", None)
    await world.drain()
    assert await count_rows(world) == before
    assert (await client.call("list_conversations"))["conversations"] == []


async def test_a_strict_agent_refuses_and_cites(world: World, client: Client) -> None:
    asked = await client.call("ask", message="When does the boat leave?", agent="librarian")
    assert (asked["guard_used"], asked["agent"], world.model.calls) == (True, "librarian", [])
    added = await client.call("add_note", text="The boat to Split leaves at seven.", title="Boats")
    world.model.will_say(f"At seven. [source: {added['id']}]")
    asked = await client.call("ask", message="When does the boat to Split leave?", agent="librarian")
    assert asked["guard_used"] is False
    assert [source["id"] for source in asked["sources"]] == [added["id"]]


async def test_the_fallback_reply_says_that_it_is_one(world: World, client: Client) -> None:
    world.model.will_fail(*[RuntimeError("no model")] * 5)
    assert (await client.call("ask", message="Hello?"))["fallback_used"] is True


async def test_a_note_is_added_once_and_found(world: World, client: Client) -> None:
    text = "The night train to Lisbon leaves at nine."
    added = await client.call("add_note", text=text, title="Trains", collections=["travel"])
    assert (await client.call("add_note", text=text, title="Trains")) == {**added, "unchanged": True}
    [passage] = (await client.call("search_notes", query="When does the train leave?"))["passages"]
    assert (passage["note_id"], passage["text"]) == (added["id"], text)
    [note] = (await world.http.get("/api/notes")).json()["notes"]
    assert (note["collections"], note["shared_with"]) == (["travel"], "owner")
    assert (await client.call("search_notes", query="the of and"))["passages"] != []


async def test_a_search_without_notes_finds_nothing(client: Client) -> None:
    assert await client.call("search_notes", query="anything") == {"passages": []}
    assert await client.call("search_memories", query="anything") == {"memories": []}


async def test_memories_are_found(world: World, client: Client) -> None:
    memory = await world.app.memory.create("local", "companion", MemoryCandidate("The user plays the cello."))
    [found] = (await client.call("search_memories", query="Which instrument?"))["memories"]
    assert (found["id"], found["content"]) == (memory.id, "The user plays the cello.")
    assert (await client.call("search_memories", query="Which instrument?", agent="librarian"))["memories"] == []


async def test_a_long_message_is_quoted_in_part(world: World, client: Client) -> None:
    here = await world.conversation()
    await world.says(here, "walrus " * 3_000)
    [first, *_] = (await client.call("search_conversation", conversation_id=here, query="walrus"))["messages"]
    assert len(first["text"]) <= MAX_TEXT_CHARACTERS
    assert "characters left out" in first["text"]


async def test_a_long_reply_is_quoted_in_part(world: World, client: Client) -> None:
    world.model.will_say("blah " * MAX_REPLY_CHARACTERS)
    assert len((await client.call("ask", message="Talk"))["reply"]) <= MAX_REPLY_CHARACTERS


async def test_conversations_are_listed_page_by_page(world: World, client: Client) -> None:
    made = [await world.conversation(title=f"Number {number}") for number in range(5)]
    listed: list[str] = []
    before: dict[str, str] = {}
    while True:
        page = await client.call("list_conversations", limit=2, **before)
        assert len(page["conversations"]) <= 2
        listed += [one["id"] for one in page["conversations"]]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert listed == made[::-1]
    [only] = (await client.call("list_conversations", query="Number 3"))["conversations"]
    assert (only["id"], only["title"], only["uri"]) == (made[3], "Number 3", f"rapport://conversations/{made[3]}")


async def test_an_agent_of_another_rapport_uses_them(world: World) -> None:
    """Our own client takes the searches for tools that read, and would ask a person before `ask` and `add_note`."""
    await world.http.post("/api/notes", json={"id": "boats", "text": "The boat to Split leaves at seven."})
    server = McpServer("home", url=f"{str(world.http.base_url).rstrip('/')}/mcp", timeout_seconds=LIMIT_SECONDS)
    async with running(server) as tools:
        specs = {spec.name.removeprefix("home__"): spec for spec in tools.list_tools()}
        assert {name for name, spec in specs.items() if spec.only_reads} == READ_ONLY
        assert specs.keys() == READ_ONLY | {"ask", "add_note"}
        found = await tools.call("home__search_notes", {"query": "When does the boat leave?"})
        assert (found.is_error, "The boat to Split leaves at seven." in found.text) == (False, True)
        refused = await tools.call("home__search_conversation", {"conversation_id": new_id(), "query": "boat"})
        assert (refused.is_error, "There is no conversation" in refused.text) == (True, True)


# ---- smart context


async def make_group(world: World) -> tuple[str, dict[str, str]]:
    """Return a group and the ids of its messages: an old question, chatter, and a plan."""
    here = await world.conversation(kind="group")
    ids: dict[str, str] = {}
    for name, text in {
        "old": "Which restaurant do we take for the reunion dinner?",
        "rain": "It will rain all weekend.",
        "plan": "The Thai restaurant on 10th Avenue has a table for the reunion dinner.",
    }.items():
        author = {"id": name, "name": name.title()}
        ids[name] = (await world.post(here, text, author=author)).json()["id"]
    return here, ids


async def test_smart_context_of_a_stored_conversation(world: World, client: Client) -> None:
    here, ids = await make_group(world)
    before = await count_rows(world)
    answer = await client.call("get_smart_context", conversation_id=here, question="Which restaurant did we choose?")
    chosen = {one["id"]: one for one in answer["messages"]}
    assert answer["strategy"] == "relevant"
    assert ids["plan"] in chosen
    assert chosen[ids["plan"]]["text"].startswith("The Thai restaurant")
    assert chosen[ids["plan"]]["author"] == "Plan"
    assert chosen[ids["plan"]]["reasons"]
    answer = await client.call("get_smart_context", conversation_id=here, question="^", anchor_id=ids["old"])
    assert answer["anchor_id"] == ids["old"]
    latest = await client.call("get_smart_context", conversation_id=here, question="And?", strategy="recent")
    assert [one["id"] for one in latest["messages"]] == [ids["old"], ids["rain"], ids["plan"]]
    assert world.model.calls == []
    before["message_vectors"] = (after := await count_rows(world))["message_vectors"]  # a background job fills them
    assert after == before


def said(id_: str | int, text: str, *, ago: float, **more: Any) -> dict[str, Any]:
    time = (datetime(2026, 5, 1, 12, tzinfo=UTC) - timedelta(minutes=ago)).isoformat()
    return {"id": id_, "author": "Ana", "time": time, "text": text, **more}


async def test_smart_context_over_messages_that_come_with_the_call(world: World, client: Client) -> None:
    messages = [
        said(3, "The Thai restaurant on 10th Avenue?", ago=10),
        said("a", "Where do we meet for dinner?", ago=4_000),
        said("b", "No idea.", ago=3_900, reply_to="a", is_agent=True),
    ]
    before = await count_rows(world)
    answer = await client.call("get_smart_context", messages=messages, question="Thoughts?", strategy="time_gap")
    assert [one["id"] for one in answer["messages"]] == [3]
    answer = await client.call("get_smart_context", messages=messages, question="Help with this", anchor_id="a")
    assert answer["anchor_id"] == "a"
    assert {"a", "b"} <= {one["id"] for one in answer["messages"]}
    late = "2026-06-01T12:00:00Z"
    answer = await client.call("get_smart_context", messages=messages, question="Hi", strategy="time_gap", time=late)
    assert answer["messages"] == []
    assert await client.call("get_smart_context", messages=[], question="Anyone?") == {
        "strategy": "relevant",
        "anchor_id": None,
        "messages": [],
    }
    assert await count_rows(world) == before
    assert world.model.calls == []


# ---- what is refused


async def test_a_bad_call_gets_one_sentence_and_leaves_nothing(world: World, client: Client) -> None:
    here = await world.conversation()
    before = await count_rows(world)
    nobody = new_id()
    missing = f"There is no conversation {nobody!r}."
    both: dict[str, Any] = {"question": "x", "conversation_id": here, "messages": []}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("ask", {}, "The field `message` is missing."),
        ("ask", {"message": 7}, "`message` must be a text."),
        ("ask", {"message": "  "}, "The message is empty: `message` needs at least one visible character."),
        ("ask", {"message": "  ", "keep": True}, "The message is empty"),
        ("ask", {"message": "x" * 32_001, "keep": True}, "`message` has 32,001 characters; the limit is 32,000."),
        ("ask", {"message": "a\x00b"}, "`message` holds a NUL character"),
        ("ask", {"message": "Hi", "mesage": "Hi"}, "There is no field `mesage`."),
        ("ask", {"message": "Hi", "agent": "nobody"}, "There is no agent 'nobody'; there are companion, librarian."),
        ("ask", {"message": "Hi", "conversation_id": nobody}, missing),
        ("ask", {"message": "Hi", "conversation_id": "../\x00"}, "There is no conversation"),
        ("ask", {"message": "Hi", "conversation_id": here, "agent": "librarian"}, "The agent of this conversation is"),
        ("ask", {"message": "Hi", "client_message_id": "x"}, "`client_message_id` needs a `conversation_id` or `keep`"),
        ("ask", {"message": "Hi", "conversation_id": here, "client_message_id": "import:x"}, "can't begin with"),
        ("search_notes", {"query": "x" * 4_001}, "`query`"),
        ("search_notes", {"query": "x", "limit": 21}, "`limit`"),
        ("search_notes", {"query": "x\x00"}, "`query` holds a NUL character"),
        ("add_note", {"text": ""}, "`text`"),
        ("add_note", {"text": "  "}, "no text"),
        ("add_note", {"text": "x", "shared_with": "everyone"}, "There is no field `shared_with`."),
        ("add_note", {"text": "x", "collections": ["a/b\n"]}, "collection"),
        ("search_conversation", {"query": "walrus", "conversation_id": nobody}, missing),
        ("search_conversation", {"query": "?!", "conversation_id": here}, "`query` needs at least one word."),
        ("get_smart_context", {"question": "x"}, "Send either `conversation_id` or `messages`."),
        ("get_smart_context", both, "Send either `conversation_id` or `messages`."),
        ("get_smart_context", {"question": "x", "conversation_id": nobody}, missing),
        ("get_smart_context", {"question": "\u200b", "messages": []}, "visible character"),
        ("get_smart_context", {"question": "x", "conversation_id": here, "anchor_id": nobody}, "There is no message"),
        ("get_smart_context", {"question": "x", "conversation_id": here, "author": "Ana"}, "go with `messages`"),
        ("get_smart_context", {"question": "x", "messages": [], "anchor_id": 7}, "`anchor_id` names none"),
        ("get_smart_context", {"question": "x", "messages": [{"id": 1}]}, "The field `messages.0.time` is missing."),
        (
            "get_smart_context",
            {"question": "x", "messages": [{"id": 1, "time": "soon", "text": "y"}]},
            "`messages[0]`: `time` isn't a time: 'soon'",
        ),
        (
            "get_smart_context",
            {"question": "x", "messages": [said(n % 2, "y", ago=n) for n in range(3)]},
            "`messages[2]`: Another message has the id '0' already.",
        ),
        (
            "get_smart_context",
            {"question": "x", "messages": [said(n, "y", ago=0) for n in range(MAX_SENT_MESSAGES + 1)]},
            "`messages`",
        ),
        ("search_memories", {"query": "x", "agent": "nobody"}, "There is no agent 'nobody'"),
        ("list_conversations", {"before": "yesterday"}, "`before` is not a cursor of this list"),
        ("delete_everything", {}, "There is no tool 'delete_everything'; there are ask, search_notes, "),
    ]
    for tool, arguments, sentence in cases:
        assert sentence in await client.refuse(tool, **arguments), (tool, json.dumps(arguments)[:200])
    assert await count_rows(world) == before
    assert world.model.calls == []
