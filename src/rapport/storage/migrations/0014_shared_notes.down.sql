DROP INDEX notes_shared;
DROP INDEX notes_collections;
ALTER TABLE notes DROP COLUMN shared_with;
ALTER TABLE notes DROP COLUMN collections;
