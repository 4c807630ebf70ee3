DROP TABLE telegram_refused, telegram_people, telegram_chats, telegram_updates;
DELETE FROM outbox WHERE notice IS NOT NULL;
ALTER TABLE outbox DROP COLUMN notice;
ALTER TABLE conversations DROP COLUMN replied_at, DROP COLUMN said_to, DROP COLUMN placed_at, DROP COLUMN unreachable_at,
    DROP COLUMN handle;
