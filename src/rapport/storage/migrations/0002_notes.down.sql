ALTER TABLE conversations
    DROP COLUMN summary_id, DROP COLUMN summarised_to, DROP COLUMN failed_at, DROP COLUMN resting_until;
-- A summary is made again when it is needed; before this version nobody knew what to do with one.
DELETE FROM messages WHERE role = 'system-summary';
ALTER TABLE messages DROP COLUMN summary_id;
DROP TABLE shelves;
DROP TABLE points;
DROP TABLE chunks;
DROP TABLE notes;
DROP EXTENSION vector;
