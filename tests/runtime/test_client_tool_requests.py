"""Test requests with a client's tools while their process stops."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.world import World

BODY: dict[str, Any] = {
    "model": "companion",
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [{"type": "function", "function": {"name": "get_weather"}}],
}


async def test_a_process_that_stops_ends_a_request_with_an_error_and_counts_its_usage(world: World) -> None:
    step = world.model.will_wait()
    waiting = asyncio.create_task(world.http.post("/v1/chat/completions", json=BODY))
    await step.begun.wait()
    world.worker.begin_drain(0.0)
    for request in (waiting, world.http.post("/v1/chat/completions", json=BODY)):
        answer = await request
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert "send " in answer.json()["error"]["message"]
    assert await world.sql("SELECT calls FROM model_usage") == [(1,)]


async def test_a_process_that_stops_lets_a_request_finish_in_time(world: World) -> None:
    step = world.model.will_wait("at last")
    waiting = asyncio.create_task(world.http.post("/v1/chat/completions", json=BODY))
    await step.begun.wait()
    world.worker.begin_drain(60.0)
    step.go_on()
    answer = await waiting
    assert answer.json()["choices"][0]["message"]["content"] == "at last"
