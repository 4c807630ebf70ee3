"""Measure the quality of searching a long chat, and its cost in short and long chats.

`python -m bench.context.search` imports the dialogues of `dialogues.py` into an embedded Postgres, searches for each question and
prints a Markdown table: the share of the answering turns among the first 5 and 10 results, for each way of searching.
`--cost` then times a search in chats of 1,000 and 100,000 messages (it needs the chats in `../shared`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the `rapport` command does

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from tests.support.world import settings_for

from bench.context.chats import SOURCES, Chat, fill, real_lines
from bench.context.dialogues import CASTS, Dialogue, make_dialogues
from bench.context.growth import a_server, tell
from bench.context.inputs import chat_path, require_files
from bench.context.site import Stopwatch, Times
from rapport.app import App, open_app
from rapport.context.named_participants import find_named_participants
from rapport.domain.chat_archive import Archive, ArchivedMessage
from rapport.domain.conversation import LOCAL_USER, Author
from rapport.domain.read_models import SearchHit
from rapport.ingest.embed_messages import MessageEmbedding
from rapport.ingest.import_messages import import_archive
from rapport.logs import configure_logging
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.storage.database import Database
from rapport.storage.messages.chat_search import search_chat

Way: TypeAlias = Callable[[str], Awaitable[Sequence[SearchHit]]]
COUNTS = (5, 10)
SIZES = (1_000, 100_000)
COST_GOAL = 3.0
WARMING, ROUNDS = 20, 100


@dataclass(frozen=True)
class Stored:
    dialogue: Dialogue
    conversation_id: str


async def store(database: Database, dialogue: Dialogue, index: MessageEmbedding, name: str) -> Stored:
    """Import a dialogue as a group and embed it."""
    messages = [
        ArchivedMessage(str(number), "user", turn.text, turn.at, Author(turn.author.lower(), turn.author))
        for number, turn in enumerate(dialogue.turns)
    ]
    archive = Archive("jsonl", name, None, "group", messages)
    await import_archive(database, archive, owner_id=LOCAL_USER, agent_id="companion")
    stored = Stored(dialogue, archive.derive_conversation_id(LOCAL_USER))
    while (await index.embed_next(stored.conversation_id)).has_more:
        pass
    return stored


def ways_of(app: App, stored: Stored) -> dict[str, Way]:
    """Return the search functions that are compared."""
    embedder, end = app.context_selector.embedder, stored.dialogue.turns[-1].at + timedelta(days=1)

    authors = [Author(name.lower(), name) for name in stored.dialogue.people]

    async def plainly(question: str, *, by_words: bool, by_meaning: bool) -> list[SearchHit]:
        vector = await embedder.embed_question(question) if by_meaning else None
        async with app.database.statement() as connection:
            return await search_chat(
                connection,
                LOCAL_USER,
                stored.conversation_id,
                embedder=embedder.name,
                before=end,
                vector=vector,
                words=question if by_words else "",
                limit=max(COUNTS),
            )

    return {
        "vectors alone (before)": lambda question: plainly(question, by_words=False, by_meaning=True),
        "vectors alone, names out": lambda question: plainly(
            find_named_participants(question, authors).text, by_words=False, by_meaning=True
        ),
        "words alone (BM25)": lambda question: plainly(question, by_words=True, by_meaning=False),
        "fused": lambda question: plainly(question, by_words=True, by_meaning=True),
        "fused, names handled (the product)": lambda question: app.context_selector.search(
            LOCAL_USER, stored.conversation_id, question, before=end, limit=max(COUNTS)
        ),
    }


async def measure_recall(app: App) -> None:
    """Print the share of the answering turns that each search function finds among its first results."""
    index = MessageEmbedding(app.database, app.context_selector.embedder)
    shares: dict[str, dict[str, list[float]]] = {}
    sizes: list[str] = []
    for part in CASTS:
        for number, dialogue in enumerate(make_dialogues(part)):
            stored = await store(app.database, dialogue, index, f"{part} {number}")
            sizes.append(
                f"{part}: {len(dialogue.people)} people, {len(dialogue.turns)} turns, {len(dialogue.questions)} questions"
            )
            turns = [turn.at for turn in dialogue.turns]
            for label, search in ways_of(app, stored).items():
                places = [
                    next(
                        (
                            place
                            for place, hit in enumerate(await search(asked), 1)
                            if hit.message.created_at == turns[turn]
                        ),
                        99,
                    )
                    for asked, turn in dialogue.questions
                ]
                for count in COUNTS:
                    share = sum(place <= count for place in places) / len(places)
                    shares.setdefault(label, {}).setdefault(f"{part}, first {count}", []).append(share)
    print("\n".join(sizes))
    columns = [f"{part}, first {count}" for part in CASTS for count in COUNTS]
    print(f"\n| | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
    for label, found in shares.items():
        print(f"| {label} | {' | '.join(f'{statistics.mean(found[column]):.3f}' for column in columns)} |", flush=True)


async def measure_cost(app: App, chats: Mapping[str, Chat], questions: Sequence[str]) -> bool:
    """Print the time of a search in a short and in a long chat, without embedding the question."""
    embedder = Stopwatch(app.context_selector.embedder)
    chooser = replace(app.context_selector, embedder=embedder)
    times = Times()
    for number in range(WARMING + ROUNDS):
        if number == WARMING:
            times = Times()
        question = questions[number % len(questions)]
        for place, chat in chats.items():
            embedder.seconds, began = 0.0, time.perf_counter()
            await chooser.search(LOCAL_USER, chat.id, question, before=chat.at(chat.messages + 1), limit=10)
            times.add("a search, without embedding it", place, began, less=embedder.seconds)
    times.table("searching a chat", list(chats))
    return times.ratio("a search, without embedding it", list(chats)) <= COST_GOAL


async def run(folder: Path, *, cost: bool, lines: int) -> bool:
    async with a_server(folder) as database:
        chats: dict[str, Chat] = {}
        questions: Sequence[str] = ()
        if cost:  # before the app runs, which would index them itself
            embedder = make_embedder("bundled", environment={})
            real = await real_lines(embedder, lines)
            questions = real.unsaid
            chats = {f"{size:,} messages": Chat(number, size, 0, lines) for number, size in enumerate(SIZES, 1)}
            await fill(database, list(chats.values()), real, embedder.name, tell)
            await close_embedder(embedder)
        async with open_app(settings_for(database.url, model="builtin")) as app:
            await measure_recall(app)
            return await measure_cost(app, chats, questions) if cost else True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.context.search", description=__doc__)
    parser.add_argument("--cost", action="store_true", help="also time a search in chats of 1,000 and 100,000 messages")
    parser.add_argument("--lines", type=int, default=4_000, help="real lines that those chats are made of")
    given = parser.parse_args(arguments)
    if given.cost:
        require_files(*map(chat_path, SOURCES))
    configure_logging("error")
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run under another account
        return 0 if asyncio.run(run(Path(folder) / "data", cost=given.cost, lines=given.lines)) else 1


if __name__ == "__main__":
    sys.exit(main())
