ALTER TABLE conversations
    DROP COLUMN summary_id, DROP COLUMN summarised_to, DROP COLUMN failed_at, DROP COLUMN resting_until;
-- A summary is made again when it is needed; before this version nobody knew what to do with one.
DELETE FROM messages WHERE role = 'system-summary';
ALTER TABLE messages DROP COLUMN summary_id;
DROP TABLE shelves;
DROP TABLE points;
DROP TABLE chunks;
DROP TABLE notes;
-- It may be somebody else's, or somebody else may use it too: then it stays.
DO $$ BEGIN
    DROP EXTENSION vector;
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN NULL;
END $$;
