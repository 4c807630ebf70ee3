"""Test what distinguishes a synthetic message from a real one, and the check at start that checkpoints keep it (AUTO-4, AUTO-5)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from structlog.testing import capture_logs

from rapport.agents.graph import LangGraphAgent
from rapport.agents.metadata import MetadataLost, verify_metadata
from rapport.domain.synthetic import is_synthetic
from rapport.storage.work.checkpoints import CheckpointPool, Checkpoints, checkpoint_pool
from tests.support.world import ScriptedModel

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def test_only_true_itself_marks_a_synthetic_message() -> None:
    assert is_synthetic(HumanMessage("hi", additional_kwargs={"synthetic": True})) is True
    for value in ("true", "True", 1, 1.0, "yes", [True], {"synthetic": True}, None, False, 0, ""):
        assert is_synthetic(HumanMessage("hi", additional_kwargs={"synthetic": value})) is False, value
    assert is_synthetic(HumanMessage("hi")) is False
    assert is_synthetic(AIMessage("hi", additional_kwargs={"synthetic": True})) is True


@given(
    content=st.text() | st.sampled_from(["[AUTONOMOUS_FOLLOWUP: check_in]", "Continue our conversation naturally."]),
    others=st.dictionaries(st.text().filter(lambda key: key != "synthetic"), st.none() | st.booleans() | st.text()),
)
def test_neither_words_nor_other_tags_make_a_message_synthetic(content: str, others: dict[str, Any]) -> None:
    assert is_synthetic(HumanMessage(content, additional_kwargs=others)) is False
    assert is_synthetic(HumanMessage(content, additional_kwargs={**others, "synthetic": True})) is True


class Forgetful(JsonPlusSerializer):
    """Loses what `strip` takes away, as a serializer of another version might."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self.strip(super().loads_typed(data))

    def strip(self, value: Any) -> Any:
        if isinstance(value, BaseMessage):
            return value.model_copy(update={"additional_kwargs": self.left(value.additional_kwargs)})
        if isinstance(value, list):
            return [self.strip(item) for item in cast("list[Any]", value)]
        return value

    def left(self, tags: dict[str, Any]) -> dict[str, Any]:
        return {}


class Stringly(Forgetful):
    """Makes text of every tag."""

    def left(self, tags: dict[str, Any]) -> dict[str, Any]:
        return {name: str(value).lower() for name, value in tags.items()}


class Partial(Forgetful):
    """Loses one tag and keeps the rest."""

    def left(self, tags: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in tags.items() if name != "trigger_reason"}


class Lossy(Checkpoints):
    """The real saver with another serializer."""

    def __init__(self, pool: CheckpointPool, serde: JsonPlusSerializer) -> None:
        super().__init__(pool)
        self.serde = serde


class Silent(Checkpoints):
    """Accepts every checkpoint and writes none."""

    async def flush(self) -> None:
        self._blobs.clear()
        self._rows.clear()


@pytest.fixture
async def pool(database_url: str) -> AsyncGenerator[CheckpointPool]:
    async with checkpoint_pool(database_url) as opened:
        yield opened


async def verify(saver: Checkpoints) -> None:
    await verify_metadata(LangGraphAgent(ScriptedModel(), saver, deadline=5).graph, saver)


def assert_nothing_left(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,), table


async def test_the_real_checkpointer_passes_and_keeps_nothing_of_the_probe(
    pool: CheckpointPool, database_url: str
) -> None:
    saver = Checkpoints(pool)
    with capture_logs() as logs:
        await verify(saver)
    await saver.flush()
    assert_nothing_left(database_url)
    assert not [line for line in logs if line["log_level"] in {"error", "critical"}]


@pytest.mark.parametrize("serde", [Forgetful, Stringly, Partial])
async def test_a_checkpointer_that_loses_tags_is_detected_and_keeps_no_probe(
    pool: CheckpointPool, database_url: str, serde: type[Forgetful]
) -> None:
    saver = Lossy(pool, serde())
    with pytest.raises(MetadataLost, match=r"metadata integrity test failed.*does not start"):
        await verify(saver)
    await saver.flush()
    assert_nothing_left(database_url)


async def test_a_checkpointer_that_stores_nothing_is_detected(pool: CheckpointPool, database_url: str) -> None:
    with pytest.raises(MetadataLost):
        await verify(Silent(pool))
    assert_nothing_left(database_url)


async def test_lost_tags_are_an_error_in_the_log(pool: CheckpointPool) -> None:
    with capture_logs() as logs, pytest.raises(MetadataLost):
        await verify(Lossy(pool, Forgetful()))
    assert [line["log_level"] for line in logs] == ["error"]
