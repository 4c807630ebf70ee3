"""Test who may call, and that nobody sees anything of another owner (SEC)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from rapport.app import App
from rapport.cli.serve import refuse_public_address_without_keys
from rapport.domain.caller import Role
from rapport.domain.errors import Permanent
from rapport.domain.ids import new_id
from rapport.storage.access.api_keys import ApiKeys
from rapport.storage.work.events import NOTIFY_CHANNEL
from tests.support.listening import listening
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, settings_for, until

PROBLEM = "application/problem+json"


async def make_key(world: World, user: str, role: Role | None = None) -> tuple[str, dict[str, str]]:
    """Create a key; return its id and its header."""
    async with world.database.statement() as connection:
        row, secret = await ApiKeys(connection).create(user, name=f"{user}'s key", role=role)
    return row.id, {"Authorization": f"Bearer {secret}"}


async def until_closed(world: World) -> None:
    """Wait until the server has noticed that there are keys."""

    async def closed() -> bool:
        return (await world.http.get("/api/threads")).status_code == 401

    await until(closed)


async def test_without_keys_this_machine_is_the_local_user(world: World) -> None:
    created = (await world.http.post("/api/threads")).json()["id"]
    assert (await world.http.get(f"/chat/conversations/{created}")).status_code == 200
    assert await world.sql("SELECT owner_id FROM conversations") == [("local",)]


async def test_without_keys_any_bearer_will_do(world: World) -> None:
    """Clients that can't do without a key send a dummy."""
    for token in ("none", "sk-dummy", "rapport_" + "x" * 43):
        response = await world.http.post("/api/threads", headers={"Authorization": f"Bearer {token}"})
        assert response.status_code == 201
    assert await world.sql("SELECT DISTINCT owner_id FROM conversations") == [("local",)]


async def test_without_keys_a_page_of_another_site_is_refused(world: World) -> None:
    for headers in (
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8000"},
        {"Host": "localhost.evil.example"},
        {"Host": "192.168.1.7:8000"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://evil.example:8000", "Host": "localhost:8000"},
        {"Origin": "null"},
        {"Origin": ""},
    ):
        await assert_refused(world, headers)


async def test_without_keys_a_malformed_host_or_origin_is_refused(world: World) -> None:
    for headers in ({"Host": "[::1"}, {"Origin": "http://["}):
        await assert_refused(world, headers)


async def assert_refused(world: World, headers: dict[str, str]) -> None:
    response = await world.http.post("/api/threads", headers=headers)
    assert response.status_code == 401, headers
    assert response.headers["content-type"] == PROBLEM
    assert "Without keys this server" in response.json()["detail"]
    assert await world.sql("SELECT count(*) FROM conversations") == [(0,)]


async def test_without_keys_pages_of_this_machine_are_welcome(world: World) -> None:
    for headers in (
        {"Host": "localhost"},
        {"Host": "LOCALHOST:8000"},
        {"Host": "[::1]:8000"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1:5173", "Host": "127.0.0.1:8000"},
        {"Origin": "http://[::1]:8000"},
    ):
        assert (await world.http.get("/api/threads", headers=headers)).status_code == 200, headers


async def test_without_keys_a_page_on_another_port_may_not_change_anything(world: World) -> None:
    for headers in (
        {"Origin": "http://localhost:3000", "Host": "localhost:8000"},
        {"Origin": "http://localhost", "Host": "localhost:8000"},
        {"Origin": "http://127.0.0.1:8000", "Host": "localhost:8000"},
        {"Origin": "http://localhost:3000", "Host": "localhost:8000", "Sec-Fetch-Site": "same-site"},
        {"Origin": "ftp://localhost:8000", "Host": "localhost:8000"},
        # Only a proxy that is trusted may say so.
        {"Origin": "http://localhost:3000", "Host": "localhost:8000", "X-Forwarded-Host": "localhost:3000"},
    ):
        await assert_refused(world, headers)


async def test_without_keys_the_page_of_this_server_and_programs_may_change_things(world: World) -> None:
    for headers in (
        {"Host": "localhost:8000"},
        {"Origin": "http://localhost:8000", "Host": "localhost:8000"},
        {"Origin": "http://LOCALHOST:8000", "Host": "localhost:8000"},
        {"Origin": "http://[::1]:8000", "Host": "[::1]:8000"},
        # A development server that passes requests on under another name: its browser says that it is one site.
        {"Origin": "http://localhost:3000", "Host": "localhost:8000", "Sec-Fetch-Site": "same-origin"},
    ):
        assert (await world.http.post("/api/threads", headers=headers)).status_code == 201, headers


async def test_a_trusted_proxy_says_by_which_name_it_was_called(database_url: str) -> None:
    headers = {"Origin": "http://localhost:3000", "Host": "localhost:8000", "X-Forwarded-Host": "localhost:3000"}
    async with open_world(database_url, trusted_proxies="127.0.0.1") as world:
        assert (await world.http.post("/api/threads", headers=headers)).status_code == 201
        other = {**headers, "X-Forwarded-Host": "localhost:4000"}
        assert (await world.http.post("/api/threads", headers=other)).status_code == 401


async def test_once_there_is_a_key_every_request_needs_one(world: World) -> None:
    conversation = (await world.http.post("/api/threads")).json()["id"]
    _, key = await make_key(world, "local")
    await until_closed(world)

    refused: list[dict[str, Any]] = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic bG9jYWw6"},
        {"Authorization": key["Authorization"].removeprefix("Bearer ")},
        {"Authorization": key["Authorization"][:-1]},
        {"Authorization": key["Authorization"] + "x"},
        {"Authorization": "Bearer rapport_" + "A" * 43},
        {"Authorization": "Bearer ÿ".encode("latin-1")},
    ]
    for headers in refused:
        for method, path in (
            ("GET", "/api/threads"),
            ("POST", "/api/threads"),
            ("GET", f"/api/threads/{conversation}/history"),
            ("POST", "/chat/conversations"),
            ("GET", f"/chat/conversations/{conversation}"),
            ("DELETE", f"/chat/conversations/{conversation}"),
            ("POST", f"/chat/conversations/{conversation}/messages"),
            ("POST", f"/chat/conversations/{conversation}/cancel"),
        ):
            body = {"content": "hello"} if path.endswith("/messages") else None
            response = await world.http.request(method, path, headers=headers, json=body)
            assert response.status_code == 401, (method, path, headers)
            assert response.headers["content-type"] == PROBLEM
            assert response.headers["www-authenticate"] == "Bearer"
            assert "key" in response.json()["detail"]

    # The local user's own key opens what was said before there were keys; who is no browser may call by any name.
    shown = await world.http.get(f"/chat/conversations/{conversation}", headers={**key, "Host": "chat.example"})
    assert shown.status_code == 200
    assert (await world.http.get("/healthz")).status_code == 200
    assert (await world.http.get("/readyz")).status_code == 200


async def test_a_bearer_is_a_bearer_in_any_case(world: World) -> None:
    _, key = await make_key(world, "ana")
    await until_closed(world)
    secret = key["Authorization"].split()[1]
    for scheme in ("bearer", "BEARER"):
        assert (
            await world.http.get("/api/threads", headers={"Authorization": f"{scheme} {secret}"})
        ).status_code == 200


async def test_a_revoked_key_ends_at_once(world: World) -> None:
    first, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    assert (await world.http.get("/api/threads", headers=ana)).status_code == 200

    async with world.database.statement() as connection:
        assert await ApiKeys(connection).revoke(first) is True

    response = await world.http.get("/api/threads", headers=ana)
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert (await world.http.get("/api/threads", headers=ben)).status_code == 200
    async with world.database.statement() as connection:
        assert await ApiKeys(connection).revoke(first) is False
        assert await ApiKeys(connection).revoke("nonsense") is False


async def test_data_of_one_user_does_not_exist_for_another(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    made = await world.http.post("/chat/conversations", json={"agent": "companion"}, headers=ana)
    hers = made.json()["id"]
    said = await world.http.post(f"/chat/conversations/{hers}/messages", json={"content": "a secret"}, headers=ana)
    reply = said.json()["id"]
    before = await world.sql("SELECT count(*) FROM messages")

    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", "/chat/conversations/{id}", None),
        ("GET", "/api/threads/{id}/history", None),
        ("GET", f"/api/threads/{{id}}/history?before={reply}", None),
        ("POST", "/chat/conversations/{id}/messages", {"content": "hello"}),
        ("POST", "/chat/conversations/{id}/messages", {"content": "hello", "reply_to_id": reply}),
        ("POST", "/chat/conversations/{id}/messages", {"content": "hello", "client_message_id": "abc"}),
        ("POST", "/chat/conversations/{id}/cancel", None),
        ("DELETE", "/chat/conversations/{id}", None),
    ]
    for method, path, body in requests:
        foreign = await world.http.request(method, path.replace("{id}", hers), json=body, headers=ben)
        missing_id = new_id()
        missing = await world.http.request(method, path.replace("{id}", missing_id), json=body, headers=ben)
        assert (foreign.status_code, missing.status_code) == (404, 404), (method, path)
        assert foreign.text == missing.text.replace(missing_id, hers), (method, path)
        assert foreign.headers["content-type"] == missing.headers["content-type"] == PROBLEM

    assert (await world.http.get("/api/threads", headers=ben)).json() == {"threads": [], "next": None}
    assert [one["id"] for one in (await world.http.get("/api/threads", headers=ana)).json()["threads"]] == [hers]
    history = await world.http.get(f"/api/threads/{hers}/history", headers=ana)
    assert [message["content"] for message in history.json()["messages"]] == ["a secret", "re: a secret"]
    assert await world.sql("SELECT count(*) FROM messages") == before


async def test_a_running_turn_cannot_be_cancelled_by_somebody_else(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    hers = (await world.http.post("/chat/conversations", json={"agent": "companion"}, headers=ana)).json()["id"]
    step = world.model.will_wait("the whole answer")
    async with world.http.stream(
        "POST",
        f"/chat/conversations/{hers}/messages",
        json={"content": "go"},
        headers={**ana, "Accept": "text/event-stream"},
    ) as answer:
        await step.begun.wait()
        assert (await world.http.post(f"/chat/conversations/{hers}/cancel", headers=ben)).status_code == 404
        assert step.gate is not None
        step.gate.set()
        frames = (await answer.aread()).decode()
    assert "event: final" in frames
    assert "the whole answer" in frames


async def test_a_malformed_id_is_not_found(world: World) -> None:
    for name in ("nonsense", "%F0%9F%A6%84", "x" * 300, "' OR 1=1 --", "%00"):
        await assert_not_there(world, name)


async def assert_not_there(world: World, name: str) -> None:
    for method, path in (
        ("GET", f"/chat/conversations/{name}"),
        ("DELETE", f"/chat/conversations/{name}"),
        ("POST", f"/chat/conversations/{name}/cancel"),
        ("POST", f"/chat/conversations/{name}/messages"),
        ("GET", f"/api/threads/{name}/history"),
    ):
        body = {"content": "hello"} if path.endswith("/messages") else None
        response = await world.http.request(method, path, json=body)
        assert response.status_code == 404, (method, path, response.text)
        assert response.headers["content-type"] == PROBLEM


async def test_a_keys_secret_is_kept_nowhere(world: World) -> None:
    async with world.database.statement() as connection:
        row, secret = await ApiKeys(connection).create("ana", name="phone")
        other, another = await ApiKeys(connection).create("ana", name="phone")
    assert row.id != other.id
    assert secret != another
    assert len(secret) > 40
    [columns] = await world.sql(
        "SELECT array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns"
        " WHERE table_name = 'api_keys'"
    )
    assert columns[0] == ["id", "owner_id", "name", "hash", "created_at", "revoked_at", "role"]
    for values in await world.sql("SELECT * FROM api_keys"):
        for value in values:
            stored = value if isinstance(value, bytes) else str(value).encode()
            assert secret.encode() not in stored
            assert secret.removeprefix("rapport_").encode() not in stored
    # Nor does any other table hold it after it was used.
    await until_closed(world)
    await world.http.post("/chat/conversations", headers={"Authorization": f"Bearer {secret}"})
    tables = await world.sql("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
    for (table,) in tables:
        assert await world.sql(f'SELECT count(*) FROM "{table}" t WHERE strpos(t::text, %s) > 0', secret) == [(0,)]


async def test_a_server_that_others_can_reach_never_lets_anybody_in_without_a_key(database_url: str) -> None:
    async with open_world(database_url, host="0.0.0.0") as world:
        for headers in ({}, {"Host": "localhost"}, {"Authorization": "Bearer dummy"}):
            response = await world.http.get("/api/threads", headers=headers)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        key_id, key = await make_key(world, "ana")
        assert (await world.http.get("/api/threads", headers=key)).status_code == 200
        async with world.database.statement() as connection:
            await ApiKeys(connection).revoke(key_id)
        # Even without any valid key left, requests need one.
        assert (await world.http.get("/api/threads", headers=key)).status_code == 401
        assert (await world.http.get("/api/threads")).status_code == 401


async def test_a_server_that_others_can_reach_does_not_start_without_a_key(world: World) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.7", "rapport.example", ""):
        with pytest.raises(Permanent, match=r"rapport keys create NAME.*HOST=127\.0\.0\.1") as refused:
            await refuse_public_address_without_keys(bound_to(world, host))
        assert f"HOST={host} can be reached by others" in str(refused.value)
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"):
        await refuse_public_address_without_keys(bound_to(world, host))

    others = bound_to(world, "0.0.0.0")
    key_id, _ = await make_key(world, "ana")
    await refuse_public_address_without_keys(others)
    async with world.database.statement() as connection:
        await ApiKeys(connection).revoke(key_id)
    with pytest.raises(Permanent):
        await refuse_public_address_without_keys(others)


def bound_to(world: World, host: str) -> App:
    return replace(world.app, settings=settings_for(world.database.url, host=host))


async def test_metrics_are_for_the_operator(world: World) -> None:
    assert (await world.http.get("/metrics")).status_code == 200
    _, local = await make_key(world, "local")
    _, ada = await make_key(world, "ada")
    await until_closed(world)
    assert (await world.http.get("/metrics")).status_code == 401
    refused = await world.http.get("/metrics", headers=ada)
    assert refused.status_code == 403
    assert "operator" in refused.json()["detail"]
    assert (await world.http.get("/metrics", headers=local)).status_code == 200


async def test_a_caller_has_the_role_of_its_key_in_a_browser_too(world: World) -> None:
    roles: list[tuple[str, Role | None, Role]] = [
        ("ada", None, "user"),
        ("ada", "user", "user"),
        ("ada", "operator", "operator"),
        ("local", None, "operator"),
        ("local", "user", "user"),
    ]
    keys = [(user, role, (await make_key(world, user, chosen))[1]) for user, chosen, role in roles]
    await until_closed(world)
    for user, role, key in keys:
        secret = key["Authorization"].split()[1]
        signed_in = await world.http.post("/api/session", json={"key": secret}, headers={"X-Rapport": "page"})
        cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        world.http.cookies.clear()
        for headers in (key, cookie):
            session = (await world.http.get("/api/session", headers=headers)).json()
            assert (session["user"], session["role"]) == (user, role)
            metrics = await world.http.get("/metrics", headers=headers)
            assert metrics.status_code == (200 if role == "operator" else 403)
    unknown = (await world.http.get("/api/session")).json()
    assert (unknown["user"], unknown["role"]) == (None, None)


async def test_only_operators_are_shown_what_is_wrong_with_the_model(world: World) -> None:
    """Two keys of one user: the same conversation, with and without the problem."""
    _, user = await make_key(world, "ada")
    _, operator = await make_key(world, "ada", "operator")
    await until_closed(world)
    here = await world.conversation("ada")
    messages = f"/chat/conversations/{here}/messages"
    for key, is_shown in ((user, False), (operator, True)):
        world.model.will_fail(RuntimeError("broken"), RuntimeError("broken"))
        said = await world.http.post(messages, json={"content": "hello"}, headers=key)
        assert (said.json()["fallbackUsed"], said.json()["problem"] is not None) == (True, is_shown)
        streamed = await world.http.post(
            messages, json={"content": "hello"}, headers={**key, "Accept": "text/event-stream"}
        )
        final = json.loads(streamed.text.partition("event: final\ndata: ")[2].partition("\n")[0])
        assert (final["fallbackUsed"], final["problem"] is not None) == (True, is_shown)
    reply = final["id"]
    for key, is_shown in ((user, False), (operator, True)):
        history = (await world.http.get(f"/api/threads/{here}/history", headers=key)).json()["messages"]
        single = (await world.http.get(f"/api/threads/{here}/messages/{reply}", headers=key)).json()
        context = (await world.http.get(f"/api/threads/{here}/context", headers=key)).json()
        session = (await world.http.get("/api/session", headers=key)).json()
        async with listening(world.http, here, after="0", **key) as listener:
            await listener.until(lambda heard=listener: any(one["id"] == reply for one in heard.named("message")))
        for view in (history[-1], single, context, session, listener.named("message")[-1]):
            assert (view["problem"] is not None) is is_shown, view


async def test_a_stream_ends_when_the_role_of_its_key_changes(world: World) -> None:
    key_id, ada = await make_key(world, "ada", "operator")
    await until_closed(world)
    here = await world.conversation("ada")
    async with listening(world.http, here, **ada) as listener:
        await world.sql("UPDATE api_keys SET role = 'user' WHERE id = %s", key_id)
        await world.sql("SELECT pg_notify(%s, 'access ada')", NOTIFY_CHANNEL)
        async with asyncio.timeout(LIMIT_SECONDS):
            await listener.ended.wait()
    assert (await world.http.get("/metrics", headers=ada)).status_code == 403


async def test_json_answers_are_not_cached_and_not_sniffed(world: World) -> None:
    thread = (await world.http.post("/api/threads")).json()["id"]
    for path in (
        f"/api/threads/{thread}/history",
        "/api/threads/nonsense/history",  # a problem
        "/api/threads?limit=x",
        "/nowhere",
        "/api/session",
        "/healthz",
        "/v1/models",
        "/v1/nowhere",
        "/metrics",
    ):
        response = await world.http.get(path)
        assert response.headers["x-content-type-options"] == "nosniff", path
        assert response.headers["cache-control"] == "no-store", path
