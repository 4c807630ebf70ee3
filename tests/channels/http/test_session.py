"""Test signing in: a browser sends a key once, then a cookie, and no other site can use it (SEC)."""

from __future__ import annotations

from http.cookies import SimpleCookie

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from rapport import __version__
from rapport.channels.http.auth.authentication import refuse_forged
from rapport.domain.caller import Caller
from rapport.storage.access.api_keys import ApiKeys
from rapport.storage.access.sessions import MAX_SESSIONS_PER_KEY, Sessions
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.cases import every_case
from tests.support.world import World, open_world

PAGE = {"X-Rapport": "page"}


def secret_of(header: dict[str, str]) -> str:
    return header["Authorization"].split()[1]


async def signed_in(world: World, user: str = "ana", **headers: str) -> tuple[str, dict[str, str]]:
    """A key's id, and the headers with which the browser that used it comes back."""
    key_id, header = await make_key(world, user)
    await until_closed(world)
    answer = await world.http.post("/api/session", json={"key": secret_of(header)}, headers={**PAGE, **headers})
    assert answer.status_code == 204, answer.text
    world.http.cookies.clear()  # each test says itself what a request carries
    cookie = SimpleCookie(answer.headers["set-cookie"])["rapport_session"]
    return key_id, {"Cookie": f"rapport_session={cookie.value}"}


async def look(world: World, headers: dict[str, str] | None = None) -> dict[str, object]:
    answer = await world.http.get("/api/session", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def test_without_keys_nobody_signs_in(world: World) -> None:
    assert await look(world) == {
        "signed_in": True,
        "user": "local",
        "role": "operator",
        "needs_key": False,
        "model": "scripted",
        "builtin": False,
        "version": __version__,
        "telegram": False,
        "problem": None,
        "budgets": [],
    }
    answer = await world.http.post("/api/session", json={"key": "whatever"}, headers=PAGE)
    assert (answer.status_code, answer.headers.get("set-cookie")) == (204, None)
    assert await world.sql("SELECT count(*) FROM sessions") == [(0,)]
    # A page of another site learns that there is a server, and isn't let in.
    foreign = await look(world, {"Origin": "https://evil.example"})
    assert (foreign["signed_in"], foreign["user"], foreign["needs_key"]) == (False, None, False)


async def test_the_cookie_stands_for_the_key(world: World) -> None:
    _, header = await make_key(world, "ana")
    await until_closed(world)
    before = await look(world)
    assert (before["signed_in"], before["user"], before["needs_key"]) == (False, None, True)
    by_key = await look(world, header)
    assert (by_key["signed_in"], by_key["user"]) == (True, "ana")

    _, browser = await signed_in(world)
    after = await look(world, browser)
    assert (after["signed_in"], after["user"], after["needs_key"]) == (True, "ana", True)
    made = await world.http.post("/api/threads", headers={**browser, **PAGE})
    assert made.status_code == 201
    listed = (await world.http.get("/api/threads", headers=browser)).json()["threads"]
    assert [one["id"] for one in listed] == [made.json()["id"]]
    assert await world.sql("SELECT owner_id FROM conversations") == [("ana",)]


async def test_the_cookie_is_for_this_server_and_no_script(world: World) -> None:
    _, header = await make_key(world, "ana")
    await until_closed(world)
    body = {"key": f" {secret_of(header)}\n"}  # as it is pasted
    address = str(world.http.base_url).rstrip("/")
    ways: list[tuple[dict[str, str], bool]] = [
        ({}, False),
        ({"Origin": address}, False),
        ({"X-Forwarded-Proto": "https"}, True),
        ({"Origin": address.replace("http://", "https://")}, True),
    ]
    for headers, secure in ways:
        answer = await world.http.post("/api/session", json=body, headers={**PAGE, **headers})
        cookie = SimpleCookie(answer.headers["set-cookie"])["rapport_session"]
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
        assert (bool(cookie["secure"]), cookie["max-age"], cookie["domain"]) == (secure, str(30 * 86_400), "")
        assert secret_of(header) not in answer.headers["set-cookie"]
        assert answer.text == ""


async def test_a_wrong_key_signs_nobody_in(world: World) -> None:
    key_id, header = await make_key(world, "ana")
    await until_closed(world)
    right = secret_of(header)
    async with world.database.statement() as connection:
        await ApiKeys(connection).revoke(key_id)
    for key in (right, right[:-1], right + "x", "rapport_", "x", "ÿ🦄"):
        answer = await world.http.post("/api/session", json={"key": key}, headers=PAGE)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None), key
    for body in ({}, {"key": ""}, {"key": "x" * 201}, {"key": 7}, {"key": "a", "user": "ben"}):
        assert (await world.http.post("/api/session", json=body, headers=PAGE)).status_code == 422, body
    assert await world.sql("SELECT count(*) FROM sessions") == [(0,)]


async def test_a_key_in_the_address_is_not_looked_at(world: World) -> None:
    _, header = await make_key(world, "ana")
    await until_closed(world)
    for name in ("key", "token", "access_token", "api_key", "rapport_session"):
        answer = await world.http.get("/api/threads", params={name: secret_of(header)})
        assert answer.status_code == 401


async def test_revoking_the_key_ends_its_sessions_at_once(world: World) -> None:
    key_id, browser = await signed_in(world)
    _, other = await signed_in(world, "ben")
    assert (await world.http.get("/api/threads", headers=browser)).status_code == 200
    async with world.database.statement() as connection:
        await ApiKeys(connection).revoke(key_id)
    refused = await world.http.get("/api/threads", headers=browser)
    assert (refused.status_code, refused.json()["detail"]) == (401, "You are signed out: sign in with a key.")
    assert (await look(world, browser))["signed_in"] is False
    assert (await world.http.get("/api/threads", headers=other)).status_code == 200


async def test_who_signs_out_is_out_and_a_copied_cookie_too(world: World) -> None:
    _, browser = await signed_in(world)
    answer = await world.http.delete("/api/session", headers={**browser, **PAGE})
    assert answer.status_code == 204
    cookie = SimpleCookie(answer.headers["set-cookie"])["rapport_session"]
    assert (cookie.value, cookie["max-age"]) == ("", "0")
    assert (await world.http.get("/api/threads", headers=browser)).status_code == 401
    assert await world.sql("SELECT count(*) FROM sessions") == [(0,)]
    assert (await world.http.delete("/api/session", headers=PAGE)).status_code == 204  # twice is once


async def test_a_session_ends_by_itself(world: World) -> None:
    _, browser = await signed_in(world)
    await world.sql("UPDATE sessions SET expires_at = clock_timestamp()")
    assert (await world.http.get("/api/threads", headers=browser)).status_code == 401
    await signed_in(world, "ben")
    assert await world.sql("SELECT owner_id FROM sessions") == [("ben",)]  # what is over is gone


async def test_a_key_keeps_only_so_many_browsers_signed_in(world: World) -> None:
    _, header = await make_key(world, "ana")
    async with world.database.statement() as connection:
        tokens = [await Sessions(connection).open(secret_of(header)) for _ in range(MAX_SESSIONS_PER_KEY + 2)]
        callers = [await Sessions(connection).find_caller(token or "") for token in tokens]
    assert callers == [None] * 2 + [Caller("ana", "user")] * MAX_SESSIONS_PER_KEY


async def test_a_malformed_cookie_is_no_session(world: World) -> None:
    _, browser = await signed_in(world)
    token = browser["Cookie"].partition("=")[2]
    for value in ("", "x", token[:-1], token + "x", token.swapcase(), "rapport_" + "A" * 43, "a" * 4_000):
        answer = await world.http.get("/api/threads", headers={"Cookie": f"rapport_session={value}"})
        assert answer.status_code == 401, value
    # Nor is the hash that is stored, for somebody who has read it.
    [(stored,)] = await world.sql("SELECT encode(hash, 'hex') FROM sessions")
    answer = await world.http.get("/api/threads", headers={"Cookie": f"rapport_session={stored}"})
    assert answer.status_code == 401
    # A valid cookie does not make up for a wrong key.
    wrong = await world.http.get("/api/threads", headers={**browser, "Authorization": "Bearer nonsense"})
    assert wrong.status_code == 401


async def test_what_changes_something_is_refused_unless_the_page_itself_sent_it(world: World) -> None:
    _, browser = await signed_in(world)
    address = str(world.http.base_url).rstrip("/")
    host = address.removeprefix("http://")
    refused: list[dict[str, str]] = [
        {},  # a form of another site
        {"X-Rapport": ""},
        {"X-Rapport": "other"},
        {**PAGE, "Origin": "https://evil.example"},
        {**PAGE, "Origin": "null"},
        {**PAGE, "Origin": ""},
        {**PAGE, "Origin": "http://127.0.0.1:1"},  # the same machine, another server
        {**PAGE, "Origin": f"http://{host}.evil.example"},
        {**PAGE, "Origin": f"ftp://{host}"},
        {**PAGE, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {**PAGE, "Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    ]
    for headers in refused:
        for method, path in (
            ("POST", "/api/threads"),
            ("POST", "/api/samples"),
            ("PUT", "/api/preferences"),
            ("DELETE", "/api/session"),
        ):
            answer = await world.http.request(method, path, headers={**browser, **headers}, json={})
            assert answer.status_code == 403, (method, path, headers)
            assert answer.headers["content-type"] == "application/problem+json"
    assert await world.sql("SELECT count(*) FROM conversations") == [(0,)]
    taken: list[dict[str, str]] = [
        PAGE,
        {**PAGE, "Origin": address},
        {**PAGE, "Origin": address.replace("http://", "https://")},
        {**PAGE, "Origin": "https://chat.example", "Sec-Fetch-Site": "same-origin"},  # a proxy calls it by another name
    ]
    for headers in taken:
        assert (await world.http.post("/api/threads", headers={**browser, **headers})).status_code == 201, headers
    # To read needs no header: no other site gets to see the answer.
    assert (await world.http.get("/api/threads", headers=browser)).status_code == 200


async def test_nobody_is_signed_in_by_another_site(world: World) -> None:
    """Otherwise a page could sign its visitor in to its own author's account."""
    _, header = await make_key(world, "mallory")
    await until_closed(world)
    body = {"key": secret_of(header)}
    for headers in ({}, {**PAGE, "Origin": "https://evil.example"}):
        answer = await world.http.post("/api/session", json=body, headers=headers)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)


async def test_a_client_with_a_cookie_jar_signs_in_and_out(world: World) -> None:
    """With a jar that keeps cookies, as browsers do."""
    _, header = await make_key(world, "ana")
    await until_closed(world)
    async with httpx.AsyncClient(base_url=world.http.base_url, headers=PAGE) as browser:
        assert (await browser.get("/api/session")).json()["signed_in"] is False
        await browser.post("/api/session", json={"key": secret_of(header)})
        assert (await browser.get("/api/session")).json()["user"] == "ana"
        here = (await browser.post("/api/threads")).json()["id"]
        said = await browser.post(f"/chat/conversations/{here}/messages", json={"content": "hello"})
        assert said.json()["content"] == "re: hello"
        await browser.delete("/api/session")
        assert "rapport_session" not in browser.cookies
        assert (await browser.get("/api/threads")).status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0"])
async def test_on_a_server_that_others_can_reach_it_is_the_same(database_url: str, host: str) -> None:
    async with open_world(database_url, host=host) as world:
        closed = await look(world)
        assert (closed["signed_in"], closed["needs_key"]) == (False, True)
        _, browser = await signed_in(world)
        assert (await look(world, browser))["user"] == "ana"


async def test_neither_the_key_nor_the_cookie_is_stored_or_logged(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    _, browser = await signed_in(world)
    token = browser["Cookie"].partition("=")[2]
    await world.http.get("/api/threads", headers=browser)
    tables = await world.sql("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
    for (table,) in tables:
        assert await world.sql(f'SELECT count(*) FROM "{table}" t WHERE strpos(t::text, %s) > 0', token) == [(0,)]
    told = capsys.readouterr()
    assert token not in told.out + told.err


@every_case(
    ("origin", "let_in"),
    [
        ("http://chat.example:8000", True),
        ("https://chat.example:8000", True),
        ("http://chat.example", False),
        ("https://evil.example", False),
        ("null", False),
        (None, False),  # a browser always says where a page is from
    ],
)
def test_a_socket_is_opened_by_pages_of_this_server_only(origin: str | None, let_in: bool) -> None:
    """A WebSocket can't carry the header, and its opener reads everything."""
    headers = [(b"host", b"chat.example:8000"), *([(b"origin", origin.encode())] if origin else [])]
    connection = HTTPConnection({"type": "websocket", "headers": headers, "path": "/"})
    if let_in:
        refuse_forged(connection)
    else:
        with pytest.raises(HTTPException) as refused:
            refuse_forged(connection)
        assert refused.value.status_code == 403
