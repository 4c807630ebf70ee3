-- Words are searched in groups only: messages of direct chats leave the index. Those stored before stay in it.
ALTER TABLE messages ADD COLUMN is_direct boolean NOT NULL DEFAULT false;
DROP INDEX messages_words;
CREATE INDEX messages_words ON messages USING gin ((ARRAY[conversation_id]), message_words(content))
    WITH (fastupdate = off) WHERE role <> 'system-summary' AND NOT synthetic AND NOT is_direct;
