"""Run stories with a real small model and report every reply. Not part of the tests: `make e2e-llm` runs it.

The report is for reading; the only claims that fail are those that hold for any model: no machinery is shown, and every turn
ends with a reply.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from bench.processes import free_port
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import PrivateAttr, SecretStr
from structlog.testing import capture_logs

from rapport.agents.openai import LeanChatOpenAI
from rapport.agents.tools.registry import ALL_TOOLS
from rapport.domain.follow_up import TRIGGER_TYPES, TriggerType
from rapport.domain.ids import new_id
from rapport.domain.synthetic import is_synthetic
from rapport.replies.machinery import cut_machinery
from tests.e2e_llm.server import model_server
from tests.support.world import World, open_world

pytestmark = pytest.mark.timeout(3 * 3600)
MAX_REPLY_TOKENS = int(os.environ.get("E2E_LLM_MAX_TOKENS", "120"))
CALL_SECONDS = 600.0
THIRD_PERSON = re.compile(r"\bthe user\b|\bder nutzer\b|\bel usuario\b|\bl'utilisateur\b|\bkullanıcı\b", re.IGNORECASE)
GRUMBLES = """
Hi, I'm Marta and I live in Graz.|I made my first lasagne today!|It was a bit burnt on top though.|What could I do better?
|I also have a cat, Fritz.|He stole some of the cheese.|Do cats like cheese?|My sister visits on Friday.|What could I cook for her?
|She is allergic to nuts.|Can you remember that?|What is my name?|What is my cat called?|I have to decide between pie and cake.|Bye!
"""


@dataclass
class Call:
    """One call of the model: its kind, its raw answer and its tokens."""

    is_follow_up: bool
    text: str
    prompt_tokens: int
    cached_tokens: int


class CountedModel(LeanChatOpenAI):
    """The model behind the server; keeps every call. All calls are made without streaming, so that tokens are counted."""

    _calls: list[Call] = PrivateAttr(default_factory=list[Call])

    @property
    def calls(self) -> list[Call]:
        return self._calls

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        result = await super()._agenerate(messages, stop, run_manager, **kwargs)
        message = cast("AIMessage", result.generations[0].message)
        usage = message.usage_metadata
        cached = usage.get("input_token_details", {}).get("cache_read", 0) if usage else 0
        prompt_tokens = usage["input_tokens"] if usage else 0
        self._calls.append(Call(is_synthetic(messages[-1]), str(message.text), prompt_tokens, cached))
        return result


@dataclass
class Report:
    """Counts over all stories; printed at the end."""

    calls: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_machinery: int = 0
    shown_machinery: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    third_person: int = 0

    def add(self, calls: list[Call], shown: str) -> None:
        self.calls += len(calls)
        self.prompt_tokens += sum(call.prompt_tokens for call in calls)
        self.cached_tokens += sum(call.cached_tokens for call in calls)
        self.written_machinery += sum(count_machinery(call.text) for call in calls)
        self.shown_machinery += count_machinery(shown)


def count_machinery(text: str) -> int:
    """Return the number of characters that are no visible text."""
    return len(text) - len(cut_machinery(text, ALL_TOOLS).text)


def tell(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


@pytest.fixture(scope="module")
def base_url() -> Generator[str]:
    with model_server(free_port()) as url:
        yield url


@pytest.fixture(scope="module")
def report() -> Generator[Report]:
    report = Report()
    yield report
    tell("", "== report", *(f"{name}: {value}" for name, value in vars(report).items()))


@pytest.fixture
def model(base_url: str) -> CountedModel:
    return CountedModel(
        model=os.environ.get("E2E_LLM_MODEL", "small"),
        api_key=SecretStr("none"),
        base_url=base_url,
        timeout=CALL_SECONDS,
        silence=CALL_SECONDS,
        max_retries=0,
        max_completion_tokens=MAX_REPLY_TOKENS,
        temperature=0.3,
        seed=1,
    )


@pytest.fixture
async def world(database_url: str, model: CountedModel) -> AsyncGenerator[World]:
    with capture_logs():  # the report stands alone on the output
        async with open_world(
            database_url, model=model, model_timeout=CALL_SECONDS, turn_deadline=CALL_SECONDS
        ) as opened:
            opened.http.timeout = CALL_SECONDS
            yield opened


async def talk(world: World, model: CountedModel, report: Report, where: str, text: str, **more: Any) -> dict[str, Any]:
    """Send a message, print the answer with what it cost, and return it."""
    before = len(model.calls)
    reply = await world.says(where, text, **more)
    calls = model.calls[before:]
    report.turns += 1
    report.add(calls, reply["content"])
    tokens = ", ".join(f"{call.prompt_tokens} ({call.cached_tokens} cached)" for call in calls)
    tell(f"  > {text}", f"  < {reply['content']}", f"    {len(calls)} calls; prompt tokens {tokens}")
    assert reply["content"].strip()
    assert report.shown_machinery == 0
    return reply


async def test_a_direct_chat_of_fifteen_turns(world: World, model: CountedModel, report: Report) -> None:
    tell("", "== direct chat")
    where = await world.conversation()
    for text in "".join(GRUMBLES.splitlines()).split("|"):
        await talk(world, model, report, where, text)
    await world.drain()
    rows = await world.sql("SELECT content FROM messages WHERE role = 'system-summary'")
    tell("-- summaries", *(f"  {content}" for (content,) in rows))
    memories = (await world.http.get("/api/memories")).json()["memories"]
    tell("-- memories", *(f"  {memory['content']}" for memory in memories))
    assert not any(count_machinery(content) for (content,) in rows)


async def test_a_group(world: World, model: CountedModel, report: Report) -> None:
    tell("", "== group")
    group = await world.conversation(kind="group")
    lines = ["Shall we take the train?", "The bus is cheaper.", "But the train has a dining car."]
    for name, text in zip(["Lena", "Ben", "Lena"], lines, strict=True):
        await world.post(group, text, author={"id": name.lower(), "name": name})
    for text in ("@bot ^", "@bot what do you think?"):
        await talk(world, model, report, group, text, author={"id": "lena", "name": "Lena"})


async def test_the_librarian_cites(world: World, model: CountedModel, report: Report) -> None:
    tell("", "== librarian")
    await world.http.post("/api/notes", json={"id": "refunds", "text": "Customers may send goods back within 30 days."})
    where = await world.conversation(agent_id="librarian")
    reply = await talk(world, model, report, where, "Within how many days may customers send goods back?")
    tell(f"    sources: {reply.get('sources')}")


@dataclass(frozen=True)
class Silence:
    """A conversation that ends in a silence."""

    trigger_type: TriggerType
    hours: float
    lines: list[tuple[str, str]]

    @property
    def is_group(self) -> bool:
        return len({name for name, _ in self.lines}) > 2


def read_silences() -> Iterator[Silence]:
    text = Path(__file__).with_name("follow_ups.txt").read_text()
    for block in text.split("\n== ")[1:]:
        header, *lines = block.strip().splitlines()
        trigger_type, hours = header.split(" | ")
        pairs = [(name, said) for name, _, said in (line.partition(": ") for line in lines)]
        yield Silence(cast("TriggerType", trigger_type), float(hours), pairs)


async def store(world: World, silence: Silence) -> str:
    """Store the conversation as if it had happened; return its id."""
    where = await world.conversation(kind="group" if silence.is_group else "direct")
    last = datetime.now(UTC) - timedelta(hours=silence.hours)
    for number, (name, text) in enumerate(silence.lines):
        is_bot = name == "bot"
        author = (None, None) if is_bot else (name.lower() if silence.is_group else "local", name)
        await world.sql(
            "INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, created_at)"
            " VALUES (%s, %s, 'local', %s, %s, %s, %s, %s)",
            *(where, new_id(), "assistant" if is_bot else "user", *author, text),
            last - timedelta(minutes=2 * (len(silence.lines) - number)),
        )
    people = sum(name != "bot" for name, _ in silence.lines)
    await world.sql(
        "UPDATE conversations SET autonomy_enabled = true, user_message_count = %s, last_at = %s WHERE id = %s",
        people,
        last,
        where,
    )
    return where


async def test_the_follow_ups(world: World, model: CountedModel, report: Report) -> None:
    silences = list(read_silences())
    assert sorted({one.trigger_type for one in silences}) == sorted(TRIGGER_TYPES)
    assert len(silences) == 24
    for number, silence in enumerate(silences, 1):
        where = await store(world, silence)
        before = len(model.calls)
        ended = await world.silence(where, silence.trigger_type, seconds=2 * CALL_SECONDS)
        calls = [call for call in model.calls[before:] if call.is_follow_up]  # others reflect on earlier conversations
        sent = [one["content"] for one in await world.history(where) if one.get("autonomous")]
        report.add(calls, "".join(sent))
        report.outcomes[ended.state] = report.outcomes.get(ended.state, 0) + 1
        report.third_person += any(THIRD_PERSON.search(text) for text in sent)
        tell("", f"== follow-up {number}: {silence.trigger_type}, {ended.state} {ended.gate or ''}")
        tell(*(f"  {name}: {text}" for name, text in silence.lines[-3:]))
        tell(*(f"  draft: {call.text}" for call in calls), *(f"  sent:  {text}" for text in sent))
        assert report.shown_machinery == 0
