"""Test a long conversation with many follow-ups: as natural, fast and clean at its end as at its beginning."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any

import psutil
import pytest

from rapport.builtin import BuiltinChatModel
from rapport.context.summary_rules import get_window_limit
from rapport.domain.follow_up import PROMPTS, TRIGGER_TYPES, TriggerType
from rapport.followups.leaks import find_leak
from tests.e2e.scripted import ScriptedModel, chat_model, scripted_model
from tests.support.world import World, open_world
from tests.turns.test_autonomous_messages import META, checkpoint_of, everything_logged, pause

TURNS = 200
FOLLOW_UPS = 60
WINDOW = 1 + get_window_limit() + 1
"""Messages that the model is given at most: a summary, what was said last, and what is to be answered."""

SUBJECTS = [
    "pizza", "my garden", "the trip to Greece", "my new job", "the piano", "my sister", "the old car", "a book about bees",
    "the marathon", "my neighbour", "the broken bike", "the kitchen", "a film about trains", "my Portuguese course",
    "the tax return", "the cat", "a walk in the woods", "the birthday party", "my knee", "the internet at home",
]  # fmt: skip
SENTENCES = [
    "I was thinking about {s} today.",
    "What do you think about {s}?",
    "I still have to do something about {s}.",
    "Should I go on with {s} or leave it?",
    "It went well with {s}.",
    "thanks",
    "I'm not sure what to say about {s}.",
    "Tell me something about {s}.",
    "My friend told me a lot about {s}.",
    "ok",
]


def said_in(turn: int) -> str:
    return SENTENCES[turn % len(SENTENCES)].format(s=SUBJECTS[(turn * 7 // 3) % len(SUBJECTS)])


def silences_after(turn: int) -> list[TriggerType]:
    """Three in every ten turns: one at a time, or all in a row."""
    tens, ones = divmod(turn, 10)
    if tens % 2:
        return [TRIGGER_TYPES[(tens + number) % 4] for number in range(3)] if ones == 4 else []
    return [TRIGGER_TYPES[(tens + ones) % 4]] if ones in {1, 4, 8} else []


class LongThread:
    """The conversation, and what was measured in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.unasked: list[str] = []
        self.windows: list[int] = []
        self.checkpoints: list[int] = []
        self.memory: list[int] = []

    async def run(self, before_silence: Callable[[int], None]) -> str:
        world, here = self.world, await self.world.conversation()
        process = psutil.Process(os.getpid())
        for turn in range(TURNS):
            assert (await world.says(here, said_in(turn)))["content"]
            for kind in silences_after(turn):
                before_silence(len(self.unasked))
                await pause(world, here)
                became = await world.silence(here, kind, reason="quokka")
                assert became.state == "delivered", became
                [(text,)] = await world.sql("SELECT content FROM messages WHERE id = %s", became.message_id)
                self.unasked.append(text)
                messages = await checkpoint_of(world, became)
                self.windows.append(len(messages))
                self.checkpoints.append(sum(len(json.dumps(message.model_dump(mode="json"))) for message in messages))
                self.memory.append(process.memory_info().rss)
        await world.drain()
        return here


async def everything_shown(world: World, conversation: str) -> tuple[list[dict[str, Any]], str]:
    """The history, and the text of everything that a user can look at but their own list of follow-ups."""
    history = page = await world.history(conversation)
    addresses = (
        "/api/threads",
        "/api/memories?limit=500",
        "/api/autonomy/stats",
        f"/chat/conversations/{conversation}",
    )
    texts = [(await world.http.get(address)).text for address in addresses]
    while page:
        page = await world.history(conversation, before=history[0]["id"], limit=150)
        history = page + history
    texts.append(json.dumps(history))
    return history, "\n".join(texts)


async def checked(thread: LongThread, here: str, logs: list[Any]) -> None:
    world = thread.world
    history, shown = await everything_shown(world, here)
    assert sum(one["role"] == "user" for one in history) == TURNS
    assert [one["content"] for one in history if one["autonomous"]] == thread.unasked
    assert len(thread.unasked) == FOLLOW_UPS
    assert not any(word in shown for word in (*PROMPTS.values(), "synthetic", "quokka"))
    assert [line for line in logs if line["log_level"] in {"error", "critical"}] == []

    for text in thread.unasked:
        assert find_leak(text, prompts=PROMPTS.values()) is None, text
        assert not META.search(text), text
    assert [a for a, b in pairwise(thread.unasked) if a == b] == []

    assert max(thread.windows) <= WINDOW
    half = FOLLOW_UPS // 2
    assert max(thread.checkpoints[half:]) <= 2 * max(thread.checkpoints[:half])
    assert thread.memory[-1] - thread.memory[half] < 40_000_000
    [(memories,)] = await world.sql("SELECT count(*) FROM memories")
    assert memories <= len(SUBJECTS) * 2


async def test_two_hundred_turns_with_the_built_in_model(database_url: str) -> None:
    with everything_logged() as logs:
        async with open_world(database_url, model=BuiltinChatModel()) as world:
            thread = LongThread(world)
            here = await thread.run(lambda _number: None)
            await checked(thread, here, logs)


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


async def test_two_hundred_turns_with_a_model_over_http(database_url: str, model: ScriptedModel) -> None:
    with everything_logged() as logs:
        async with open_world(database_url, model=chat_model(model)) as world:
            thread = LongThread(world)
            here = await thread.run(lambda number: model.answers.append(f"By the way, how about number {number}?"))
            await checked(thread, here, logs)
    turns = [call for call in model.calls if not call.is_summary]
    assert len(turns) == TURNS + FOLLOW_UPS
    assert max(len(call.window) for call in turns) <= WINDOW
    assert max(len(call.body) for call in turns[130:]) <= 2 * max(len(call.body) for call in turns[20:130])
    prompted = [text for call in model.calls for _, text in call.window[:-1] if text in PROMPTS.values()]
    assert prompted == []
