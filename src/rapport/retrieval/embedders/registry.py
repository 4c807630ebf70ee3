"""Make the embedder that `RAPPORT_EMBEDDINGS` names. A new embedder is one more entry (docs/extending/an-embedder.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rapport.domain.embedder import Embedder
from rapport.domain.errors import Permanent
from rapport.retrieval.embedders.local import LocalEmbedder

BUNDLED = "bundled"
WORDLLAMA = "wordllama"

EmbedderFactory: TypeAlias = Callable[[str, Mapping[str, str]], Embedder]
"""Makes an embedder from the model's name and the environment. It loads and connects nothing, and raises Permanent with
what to set or install if the embedder can't be made."""


@dataclass(frozen=True, slots=True)
class EmbedderEntry:
    """An embedder that can be chosen by its prefix."""

    make: EmbedderFactory
    takes_model: bool = False
    """True if it is named `prefix:model`, False if it is named by the prefix alone."""


# The imports are in the factories: a process loads only the libraries of the embedder that it uses.


def _make_bundled(_model: str, _environment: Mapping[str, str]) -> Embedder:
    from rapport.retrieval.embedders.minilm import MiniLM

    return MiniLM()


def _make_wordllama(_model: str, _environment: Mapping[str, str]) -> Embedder:
    from rapport.retrieval.embedders.wordllama import WordLlama

    return WordLlama()


def _make_fastembed(model: str, _environment: Mapping[str, str]) -> Embedder:
    from rapport.retrieval.embedders.fastembed import FastEmbed

    return FastEmbed(model)


EMBEDDERS: dict[str, EmbedderEntry] = {
    BUNDLED: EmbedderEntry(_make_bundled),
    WORDLLAMA: EmbedderEntry(_make_wordllama),
    "fastembed": EmbedderEntry(_make_fastembed, takes_model=True),
}
"""The embedders by prefix. Any other `provider:model` is a LangChain embedder."""


def make_embedder(name: str, *, environment: Mapping[str, str]) -> Embedder:
    """Return the embedder that `RAPPORT_EMBEDDINGS` names; raise Permanent with what to set if it can't be made.

    Nothing is loaded or connected here. LangChain is imported only if a LangChain embedder is named.
    """
    prefix, colon, model = name.partition(":")
    entry = EMBEDDERS.get(prefix)
    if entry is not None and entry.takes_model == bool(model) == bool(colon):
        return entry.make(model, environment)
    if not prefix or not model:
        raise Permanent(
            f"RAPPORT_EMBEDDINGS={name!r} is not an embedder. Use `{BUNDLED}`, `{WORDLLAMA}`, or provider:model such as "
            "`openai:text-embedding-3-small`, `ollama:nomic-embed-text` or `fastembed:BAAI/bge-small-en-v1.5`."
        )
    from rapport.retrieval.embedders.langchain import make_langchain

    return make_langchain(name, environment=environment)


async def close_embedder(embedder: Embedder) -> None:
    """End its threads or close its connections; it can't embed afterwards."""
    if isinstance(embedder, LocalEmbedder):
        await asyncio.to_thread(embedder.close)  # it waits for the current batch and would block the event loop
    elif (close := getattr(embedder, "aclose", None)) is not None:
        await close()
