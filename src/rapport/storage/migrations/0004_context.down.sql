DROP TABLE chat_index, message_vectors;
DROP INDEX conversations_groups, messages_replies, outbox_parts;
ALTER TABLE messages DROP COLUMN mentions, DROP COLUMN thread_id, DROP COLUMN is_bot, DROP COLUMN platform_id,
    DROP COLUMN context_snapshot, DROP COLUMN payload;
