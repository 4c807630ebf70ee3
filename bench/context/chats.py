"""Fill an embedded Postgres with group chats of any length: repeated lines of real chats, each with a different vector.

A message has the text of one line and a mix of the vectors of three lines, from the bundled embedder. Therefore no two vectors are
the same, and they are distributed as in real chats. Measured on 20,000 vectors of real messages and 150,000 made like this from 8,000: the mean
cosine is 0.10 in both, the closest to a real question has 0.64 and 0.61, and the variance is spread over 103 and 106 dimensions
(participation ratio). One in ten is nearly the vector of its line, because people repeat each other about as often. (Noise around the
lines' own vectors would give clusters that real chats do not have.)

The rows are copied as the embedding job would store them, and the index is created afterwards.
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
"""The weights of a message's own line and of two others in its vector. The result is as far from the mean as a line is."""
REPEATED = 0.1
NOISE = 0.003
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
APART = timedelta(seconds=30)
CHUNK = 20_000
KEPT_MEGABYTES = 1_500
"""Memory for indexing a million vectors: the whole graph fits, and is built in one pass."""

_LINES = "CREATE TEMP TABLE lines (number integer PRIMARY KEY, author text, content text, mentions text[])"
# Every fifth message replies to one of the twenty before it. Ids count up, so that any of them can be computed.
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
    """The lines of real chats, in their order, and their vectors."""

    said: Sequence[Said]
    vectors: NDArray[np.float32]
    unsaid: Sequence[str]
    """Questions of the same people that are not among these lines."""

    def near(
        self, numbers: NDArray[np.intp], others: tuple[int, int], chance: np.random.Generator
    ) -> NDArray[np.float32]:
        """Return a vector for each of these lines, mixed with other lines of a range."""
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
    """A chat of `messages` messages that repeats `lines` lines; its last message is the last of these lines."""

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
        """Return the time of a message."""
        return BEGINNING + number * APART

    def line(self, number: int) -> int:
        """Return the number of the line that a message repeats."""
        return self.first + (self.offset + number) % self.lines

    @property
    def offset(self) -> int:
        return (-self.messages - 1) % self.lines


async def real_lines(embedder: Embedder, count: int) -> Lines:
    """Return `count` lines, a quarter from each of four communities."""
    chats = [[one for log in read(chat_path(name)) for one in log.said] for name in SOURCES]
    said = [one for chat in chats for one in chat[: count // len(SOURCES)]]
    vectors = await embedder.embed([prepare_text(one.text) or "." for one in said])
    rest = [one.text for one in chats[-1][count // len(SOURCES) :]]
    unsaid = [text for text in rest if text.endswith("?") and len(text.split()) >= 6]
    return Lines(said, np.array(vectors, np.float32), list(dict.fromkeys(unsaid)))


async def fill(
    database: Database, chats: Sequence[Chat], lines: Lines, embedder: str, told: Callable[[str], None]
) -> None:
    """Insert the chats into an empty database: messages, vectors, then the index."""
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
        connection.execute("SET session_replication_role = replica")  # skips the foreign key check of each row
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
    """Copy in Postgres' binary format, in which every row here has the same length: thousands of rows are made at a time."""
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
    """Vacuum, analyse and checkpoint now, so that neither autovacuum nor disk writes disturb a measurement."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE messages, message_vectors, conversations, embedding_progress")
        connection.execute("CHECKPOINT")


def exactly_nearest(url: str, chat: Chat, vector: Sequence[float], limit: int) -> dict[str, float]:
    """Return the nearest messages of a chat and their similarity, by comparing all of them."""
    nearest = """
        WITH own AS MATERIALIZED (
            SELECT message_id, embedding <=> %s::halfvec AS distance FROM message_vectors WHERE conversation_id = %s
        ) SELECT message_id, 1 - distance FROM own ORDER BY distance LIMIT %s"""
    with psycopg.connect(url, autocommit=True) as connection:
        return dict(connection.execute(nearest.encode(), (str(list(vector)), chat.id, limit)).fetchall())
