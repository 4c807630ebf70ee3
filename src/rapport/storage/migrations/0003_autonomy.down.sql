DROP TABLE memories, preferences, timers;
-- Events without a message, and messages that nobody said, are of no use to what came before.
DELETE FROM events WHERE trigger_type IS NOT NULL;
DELETE FROM messages WHERE synthetic;
ALTER TABLE outbox DROP COLUMN spoken;
DROP INDEX events_queue;
DROP INDEX events_line;
DROP INDEX events_followup_queue;
DROP INDEX events_followups;
ALTER TABLE events DROP COLUMN spoken, DROP COLUMN trigger_type, DROP COLUMN trigger_reason;
CREATE INDEX events_queue ON events (seq) WHERE state = 'queued';
CREATE INDEX events_line ON events (conversation_id, seq) WHERE state = 'queued';
ALTER TABLE messages DROP COLUMN synthetic;
ALTER TABLE conversations DROP COLUMN spoken, DROP COLUMN followups, DROP COLUMN followed_up_at, DROP COLUMN autonomy,
    DROP COLUMN muted_until, DROP COLUMN reflected_to;
