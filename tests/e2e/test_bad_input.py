"""Test invalid requests: refused with a message, stored nowhere, and logged as no error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import pytest
from yarl import URL

from .audit import query
from .harness import Client, Home, Sent
from .scripted import reply_to

pytestmark = pytest.mark.e2e

JSON = "application/json"
MISSING = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Bad(NamedTuple):
    """A request that must be refused; `{id}` in the path is a conversation that exists."""

    what: str
    status: int
    body: bytes = b""
    path: str = "/chat/conversations/{id}/messages"
    type: str | None = JSON
    method: str = "POST"


def message(**fields: object) -> bytes:
    return json.dumps(fields).encode()


MESSAGES: Sequence[Bad] = (
    Bad("no body", 422),
    Bad("empty", 400, message(content="")),
    Bad("spaces only", 400, message(content=" \t\n\u2003 ")),
    Bad("no content", 422, b"{}"),
    Bad("content is null", 422, b'{"content": null}'),
    Bad("3 MB", 413, message(content="x" * 3_000_000)),
    Bad("32,001 characters", 413, message(content="x" * 32_001)),
    Bad("NUL", 400, message(content="a\x00b")),
    Bad("a lone surrogate", 400, rb'{"content": "\ud800"}'),
    Bad("a lone surrogate as a key", 400, rb'{"content": "hi", "\udfff": 1}'),
    Bad("a lone surrogate as bytes", 400, b'{"content": "\xed\xa0\x80"}'),
    Bad("NaN", 400, b'{"content": NaN}'),
    Bad("Infinity beside", 400, b'{"content": "hi", "x": -Infinity}'),
    Bad("invalid UTF-8", 400, b'{"content": "\xff\xfe"}'),
    Bad("not JSON", 400, b"content=hi"),
    Bad("half of a JSON", 400, b'{"content": "hi"'),
    Bad("nested without end", 400, b"[" * 500_000),
    Bad("an array", 422, b'["hi"]'),
    Bad("a string", 422, b'"hi"'),
    Bad("a number as content", 422, message(content=7)),
    Bad("an object as content", 422, message(content={"text": "hi"})),
    Bad("no blocks", 400, message(content=[])),
    Bad("a block of no known type", 400, message(content=[{"type": "tool_use", "id": "x"}])),
    Bad("a block with more than text", 400, message(content=[{"type": "text", "text": "hi", "additional_kwargs": 1}])),
    Bad("blocks without words", 400, message(content=[{"type": "text", "text": "  "}])),
    Bad("an image that isn't strings", 400, message(content=[{"type": "image", "url": {"a": [1]}}])),
    Bad("NUL in a block", 400, message(content=[{"type": "text", "text": "a\x00"}])),
    Bad("an unknown field", 422, message(content="hi", contnet="hi")),
    Bad("metadata", 422, message(content="hi", additional_kwargs={"synthetic": True})),
    Bad("a role", 422, message(content="hi", role="assistant")),
    Bad("NUL in the client's id", 400, message(content="hi", client_message_id="a\x00")),
    Bad("an empty client's id", 422, message(content="hi", client_message_id="")),
    Bad("a long client's id", 422, message(content="hi", client_message_id="x" * 201)),
    Bad("an author without a name", 422, message(content="hi", author={"id": "1"})),
    Bad("NUL in an author", 400, message(content="hi", author={"id": "1", "name": "\x00"})),
    Bad("a reply to nothing", 400, message(content="hi", reply_to_id=MISSING)),
    Bad("a reply to NUL", 400, message(content="hi", reply_to_id="\x00")),
    Bad("no content type", 422, message(content="hi"), type=None),
    Bad("another content type", 422, message(content="hi"), type="text/plain"),
    Bad("a form", 422, b"content=hi", type="application/x-www-form-urlencoded"),
)

ADDRESSES: Sequence[Bad] = tuple(
    Bad(what, 404, message(content="hi"), path=f"/chat/conversations/{id_}/messages")
    for what, id_ in (
        ("an unknown conversation", MISSING),
        ("not an id", "first"),
        ("a traversal", "..%2f..%2f..%2fetc%2fpasswd"),
        ("dots", "%2e%2e"),
        ("a very long id", "0" * 5000),
        ("NUL in the id", "%00"),
        ("no UTF-8 in the id", "%ff%fe"),
        ("a quote", "'%20OR%201=1--"),
        ("an id with other digits", "%D9%A0" * 26),
    )
)

OTHERS: Sequence[Bad] = (
    Bad("an unknown agent", 400, message(agent="nobody"), path="/chat/conversations"),
    Bad("an unknown kind", 422, message(kind="secret"), path="/chat/conversations"),
    Bad("NUL in a title", 400, message(title="\x00"), path="/chat/conversations"),
    Bad("a conversation as an array", 422, b"[]", path="/chat/conversations"),
    Bad("an owner of the client's choice", 422, message(owner_id="bob"), path="/api/threads"),
    Bad("history of nothing", 404, path=f"/api/threads/{MISSING}/history", method="GET"),
    Bad("a page of 0", 422, path="/api/threads/{id}/history?limit=0", method="GET"),
    Bad("a page of too many", 422, path="/api/threads/{id}/history?limit=501", method="GET"),
    Bad("a page before nothing", 400, path="/api/threads/{id}/history?before=%00", method="GET"),
    Bad("a page before no UTF-8", 400, path="/api/threads/{id}/history?before=%ff", method="GET"),
    Bad("a list before nothing", 400, path="/api/threads?before=%00~x", method="GET"),
    Bad("a list before a naive time", 400, path=f"/api/threads?before=2026-01-01T00:00:00~{MISSING}", method="GET"),
    Bad("cancelling nothing", 404, path=f"/chat/conversations/{MISSING}/cancel"),
    Bad("no such address", 404, path="/chat/conversation"),
    Bad("no such method", 405, path="/chat/conversations", method="PUT"),
)


async def test_bad_input_is_refused_in_words_and_leaves_nothing_behind(home: Home, http: aiohttp.ClientSession) -> None:
    server = await home.serve()
    client = Client(http, lambda: server.url)
    conversation = await client.create()
    wrong: list[str] = []

    for bad in (*MESSAGES, *ADDRESSES, *OTHERS):
        address = URL(server.url + bad.path.replace("{id}", conversation), encoded=True)
        headers = {"Content-Type": bad.type} if bad.type else {}
        skipped = () if bad.type else ("Content-Type",)
        async with http.request(
            bad.method, address, data=bad.body, headers=headers, skip_auto_headers=skipped
        ) as response:
            text = await response.text()
            if response.status != bad.status or response.content_type != "application/problem+json":
                wrong.append(f"{bad.what}: {response.status} {response.content_type} {text[:200]}")
                continue
        problem = json.loads(text)
        if problem["status"] != bad.status or not _is_sentence(problem["detail"]):
            wrong.append(f"{bad.what}: {text[:300]}")

    assert wrong == []
    counts = (
        "SELECT (SELECT count(*) FROM conversations), (SELECT count(*) FROM messages), (SELECT count(*) FROM events)"
    )
    assert await query(home.database_url, counts) == [(1, 0, 0)]
    sent = Sent(conversation, "ada", 1, "c0 and a good one at the end, with \u2603 and \U0001f600")
    assert (await client.say(sent))["content"] == reply_to(sent.text)
    assert await query(home.database_url, counts) == [(1, 2, 1)]
    assert server.errors() == []


def _is_sentence(detail: str) -> bool:
    """Check the form of an error message: a capital or a quoted name first, a full stop last, and short."""
    return (detail[0].isupper() or detail[0] == "`") and detail[-1] in ".)" and 10 < len(detail) < 400
