"""Measure the effect of background embedding on accepting group messages, and the delay until a message has its vector."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from bench.context.site import Site, Times, spread
from rapport.domain.conversation import LOCAL_USER, Author, Incoming
from rapport.domain.embedder import Embedder
from rapport.ingest.accept import accept
from rapport.ingest.embed_messages import MessageEmbedding
from rapport.runtime.embedding_loop import EmbeddingLoop
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.neighbours import load_vector

A_SECOND = 20
"""Messages a second while accepting is timed: a very active group."""
BLOCK = 100


async def speaking(site: Site, database: Database, embedder: Embedder, blocks: int) -> None:
    """Time accepting messages in a group, alternately with and without background embedding."""
    index = MessageEmbedding(database, embedder)
    async with database.statement() as connection:
        chat = (await Conversations(connection).create(LOCAL_USER, agent_id="companion", kind="group")).id
    times = Times()
    for number in range(2 * blocks + 2):
        if number == 2:
            times = Times()
        is_embedding = number % 2 == 1
        async with embedding_behind(index) if is_embedding else contextlib.nullcontext() as indexing:
            place = "with it" if is_embedding else "without"
            for text in [site.chance.choice(site.lines.said).text for _ in range(BLOCK)]:
                began = time.perf_counter()
                await accept(database, said(chat, text), worker_id="bench", claim=True)
                times.add("accepting a message", place, began)
                if indexing is not None:
                    indexing.enqueue(chat)
                await asyncio.sleep(max(0.0, began + 1 / A_SECOND - time.perf_counter()))
        while (await index.embed_next(chat)).has_more:
            pass
    times.table(f"{A_SECOND} messages a second; embedding behind them", ("without", "with it"))
    async with embedding_behind(index) as indexing:
        lags = [await until_embedded(site, database, indexing, chat, embedder.name, 1, pause=True) for _ in range(40)]
        many = await until_embedded(site, database, indexing, chat, embedder.name, 500)
    print(
        f"\na message's vector is there after {spread(lags)}; of 500 messages at once the last one's after {many:,.0f} ms"
    )


def said(chat: str, text: str) -> Incoming:
    return Incoming(LOCAL_USER, chat, text.replace("@bot", "bot"), Author("ana", "Ana"))


@contextlib.asynccontextmanager
async def embedding_behind(index: MessageEmbedding) -> AsyncGenerator[EmbeddingLoop]:
    indexing = EmbeddingLoop(index)
    task = asyncio.create_task(indexing.run())
    try:
        yield indexing
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_embedded(
    site: Site,
    database: Database,
    indexing: EmbeddingLoop,
    chat: str,
    embedder: str,
    count: int,
    *,
    pause: bool = False,
) -> float:
    """Return the milliseconds from accepting the last of `count` messages until it can be found by meaning."""
    if pause:
        await asyncio.sleep(site.chance.random())  # at a random phase of the loop
    last = ""
    for _ in range(count):
        text = f"{site.chance.choice(site.lines.said).text} again"
        last = (await accept(database, said(chat, text), worker_id="bench", claim=True)).message_id
        indexing.enqueue(chat)
    began = time.perf_counter()
    async with database.statement() as connection:
        while await load_vector(connection, LOCAL_USER, chat, last, embedder=embedder) is None:
            await asyncio.sleep(0.01)
    return (time.perf_counter() - began) * 1e3
