"""Fixtures: a scripted model, a data directory with everything that runs on it, and an HTTP session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest

from .harness import Home, make_home
from .scripted import ScriptedModel, scripted_model


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as model:
        yield model


@pytest.fixture
async def home(model: ScriptedModel, new_data: Path) -> AsyncGenerator[Home]:
    """A fresh data directory; whatever still runs on it at the end is killed."""
    made = make_home(model, new_data)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.clean)


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    """Requests of its own: unlimited connections, and none of them waits for ever."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=90)) as session:
        yield session
