"""Measure whether a follow-up recalls memories as well as an answer does, and the cost of detecting synthetic messages.

`python -m bench.memory` makes conversations and memories from `bench.remembered`, stores the memories in an embedded Postgres,
and recalls them with the product's own code: in a user's turn, in a follow-up after it, with the follow-up's own prompt for
comparison, and with only a summary as the query. It exits with 0 when the targets are met. Nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import structlog
from langchain_core.messages import HumanMessage

from bench.remembered import ANSWERS, DISTRACTORS, FOLLOW_UPS, SMALL_TALK, SUBJECTS, Subject
from bench.retrieval import empty_database
from rapport.builtin.prompt import Turn
from rapport.builtin.summary import summarize
from rapport.domain.conversation import Message, Role
from rapport.domain.embedder import Embedder
from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES
from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from rapport.domain.note import Vector
from rapport.domain.synthetic import is_synthetic
from rapport.domain.token_estimate import estimate_tokens
from rapport.followups.triggers import make_synthetic_message
from rapport.memory.memory_store import MemoryStore
from rapport.memory.query import Query, derive_query
from rapport.memory.recall import MIN_SIMILARITY_BY_EMBEDDER, Recall, render_memories
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.storage.database import Database
from rapport.storage.memories import Memories

CONVERSATIONS = 300
FEWEST, MOST = 20, 60
TOP = 5
WITHIN = 0.05
MICROSECONDS_GOAL = 5_000.0
AGENT = "companion"
WAYS = ("user turn", "follow-up", "naive: the prompt itself", "summary only")
FLOORS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


@dataclass(frozen=True)
class Talk:
    """A conversation up to the message that a turn answers, and the memories that are relevant to that message."""

    owner: str
    subject: Subject
    current: str
    before: Sequence[Message]
    follow_ups: int
    remembered: Sequence[str]
    """All memories that are stored about the owner."""
    relevant: Sequence[str]


@dataclass
class Retrieved:
    """The results of one kind of query, over all conversations."""

    best: list[float] = field(default_factory=list[float])
    recall: list[float] = field(default_factory=list[float])
    """The share of the relevant memories among the first five."""
    given: list[float] = field(default_factory=list[float])
    """The share of the relevant memories that the prompt gets."""
    lines: list[float] = field(default_factory=list[float])
    tokens: list[float] = field(default_factory=list[float])
    ms: list[float] = field(default_factory=list[float])


@dataclass
class Figures:
    ways: dict[str, Retrieved] = field(default_factory=lambda: {way: Retrieved() for way in WAYS})
    same_query: int = 0
    """Follow-ups whose query was the same as that of the user's turn."""
    talks: int = 0
    near: list[float] = field(default_factory=list[float])
    """Similarities of relevant memories."""
    far: list[float] = field(default_factory=list[float])
    """Similarities of the other memories of the same person."""
    idle: list[float] = field(default_factory=list[float])
    """Number of memories that a prompt gets for a message without relevant memories."""
    microseconds: dict[str, float] = field(default_factory=dict[str, float])


class OnceEach:
    """An embedder that embeds each text once: thousands of memories here are the same few hundred sentences."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Vector] = {}

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def min_similarity(self) -> float:
        return self._embedder.min_similarity

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= dict(zip(new, await self._embedder.embed(new) if new else [], strict=True))
        return [self._known[text] for text in texts]

    async def embed_question(self, question: str) -> Vector:
        return await self._embedder.embed_question(question)


# ---- conversations


def make_talk(number: int, chance: random.Random) -> Talk:
    """Return a conversation; the same number and seed give the same one."""
    subjects = chance.sample(SUBJECTS, 3)
    values = [chance.choice(subject.values) for subject in subjects]
    said: list[tuple[Role, str]] = []
    for subject, value in list(zip(subjects, values, strict=True))[:-1]:
        said.append(("user", chance.choice(subject.messages).format(value)))
        said.append(("assistant", chance.choice(ANSWERS)))
        if chance.random() < 0.5:
            asked, answered = chance.choice(SMALL_TALK)
            said.append(("user", asked))
            said.append(("assistant", answered))
    subject, value = subjects[-1], values[-1]
    relevant = [text.format(value) for text in subject.memories]
    others = [
        text.format(one) for other, one in zip(subjects[:-1], values[:-1], strict=True) for text in other.memories
    ]
    pool = [
        text.format(chance.choice(rest.values)) for rest in SUBJECTS if rest not in subjects for text in rest.memories
    ]
    pool += DISTRACTORS
    size = chance.randint(FEWEST, MOST) - len(relevant) - len(others)
    remembered = [*relevant, *others, *chance.sample(pool, min(size, len(pool)))]
    chance.shuffle(remembered)
    return Talk(
        owner=f"person-{number}",
        subject=subject,
        current=chance.choice(subject.messages).format(value),
        before=[row(role, text, at) for at, (role, text) in enumerate(said)],
        follow_ups=number % 4,
        remembered=remembered,
        relevant=relevant,
    )


def row(role: Role, text: str, at: int, *, synthetic: HumanMessage | None = None) -> Message:
    tags = synthetic.additional_kwargs if synthetic else {}
    moment = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=at)
    return Message(new_id(), "c", role, text, moment, metadata=tags)


def after(talk: Talk) -> list[Message]:
    """Return the conversation when the next follow-up is due: with the answer and `talk.follow_ups` earlier follow-ups."""
    rows = [*talk.before, row("user", talk.current, 50), row("assistant", ANSWERS[0], 51)]
    for number in range(talk.follow_ups):
        made = trigger(number)
        rows += [
            row("user", str(made.text), 60 + number, synthetic=made),
            row("assistant", FOLLOW_UPS[number], 60 + number),
        ]
    return rows


def trigger(number: int) -> HumanMessage:
    kind = TRIGGER_TYPES[number % len(TRIGGER_TYPES)]
    return make_synthetic_message(kind, prompt=PROMPTS[kind], reason="It went quiet.", id=new_id())


def summary_of(talk: Talk) -> Message:
    """Return the built-in model's summary of the conversation."""
    turns = [
        Turn("user" if one.role == "user" else "assistant", one.text) for one in after(talk) if not is_synthetic(one)
    ]
    return row("system-summary", summarize(turns), 70)


def queries(talk: Talk, number: int) -> dict[str, Query]:
    made = trigger(number)
    pictures = [row("user", "", 80)]
    return {
        WAYS[0]: derive_query(HumanMessage(talk.current), talk.before, None),
        WAYS[1]: derive_query(made, after(talk), None),
        WAYS[2]: Query(str(made.text), "message"),
        WAYS[3]: derive_query(made, pictures, summary_of(talk)),
    }


# ---- looking up


async def measure(database: Database, embedder: Embedder, count: int, figures: Figures) -> None:
    chance = random.Random(7)
    once = OnceEach(embedder)
    memory_store = MemoryStore(database, once)
    await embedder.embed_question("The first one loads the weights.")
    for number in range(count):
        talk = make_talk(number, chance)
        ids = await store(database, once, talk)
        query_by_way = queries(talk, number)
        figures.talks += 1
        figures.same_query += query_by_way[WAYS[0]].text == query_by_way[WAYS[1]].text
        for way, query in query_by_way.items():
            await look_up(memory_store, once, talk, query, ids, figures.ways[way])
        await separate(memory_store, once, talk, ids, figures)


async def store(database: Database, embedder: OnceEach, talk: Talk) -> frozenset[str]:
    """Store all memories of the person; return the ids of those that are relevant to their message."""
    vectors = await embedder.embed(talk.remembered)
    ids: set[str] = set()
    async with database.transaction() as connection:
        memories = Memories(connection)
        for text, vector in zip(talk.remembered, vectors, strict=True):
            made = await memories.add(talk.owner, AGENT, MemoryCandidate(text), embedder=embedder.name, vector=vector)
            if text in talk.relevant:
                ids.add(made.id)
    return frozenset(ids)


async def look_up(
    memory_store: MemoryStore, embedder: OnceEach, talk: Talk, query: Query, ids: frozenset[str], into: Retrieved
) -> None:
    begun = time.perf_counter()
    recalled = await Recall(embedder, memory_store).recall(talk.owner, AGENT, query, tokens=estimate_tokens)
    into.ms.append((time.perf_counter() - begun) * 1e3)
    nearest = await memory_store.find_nearest(talk.owner, AGENT, await embedder.embed_question(query.text), TOP)
    into.best.append(nearest[0][1])
    into.recall.append(len(ids & {one.id for one, _ in nearest}) / len(ids))
    into.given.append(len(ids & {one.id for one in recalled}) / len(ids))
    into.lines.append(len(recalled))
    into.tokens.append(estimate_tokens(render_memories(recalled)))


async def separate(
    memory_store: MemoryStore, embedder: OnceEach, talk: Talk, ids: frozenset[str], figures: Figures
) -> None:
    """Add the similarities of relevant and other memories, from which a threshold is chosen."""
    vector = await embedder.embed_question(talk.current)
    for one, similarity in await memory_store.find_nearest(talk.owner, AGENT, vector, MOST):
        (figures.near if one.id in ids else figures.far).append(similarity)
    said, _ = SMALL_TALK[figures.talks % len(SMALL_TALK)]
    recalled = await Recall(embedder, memory_store).recall(
        talk.owner, AGENT, Query(said, "message"), tokens=estimate_tokens
    )
    figures.idle.append(len(recalled))


# ---- the cost of tags


def cost_of_tags(figures: Figures) -> None:
    history = [
        row("user", "hello", 0, synthetic=trigger(number) if number % 3 == 0 else None) for number in range(1_000)
    ]
    figures.microseconds = {
        "checking whether a message is synthetic": each(lambda: [is_synthetic(one) for one in history], len(history)),
        "making a synthetic message": each(lambda: [trigger(number) for number in range(200)], 200),
        "filtering a history, a message": each(lambda: [one for one in history if not is_synthetic(one)], len(history)),
        "choosing the query after 1,000 messages": each(lambda: [derive_query(trigger(0), history, None)], 1),
    }


def each(action: Callable[[], object], count: int) -> float:
    """Return the microseconds of one of `count` repetitions, the median of several runs."""
    times: list[float] = []
    for _ in range(15):
        begun = time.perf_counter()
        action()
        times.append((time.perf_counter() - begun) * 1e6 / count)
    return statistics.median(times)


# ---- the command


def print_figures(figures: Figures, embedder: str) -> None:
    print(f"{figures.talks} conversations, {FEWEST} to {MOST} memories a person, {embedder}")
    print(f"{'query':<28}{'best':>7}{'recall@5':>10}{'given':>8}{'lines':>7}{'tokens':>8}{'ms p50':>8}{'p95':>7}")
    for way, found in figures.ways.items():
        means = [
            statistics.mean(values) for values in (found.best, found.recall, found.given, found.lines, found.tokens)
        ]
        p95 = statistics.quantiles(found.ms, n=20)[-1]
        print(
            f"{way:<28}{means[0]:>7.3f}{means[1]:>10.3f}{means[2]:>8.3f}{means[3]:>7.1f}{means[4]:>8.0f}"
            f"{statistics.median(found.ms):>8.1f}{p95:>7.1f}"
        )
    print(f"follow-ups whose query was the user's own message: {figures.same_query} of {figures.talks}")
    print(f"lines for a message without relevant memories: {statistics.mean(figures.idle):.1f}")
    print("\nthreshold         relevant       others   (in use: " + f"{MIN_SIMILARITY_BY_EMBEDDER.get(embedder, 0):g})")
    for floor in FLOORS:
        kept, let_in = (sum(one >= floor for one in values) / len(values) for values in (figures.near, figures.far))
        print(f"{floor:>9.2f}{kept:>17.3f}{let_in:>13.3f}")
    print()
    for what, took in figures.microseconds.items():
        print(f"{what:<44}{took:>8.2f} µs")


def goals(figures: Figures) -> list[tuple[str, bool, str]]:
    """Return each target, whether it is met, and the measured value."""
    user, follow_up, naive = (figures.ways[way] for way in WAYS[:3])
    of_user, of_follow_up = statistics.mean(user.best), statistics.mean(follow_up.best)
    apart = abs(of_follow_up - of_user) / of_user
    recalls = statistics.mean(user.recall), statistics.mean(follow_up.recall)
    worst = max(figures.microseconds.values())
    return [
        ("at least 200 conversations", figures.talks >= 200, str(figures.talks)),
        (f"mean best similarity of follow-ups within {WITHIN:.0%}", apart <= WITHIN, f"{apart:.2%}"),
        ("recall@5 of follow-ups as of user turns", recalls[0] == recalls[1], f"{recalls[1]:.3f} to {recalls[0]:.3f}"),
        ("better than the prompt's own words", recalls[1] > statistics.mean(naive.recall), f"{statistics.mean(naive.recall):.3f}"),
        ("tags cost less than 5 ms a message", worst < MICROSECONDS_GOAL, f"{worst:.1f} µs"),
    ]  # fmt: skip


async def run(folder: Path, count: int, name: str, figures: Figures) -> str:
    embedder = make_embedder(name, environment={})
    try:
        async with empty_database(folder) as database:
            await measure(database, embedder, count, figures)
    finally:
        await close_embedder(embedder)
    return embedder.name


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS)
    parser.add_argument("--embedder", default="bundled")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(arguments)
    # Log at the server's level: DEBUG lines are not part of the cost.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run under another account
        name = asyncio.run(run(Path(folder) / "data", given.conversations, given.embedder, figures))
    cost_of_tags(figures)
    print_figures(figures, name)
    reached = goals(figures)
    print("\ntargets")
    for label, met, shown in reached:
        print(f"  {'pass' if met else 'FAIL':<6}{label:<58}{shown}")
    if given.json:
        given.json.write_bytes(orjson.dumps(asdict(figures), option=orjson.OPT_INDENT_2))
    return 0 if all(met for _, met, _ in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
