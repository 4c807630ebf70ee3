"""Embedders by the name in `RAPPORT_EMBEDDINGS`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rapport.domain.errors import Permanent
from rapport.retrieval.embedders.local import LocalEmbedder
from rapport.retrieval.embedders.minilm import MiniLM
from rapport.retrieval.embedders.wordllama import WordLlama
from rapport.retrieval.ports import Embedder

BUNDLED = "bundled"
WORDLLAMA = "wordllama"


def make_embedder(name: str, *, environment: Mapping[str, str]) -> Embedder:
    """The embedder that `RAPPORT_EMBEDDINGS` names; raises Permanent with what to set if it can't be made.

    Nothing is loaded or connected here. LangChain is imported only for who uses it.
    """
    if name == BUNDLED:
        return MiniLM()
    if name == WORDLLAMA:
        return WordLlama()
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise Permanent(
            f"RAPPORT_EMBEDDINGS={name!r} is not an embedder. Use `{BUNDLED}`, `{WORDLLAMA}`, or provider:model such as "
            "`openai:text-embedding-3-small`, `ollama:nomic-embed-text` or `fastembed:BAAI/bge-small-en-v1.5`."
        )
    if provider == "fastembed":
        from rapport.retrieval.embedders.fastembed import FastEmbed

        return FastEmbed(model)
    from rapport.retrieval.embedders.langchain import make_langchain

    return make_langchain(name, environment=environment)


async def close_embedder(embedder: Embedder) -> None:
    """End its threads or close its connections; it embeds nothing afterwards."""
    if isinstance(embedder, LocalEmbedder):
        await asyncio.to_thread(embedder.close)  # it waits for the batch at hand, and the loop must not
    elif (close := getattr(embedder, "aclose", None)) is not None:
        await close()
