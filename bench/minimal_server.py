"""Serve turns without any feature: what FastAPI, one LangGraph node, LangChain's request and three statements cost.

It keeps no order, has no recovery and one prompt, so no server on these libraries costs less. Compare it with `rapport serve` in
one run: `uvicorn bench.minimal_server:app --port 8000`, with DATABASE_URL and OPENAI_BASE_URL set.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.channels import EphemeralValue, LastValue
from langgraph.pregel import NodeBuilder, Pregel

from rapport.agents.models import make_model
from rapport.domain.ids import new_id
from rapport.storage.database import Database
from rapport.storage.prepared_statement import PreparedStatement

HISTORY = 20
_STORE = """INSERT INTO minimal (conversation_id, id, role, content)
    VALUES (%(conversation)s, %(id)s, %(role)s, %(text)s) RETURNING created_at"""
_STORE_MESSAGE, _STORE_REPLY = PreparedStatement(_STORE), PreparedStatement(_STORE)
_LOAD = PreparedStatement(
    "SELECT role, content FROM minimal WHERE conversation_id = %(conversation)s"
    f" ORDER BY created_at DESC LIMIT {HISTORY}"
)
_CREATE = """CREATE TABLE IF NOT EXISTS minimal (conversation_id text, id text, role text, content text,
    created_at timestamptz DEFAULT clock_timestamp(), PRIMARY KEY (conversation_id, id));
    CREATE INDEX IF NOT EXISTS minimal_order ON minimal (conversation_id, created_at)"""

database = Database(os.environ.get("DATABASE_URL", ""), max_size=10)
model = make_model(os.environ.get("RAPPORT_MODEL", "openai:mock"), timeout=60.0, environment=os.environ)


async def _answer(messages: list[BaseMessage]) -> AIMessage:
    return await model.ainvoke(messages)


def _make_graph() -> Any:
    builder: Any = NodeBuilder()
    pregel: Any = Pregel
    return pregel(
        nodes={"answer": builder.subscribe_only("input").do(_answer).write_to("output")},
        channels={"input": EphemeralValue(Any), "output": LastValue(Any)},
        input_channels="input",
        output_channels="output",
    )


graph = _make_graph()


@asynccontextmanager
async def _open(_app: FastAPI) -> AsyncGenerator[None]:
    await database.open()
    async with database.statement() as connection:
        await connection.execute(_CREATE.encode(), prepare=False)
    yield
    await database.close()


app = FastAPI(lifespan=_open)


@app.get("/healthz")
async def get_health() -> dict[str, str]:
    return {}


@app.post("/chat/conversations")
async def create_conversation() -> dict[str, str]:
    return {"id": new_id()}


@app.post("/chat/conversations/{conversation}/messages")
async def answer(conversation: str, request: Request) -> dict[str, Any]:
    """Store the message, load the latest ones, ask the model, store its reply."""
    text: str = (await request.json())["content"]
    async with database.statement() as connection:
        await _STORE_MESSAGE.execute(
            connection, {"conversation": conversation, "id": new_id(), "role": "user", "text": text}
        )
    async with database.statement() as connection:
        rows = await _LOAD.execute(connection, {"conversation": conversation})
    kinds = {"user": HumanMessage, "assistant": AIMessage}
    window = [SystemMessage("You are a companion."), *(kinds[row.role](row.content) for row in reversed(rows))]
    reply: AIMessage = await graph.ainvoke(window)
    values = {"conversation": conversation, "id": new_id(), "role": "assistant", "text": str(reply.text)}
    async with database.statement() as connection:
        [row] = await _STORE_REPLY.execute(connection, values)
    return {
        "id": values["id"],
        "role": "assistant",
        "content": values["text"],
        "created_at": row.created_at.isoformat(),
    }
