"""Test that the sum of a month reads no rows of days that are over, and that storing usage waits for nobody (by EXPLAIN)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rapport.domain.event import ClaimedEvent
from rapport.domain.ids import new_ephemeral_id, new_id
from rapport.domain.usage import Usage, first_of_month, next_month
from rapport.storage.database import Database
from rapport.storage.usage import ModelUsage, usage_parameters
from tests.storage.explained import Explained, PlanMode, plans

TODAY = datetime.now(UTC).date()
ROWS = 10_000


def event_of(conversation: str) -> ClaimedEvent:
    return ClaimedEvent(new_id(), conversation, "local", 1, 1, "companion", "direct", "api", "w")


@plans
async def test_a_refresh_reads_the_open_days_and_no_other_owner(database: Database, mode: PlanMode) -> None:
    month = first_of_month(TODAY)
    async with database.statement() as connection:
        await connection.execute(
            "INSERT INTO model_usage SELECT owner, %s::date - n %% 25, agent, 'c' || n, 0, 'answer', 'm', 1, 10, 1, 0"
            " FROM generate_series(1, %s) n, (VALUES ('local', 'companion'), ('ana', 'librarian')) AS t (owner, agent)",
            (TODAY - timedelta(days=1), ROWS),
        )
        await ModelUsage(connection).add(event_of(new_id()), [Usage("answer", "m", 1, 100, 20, 0)])
        await connection.execute("ANALYZE model_usage")
        explained = Explained(connection, mode)
        usage = ModelUsage(explained.as_connection)
        for kind, id_ in (("owner", "local"), ("agent", "companion")):
            sums = await usage.sum_tokens(kind, id_, since=TODAY, before=next_month(month), open_from=TODAY)
            assert sums == (0, 120)
            assert explained.walked("model_usage") <= 2
            assert explained.pages() <= 20


async def test_usage_of_the_same_key_is_added_up(database: Database) -> None:
    event = event_of(new_id())
    async with database.statement() as connection:
        usage = ModelUsage(connection)
        for _ in range(3):
            await usage.add(event, [Usage("answer", "m", 1, 10, 1, 1), Usage("summary", "m", 2, 5, 5, 0)])
        report = await usage.report("local", ["purpose"], since=TODAY, until=TODAY, limit=10)
    assert [(row.key["purpose"], row.calls, row.tokens_in, row.estimated_calls) for row in report.rows] == [
        ("answer", 3, 30, 3),
        ("summary", 6, 15, 0),
    ]


def test_ephemeral_conversations_share_rows_but_not_one_row() -> None:
    keys = [usage_parameters(event_of(new_ephemeral_id()), []) for _ in range(500)]
    assert {key["usage_conversation"] for key in keys} == {""}
    assert 20 <= len({key["usage_slot"] for key in keys}) <= 32
    stored = new_id()
    kept = usage_parameters(event_of(stored), [])
    assert (kept["usage_conversation"], kept["usage_slot"]) == (stored, 0)
