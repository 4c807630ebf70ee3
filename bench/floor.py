"""Run the floor: the minimal conversation server that stores its messages, for comparison.

It is a bare FastAPI + httpx proxy to the model. Each message is one SQLite insert with its own fsynced commit
(WAL, `synchronous=FULL`), two a turn. It sends only the new message to the model: no context, no queue, no
checks, no retries.
"""

from __future__ import annotations

import argparse
import sqlite3
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

SCHEMA = """
create table if not exists messages (
  id integer primary key, conversation_id text not null, role text not null, content text not null,
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')));
create index if not exists messages_by_conversation on messages (conversation_id, id);
"""
INSERT = "insert into messages (conversation_id, role, content) values (?, ?, ?)"
PAGE = """
select id, role, content, created_at from messages
where conversation_id = ? and id < ? order by id desc limit ?"""
NEWEST = 2**62
PREFIX = "m"  # ids are strings in the API, as in Rapport's


def connect(path: Path | str) -> sqlite3.Connection:
    """Open the database so that every statement is a separate, fsynced transaction."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    db.executescript(SCHEMA)
    return db


def respond(value: object, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def build(model_url: str, db: sqlite3.Connection) -> FastAPI:
    """Return the server with its four routes."""
    limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
    client = httpx.AsyncClient(timeout=60, limits=limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with client:
            yield

    async def healthz() -> Response:
        return respond({"status": "ok"})

    async def create() -> Response:
        return respond({"id": uuid.uuid4().hex}, 201)

    async def turn(conversation_id: str, request: Request) -> Response:
        content: str = orjson.loads(await request.body())["content"]
        db.execute(INSERT, (conversation_id, "user", content))
        prompt: dict[str, Any] = {"model": "mock", "messages": [{"role": "user", "content": content}]}
        answer = await client.post(f"{model_url}/chat/completions", json=prompt)
        answer.raise_for_status()
        reply: str = orjson.loads(answer.content)["choices"][0]["message"]["content"]
        row = db.execute(INSERT, (conversation_id, "assistant", reply))
        return respond({"id": f"{PREFIX}{row.lastrowid}", "role": "assistant", "content": reply})

    async def history(conversation_id: str, limit: int = 100, before: str | None = None) -> Response:
        below = int(before.removeprefix(PREFIX)) if before else NEWEST
        rows = db.execute(PAGE, (conversation_id, below, limit)).fetchall()
        messages = [
            {"id": f"{PREFIX}{number}", "role": role, "content": content, "created_at": at}
            for number, role, content, at in reversed(rows)
        ]
        return respond({"messages": messages, "next": messages[0]["id"] if len(rows) == limit else None})

    app = FastAPI(lifespan=lifespan)
    app.get("/healthz")(healthz)
    app.post("/chat/conversations")(create)
    app.post("/chat/conversations/{conversation_id}/messages")(turn)
    app.get("/api/threads/{conversation_id}/history")(history)
    return app


def seed(path: Path, conversation_id: str, contents: list[str]) -> None:
    """Insert these messages into a conversation, alternately from user and assistant."""
    rows = [(conversation_id, ("user", "assistant")[n % 2], content) for n, content in enumerate(contents)]
    db = connect(path)
    try:
        db.execute("begin immediate")
        db.executemany(INSERT, rows)
        db.execute("commit")
    finally:
        db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The floor: a bare proxy that stores each message.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True, help="base URL of the model, ending in /v1")
    parser.add_argument("--db", required=True, help="path of the SQLite file")
    args = parser.parse_args()
    app = build(args.model, connect(args.db))
    uvicorn.run(app, port=args.port, loop="uvloop", http="httptools", access_log=False, log_level="warning", ws="none")


if __name__ == "__main__":
    main()
