"""Create and find the vector indexes, one partial HNSW index for each table and vector length; count what an embedder indexed."""

from __future__ import annotations

from typing import Literal, TypeAlias

from rapport.domain.errors import InvalidInput
from rapport.storage.database import Connection

VectorTable: TypeAlias = Literal["sentence_vectors", "message_vectors"]
IndexedTable: TypeAlias = Literal["notes", "memories"]
MAX_DIMENSIONS = 4_000
"""The longest vectors that pgvector can index at half precision."""


async def has_vector_index(connection: Connection, table: VectorTable, dimensions: int) -> bool:
    """Return True if the table has an index for vectors of this length."""
    cursor = await connection.execute(
        "SELECT to_regclass(%s) IS NOT NULL AS has_index", (f"{table}_near_{int(dimensions)}",)
    )
    row = await cursor.fetchone()
    return row is not None and bool(row.has_index)


async def ensure_vector_index(connection: Connection, table: VectorTable, dimensions: int) -> None:
    """Create the index for vectors of this length if there is none; call it before the first of them is stored."""
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InvalidInput(f"Vectors of {dimensions} dimensions can't be indexed; at most {MAX_DIMENSIONS:,} can.")
    size = int(dimensions)
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")  # it reads every vector, also other embedders'
        await connection.execute(
            f"CREATE INDEX IF NOT EXISTS {table}_near_{size} ON {table} USING hnsw"
            f" ((embedding::halfvec({size})) halfvec_cosine_ops) WHERE vector_dims(embedding) = {size}".encode()
        )


async def count_indexed(connection: Connection, table: IndexedTable, embedder: str) -> tuple[int, int]:
    """Return the number of all rows of the table, and of those that another embedder has indexed."""
    query = f"SELECT count(*) AS total, count(*) FILTER (WHERE embedder <> %s) AS outdated FROM {table}"
    cursor = await connection.execute(query.encode(), (embedder,))
    row = await cursor.fetchone()
    assert row is not None
    return row.total, row.outdated
