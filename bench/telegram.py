"""Measure whether the Telegram channel keeps its promises, its throughput, and the cost of an update in a long chat.

`python -m bench.telegram` starts `rapport serve` with its embedded Postgres, a model and a Bot API on loopback. It simulates
people in twenty chats, delivers every update three times and out of order, kills the server meanwhile, and afterwards checks
the tables and the messages that people were shown. It exits with 0 when all targets are met. All traffic stays on this machine,
and every process that it starts is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from tests.channels.telegram.peer import Chat, telegram_peer
from tests.e2e.audit import query
from tests.e2e.crowds import COPIES, Crowd
from tests.e2e.silences import percentile, run

from bench.timers import Report, a_home

PARTS = ("promise", "rate", "growth")
SHORT, LONG = 100, 100_000
BLOCK = 25
"""Consecutive updates of one chat before the other chat follows."""
RATIO_GOAL = 1.5

# One message a minute until an hour ago.
_FILL = """
INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, created_at, platform_id)
SELECT c.conversation_id, '00' || lpad(n::text, 24, '0'), c.owner_id, 'user', 'user' || n %% 50, 'Somebody ' || n %% 50,
       'what was said as number ' || n || ', about ferries, trains and who brings the tent',
       clock_timestamp() - interval '1 hour' - (%(messages)s - n) * interval '1 minute', 'old/' || n
FROM telegram_chats c, generate_series(1, %(messages)s) AS n WHERE c.chat_id = %(chat)s
"""

_UNKNOWN = "SELECT error, count(*) FROM outbox WHERE state = 'unknown' GROUP BY error ORDER BY 2 DESC"

_EMBEDDED = """
SELECT count(*)::int FROM telegram_chats JOIN embedding_progress USING (conversation_id)
WHERE chat_id = {} AND embedded_until > '-infinity'
"""


@contextlib.asynccontextmanager
async def a_crowd(chance: random.Random) -> AsyncGenerator[Crowd]:
    async with a_home() as (home, model), telegram_peer() as peer:
        model.delay = lambda _text: chance.uniform(0, 0.05)
        yield Crowd(home, peer, chance)


# ---- each update three times, through kill -9


async def promise(report: Report, *, updates: int, kills: int, chance: random.Random) -> None:
    begun = time.monotonic()
    async with a_crowd(chance) as crowd:
        await crowd.run(updates=updates, kills=kills, seconds=1_800)
        took = time.monotonic() - begun
        figures = await crowd.audit()
        down = sorted(crowd.downtimes)
        unknown = await query(crowd.home.database_url, _UNKNOWN)
        looks = Counter(int(request.at) for request in crowd.peer.calls("editMessageReplyMarkup"))
    label = f"{figures.updates:,} updates {COPIES} times each, {kills} kills"
    print(f"\n{label}: {figures.messages:,} messages, {figures.calls:,} calls and commands, {took:.0f} s")
    print(f"  down for p50 {percentile(down, 50):.1f} s, max {down[-1]:.1f} s each")
    print(
        f"  {figures.shown:,} answers shown; {figures.cut_off} sends cut off, of which {figures.cut_off_unseen} unseen"
    )
    print(f"  looked for with {looks.total()} questions, at most {max(looks.values(), default=0)} within a second")
    for reason, count in unknown:
        print(f"  {count} unknown: {reason}")
    print(f"  {figures}")
    report.nothing_wrong(label, figures.troubles)
    report.goal(
        f"{label}: all is shown but what was cut off and did not arrive",
        figures.shown == figures.calls - figures.cut_off_unseen,
        f"{figures.shown:,} of {figures.calls:,}",
    )
    report.goal(f"{label}: no ERROR", not crowd.errors, f"{crowd.errors[:1]}" if crowd.errors else "0")


# ---- rates


async def rate(*, updates: int, calls: int, chance: random.Random) -> None:
    async with a_crowd(chance) as crowd:
        for number in range(updates):
            chat = crowd.groups[number % len(crowd.groups)]
            chat.says(chance.choice(chat.people), f"c{chat.id} says #{number}")
        await crowd.home.serve()
        await crowd.until_done(seconds=600)
        url = crowd.home.database_url
        spans = (
            "SELECT extract(epoch FROM max(received_at) - min(received_at))::float8,"
            " extract(epoch FROM max(done_at) - min(received_at))::float8 FROM telegram_updates"
        )
        stored, read = (await query(url, spans))[0]
        print(f"\n{updates:,} updates in {len(crowd.groups)} groups: {updates / stored:,.0f}/s stored,", end=" ")
        print(f"{updates / read:,.0f}/s stored and read side by side")
        for number in range(calls):
            chat = (*crowd.groups, *crowd.alone)[number % (len(crowd.groups) + len(crowd.alone))]
            tag = "" if chat in crowd.alone else f"@{crowd.peer.bot.username} "
            chat.says(chance.choice(chat.people), f"{tag}c{chat.id} asks #{number}")
        await crowd.until_done(seconds=600)
        sent = "SELECT extract(epoch FROM max(sent_at) - min(created_at))::float8, count(*) FROM outbox WHERE state = 'sent'"
        seconds, replies = (await query(url, sent))[0]
        chats = len(crowd.groups) + len(crowd.alone)
        print(f"{replies:,} calls in {chats} chats: {replies / seconds:,.1f} replies/s, made and sent")


# ---- in a short and in a long chat


async def growth(report: Report, *, rounds: int, chance: random.Random) -> None:
    async with a_crowd(chance) as crowd:
        short, long = crowd.groups[:2]
        await crowd.home.serve()
        for chat, size in ((short, SHORT), (long, LONG)):
            chat.says(chat.people[0], "first")
            await crowd.until_done(seconds=60)
            await _fill(crowd, chat, size)
        heard: dict[Chat, list[float]] = {short: [], long: []}
        answered: dict[Chat, list[float]] = {short: [], long: []}
        for number in range(rounds + 2):
            for chat in chance.sample([short, long], 2):
                spoken, asked = await _hear(crowd, chat), await _ask(crowd, chat)
                if number >= 2:  # Postgres plans its statements in the first rounds
                    heard[chat].append(spoken)
                    answered[chat].append(asked)
    print(f"\n{'':<28}{f'{SHORT:,} messages':>18}{f'{LONG:,} messages':>20}{'ratio':>8}")
    for name, times in (("an update is read", heard), ("a call is answered", answered)):
        few, many = statistics.median(times[short]), statistics.median(times[long])
        print(f"  {name:<26}{few:>15.2f} ms{many:>17.2f} ms{many / few:>8.2f}")
        label = f"{name}, in {LONG:,} messages to in {SHORT:,}, at most x{RATIO_GOAL}"
        report.goal(label, many / few <= RATIO_GOAL, f"x{many / few:.2f}")


async def _fill(crowd: Crowd, chat: Chat, size: int) -> None:
    url = crowd.home.database_url
    async with asyncio.timeout(60):  # messages before the latest embedded one are not embedded any more
        while await query(url, _EMBEDDED.format(chat.id)) != [(1,)]:
            await asyncio.sleep(0.1)
    await run(url, "ALTER TABLE messages SET (autovacuum_enabled = off)")
    await run(url, _FILL, {"messages": size, "chat": chat.id})
    await run(url, "VACUUM ANALYZE messages")


async def _hear(crowd: Crowd, chat: Chat) -> float:
    """Return the milliseconds per update in a block of updates of one chat."""
    posted = [chat.says(crowd.chance.choice(chat.people), f"and then {number}") for number in range(BLOCK)]
    await crowd.until_done(seconds=60)
    span = "SELECT extract(epoch FROM max(done_at) - min(done_at))::float8 FROM telegram_updates WHERE update_id >= {}"
    found = await query(crowd.home.database_url, span.format(posted[0].update_id))
    return found[0][0] * 1e3 / (BLOCK - 1)


async def _ask(crowd: Crowd, chat: Chat) -> float:
    """Return the milliseconds from an update that tags the bot until its answer has been sent."""
    posted = chat.says(crowd.chance.choice(chat.people), f"@{crowd.peer.bot.username} who brings the tent?")
    await crowd.until_done(seconds=60)
    span = (
        "SELECT extract(epoch FROM (SELECT max(sent_at) FROM outbox) - received_at)::float8"
        " FROM telegram_updates WHERE update_id = {}"
    )
    return (await query(crowd.home.database_url, span.format(posted.update_id)))[0][0] * 1e3


# ---- the command


async def run_parts(given: argparse.Namespace, report: Report, chance: random.Random) -> None:
    if "promise" in given.parts:
        await promise(report, updates=given.updates, kills=given.kills, chance=chance)
    if "rate" in given.parts:
        await rate(updates=given.updates, calls=given.calls, chance=chance)
    if "growth" in given.parts:
        await growth(report, rounds=given.rounds, chance=chance)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.telegram", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"what to measure, of {', '.join(PARTS)}; all of it if none is named")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--calls", type=int, default=1_000, help="messages that are answered, for their rate")
    parser.add_argument("--rounds", type=int, default=40, help=f"of {BLOCK} updates and a call in each chat")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    given.parts = given.parts or PARTS
    print(f"seed {given.seed}")
    report = Report()
    asyncio.run(run_parts(given, report, random.Random(given.seed)))
    print("\ntargets")
    for label, met, shown in report.goals:
        print(f"  {'pass' if met else 'FAIL':<6}{label:<100}{shown}")
    return 0 if all(met for _, met, _ in report.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
