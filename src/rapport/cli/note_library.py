"""Open the note library and its search for commands, without a server."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rapport.cli.database import open_migrated_database
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.retrieval.library import Library
from rapport.retrieval.retriever import Retriever, make_retriever
from rapport.settings import Settings
from rapport.storage.notes.note_index import NoteIndex
from rapport.storage.notes.passage_search import PassageSearch


@asynccontextmanager
async def open_library(settings: Settings) -> AsyncGenerator[tuple[Library, Retriever]]:
    """Yield the library and the retriever with the embedder of the settings."""
    embedder = make_embedder(settings.embeddings, environment=os.environ)
    try:
        async with open_migrated_database(settings) as database:
            yield Library(database, embedder), make_retriever(embedder, PassageSearch(database), NoteIndex(database))
    finally:
        await close_embedder(embedder)
