"""Logging: one line per fact, as JSON or for a console, without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.types import EventDict, Processor, WrappedLogger

# Patterns of secrets anywhere in a line: keys of providers and ours, bearer headers, Telegram bot tokens, passwords in URLs.
_SECRETS = re.compile(
    # No word boundaries before them: in a rendered line a secret may follow an escape (`\\n`, `%20`) or a word (`/bot123:…`).
    r"(?P<keep>://[^\s/:@\"']*:)[^\s/@\"']+(?=@)"
    r"|(?P<bearer>[Bb]earer\s+)[\w.~+/=-]+"
    r"|rapport_[\w-]{20,}"
    r"|sk-[\w-]{12,}"
    r"|(?:AIza|gsk_|xai-|hf_|ghp_)[\w-]{16,}"
    r"|(?<!\d)\d{6,12}:[\w-]{30,}"
)
# Every secret above has one of these parts. Looking for them takes a third of the time that the whole pattern takes.
_PARTS = ("://", "earer", "rapport_", "sk-", "AIza", "gsk_", "xai-", "hf_", "ghp_")
_TOKEN_PART = re.compile(r"\d{6}:")
_KEPT = "[redacted]"


class Redactor:
    """Removes secrets from a finished line: by their pattern, and the given ones."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        # As they are, and as escaped in JSON or in a repr.
        forms = {
            form
            for secret in known
            if len(secret) >= 8
            for form in (secret, orjson.dumps(secret).decode()[1:-1], repr(secret)[1:-1])
        }
        values = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(re.escape(value) for value in values)) if values else None

    def __call__(self, line: str) -> str:
        if self._known is not None:
            line = self._known.sub(_KEPT, line)
        if not any(part in line for part in _PARTS) and _TOKEN_PART.search(line) is None:
            return line
        return _SECRETS.sub(lambda match: (match["keep"] or match["bearer"] or "") + _KEPT, line)


def configure_logging(
    level: str = "info",
    style: Literal["auto", "json", "console"] = "auto",
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    cache: bool = False,
) -> None:
    """Configure structlog and the standard library's logging; with `cache`, which is faster, it can't be changed later."""
    out = stream or sys.stderr
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"LOG_LEVEL={level!r} is none of debug, info, warning, error.")
    redact = Redactor(secrets)
    render = _console(out) if style == "console" or (style == "auto" and out.isatty()) else _json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def render_redacted(logger: WrappedLogger, name: str, event: EventDict) -> str:
        return redact(str(render(logger, name, event)))

    structlog.configure(
        processors=[*shared, render_redacted],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=cache,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render_redacted],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # At INFO these log addresses with tokens, every request, or facts that we log ourselves.
    for noisy in (
        "httpx",
        "httpx2",
        "httpcore",
        "openai",
        "anthropic",
        "aiohttp",
        "urllib3",
        "psycopg.pool",
        "markdown_it",
        "asyncio",
    ):
        logging.getLogger(noisy).setLevel(max(number, logging.WARNING))
    # Logs invalid requests, which the client learns from the response anyway.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    # These quote requests and responses; the caller logs the error itself.
    for talkative in ("telegram", "mcp"):
        logging.getLogger(talkative).setLevel(logging.CRITICAL)


def _json(_logger: WrappedLogger, _name: str, event: EventDict) -> str:
    return orjson.dumps(event, default=str).decode()


def _console(out: TextIO) -> Any:
    return structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
