"""Measure clients that stop reading: their cost, when they are dropped, and their effect on other clients.

`python -m bench.stalled` starts `rapport serve` with its embedded Postgres and a model on loopback. First a reader receives an
answer at 200 tokens a second. Then 500 clients (four SSE streams to one WebSocket) subscribe to a conversation without ever
reading, while messages are sent there, a reader receives them, and another conversation has turns. It exits with 0 when all
targets are met. All traffic stays on this machine, and every process that it starts is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httptools
import orjson
import psutil

from bench.load import Client, percentile
from bench.overhead import start_model
from bench.processes import Server
from bench.targets import Ours

CLIENTS, RATE, TOKENS = 500, 200, 2_000
MEMORY_GOAL_MB, GONE_GOAL_S, SLOWER_GOAL = 100.0, 30.0, 2.0
MESSAGE = "A line that somebody says, long enough to fill what waits for whoever does not read. " * 40
PAUSE = 0.1
"""Seconds between two messages of that conversation."""
TURNS = 60


@dataclass
class Reader:
    """Read a stream of events and record when each arrived."""

    messages: dict[str, float] = field(default_factory=dict[str, float])
    """Message id to arrival time."""
    words: str = ""
    tokens: list[float] = field(default_factory=list[float])
    reply: str = ""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _rest: bytes = b""

    async def run(self, url: str, thread: str) -> None:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET /api/threads/{thread}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        parser = httptools.HttpResponseParser(self)
        try:
            while data := await reader.read(65_536):
                parser.feed_data(data)
        finally:
            writer.close()

    def on_body(self, body: bytes) -> None:
        """Process a part of the response body; called by the parser."""
        *frames, self._rest = (self._rest + body).split(b"\n\n")
        for frame in frames:
            fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
            if b"event" in fields:
                self._hear(fields[b"event"], orjson.loads(fields[b"data"]))

    def _hear(self, name: bytes, data: dict[str, str]) -> None:
        now = time.perf_counter()
        if name == b"hello":
            self.ready.set()
        elif name == b"token":
            self.words += data["text"]
            self.tokens.append(now)
        elif name == b"message":
            self.messages[data["id"]] = now
            self.reply = data["content"] if data["role"] == "assistant" else self.reply


@contextlib.asynccontextmanager
async def reading(url: str, thread: str) -> AsyncGenerator[Reader]:
    reader = Reader()
    task = asyncio.ensure_future(reader.run(url, thread))
    try:
        await asyncio.wait_for(reader.ready.wait(), 10)
        yield reader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def stalled(url: str, thread: str, *, is_socket: bool) -> socket.socket:
    """Return a client that requests a stream and never reads; its receive buffer is small."""
    parts = urlsplit(url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect((parts.hostname, parts.port))
    if is_socket:
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = (
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
        client.sendall(f"GET /api/chat/ws?threadId={thread} HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n".encode())
    else:
        client.sendall(f"GET /api/threads/{thread}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


@dataclass
class Report:
    goals: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def goal(self, label: str, met: bool, shown: str) -> None:
        self.goals.append((label, met, shown))


class Watched(Ours):
    """The server, with its address."""

    url = ""

    def spawn(self, port: int) -> Server:
        self.url = f"http://127.0.0.1:{port}"
        return super().spawn(port)


def serving(target: Watched) -> psutil.Process:
    assert target.server is not None
    return next(one for one in target.server.tree() if "serve" in one.cmdline())


def connected(process: psutil.Process, port: int) -> int:
    """Return the number of connections that the server holds open."""
    return sum(
        one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in process.net_connections(kind="tcp")
    )


async def turns(target: Watched, count: int) -> list[float]:
    """Return the milliseconds of each of `count` consecutive turns in a new conversation."""
    thread = await target.create()
    times: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        await target.turn(thread)
        times.append((time.perf_counter() - begun) * 1000)
    return times


async def words(target: Watched, model: Client, report: Report) -> None:
    """Check that a subscriber receives an answer at RATE tokens a second without loss."""
    await model.json("POST", "/_mock/config", {"tokens": TOKENS, "tokens_per_second": RATE})
    thread = await target.create()
    async with reading(target.url, thread) as reader:
        path = f"/chat/conversations/{thread}/messages"
        answer = await target.client.json("POST", path, {"content": "Tell me everything."})
        async with asyncio.timeout(10):
            while reader.reply != answer["content"]:
                await asyncio.sleep(0.01)
    await model.json("POST", "/_mock/config", {"tokens": 32, "tokens_per_second": 0})
    seconds = reader.tokens[-1] - reader.tokens[0]
    gaps = sorted(later - earlier for earlier, later in zip(reader.tokens, reader.tokens[1:], strict=False))
    shown = f"{TOKENS} tokens in {seconds:.1f} s, {len(reader.tokens)} events, longest gap {gaps[-1] * 1000:.0f} ms"
    report.goal(f"{RATE} tokens a second arrive without loss", reader.words == answer["content"], shown)


async def crowd(target: Watched, clients: int, report: Report) -> None:
    process, port = serving(target), urlsplit(target.url).port or 0
    thread = await target.create()  # a direct chat: group messages are embedded, which needs memory too
    path = f"/chat/conversations/{thread}/messages"
    await turns(target, 20)
    before = await turns(target, TURNS)
    async with reading(target.url, thread) as reader:
        for number in range(20):  # warm up: the first messages need memory that no client causes
            await target.client.json("POST", path, {"content": f"{number} {MESSAGE}"})
        memory, idle = process.memory_info().rss, connected(process, port)
        sockets = [stalled(target.url, thread, is_socket=number % 5 == 4) for number in range(clients)]
        async with asyncio.timeout(20):
            while connected(process, port) < idle + clients:
                await asyncio.sleep(0.05)
        begun, peak, gone, sent = time.perf_counter(), 0, 0.0, dict[str, float]()
        during = asyncio.ensure_future(turns(target, TURNS * 2))
        while time.perf_counter() - begun < GONE_GOAL_S + 10 and not (gone and during.done()):
            said = await target.client.json("POST", path, {"content": f"{len(sent)} {MESSAGE}"})
            sent[said["id"]] = time.perf_counter()
            peak = max(peak, process.memory_info().rss)
            # The sender may have opened other connections meanwhile; up to 3 are tolerated.
            if not gone and connected(process, port) <= idle + 3:
                gone = time.perf_counter() - begun
            await asyncio.sleep(PAUSE)
        await asyncio.sleep(1)
        for one in sockets:
            one.close()
        meanwhile = await during
    delays = sorted(reader.messages[id_] - at for id_, at in sent.items() if id_ in reader.messages)
    more = (peak - memory) / 2**20
    p50, p50_during = percentile(before, 50), percentile(meanwhile, 50)
    report.goal(
        f"{clients} stalled clients cost at most {MEMORY_GOAL_MB:.0f} MB", more <= MEMORY_GOAL_MB, f"{more:.1f} MB"
    )
    report.goal(f"all gone within {GONE_GOAL_S:.0f} s", 0 < gone <= GONE_GOAL_S, f"{gone:.1f} s" if gone else "never")
    report.goal(
        "a reader beside them misses nothing",
        len(delays) == len(sent),
        f"{len(delays)} of {len(sent)}; p50 {percentile(delays, 50) * 1000:.0f} ms, p99 {percentile(delays, 99) * 1000:.0f} ms",
    )
    report.goal(
        f"turns elsewhere take at most {SLOWER_GOAL:g} times as long",
        p50_during <= SLOWER_GOAL * p50,
        f"p50 {p50:.1f} ms alone, {p50_during:.1f} ms beside them (p95 {percentile(meanwhile, 95):.1f} ms)",
    )


async def run(folder: Path, clients: int) -> Report:
    report = Report()
    with contextlib.ExitStack() as stack:
        model_url, _ = await start_model(stack, folder, set())
        target = Watched("ours", folder / "ours", f"{model_url}/v1", set())
        stack.callback(target.stop)
        await target.start()
        model = Client(model_url)
        stack.callback(model.close)
        await words(target, model, report)
        await crowd(target, clients, report)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stalled", description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS, help="how many stop reading")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        report = asyncio.run(run(Path(folder), chosen.clients))
    for label, met, shown in report.goals:
        print(f"  {'met   ' if met else 'MISSED'}  {label}: {shown}")
    return 0 if all(met for _, met, _ in report.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
