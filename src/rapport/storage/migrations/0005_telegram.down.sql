DROP TABLE telegram_refused, telegram_people, telegram_chats, telegram_updates;
DELETE FROM outbox WHERE notice IS NOT NULL;
UPDATE outbox SET state = 'unknown' WHERE state = 'doubtful';
DROP INDEX outbox_waiting;
ALTER TABLE outbox
    DROP COLUMN notice,
    DROP CONSTRAINT outbox_state_check,
    ADD CONSTRAINT outbox_state_check CHECK (state IN ('queued', 'sending', 'sent', 'failed', 'unknown'));
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending');
ALTER TABLE conversations DROP COLUMN replied_at, DROP COLUMN said_to, DROP COLUMN placed_at, DROP COLUMN unreachable_at,
    DROP COLUMN handle;
