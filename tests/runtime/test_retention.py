"""Test that finished rows are deleted after the retention time, in batches, and that no promise depends on them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rapport.runtime.retention import RetentionLoop
from rapport.storage.work.checkpoints import Checkpoints, checkpoint_pool
from tests.support.world import World

AN_HOUR = timedelta(hours=1)

_AGE = (
    "UPDATE events SET finished_at = finished_at - interval '2 hours'",
    "UPDATE outbox SET created_at = created_at - interval '2 hours', sent_at = sent_at - interval '2 hours'",
    "UPDATE timers SET fired_at = fired_at - interval '2 hours', ended_at = ended_at - interval '2 hours'",
)


async def age_rows(world: World) -> None:
    for statement in _AGE:
        await world.sql(statement)


async def count(world: World, table: str) -> int:
    return (await world.sql(f"SELECT count(*) FROM {table}"))[0][0]


async def delete_rows(world: World, retention: timedelta | None = AN_HOUR) -> None:
    pool = checkpoint_pool(world.database.url)
    await pool.open()
    try:
        await RetentionLoop(world.database, Checkpoints(pool), world.app.metrics, retention=retention).delete_rows()
    finally:
        await pool.close()


async def test_old_finished_rows_go_and_new_ones_stay(world: World) -> None:
    old = await world.conversation(channel="recording")
    await world.says(old, "first", client_message_id="m1")
    await world.drain()
    await age_rows(world)
    await world.says(old, "second")
    await world.drain()
    await delete_rows(world)
    assert (await count(world, "events"), await count(world, "outbox")) == (1, 1)
    assert b'rapport_retention_deleted_total{table="events"} 1.0' in world.app.metrics.render()


async def test_without_a_retention_time_nothing_goes(world: World) -> None:
    where = await world.conversation(channel="recording")
    await world.says(where, "first")
    await world.drain()
    await age_rows(world)
    await delete_rows(world, retention=None)
    assert (await count(world, "events"), await count(world, "outbox")) == (1, 1)


async def test_a_repeated_message_gets_its_first_answer_although_its_event_is_gone(world: World) -> None:
    where = await world.conversation()
    first = await world.says(where, "hello", client_message_id="m1")
    await age_rows(world)
    await delete_rows(world)
    assert await count(world, "events") == 0
    again = await world.says(where, "hello", client_message_id="m1")
    assert (again["id"], len(await world.history(where)), len(world.model.calls)) == (first["id"], 2, 1)


async def test_a_reply_keeps_its_receipt(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "one")
    reply = await world.says(where, "two")
    why = f"/api/threads/{where}/context?message_id={reply['id']}"
    before = (await world.http.get(why)).json()
    await age_rows(world)
    await delete_rows(world)
    assert (await world.http.get(why)).json() == before


async def test_the_latest_delivered_follow_ups_stay_so_that_no_topic_is_repeated(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "hello")
    await world.sql(
        "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, topic, origin, user_message_count, state,"
        " due_at, fired_at, ended_at) SELECT %s, '00000000' || n, 't' || n, 'local', 'check_in', 'topic', 'planner', 1,"
        " CASE WHEN n <= 25 THEN 'delivered' ELSE 'suppressed' END, now(), now() - n * interval '1 minute', now()"
        " FROM generate_series(1, 40) n",
        where,
    )
    await age_rows(world)
    await delete_rows(world)
    kept = await world.sql("SELECT state, count(*) FROM timers WHERE fired_at IS NOT NULL GROUP BY state")
    assert kept == [("delivered", 20)]


async def test_pending_timers_and_open_events_stay_however_old(world: World) -> None:
    where = await world.conversation()
    await world.sql(
        "INSERT INTO timers (conversation_id, id, timer_id, owner_id, trigger_type, origin, user_message_count, due_at, created_at)"
        " VALUES (%s, '000', 't', 'local', 'check_in', 'user', 0, now() + interval '1 day', now() - interval '9 days')",
        where,
    )
    await world.sql(
        "INSERT INTO events (conversation_id, id, owner_id, state, accepted_by, due_at, created_at)"
        " VALUES (%s, '000', 'local', 'queued', 'w', now() + interval '1 day', now() - interval '9 days')",
        where,
    )
    await delete_rows(world)
    assert (await count(world, "timers"), await count(world, "events")) == (1, 1)


async def test_a_reply_sent_in_parts_is_still_found_by_each_part(world: World) -> None:
    where = await world.conversation(channel="recording")
    await world.says(where, "hello")
    await world.drain()
    await world.sql('UPDATE outbox SET platform_ids = \'["a", "b"]\'')
    await age_rows(world)
    await delete_rows(world)
    assert await count(world, "outbox") == 1


async def test_more_rows_than_one_batch_all_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapport.storage.work.retention.ROWS_PER_BATCH", 3)
    monkeypatch.setattr("rapport.runtime.retention.ROWS_PER_BATCH", 3)
    monkeypatch.setattr("rapport.storage.work.retention.CONVERSATIONS_PER_BATCH", 2)
    for _ in range(5):
        where = await world.conversation()
        await world.says(where, "one")
        await world.says(where, "two")
    await age_rows(world)
    await delete_rows(world)
    assert await count(world, "events") == 0
    assert await count(world, "messages") == 20


async def test_expired_sessions_go(world: World) -> None:
    await world.sql(
        "INSERT INTO api_keys (id, owner_id, role, name, hash) VALUES ('k', 'local', 'operator', 'laptop', 'h')"
    )
    await world.sql(
        "INSERT INTO sessions (hash, key_id, owner_id, expires_at) VALUES ('old', 'k', 'local', now() - interval '1 s'),"
        " ('new', 'k', 'local', now() + interval '1 day')"
    )
    await delete_rows(world, retention=None)
    assert await world.sql("SELECT convert_from(hash, 'utf8') FROM sessions") == [("new",)]


async def test_past_reminders_go_and_waiting_ones_stay(world: World) -> None:
    here = await world.conversation()
    for number, (state, age) in enumerate(
        [("done", "2 hours"), ("cancelled", "2 hours"), ("done", "0 s"), ("waiting", "-1 hour"), ("held", "2 hours")]
    ):
        await world.sql(
            "INSERT INTO reminders (conversation_id, id, owner_id, text, local_at, due_at, created_at, sent_at, state) VALUES"
            " (%s, %s, 'local', 'x', now(), now() - %s::interval, now() - interval '3 hours',"
            " CASE WHEN %s = 'done' THEN now() - %s::interval END, %s)",
            *(here, f"01{number:024}", age, state, age, state),
        )
    await world.sql("UPDATE conversations SET muted_until = 'infinity' WHERE id = %s", here)  # what is held stays so
    await delete_rows(world)
    assert await world.sql("SELECT state FROM reminders ORDER BY id") == [("done",), ("waiting",), ("held",)]
