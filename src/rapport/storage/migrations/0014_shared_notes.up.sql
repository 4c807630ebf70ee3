-- Collections of notes, and notes that are shared (ADR 84).

ALTER TABLE notes ADD COLUMN collections text[] NOT NULL DEFAULT '{}';   -- in lower case
-- 'everyone' or the id of a group conversation; unset: its owner alone. The deletion of the conversation unsets it.
ALTER TABLE notes ADD COLUMN shared_with text;

-- A note that is in no collection, or not shared, has no entry in these indexes. No pending list (fastupdate), as for chunks_words.
CREATE INDEX notes_collections ON notes USING gin ((ARRAY[owner_id]), collections)
    WITH (fastupdate = off) WHERE collections <> '{}';
CREATE INDEX notes_shared ON notes (shared_with, id) INCLUDE (owner_id, embedder, chunks, created_at)
    WHERE shared_with IS NOT NULL;
