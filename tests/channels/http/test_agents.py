"""Test `/api/agents`: make, change, copy, reset, restore, try and delete agents; who may; and what is refused."""

from __future__ import annotations

from typing import Any

import httpx

from rapport.agents.profiles import COMPANION, LIBRARIAN
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.cases import every_case
from tests.support.world import World

CHEF: dict[str, Any] = {"id": "chef", "name": "Chef", "persona": "You are a chef.", "handles": ["chef"]}


async def make(world: World, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    response = await world.http.post("/api/agents", json={**CHEF, **fields}, headers=headers)
    assert response.status_code == 201, response.text
    return response.json()


async def test_the_shipped_agents_are_version_one_of_ordinary_agents(world: World) -> None:
    listed = (await world.http.get("/api/agents")).json()["agents"]
    assert [one["id"] for one in listed] == ["companion", "librarian"]
    companion, librarian = listed
    assert (companion["grounding"], companion["remembers"], companion["follows_up"]) == ("blend", True, True)
    assert (librarian["grounding"], librarian["remembers"], librarian["follows_up"]) == ("strict", False, False)
    assert companion["handles"] == ["bot", "companion"]
    assert all(one["version"] == 1 and one["is_shipped"] and one["for_everyone"] for one in listed)
    detail = (await world.http.get("/api/agents/companion")).json()
    assert detail["persona"] == COMPANION.persona
    assert {name: detail[name] for name in companion} == companion


async def test_the_list_has_no_instructions(world: World) -> None:
    listed = (await world.http.get("/api/agents")).text
    assert all(agent.persona not in listed for agent in (COMPANION, LIBRARIAN))


async def test_an_unknown_agent_is_not_found(world: World) -> None:
    for name in ("nobody", "%00", "COMPANION", "x" * 300):
        answer = await world.http.get(f"/api/agents/{name}")
        assert answer.status_code == 404
        assert len(answer.text) < 300


async def test_a_made_agent_answers_with_its_persona(world: World) -> None:
    made = await make(world, greeting="Hungry?")
    assert (made["version"], made["for_everyone"], made["may_edit"]) == (1, False, True)
    begun = await world.http.post("/chat/conversations", json={"agent": "chef"})
    reply = await world.says(begun.json()["id"], "hello")
    assert reply["content"] == "re: hello"
    assert world.model.calls[-1][0].text.startswith("You are a chef.")


async def test_a_change_holds_from_the_next_turn_on_and_the_receipt_names_the_version(world: World) -> None:
    await make(world)
    conversation = (await world.http.post("/api/threads", json={"agent": "chef"})).json()["id"]
    first = await world.says(conversation, "hello")
    changed = await world.http.patch("/api/agents/chef", json={"persona": "You are a baker."})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    second = await world.says(conversation, "hello again")
    assert world.model.calls[-1][0].text.startswith("You are a baker.")
    versions: list[int] = []
    for reply in (first, second):
        told = (await world.http.get(f"/api/threads/{conversation}/context?message_id={reply['id']}")).json()
        versions.append(told["agent"]["version"])
    assert versions == [1, 2]


async def test_versions_can_be_listed_compared_and_restored(world: World) -> None:
    await make(world)
    await world.http.patch("/api/agents/chef", json={"greeting": "Hi!", "autonomy": {"enabled": True}})
    listed = (await world.http.get("/api/agents/chef/versions")).json()
    assert [one["version"] for one in listed["versions"]] == [2, 1]
    changes = listed["versions"][0]["changes"]
    assert changes["greeting"] == {"before": "", "after": "Hi!"}
    assert changes["autonomy"]["after"]["enabled"] is True
    restored = await world.http.post("/api/agents/chef/versions/1/restore")
    assert (restored.json()["version"], restored.json()["greeting"]) == (3, "")
    assert (await world.http.get("/api/agents/chef/versions/9")).status_code == 404


async def test_a_view_can_be_sent_back_as_a_change(world: World) -> None:
    made = await make(world)
    sent = await world.http.put("/api/agents/chef", json={**made, "name": "Sous-chef"})
    assert (sent.status_code, sent.json()["name"]) == (200, "Sous-chef"), sent.text


async def test_of_two_changes_of_one_version_the_second_is_refused(world: World) -> None:
    await make(world)
    for expected in (200, 409):
        changed = await world.http.patch("/api/agents/chef?version=1", json={"name": f"Chef {expected}"})
        assert changed.status_code == expected
    assert (await world.http.get("/api/agents/chef")).json()["name"] == "Chef 200"


async def test_the_version_in_a_body_protects_like_the_one_in_the_address(world: World) -> None:
    first = await make(world)
    put = {**first, "greeting": "One"}
    assert (await world.http.put("/api/agents/chef", json=put)).json()["version"] == 2
    refused = [
        await world.http.put("/api/agents/chef", json={**put, "greeting": "Two"}),
        await world.http.patch("/api/agents/chef", json={"version": 1, "greeting": "Two"}),
        await world.http.patch("/api/agents/chef", json={"version": 10**18, "greeting": "Two"}),
        await world.http.patch("/api/agents/chef", json={"version": 1, "greeting": "One"}),
        await world.http.patch("/api/agents/chef?version=1", json={"greeting": "Two"}),
    ]
    assert [answer.status_code for answer in refused] == [409] * 5, refused
    assert len({answer.json()["detail"] for answer in refused}) == 1
    for answer, status in (
        (await world.http.patch("/api/agents/chef?version=1", json={"version": 2, "greeting": "Two"}), 400),
        (await world.http.patch("/api/agents/chef", json={"version": "2", "greeting": "Two"}), 422),
        (await world.http.put("/api/agents/chef", json={**put, "version": "2"}), 422),
    ):
        assert (answer.status_code, "`version`" in answer.json()["detail"]) == (status, True)
    newest = await world.http.patch("/api/agents/chef?version=2", json={"version": 2, "greeting": "Two"})
    assert (newest.json()["version"], newest.json()["greeting"]) == (3, "Two")
    assert "version" not in (await world.http.get("/api/agents/chef/versions/2")).json()["agent"]


async def test_a_change_that_changes_nothing_makes_no_version(world: World) -> None:
    made = await make(world)
    same = [
        await world.http.patch("/api/agents/chef", json={}),
        await world.http.patch("/api/agents/chef", json={"name": "Chef", "greeting": None}),
        await world.http.put("/api/agents/chef", json=made),
        await world.http.post("/api/agents/chef/versions/1/restore"),
    ]
    assert [(answer.status_code, answer.json()["version"]) for answer in same] == [(200, 1)] * 4
    assert len((await world.http.get("/api/agents/chef/versions")).json()["versions"]) == 1


async def test_the_same_mistake_has_the_same_answer_by_every_route(world: World) -> None:
    await make(world)
    mistake = {"name": "x" * 81}
    answers = [
        await world.http.post("/api/agents", json={**CHEF, **mistake}),
        await world.http.put("/api/agents/chef", json={**CHEF, **mistake}),
        await world.http.patch("/api/agents/chef", json=mistake),
        await world.http.post("/api/agents/try", json={"content": "hi", "agent": {**CHEF, **mistake}}),
        await world.http.post("/api/agents/chef/try", json={"content": "hi", "agent": mistake}),
    ]
    assert [answer.status_code for answer in answers] == [422] * 5
    assert len({answer.json()["detail"] for answer in answers}) == 1, [answer.json() for answer in answers]


async def test_shipped_agents_are_edited_copied_and_reset_but_not_lost(world: World) -> None:
    edited = await world.http.patch("/api/agents/companion", json={"persona": "You are terse."})
    assert edited.json()["version"] == 2
    copied = await world.http.post("/api/agents/companion/copy", json={"id": "friend", "name": "Friend"})
    assert (copied.status_code, copied.json()["persona"]) == (201, "You are terse.")
    assert (await world.http.delete("/api/agents/companion")).status_code == 409
    reset = await world.http.post("/api/agents/companion/reset")
    assert (reset.json()["persona"], reset.json()["version"]) == (COMPANION.persona, 3)
    assert (await world.http.post("/api/agents/friend/reset")).status_code == 400


async def test_a_deleted_agents_conversation_is_answered_by_the_default_which_says_so_once(world: World) -> None:
    await make(world)
    conversation = (await world.http.post("/api/threads", json={"agent": "chef"})).json()["id"]
    await world.says(conversation, "hello")
    assert (await world.http.delete("/api/agents/chef")).status_code == 204
    said = [(await world.says(conversation, text))["content"] for text in ("one", "two")]
    assert said == ["(The agent “chef” of this conversation was deleted. Companion answers now.)\n\nre: one", "re: two"]


async def test_a_group_whose_agent_was_deleted_calls_the_agent_that_answers_now(world: World) -> None:
    await make(world, handles=["chef"])
    group = (await world.http.post("/api/threads", json={"agent": "chef", "kind": "group"})).json()["id"]
    other = (await world.http.post("/api/threads", json={"agent": "librarian", "kind": "group"})).json()["id"]
    await world.http.delete("/api/agents/chef")
    ben = {"author": {"id": "ben", "name": "Ben"}}
    shown = (await world.http.get(f"/api/threads/{group}/people")).json()
    assert shown["agent"] == {"id": "companion", "name": "Companion", "handles": ["bot", "companion"]}
    for text in ("@chef hello?", "@librarian hello?", "nobody is called"):
        assert (await world.post(group, text, **ben)).status_code == 202, text
    assert (await world.post(other, "@companion hello?", **ben)).status_code == 202  # its agent is there
    first = (await world.post(group, "@companion hello?", **ben)).json()
    assert first["content"].startswith("(The agent “chef” of this conversation was deleted.")
    second = (await world.post(group, "@bot and now?", **ben)).json()
    assert [one["author"] for one in (first, second)] == [{"id": "companion", "name": "Companion"}] * 2
    assert (await world.http.get(f"/chat/conversations/{group}")).json()["agent"] == "companion"
    used = (await world.http.get("/api/usage?by=agent")).text
    assert '"companion"' in used
    assert '"chef"' not in used


async def test_a_try_that_fails_promises_to_keep_nothing(world: World) -> None:
    world.model.will_fail(ValueError("no"))
    tried = await world.http.post("/api/agents/try", json={"content": "soup?", "agent": {**CHEF, "id": None}})
    assert "Please send your message again" in tried.text
    assert "is kept" not in tried.text


async def test_trying_an_agent_stores_nothing(world: World) -> None:
    await make(world)
    before = await world.sql("SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM conversations)")
    tried = await world.http.post(
        "/api/agents/chef/try", json={"content": "soup?", "agent": {"persona": "You are a waiter."}}
    )
    assert tried.json()["content"] == "re: soup?"
    assert world.model.calls[-1][0].text.startswith("You are a waiter.")
    assert (await world.http.get("/api/agents/chef")).json()["persona"] == "You are a chef."
    assert await world.sql("SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM conversations)") == before


async def test_an_agent_that_is_not_stored_is_tried_under_the_rules_of_a_stored_one(world: World) -> None:
    before = await world.sql("SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM agents)")
    tried = await world.http.post("/api/agents/try", json={"content": "soup?", "agent": {**CHEF, "id": None}})
    assert tried.json() == {"content": "re: soup?", "sources": [], "guardUsed": False, "fallbackUsed": False}
    assert world.model.calls[-1][0].text.startswith("You are a chef.")
    _, ana = await make_key(world, "ana")
    await until_closed(world)
    options = {"base_url": "http://127.0.0.1:9/v1", "key_variable": "SOME_KEY"}
    refused = {
        "`persona` must not be empty": {"name": "Chef"},
        "The field `name` is missing.": {"persona": "You are a chef."},
        "There is no field `owner`": {**CHEF, "owner": "ben"},
        "`model_options.base_url`": {**CHEF, "model_options": options},
        "`for_everyone`": {**CHEF, "for_everyone": True},
    }
    for sentence, agent in refused.items():
        answer = await world.http.post("/api/agents/try", json={"content": "hi", "agent": agent}, headers=ana)
        assert answer.status_code in (400, 422), answer.text
        assert sentence in answer.json()["detail"]
    assert await world.sql("SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM agents)") == before


async def test_null_restores_the_default_of_a_field_inside_a_part(world: World) -> None:
    await make(
        world, autonomy={"enabled": True, "min_delay_seconds": 60, "prompts": {"check_in": "Ask how it tastes."}}
    )
    changes = {
        "autonomy": {"min_delay_seconds": None, "prompts": {"check_in": None}},
        "model_options": {"base_url": None},
    }
    changed = (await world.http.patch("/api/agents/chef", json=changes)).json()
    assert (changed["autonomy"]["enabled"], changed["autonomy"]["min_delay_seconds"]) == (True, 30)
    assert (changed["autonomy"]["prompts"], changed["model_options"]["base_url"]) == ({}, "")
    refused = await world.http.patch("/api/agents/chef", json={"autonomy": {"min_delay": None}})
    assert "There is no field `autonomy.min_delay`" in refused.json()["detail"]


async def test_an_editor_gets_the_defaults(world: World) -> None:
    defaults = (await world.http.get("/api/agent-defaults")).json()
    made = await make(world)
    assert {name: made[name] for name in defaults["document"]} == {**defaults["document"], "handles": ["chef"]}
    assert defaults["prompts"]["check_in"] == "Continue our conversation naturally."
    assert defaults["guard_text"].startswith("I don't have sufficiently relevant documents")
    assert defaults["is_operator"] is True
    _, ana = await make_key(world, "ana")
    await until_closed(world)
    assert (await world.http.get("/api/agent-defaults", headers=ana)).json()["is_operator"] is False
    assert (await world.http.get("/api/agent-defaults")).status_code == 401


@every_case(
    ("fields", "named"),
    [
        ({"persona": " \n"}, "persona"),
        ({"persona": "x" * 1_000_000}, "persona"),
        ({"name": ""}, "name"),
        ({"id": "Chef!"}, "id"),
        ({"id": "companion"}, "id"),
        ({"handles": ["librarian"]}, "handles"),
        ({"handles": ["a b"]}, "handles"),
        ({"model": "nobody:gpt"}, "model"),
        ({"model": "openai:"}, "model"),
        ({"model_options": {"temperature": 3}}, "temperature"),
        ({"model_options": {"base_url": "file:///etc/passwd"}}, "base_url"),
        ({"model_options": {"key_variable": "DATABASE_URL"}}, "key_variable"),
        ({"model_options": {"key_variable": "sk-abc"}}, "key_variable"),
        ({"autonomy": {"prompts": {"check_in": ""}}}, "prompts"),
        ({"autonomy": {"prompts": {"check_up": "hm"}}}, "prompts"),
        ({"autonomy": {"min_delay_seconds": 0}}, "min_delay_seconds"),
        ({"autonomy": {"min_delay_seconds": 100, "max_delay_seconds": 50}}, "min_delay_seconds"),
        ({"autonomy": {"max_delay_seconds": 1e9}}, "max_delay_seconds"),
        ({"tools": ["rm"]}, "tools"),
        ({"grounding": "loose"}, "grounding"),
        ({"max_chat_history": 1}, "max_chat_history"),
        ({"guard_text": "\x00"}, "guard_text"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_bad_input_is_refused_with_the_field_and_stores_nothing(
    world: World, fields: dict[str, Any], named: str
) -> None:
    refused = await world.http.post("/api/agents", json={**CHEF, **fields})
    assert 400 <= refused.status_code < 500, refused.text
    assert f"{named}" in refused.json()["detail"], refused.text
    assert len(refused.text) < 1_000
    assert (await world.http.get("/api/agents/chef")).status_code == 404


async def test_only_operators_make_agents_for_everyone_and_name_addresses(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, local = await make_key(world, "local")
    await until_closed(world)
    for fields in ({"for_everyone": True}, {"model_options": {"base_url": "http://10.0.0.1/v1"}}):
        refused = await world.http.post("/api/agents", json={**CHEF, **fields}, headers=ana)
        assert (refused.status_code, next(iter(fields)) in refused.text) == (400, True)
    await make(world, local, for_everyone=True)
    assert (await world.http.patch("/api/agents/chef", json={"name": "Mine"}, headers=ana)).status_code == 400
    seen = (await world.http.get("/api/agents/chef", headers=ana)).json()
    assert (seen["may_edit"], "persona" in seen) == (False, False)


async def test_only_who_may_read_an_agent_is_told_to_copy_it(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, olga = await make_key(world, "olga", "operator")
    await until_closed(world)
    await make(world, olga, for_everyone=True)
    for agent, may_copy in (("companion", True), ("chef", False)):
        shown = (await world.http.get(f"/api/agents/{agent}", headers=ana)).json()
        refused = await world.http.patch(f"/api/agents/{agent}", json={"name": "Mine"}, headers=ana)
        copied = await world.http.post(f"/api/agents/{agent}/copy", json={"id": "mine"}, headers=ana)
        assert shown["may_copy"] is may_copy
        assert (refused.status_code, "You can copy it" in refused.json()["detail"]) == (400, may_copy)
        assert copied.status_code == (201 if may_copy else 400)
    listed = (await world.http.get("/api/agents", headers=ana)).json()["agents"]
    assert {one["id"]: one["may_copy"] for one in listed} == {
        "companion": True,
        "librarian": True,
        "chef": False,
        "mine": True,
    }


@every_case(
    ("name", "agent_id"),
    [
        ("Nöel", "noel"),
        ("Zoe\u0308", "zoe"),
        ("Ångström & Söhne", "angstrom-sohne"),
        ("Straße 5", "strasse-5"),
        ("مساعد 🦊", "agent-2f7834ab"),
        ("日本語", "agent-77710aed"),
        ("x" * 80, "x" * 64),
    ],
)
async def test_every_name_gives_an_id_and_can_be_tried(world: World, name: str, agent_id: str) -> None:
    fields = {"name": name, "persona": "You help."}
    tried = await world.http.post("/api/agents/try", json={"content": "hi", "agent": fields})
    assert (tried.status_code, tried.json()["content"]) == (200, "re: hi"), tried.text
    made = await world.http.post("/api/agents", json=fields)
    assert (made.status_code, made.json()["id"], made.json()["name"]) == (201, agent_id, name), made.text


@every_case(
    "fields",
    [
        {"name": "a\nb"},
        {"name": "a\u2028b"},
        {"name": "safe\u202eefas"},
        {"name": "a\u2066b"},
        {"name": "a\x1b[31m"},
        {"model": "openai:gpt\n5"},
        {"fallback_model": "openai:gpt\u202e5"},
    ],
)
async def test_a_line_has_no_line_breaks_or_controls(world: World, fields: dict[str, str]) -> None:
    refused = await world.http.post("/api/agents", json={**CHEF, **fields})
    assert refused.status_code == 422
    [field] = fields
    assert refused.json()["detail"].startswith(f"`{field}` must be one line without control characters")


async def test_a_stored_name_that_is_refused_today_breaks_nothing(world: World) -> None:
    await make(world)
    await world.sql(
        "UPDATE agents SET document = jsonb_set(document, '{name}', '\"a\\nb\"') WHERE id = 'chef' RETURNING 1"
    )
    listed = (await world.http.get("/api/agents")).json()["agents"]
    assert [one["name"] for one in listed] == ["Companion", "Librarian", "a\nb"]
    here = (await world.http.post("/api/threads", json={"agent": "chef"})).json()["id"]
    assert (await world.says(here, "hello"))["content"] == "re: hello"
    assert (await world.http.patch("/api/agents/chef", json={"greeting": "Hi"})).status_code == 422
    assert (await world.http.patch("/api/agents/chef", json={"name": "Chef"})).status_code == 200


async def test_a_private_agent_does_not_exist_for_others(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    await make(world, ana)
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", "/api/agents/chef", None),
        ("PUT", "/api/agents/chef", CHEF),
        ("PATCH", "/api/agents/chef", {"name": "Mine"}),
        ("DELETE", "/api/agents/chef", None),
        ("POST", "/api/agents/chef/copy", {"id": "mine"}),
        ("GET", "/api/agents/chef/versions", None),
        ("GET", "/api/agents/chef/versions/1", None),
        ("POST", "/api/agents/chef/versions/1/restore", None),
        ("POST", "/api/agents/chef/try", {"content": "hi"}),
        ("GET", "/v1/models/chef", None),
        ("POST", "/v1/chat/completions", {"model": "chef", "messages": [{"role": "user", "content": "hi"}]}),
    ]
    for method, path, body in requests:
        answer = await world.http.request(method, path, json=body, headers=ben)
        assert answer.status_code == 404, (method, path, answer.text)
        assert "You are a chef" not in answer.text
    for path in ("/api/agents", "/v1/models"):
        assert '"chef"' not in (await world.http.get(path, headers=ben)).text
    assert (await world.http.post("/api/threads", json={"agent": "chef"}, headers=ben)).status_code == 400
    assert (await make(world, ben))["name"] == "Chef"  # the id is free for another owner


async def test_agents_with_other_settings_are_used_so(world: World) -> None:
    await make(world, grounding="strict", persona="", guard_text="Not in my notes.", memory=False)
    conversation = (await world.http.post("/chat/conversations", json={"agent": "chef"})).json()["id"]
    reply = await world.says(conversation, "How many days of leave do I have?")
    assert (reply["content"], reply["guardUsed"]) == ("Not in my notes.", True)


async def test_a_model_without_its_key_gives_the_fallback_reply_or_the_fallback_model(
    world: World, monkeypatch: Any
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    await make(world, model="anthropic:claude-sonnet-4-5")
    conversation = (await world.http.post("/api/threads", json={"agent": "chef"})).json()["id"]
    assert (await world.says(conversation, "hello"))["fallbackUsed"] is True
    await world.http.patch("/api/agents/chef", json={"fallback_model": "builtin"})
    answered = await world.says(conversation, "hello again")
    assert answered["fallbackUsed"] is False, answered


async def test_a_group_calls_a_made_agent_by_its_handle(world: World) -> None:
    await make(world, handles=["chef"])
    group = (await world.http.post("/api/threads", json={"agent": "chef", "kind": "group"})).json()["id"]

    async def send(text: str) -> httpx.Response:
        return await world.post(group, text, author={"id": "ben", "name": "Ben"})

    assert (await send("what shall we cook?")).status_code == 202
    assert (await send("@companion what do you think?")).status_code == 202
    assert (await send("@chef what do you think?")).status_code == 200
    await world.http.patch("/api/agents/chef", json={"handles": ["cook"]})
    assert (await send("@cook what do you think?")).status_code == 200
    assert (await send("@chef hello?")).status_code == 202


async def test_a_handle_that_an_agent_for_everyone_gets_later_stays_with_its_agent(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, olga = await make_key(world, "olga", "operator")
    await until_closed(world)
    await make(world, ana, id="cook", handles=["chef"])
    await make(world, olga, id="clash", handles=["chef"], for_everyone=True)
    changed = await world.http.patch("/api/agents/cook", json={"description": "Cooks."}, headers=ana)
    assert (changed.status_code, changed.json()["version"]) == (200, 2), changed.text
    restored = await world.http.post("/api/agents/cook/versions/1/restore", headers=ana)
    assert (restored.status_code, restored.json()["handles"]) == (200, ["chef"]), restored.text
    dropped = await world.http.patch("/api/agents/cook", json={"handles": ["stove"]}, headers=ana)
    assert dropped.status_code == 200
    for taken in (
        await world.http.patch("/api/agents/cook", json={"handles": ["Chef"]}, headers=ana),
        await world.http.post("/api/agents/cook/versions/1/restore", headers=ana),
    ):
        assert (taken.status_code, "@chef belongs to the agent 'clash'" in taken.json()["detail"]) == (409, True)


async def test_a_shared_handle_calls_the_agent_of_the_group(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, olga = await make_key(world, "olga", "operator")
    await until_closed(world)
    await make(world, ana, id="cook", handles=["chef"])
    await make(world, olga, id="clash", handles=["chef"], for_everyone=True)
    for agent in ("cook", "clash"):
        group = (await world.http.post("/api/threads", json={"agent": agent, "kind": "group"}, headers=ana)).json()[
            "id"
        ]
        body = {"content": "@chef hello?", "author": {"id": "ben", "name": "Ben"}}
        answer = await world.http.post(f"/chat/conversations/{group}/messages", json=body, headers=ana)
        assert (answer.status_code, answer.json()["author"]["id"]) == (200, agent)


async def test_agents_are_shown_to_whoever_may_call(world: World) -> None:
    _, ana = await make_key(world, "ana")
    await until_closed(world)
    assert (await world.http.get("/api/agents")).status_code == 401
    assert (await world.http.get("/api/agents", headers=ana)).status_code == 200


HUGE = 99_999_999_999_999_999_999


async def test_a_version_that_no_agent_can_have_is_not_there(world: World) -> None:
    await make(world)
    for number in (HUGE, -HUGE, 0, 2**31 - 1, 2**31, 2**63):
        path = f"/api/agents/chef/versions/{number}"
        for answer in (await world.http.get(path), await world.http.post(f"{path}/restore")):
            assert (answer.status_code, str(number) in answer.json()["detail"]) == (404, True), answer.text
    stale = await world.http.patch(f"/api/agents/chef?version={HUGE}", json={"greeting": "Hi"})
    assert (stale.status_code, "newest version is 1" in stale.json()["detail"]) == (409, True)
    page = await world.http.get(f"/api/agents/chef/versions?before={HUGE}")
    assert [one["version"] for one in page.json()["versions"]] == [1]
