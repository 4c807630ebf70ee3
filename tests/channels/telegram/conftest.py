"""Fixtures: a simulated Telegram with people and chats, and a server connected to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.channels.telegram.town import Impatient, Town, open_town


@pytest.fixture
async def town(database_url: str) -> AsyncGenerator[Town]:
    async with open_town(database_url) as opened:
        yield opened


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Impatient:
    return Impatient(monkeypatch)
