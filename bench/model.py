"""Run a mock of an OpenAI-compatible model server that is cheap enough not to affect a measurement.

Run it as a separate process: `python -m bench.model --port 9100`. It answers

    POST /v1/chat/completions      plain, or server-sent events with `"stream": true`
    GET  /v1/models, /healthz
    POST /_mock/config             any fields of `Settings`; answers with all of them
    GET  /_mock/stats              calls, streams, faults, messages and bytes of the last call
    POST /_mock/reset              zeroes the stats

Request bodies are scanned, not parsed, and answers are cut from templates made once per setting.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import socket
import struct
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import httptools
import orjson
import uvloop

from bench.answers import Answers, Settings, sse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

STREAMED = re.compile(rb'"stream"\s*:\s*true')
WANTS_USAGE = re.compile(rb'"include_usage"\s*:\s*true')
GARBAGE = b"\x00{{{"


@dataclass
class Stats:
    """Counts of requests since the start or the last reset."""

    calls: int = 0
    streams: int = 0
    faults: int = 0
    last_messages: int = 0
    last_bytes: int = 0


class Model:
    """The state that all connections share."""

    def __init__(self, settings: Settings) -> None:
        self.configure(settings)
        self.stats = Stats()

    def configure(self, settings: Settings) -> None:
        self.settings = settings
        self.answers = Answers(settings)


def chunked(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def head(status: bytes, content_type: bytes, length: int | None, extra: bytes = b"") -> bytes:
    size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\n%b%b\r\n\r\n" % (status, content_type, extra, size)


class Connection(asyncio.Protocol):
    """One client connection; requests on it are answered one at a time, as HTTP/1.1 clients send them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.close()

    # httptools calls these by name
    def on_message_begin(self) -> None:
        self._url, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path, body = self._url.split(b"?", 1)[0], b"".join(self._body)
        if path == b"/v1/chat/completions":
            self._chat(body)
        else:
            self._other(path, body)

    def _other(self, path: bytes, body: bytes) -> None:
        model = self._model
        if path == b"/v1/models":
            self._json({"object": "list", "data": [{"id": "mock", "object": "model", "owned_by": "mock"}]})
        elif path == b"/_mock/config":
            try:
                model.configure(model.settings.changed(orjson.loads(body or b"{}")))
            except ValueError as error:
                self._error(b"400 Bad Request", str(error))
            else:
                self._json(asdict(model.settings))
        elif path == b"/_mock/stats":
            self._json(asdict(model.stats))
        elif path == b"/_mock/reset":
            model.stats = Stats()
            self._json({})
        elif path == b"/healthz":
            self._json({"status": "ok"})
        else:
            self._error(b"404 Not Found", f"no such path: {path.decode(errors='replace')}")

    def _chat(self, body: bytes) -> None:
        settings, stats = self._model.settings, self._model.stats
        stream = STREAMED.search(body) is not None
        stats.calls += 1
        stats.streams += stream
        stats.faults += settings.fault != "none"
        stats.last_messages = body.count(b'"role"')
        stats.last_bytes = len(body)
        wait = settings.latency_ms / 1000
        if not stream and settings.tokens_per_second > 0:
            wait += settings.tokens / settings.tokens_per_second
        self._later(wait, lambda: self._answer(body, stream=stream))

    def _answer(self, body: bytes, *, stream: bool) -> None:
        model = self._model
        fault = model.settings.fault
        if fault == "timeout":
            self._later(model.settings.timeout_s, self._transport.close)
        elif fault == "500":
            self._error(b"500 Internal Server Error", "mock fault")
        elif fault == "429":
            retry = b"retry-after: %d\r\n" % model.settings.retry_after
            self._error(b"429 Too Many Requests", "mock fault", retry)
        elif fault == "reset":
            self._reset()
        elif stream:
            usage = WANTS_USAGE.search(body) is not None
            self._stream(model.answers.events(len(body), usage=usage), fault)
        else:
            self._plain(model.answers.plain(len(body)), fault)

    def _plain(self, answer: bytes, fault: str) -> None:
        if fault == "malformed":
            answer = answer[: len(answer) // 2] + GARBAGE
        start = head(b"200 OK", b"application/json", len(answer))
        if fault == "reset_mid":
            self._transport.write(start + answer[: len(answer) // 2])
            self._later(0.01, self._reset)
        elif fault == "slow":
            step = max(1, len(answer) // self._model.settings.tokens)
            self._transport.write(start)
            parts = [answer[i : i + step] for i in range(0, len(answer), step)]
            self._drip(parts, self._model.settings.slow_tokens_per_second)
        else:
            self._transport.write(start + answer)

    def _stream(self, events: list[bytes], fault: str) -> None:
        if fault == "malformed":
            events.insert(len(events) // 2, sse(GARBAGE))
        parts = [*map(chunked, events), b"0\r\n\r\n"]
        self._transport.write(head(b"200 OK", b"text/event-stream", None))
        settings = self._model.settings
        pace = settings.slow_tokens_per_second if fault == "slow" else settings.tokens_per_second
        if fault == "reset_mid":
            self._transport.write(b"".join(parts[: len(parts) // 2]))
            self._later(0.01, self._reset)
        elif pace > 0:
            self._drip(parts, pace)
        else:
            self._transport.write(b"".join(parts))

    def _drip(self, parts: Iterable[bytes], per_second: float) -> None:
        """Write the parts at this pace, by the clock: a late part does not delay the following ones."""
        begun, rest, sent = self._loop.time(), iter(parts), 0

        def step() -> None:
            nonlocal sent
            for part in rest:
                self._transport.write(part)
                sent += 1
                wait = begun + sent / per_second - self._loop.time()
                if wait > 0:
                    return self._later(wait, step)
            return None

        step()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        if seconds <= 0:
            return action()

        def act() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(seconds, act)
        self._timers.add(timer)
        return None

    def _json(self, value: object, status: bytes = b"200 OK", extra: bytes = b"") -> None:
        body = orjson.dumps(value)
        self._transport.write(head(status, b"application/json", len(body), extra) + body)

    def _error(self, status: bytes, message: str, extra: bytes = b"") -> None:
        self._json({"error": {"message": message, "type": "mock", "code": None}}, status, extra)

    def _reset(self) -> None:
        """End the connection with RST instead of FIN."""
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


async def serve(port: int, settings: Settings) -> None:
    """Serve on loopback until SIGTERM or SIGINT."""
    loop, model, stopped = asyncio.get_running_loop(), Model(settings), asyncio.Event()
    server = await loop.create_server(lambda: Connection(model), "127.0.0.1", port, backlog=1024)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A mock of an OpenAI-compatible model server.")
    parser.add_argument("--port", type=int, required=True)
    for name, default in asdict(Settings()).items():
        parser.add_argument("--" + name.replace("_", "-"), default=default)
    given: dict[str, Any] = vars(parser.parse_args())
    port = int(given.pop("port"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(port, Settings().changed(given)))


if __name__ == "__main__":
    main()
