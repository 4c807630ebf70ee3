"""Measure the cost of context selection, and whether it grows with the chat or with other chats of the same server.

`python -m bench.context.growth` fills an embedded Postgres with a short chat, a very long one and many of medium size, all with
vectors. It measures the cost of a call, the accuracy of the search by meaning, and the effect of background embedding on people who
write. It prints Markdown tables and exits with 0 when all targets are met. All traffic stays on this machine, and every process
that it starts is stopped.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the `rapport` command does

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import orjson
from tests.support.world import settings_for

from bench.context.chats import Chat, exactly_nearest, fill, real_lines
from bench.context.inputs import BENCH_FILES, OWN_CHAT, chat_path, require_files
from bench.context.quality import the_scorer
from bench.context.site import Site, Stopwatch, Times, spread
from bench.context.speaking import BLOCK, speaking
from rapport.app import App, open_app
from rapport.cli.context_filter import read
from rapport.context.engine import SelectionOptions, select_context
from rapport.domain.context_selection import MAX_RECENT_MESSAGES
from rapport.domain.conversation import LOCAL_USER, Author, Message
from rapport.domain.embedder import Embedder
from rapport.domain.ids import new_id
from rapport.domain.note import Vector
from rapport.logs import configure_logging
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.storage.database import Database
from rapport.storage.messages.chat_search import search_chat
from rapport.storage.messages.neighbours import load_linked, load_recent, load_vector
from rapport.storage.migrate import migrate, schema_lock
from rapport.storage.postgres.embedded import EmbeddedPostgres
from rapport.turns.group_context import ContextSelector, gather_candidates

PARTS = ("select", "gather", "similar", "accept")
SHORT, MIDDLING, LARGER = 1_000, 5_000, 20_000
LIMIT = 8
WARMING = 30
"""Rounds that are not counted: Postgres prepares and plans its statements in them."""
SELECT_MS_GOAL, RATIO_GOAL, OVERLAP_GOAL = 10.0, 1.5, 0.9


# ---- selection alone


def choosing(site: Site, choice: SelectionOptions, count: int) -> None:
    """Time the selection from windows of 100 real messages, the first time and again with cached words."""
    path, tasks = str(chat_path(OWN_CHAT)), the_scorer()[1]
    times = Times()
    for setting in ("generic", "reply", "content"):
        requests = [read(orjson.dumps(request)) for request, _ in tasks.make(path, setting, "orig", count)]
        for place in ("the first time", "again"):
            for request in requests:
                began = time.perf_counter()
                select_context(request.call, request.found, choice)
                times.add(f"{setting}, {len(requests)} windows", place, began)
    times.table("choosing from 100 messages", ("the first time", "again"))
    slowest = max(statistics.median(times.taken[kind][place]) for kind in times.taken for place in times.taken[kind])
    site.goal(
        f"choosing from 100 messages: median at most {SELECT_MS_GOAL:g} ms",
        slowest <= SELECT_MS_GOAL,
        f"{slowest:.1f} ms",
    )


# ---- a call in a short and in a long chat


def a_call(site: Site, chat: Chat, kind: str) -> Message:
    """Return a call that is placed some messages before the end of the chat."""
    said = chat.messages - site.chance.randrange(400)
    author = site.lines.said[chat.line(said)].author
    text = f"@bot {site.chance.choice(site.lines.unsaid)}" if kind == "a question" else "@bot what do you think?"
    parent = None
    while kind == "a reply to long ago" and parent is None:
        number = site.chance.randint(1, chat.messages * 3 // 10)
        if len(site.lines.said[chat.line(number)].text.split()) >= 8:  # otherwise it may hold no words to search for
            parent = chat.message_id(number)
    when = chat.at(said) + timedelta(seconds=1)
    return Message(new_id(), chat.id, "user", text, when, Author(author, author), parent)


async def gathering(site: Site, app: App, rounds: int) -> None:
    """Time whole calls in alternating chats, and in other rounds their parts."""
    embedder = Stopwatch(app.context_selector.embedder)
    chooser = replace(app.context_selector, embedder=embedder)
    whole, parts, embedding = Times(), Times(), Times()
    places = {f"{chat.messages:,} messages": chat for chat in (site.short, site.middling[0], site.larger, site.long)}
    for number in range(WARMING + rounds):
        if number == WARMING:
            whole, parts, embedding = Times(), Times(), Times()
        for kind in ("nothing but a call", "a question", "a reply to long ago"):
            for place in site.chance.sample(list(places), len(places)):
                call = a_call(site, places[place], kind)
                embedder.seconds, began = 0.0, time.perf_counter()
                gathered = await chooser.load_and_select(LOCAL_USER, call)
                whole.add(kind, place, began, less=embedder.seconds)
                assert len(gathered.candidates.recent) == MAX_RECENT_MESSAGES
                assert gathered.candidates.similar
                if embedder.seconds:
                    embedding.taken.setdefault(kind, {}).setdefault(place, []).append(embedder.seconds * 1e3)
        for place in site.chance.sample(list(places), len(places)):
            await in_parts(site, chooser, places[place], place, parts)
    whole.table("a call, without embedding it", list(places))
    parts.table("of it", list(places))
    asked = [took for kind in embedding.taken.values() for some in kind.values() for took in some]
    print(f"\nembedding a question: {spread(asked)}")
    for kind in whole.taken:
        ratio = whole.ratio(kind, list(places))
        site.goal(f"{kind}: a chat of {site.long.messages:,} to one of {SHORT:,}, at most {RATIO_GOAL}",
                  ratio <= RATIO_GOAL, f"{ratio:.2f}")  # fmt: skip
        median = statistics.median(whole.taken[kind][next(iter(places))])
        site.goal(f"{kind}: in a chat of {SHORT:,}, median at most {SELECT_MS_GOAL:g} ms",
                  median <= SELECT_MS_GOAL, f"{median:.1f} ms")  # fmt: skip


async def in_parts(site: Site, chooser: ContextSelector, chat: Chat, place: str, times: Times) -> None:
    call = a_call(site, chat, "a reply to long ago")
    vector = site.like(chat)
    async with chooser.database.statement() as connection:
        began = time.perf_counter()
        before = await load_recent(
            connection, LOCAL_USER, chat.id, before=(call.created_at, call.id), limit=MAX_RECENT_MESSAGES
        )
        times.add("the latest 100", place, began)
        began = time.perf_counter()
        links = await load_linked(connection, LOCAL_USER, chat.id, call)
        times.add("what it replies to, and around that", place, began)
        began = time.perf_counter()
        await load_vector(connection, LOCAL_USER, chat.id, before[-1].id, embedder=chooser.embedder.name)
        times.add("the vector of a message", place, began)
        began = time.perf_counter()
        hits = await search_chat(
            connection,
            LOCAL_USER,
            chat.id,
            embedder=chooser.embedder.name,
            vector=vector,
            before=before[0].created_at,
            limit=LIMIT,
        )
        times.add("close in meaning", place, began)
        close = [(one.message, one.similarity or 0.0) for one in hits]
        question = site.chance.choice(site.lines.unsaid)
        began = time.perf_counter()
        await search_chat(
            connection,
            LOCAL_USER,
            chat.id,
            embedder=chooser.embedder.name,
            words=question,
            before=before[0].created_at,
            limit=LIMIT,
        )
        times.add("with the question's words", place, began)
    began = time.perf_counter()
    select_context(call, replace(gather_candidates(before, links), similar=close), chooser.options)
    times.add("choosing", place, began)


# ---- close in meaning, in chats of every size


async def searching(site: Site, app: App, embedder: Embedder, count: int) -> None:
    """Measure accuracy and time of the search by meaning, in a database with many other chats."""
    enough = app.context_selector.options.min_similarity
    print(
        f"\n| close in meaning, {LIMIT} each | asked about | overlap with exact search | of those from {enough:g} on, which"
        " count | mean similarity, and exactly | p50, p95 |"
    )
    print("|---|---|---|---|---|---|")
    unsaid = await embedder.embed([text.replace("@", "") for text in site.lines.unsaid[:count]])
    for chats, searches in (
        ([site.short], count),
        (site.middling, count),
        ([site.larger], count // 2),
        ([site.long], count // 5),
    ):
        label = (
            f"{len(chats):,} chats of {chats[0].messages:,}" if len(chats) > 1 else f"a chat of {chats[0].messages:,}"
        )
        for about in ("what was said there", "anything"):
            where = [site.chance.choice(chats) for _ in range(searches)]
            vectors = [site.like(chat) for chat in where] if about != "anything" else unsaid
            found = await searched(app.database, embedder.name, list(zip(where, vectors, strict=False)))
            print(
                f"| {label} | {about} | {found.overlap(0):.3f} | {found.overlap(enough):.3f} of {found.total(enough):,}"
                f" | {mean(found.found):.3f}, {mean(found.nearest):.3f} | {spread(found.times)} |",
                flush=True,
            )
            for least, which in ((0.0, "all"), (enough, f"from {enough:g} on")):
                site.goal(
                    f"close in meaning to {about}, {label}, {which}: overlap at least {OVERLAP_GOAL}",
                    found.overlap(least) >= OVERLAP_GOAL,
                    f"{found.overlap(least):.3f}",
                )


@dataclass(frozen=True)
class Searched:
    """The messages that each search found, with their similarity."""

    found: Sequence[Mapping[str, float]]
    nearest: Sequence[Mapping[str, float]]
    """The nearest messages by exact comparison."""
    times: Sequence[float]

    def total(self, least: float) -> int:
        return sum(similarity >= least for some in self.nearest for similarity in some.values())

    def overlap(self, least: float) -> float:
        """Return the share of the exact results with at least this similarity that the search found; 1 if there are none."""
        pairs = zip(self.found, self.nearest, strict=True)
        hits = sum(similarity >= least for some, best in pairs for one, similarity in best.items() if one in some)
        return hits / self.total(least) if self.total(least) else 1.0


async def searched(database: Database, embedder: str, asked: Sequence[tuple[Chat, Vector]]) -> Searched:
    times: list[float] = []
    found: list[dict[str, float]] = []
    for chat, vector in asked:
        before = chat.at(chat.messages + 1)
        async with database.statement() as connection:
            began = time.perf_counter()
            some = await search_chat(
                connection, LOCAL_USER, chat.id, embedder=embedder, vector=vector, before=before, limit=LIMIT
            )
            times.append((time.perf_counter() - began) * 1e3)
        found.append({one.message.id: one.similarity or 0.0 for one in some})
    # Exact comparison after the timing: it would evict the caches of the timed searches.
    nearest = [await asyncio.to_thread(exactly_nearest, database.url, *each, LIMIT) for each in asked]
    return Searched(found, nearest, times)


def mean(found: Sequence[Mapping[str, float]]) -> float:
    return statistics.mean(similarity for some in found for similarity in some.values())


# ---- the command


@contextlib.asynccontextmanager
async def a_server(folder: Path) -> AsyncGenerator[Database]:
    server = await asyncio.to_thread(EmbeddedPostgres.start, folder)
    database = Database(server.url, max_size=4)
    try:
        await database.open()
        async with schema_lock(database):
            await migrate(database)
        yield database
    finally:
        await database.close()
        await asyncio.to_thread(server.stop)


def tell(what: str) -> None:
    print(f"{what}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


async def calm(most: float) -> None:
    """Wait until the machine's load is low, for an hour at most, because times under load are meaningless."""
    end = time.monotonic() + 3_600
    while os.getloadavg()[0] > most and time.monotonic() < end:
        await asyncio.sleep(5)
    tell("now")


async def run(folder: Path, given: argparse.Namespace) -> list[tuple[str, bool, str]]:
    embedder = make_embedder("bundled", environment={})
    began = time.perf_counter()
    lines = await real_lines(embedder, given.lines)
    tell(f"{given.lines:,} lines embedded in {time.perf_counter() - began:,.0f} s")
    quarter = given.lines // 4
    middling = [
        Chat(10 + n, MIDDLING, n * (given.lines - quarter // 2) // max(1, given.chats - 1), quarter // 2)
        for n in range(given.chats)
    ]
    short, larger, long = (Chat(n, size, 0, given.lines) for n, size in enumerate((SHORT, LARGER, given.big), 1))
    site = Site(lines, short, middling, larger, long, random.Random(given.seed))
    async with a_server(folder) as database:
        if set(given.parts) - {"select"}:
            await fill(database, [short, *middling, larger, long], lines, embedder.name, tell)
        async with open_app(settings_for(database.url, model="builtin")) as app:
            await calm(given.calm)
            if "select" in given.parts:
                choosing(site, app.context_selector.options, given.rounds)
            if "gather" in given.parts:
                await gathering(site, app, given.rounds)
            if "similar" in given.parts:
                await searching(site, app, embedder, given.searches)
        if "accept" in given.parts:
            await calm(given.calm)
            await speaking(site, database, embedder, given.blocks)
    await close_embedder(embedder)
    return site.goals


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.context.growth", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"what to measure, of {', '.join(PARTS)}; all of it if none is named")
    parser.add_argument("--big", type=int, default=1_000_000, help="messages of the long chat")
    parser.add_argument("--chats", type=int, default=200, help=f"chats of {MIDDLING:,} messages beside it")
    parser.add_argument("--lines", type=int, default=8_000, help="real lines that they are made of")
    parser.add_argument("--rounds", type=int, default=300, help="calls of each kind in each of the two")
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument(
        "--blocks", type=int, default=6, help=f"of {BLOCK} accepted messages, with embedding and without"
    )
    parser.add_argument("--calm", type=float, default=100.0, help="wait for a load below this before anything is timed")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args(arguments)
    require_files(*BENCH_FILES)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    given.parts = given.parts or PARTS
    configure_logging("error")
    tell(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run under another account
        goals = asyncio.run(run(Path(folder) / "data", given))
    print("\n| target | measured | |\n|---|---|---|")
    for label, met, shown in goals:
        print(f"| {label} | {shown} | {'met' if met else '**missed**'} |")
    return 0 if all(met for _, met, _ in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
