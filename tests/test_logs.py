"""Test the logs of a turn: they hold neither secrets nor message text (OBS)."""

from __future__ import annotations

import io
import json
import logging
import re
import string
from collections.abc import Generator
from typing import Any, Literal

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from rapport.domain.conversation import Incoming
from rapport.logs import Redactor, configure_logging
from tests.support.cases import every_case
from tests.support.world import World, open_world, until

LETTERS = string.ascii_letters + string.digits
TOKEN = st.text(LETTERS, min_size=40, max_size=60)
TELEGRAM = st.builds("{}:AA{}".format, st.integers(10**8, 10**10), TOKEN)

# Each of the shapes that the redactor knows: a secret, and what stands around it wherever that belongs to the shape.
SHAPES = {
    "one of ours": TOKEN.map("rapport_{}".format).map(lambda secret: (secret, "", "")),
    "OpenAI": TOKEN.map("sk-proj-{}".format).map(lambda secret: (secret, "", "")),
    "Anthropic": TOKEN.map("sk-ant-api03-{}".format).map(lambda secret: (secret, "", "")),
    "Google": TOKEN.map("AIza{}".format).map(lambda secret: (secret, "", "")),
    "Groq": TOKEN.map("gsk_{}".format).map(lambda secret: (secret, "", "")),
    "xAI": TOKEN.map("xai-{}".format).map(lambda secret: (secret, "", "")),
    "Hugging Face": TOKEN.map("hf_{}".format).map(lambda secret: (secret, "", "")),
    "GitHub": TOKEN.map("ghp_{}".format).map(lambda secret: (secret, "", "")),
    "a bearer header": TOKEN.map(lambda secret: (secret, "Authorization: Bearer ", "")),
    "a Telegram token": TELEGRAM.map(lambda secret: (secret, "", "")),
    "a Telegram address": TELEGRAM.map(lambda secret: (secret, "https://api.telegram.org/bot", "/getUpdates")),
    "a password in a URL": TOKEN.map(lambda secret: (secret, "postgresql://rapport:", "@db.example:5432/rapport")),
}
SPACED = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data(), before=SPACED, after=SPACED)
def test_a_secret_is_taken_out_and_the_rest_of_the_line_stays(
    shape: str, data: st.DataObject, before: str, after: str
) -> None:
    secret, start, end = data.draw(SHAPES[shape])
    line = Redactor()(f"{before} {start}{secret}{end} {after}")
    assert line == f"{before} {start}[redacted]{end} {after}"


@every_case("shape", SHAPES)
def test_a_secret_does_not_hide_behind_a_letter(shape: str) -> None:
    """A line break is written as a letter (`\\n`) in JSON, and a space as a digit (`%20`) in an address."""
    secret, start, end = EXAMPLES[shape]
    for before in ("\\n", "\\t", "%20", "key"):
        assert secret not in Redactor()(f'{{"event": "{before}{start}{secret}{end}"}}'), before


EXAMPLES = {
    "one of ours": ("rapport_" + "a1B2" * 10, "", ""),
    "OpenAI": ("sk-proj-" + "a1B2" * 10, "", ""),
    "Anthropic": ("sk-ant-api03-" + "a1B2" * 10, "", ""),
    "Google": ("AIza" + "a1B2" * 9, "", ""),
    "Groq": ("gsk_" + "a1B2" * 10, "", ""),
    "xAI": ("xai-" + "a1B2" * 10, "", ""),
    "Hugging Face": ("hf_" + "a1B2" * 10, "", ""),
    "GitHub": ("ghp_" + "a1B2" * 10, "", ""),
    "a bearer header": ("a1B2" * 10, "Authorization: Bearer ", ""),
    "a Telegram token": ("123456789:AA" + "a1B2" * 10, "", ""),
    "a Telegram address": ("123456789:AA" + "a1B2" * 10, "https://api.telegram.org/bot", "/getUpdates"),
    "a password in a URL": ("a1B2" * 5, "postgresql://rapport:", "@db.example:5432/rapport"),
}


@given(line=st.text(string.ascii_lowercase + " ,.;()[]{}'\"\\n0123456789", max_size=200))
def test_a_line_without_secrets_stays_as_it_is(line: str) -> None:
    assert Redactor()(line) == line


@given(
    secrets=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<.>"), min_size=8, max_size=40),
        min_size=1,
        max_size=3,
    ),
    before=st.text(".", max_size=10),
    after=st.text(".", max_size=10),
)
def test_a_known_secret_is_taken_out_whatever_it_looks_like(secrets: list[str], before: str, after: str) -> None:
    redact = Redactor(secrets)
    for secret in secrets:
        assert redact(f"{before}<{secret}>{after}") == f"{before}<[redacted]>{after}"


def test_short_values_are_no_secrets() -> None:
    assert Redactor(["", "1234567"])("port 1234567") == "port 1234567"


class Log:
    """The captured log."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def named(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]


@pytest.fixture
def restored() -> Generator[None]:
    """Restore the logging configuration after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def log(restored: None) -> Log:
    """The log at INFO, as `rapport serve` sets it up."""
    stream = io.StringIO()
    configure_logging("info", "json", secrets=["hunter2-hunter2"], stream=stream)
    return Log(stream)


@pytest.fixture
async def logged_world(log: Log, world: World) -> World:
    """A world whose lines go to `log`."""
    return world


SECRET = "sk-proj-" + "a1B2" * 10


def test_a_secret_in_a_field_or_an_exception_is_not_logged(log: Log) -> None:
    logger = structlog.get_logger()
    logger.info("some.fact", url=f"postgresql://me:{'x' * 20}@db/rapport", key=SECRET)
    try:
        raise RuntimeError(f"401 for key {SECRET}") from ValueError("password hunter2-hunter2")
    except RuntimeError:
        logger.exception("chat.error", errorType="RuntimeError")
    assert SECRET not in log.text
    assert "hunter2" not in log.text
    assert "x" * 20 not in log.text
    assert "Traceback" in log.named("chat.error")[0]["exception"]
    assert "401 for key [redacted]" in log.named("chat.error")[0]["exception"]


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize(
    "secret", ["hunter2-hunter2", 'pass"word"', r"back\slash\es", "it's-secret", "größe-und-länge"]
)
def test_a_known_secret_is_taken_out_however_it_is_written(
    restored: None, style: Literal["json", "console"], secret: str
) -> None:
    stream = io.StringIO()
    configure_logging("info", style, secrets=[secret], stream=stream)
    structlog.get_logger().warning("some.fact", why=f"login as {secret}, failed", more={"password": secret})
    logging.getLogger("foreign").warning("login as %s failed", secret)
    assert stream.getvalue().count("[redacted]") == 3, stream.getvalue()


def test_a_secret_on_a_line_of_its_own_is_not_logged(log: Log) -> None:
    structlog.get_logger().warning("some.fact", reason=f"the provider says:\n{SECRET}\nis not a key")
    logging.getLogger("foreign").warning("the provider says:\n\t%s", SECRET)
    assert SECRET not in log.text


def test_foreign_loggers_say_no_secrets_either(log: Log) -> None:
    foreign = logging.getLogger("some.library")
    foreign.info("connecting to %s", "https://me:hunter2-hunter2@example.org/")
    foreign.warning("GET https://api.telegram.org/bot%s/getMe", "123456789:AA" + "a1B2" * 10)
    try:
        raise RuntimeError(f"bad key {SECRET}")
    except RuntimeError:
        foreign.exception("it failed", stack_info=True)
    assert [line["level"] for line in log.lines] == ["info", "warning", "error"]
    assert "bad key [redacted]" in log.lines[2]["exception"]
    for secret in ("hunter2", "a1B2a1B2", SECRET):
        assert secret not in log.text


@pytest.mark.parametrize("level", ["debug", "info"])
@pytest.mark.parametrize("name", ["httpx", "httpcore.http11", "openai._base_client", "anthropic", "aiohttp.client"])
def test_http_clients_do_not_say_where_they_go(restored: None, level: str, name: str) -> None:
    stream = io.StringIO()
    configure_logging(level, "json", stream=stream)
    logging.getLogger(name).info("HTTP Request: POST https://api.telegram.org/bot123/getMe")
    assert stream.getvalue() == ""
    logging.getLogger(name).warning("a warning is worth a line")
    assert "a warning is worth a line" in stream.getvalue()


def test_a_level_that_is_none_is_refused_in_words(restored: None) -> None:
    with pytest.raises(ValueError, match="LOG_LEVEL='loud' is none of debug, info, warning, error"):
        configure_logging("loud")


async def test_a_turn_says_what_happened_and_not_what_was_said(log: Log, logged_world: World) -> None:
    world = logged_world
    world.model.will_say("The pangolin sleeps.")
    conversation = await world.conversation()
    await world.says(conversation, "Tell me of the armadillo", author={"id": "7", "name": "Wilhelmina"})
    await until(lambda: len(log.named("chat.metrics")) >= 3)

    [received] = log.named("chat.event")
    messages = await world.history(conversation)
    assert received["type"] == "message_received"
    assert received["messageId"] == messages[0]["id"]
    phases = log.named("chat.metrics")
    assert [line["phase"] for line in phases] == ["load", "model", "commit"]
    for line in (received, *phases):
        assert line["level"] == "info"
        assert line["conversationId"] == conversation
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["timestamp"])
    for line in phases:
        assert line["agentId"] == "companion"
        assert 0 <= line["ms"] < 60_000
    for words in ("armadillo", "pangolin", "Wilhelmina"):
        assert words not in log.text
    assert not [line for line in log.lines if line["level"] in {"error", "critical", "warning"}]


async def test_every_line_about_a_conversation_names_its_agent_too(log: Log, logged_world: World) -> None:
    world = logged_world
    conversation = await world.conversation(agent_id="librarian")
    await world.says(conversation, "hello")
    await until(lambda: len(log.named("chat.metrics")) >= 2)
    [guard] = log.named("chat.guard")
    assert guard["reason"] == "no_notes"
    about_it = [line for line in log.lines if line.get("conversationId") == conversation]
    assert len(about_it) >= 4
    assert {line["event"] for line in about_it if line.get("agentId") != "librarian"} == set()


async def test_turns_side_by_side_each_log_their_own_conversation(log: Log, logged_world: World) -> None:
    world = logged_world
    slow_one, quick_one = await world.conversation(), await world.conversation(agent_id="librarian")
    step = world.model.will_wait()
    slow = await world.app.worker.accept(Incoming("local", slow_one, "slow"))
    await step.begun.wait()
    await world.says(quick_one, "quick")
    assert step.gate is not None
    step.gate.set()
    await slow.reply()
    await until(lambda: len(log.named("chat.metrics")) >= 5)
    seen = [(line["phase"], line["conversationId"], line["agentId"]) for line in log.named("chat.metrics")]
    assert sorted(seen) == sorted(
        [(phase, slow_one, "companion") for phase in ("load", "model", "commit")]
        + [(phase, quick_one, "librarian") for phase in ("load", "commit")]
    )


async def test_a_failing_model_is_an_error_of_its_kind(log: Log, logged_world: World) -> None:
    world = logged_world
    refusal = RuntimeError(f"no entry with {SECRET}")
    world.model.will_fail(refusal)
    conversation = await world.conversation()
    reply = await world.says(conversation, "Tell me of the armadillo")
    assert reply["fallbackUsed"] is True
    [line] = log.named("chat.error")
    assert line["conversationId"] == conversation
    assert line["agentId"] == "companion"
    assert line["errorType"] == "error"
    assert line["message"] == "the model failed (RuntimeError)"
    assert "armadillo" not in log.text
    # The person gets a reply and the operator a log line; it is no internal error.
    assert not [line for line in log.lines if line["level"] in {"error", "critical"}]


async def test_refused_requests_are_no_errors_of_ours(log: Log, logged_world: World) -> None:
    world = logged_world
    conversation = await world.conversation()
    answers = [
        await world.http.get("/nowhere"),
        await world.http.get("/api/threads/01ARZ3NDEKTSV4RRFFQ69G5FAV/history"),
        await world.http.delete("/api/threads"),
        await world.post(conversation, ""),
        await world.post(conversation, "x" * 32_001),
        await world.post(conversation, "x", unknown=1),
        await world.http.post(f"/chat/conversations/{conversation}/messages", content=b"{"),
        await world.http.post(f"/chat/conversations/{conversation}/messages", content=b"x" * 2_000_001),
        await world.http.get("/api/threads", headers={"Host": "evil.example"}),
        await world.http.get("/api/threads", params={"limit": "many"}),
    ]
    assert {answer.status_code for answer in answers} <= {400, 401, 404, 405, 413, 422}
    assert not [line for line in log.lines if line["level"] in {"error", "critical", "warning"}]


async def test_what_was_said_may_stand_in_the_log_at_debug_only(restored: None, database_url: str) -> None:
    for level in ("info", "warning"):
        stream = io.StringIO()
        configure_logging(level, "json", stream=stream)
        async with open_world(database_url) as world:
            world.model.will_say("The pangolin sleeps.", "It still does.")
            conversation = await world.conversation()
            async with world.http.stream(
                "POST",
                f"/chat/conversations/{conversation}/messages",
                json={"content": [{"type": "text", "text": "Tell me of the armadillo"}]},
                headers={"Accept": "text/event-stream"},
            ) as answer:
                assert "pangolin" in (await answer.aread()).decode()
        assert "armadillo" not in stream.getvalue()
        assert "pangolin" not in stream.getvalue()
        assert '"error"' not in stream.getvalue()
