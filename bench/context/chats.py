"""Group chats of any length in an embedded Postgres: the lines of real ones over and over, each with a vector of its own.

A message has the words of one line and a vector between those of three, from the bundled embedder: so no two are the same, and
they lie as those of real chats do. Measured on 20,000 vectors of real messages and 150,000 made like this from 8,000: the mean
cosine is 0.10 in both, the closest to a real question has 0.64 and 0.61, and the variance is spread over 103 and 106 dimensions
(participation ratio). One in ten is nearly that of its line alone, as often as people repeat each other. (With noise around the
lines' own vectors instead, messages lie in heaps that no real chat has.)

They are copied in as the index's own job would store them, and indexed when all are there.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
from numpy.typing import NDArray

from bench.context.inputs import chat_path
from bench.context.windows import Said, read
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.embedder import Embedder
from rapport.ingest.embed_messages import prepare_text
from rapport.storage.database import Database
from rapport.storage.vector_index import ensure_vector_index

SOURCES = ("new-stripe", "new-mediawiki", "new-ubuntu-meeting", "ubuntu-dev")
DIMENSIONS = 384
SHARES = (0.8, 0.5, 0.33)
"""How much of a message's vector is its own line, and how much two others: together as far from the middle as a line is."""
REPEATED = 0.1
NOISE = 0.003
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
APART = timedelta(seconds=30)
CHUNK = 20_000
KEPT_MEGABYTES = 1_500
"""Memory for a million vectors while they are indexed: then the whole graph has room, and it is made in one go."""

_LINES = "CREATE TEMP TABLE lines (number integer PRIMARY KEY, author text, content text, mentions text[])"
# Every fifth replies to one of the twenty before it. Ids count up, so that any of them can be named.
_MESSAGES = """
INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, mentions, reply_to_id, created_at)
SELECT %(chat)s, '02' || lpad(n::text, 24, '0'), %(owner)s, 'user', author, author, content, mentions,
       CASE WHEN n %% 5 = 0 AND n > 20 THEN '02' || lpad((n - 1 - n * 7 %% 20)::text, 24, '0') END,
       %(beginning)s + n * %(apart)s
FROM generate_series(1, %(messages)s) AS n JOIN lines ON number = %(first)s + (%(offset)s + n) %% %(lines)s ORDER BY n
"""
_CHAT = """
INSERT INTO conversations (id, owner_id, agent_id, kind, channel, created_at, last_at, user_message_count)
VALUES (%(chat)s, %(owner)s, 'companion', 'group', 'api', %(beginning)s, %(last)s, %(messages)s)
"""
_MARK = """
INSERT INTO embedding_progress (conversation_id, embedder, owner_id, embedded_until, vectors)
VALUES (%(chat)s, %(embedder)s, %(owner)s, %(last)s, %(messages)s)
"""
_COPY = "COPY message_vectors (conversation_id, message_id, embedder, owner_id, created_at, embedding) FROM STDIN (FORMAT binary)"


@dataclass(frozen=True, slots=True)
class Lines:
    """What was said in real chats, in their order, and the vectors of it."""

    said: Sequence[Said]
    vectors: NDArray[np.float32]
    unsaid: Sequence[str]
    """Questions of the same people that are none of these lines."""

    def near(
        self, numbers: NDArray[np.intp], others: tuple[int, int], chance: np.random.Generator
    ) -> NDArray[np.float32]:
        """A vector of its own for each of some lines, on the way to others of a range of them."""
        middle: NDArray[np.float32] = self.vectors.mean(0)
        mixed = [numbers, *(chance.integers(*others, len(numbers)) for _ in SHARES[1:])]
        found: NDArray[np.float32] = np.tile(middle, (len(numbers), 1))
        for share, some in zip(SHARES, mixed, strict=True):
            found += share * (self.vectors[some] - middle)
        is_repeated = chance.random(len(numbers)) < REPEATED
        found[is_repeated] = self.vectors[numbers[is_repeated]]
        found += NOISE * chance.standard_normal(found.shape, np.float32)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat of so many messages, which are some lines over and over; it ends with the last of them."""

    number: int
    messages: int
    first: int
    lines: int

    @property
    def id(self) -> str:
        return f"01{self.number:024d}"

    def message_id(self, number: int) -> str:
        return f"02{number:024d}"

    def at(self, number: int) -> datetime:
        """When it was said."""
        return BEGINNING + number * APART

    def line(self, number: int) -> int:
        """Which line it is."""
        return self.first + (self.offset + number) % self.lines

    @property
    def offset(self) -> int:
        return (-self.messages - 1) % self.lines


async def real_lines(embedder: Embedder, count: int) -> Lines:
    """So many lines, a quarter from each of four communities."""
    chats = [[one for log in read(chat_path(name)) for one in log.said] for name in SOURCES]
    said = [one for chat in chats for one in chat[: count // len(SOURCES)]]
    vectors = await embedder.embed([prepare_text(one.text) or "." for one in said])
    rest = [one.text for one in chats[-1][count // len(SOURCES) :]]
    unsaid = [text for text in rest if text.endswith("?") and len(text.split()) >= 6]
    return Lines(said, np.array(vectors, np.float32), list(dict.fromkeys(unsaid)))


async def fill(
    database: Database, chats: Sequence[Chat], lines: Lines, embedder: str, told: Callable[[str], None]
) -> None:
    """Put the chats into an empty database: messages, vectors, then the index."""
    begun = time.perf_counter()
    async with database.statement() as connection:
        await connection.execute(f"DROP INDEX message_vectors_near_{DIMENSIONS}".encode())
    await asyncio.to_thread(_put, database.url, chats, lines, embedder)
    total = sum(chat.messages for chat in chats)
    told(f"{total:,} messages with vectors in {len(chats):,} chats stored after {time.perf_counter() - begun:,.0f} s")
    begun = time.perf_counter()
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = 0")
        kept = 64 + total * KEPT_MEGABYTES // 1_000_000
        await connection.execute(f"SET LOCAL maintenance_work_mem = '{kept}MB'".encode())
        await connection.execute("SET LOCAL max_parallel_maintenance_workers = 2")
        await ensure_vector_index(connection, "message_vectors", DIMENSIONS)
    told(f"indexed in {time.perf_counter() - begun:,.0f} s")
    await asyncio.to_thread(_tidy, database.url)


def _put(url: str, chats: Sequence[Chat], lines: Lines, embedder: str) -> None:
    chance = np.random.default_rng(5)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no look-up for each row: they are all there
        connection.execute("SET synchronous_commit = off")
        connection.execute(_LINES)
        with connection.cursor() as cursor, cursor.copy("COPY lines FROM STDIN") as copy:
            for number, one in enumerate(lines.said):
                copy.write_row((number, one.author, one.text, list(one.mentions)))
        connection.execute("ANALYZE lines")
        for chat in chats:
            values = {
                "chat": chat.id,
                "owner": LOCAL_USER,
                "embedder": embedder,
                "messages": chat.messages,
                "first": chat.first,
                "offset": chat.offset,
                "lines": chat.lines,
                "beginning": BEGINNING,
                "apart": APART,
                "last": chat.at(chat.messages),
            }
            for statement in (_CHAT, _MESSAGES, _MARK):
                connection.execute(statement.encode(), values)
            _put_vectors(connection, chat, lines, embedder, chance)


def _put_vectors(
    connection: psycopg.Connection, chat: Chat, lines: Lines, embedder: str, chance: np.random.Generator
) -> None:
    """In Postgres' binary form, of which every row here has the same length: so rows are made thousands at a time."""
    texts = {"conversation": chat.id, "message": chat.message_id(0), "embedder": embedder, "owner": LOCAL_USER}
    sized = [field for name, text in texts.items() for field in ((f"{name} size", ">i4"), (name, f"S{len(text)}"))]
    row = np.dtype(
        [
            ("fields", ">i2"),
            *sized,
            ("at size", ">i4"),
            ("at", ">i8"),
            ("vector size", ">i4"),
            ("dimensions", ">i2"),
            ("unused", ">i2"),
            ("vector", ">f2", (DIMENSIONS,)),
        ]
    )
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
        for since in range(1, chat.messages + 1, CHUNK):
            numbers = np.arange(since, min(since + CHUNK, chat.messages + 1))
            rows = np.zeros(len(numbers), row)
            rows["fields"] = 6
            for name, text in texts.items():
                rows[f"{name} size"] = len(text)
                rows[name] = text.encode()
            rows["message"] = [chat.message_id(number).encode() for number in numbers.tolist()]
            rows["at size"] = 8
            rows["at"] = (chat.at(0) - EPOCH) // timedelta(microseconds=1) + numbers * (
                APART // timedelta(microseconds=1)
            )
            rows["vector size"] = 4 + 2 * DIMENSIONS
            rows["dimensions"] = DIMENSIONS
            rows["vector"] = lines.near(
                np.array([chat.line(one) for one in numbers.tolist()]), (chat.first, chat.first + chat.lines), chance
            )
            copy.write(rows.tobytes())
        copy.write(struct.pack(">h", -1))


def _tidy(url: str) -> None:
    """What autovacuum does a minute later; and what was written goes to disk now, not while something is timed."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE messages, message_vectors, conversations, embedding_progress")
        connection.execute("CHECKPOINT")


def exactly_nearest(url: str, chat: Chat, vector: Sequence[float], limit: int) -> dict[str, float]:
    """The nearest messages of a chat and their similarity, all of them compared."""
    nearest = """
        WITH own AS MATERIALIZED (
            SELECT message_id, embedding <=> %s::halfvec AS distance FROM message_vectors WHERE conversation_id = %s
        ) SELECT message_id, 1 - distance FROM own ORDER BY distance LIMIT %s"""
    with psycopg.connect(url, autocommit=True) as connection:
        return dict(connection.execute(nearest.encode(), (str(list(vector)), chat.id, limit)).fetchall())
