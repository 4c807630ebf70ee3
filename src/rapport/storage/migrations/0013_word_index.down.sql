DROP INDEX messages_words;
CREATE INDEX messages_words ON messages USING gin ((ARRAY[conversation_id]), message_words(content))
    WITH (fastupdate = off) WHERE role <> 'system-summary' AND NOT synthetic;
ALTER TABLE messages DROP COLUMN is_direct;
