-- Give tables and columns the names back that they had.

DROP INDEX outbox_waiting;
ALTER TABLE outbox DROP CONSTRAINT outbox_state_check;
UPDATE outbox SET state = 'doubtful' WHERE state = 'unconfirmed';
ALTER TABLE outbox
    ADD CONSTRAINT outbox_state_check CHECK (state IN ('queued', 'sending', 'doubtful', 'sent', 'failed', 'unknown'));
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending', 'doubtful');

ALTER INDEX messages_by_seq RENAME TO messages_news;
ALTER INDEX events_conversation_queue RENAME TO events_line;

ALTER TABLE embedding_progress RENAME embedded_until TO embedded_to;
ALTER TABLE timers RENAME topic TO matter;
ALTER TABLE timers RENAME user_message_count TO spoken;
ALTER TABLE outbox RENAME user_message_count TO spoken;
ALTER TABLE events RENAME user_message_count TO spoken;
ALTER TABLE conversations RENAME unreachable_since TO unreachable_at;
ALTER TABLE conversations RENAME last_platform_created_at TO placed_at;
ALTER TABLE conversations RENAME last_platform_time TO said_to;
ALTER TABLE conversations RENAME reflected_until TO reflected_to;
ALTER TABLE conversations RENAME autonomy_enabled TO autonomy;
ALTER TABLE conversations RENAME last_followup_at TO followed_up_at;
ALTER TABLE conversations RENAME consecutive_followups TO followups;
ALTER TABLE conversations RENAME breaker_open_until TO resting_until;
ALTER TABLE conversations RENAME model_failed_at TO failed_at;
ALTER TABLE conversations RENAME summarized_until TO summarised_to;
ALTER TABLE conversations RENAME open_event_count TO unanswered;
ALTER TABLE conversations RENAME user_message_count TO spoken;

ALTER TABLE telegram_rejected_chats RENAME TO telegram_refused;
ALTER TABLE telegram_usernames RENAME TO telegram_people;
ALTER TABLE telegram_chat_migrations RENAME TO telegram_moves;
ALTER TABLE embedding_progress RENAME TO chat_index;
ALTER TABLE sentence_vectors RENAME TO points;
ALTER TABLE note_counts RENAME TO shelves;

DO $$ DECLARE item record; BEGIN
    FOR item IN
        SELECT n.conrelid::regclass AS owner, n.conname AS old, r.new || substr(n.conname, length(r.old) + 1) AS new
        FROM pg_constraint n JOIN (VALUES
            ('shelves', 'note_counts', 'shelves'),
            ('points', 'sentence_vectors', 'points'),
            ('chat_index', 'embedding_progress_embedded_until', 'chat_index_embedded_to'),
            ('chat_index', 'embedding_progress', 'chat_index'),
            ('telegram_moves', 'telegram_chat_migrations', 'telegram_moves'),
            ('telegram_people', 'telegram_usernames', 'telegram_people'),
            ('telegram_refused', 'telegram_rejected_chats', 'telegram_refused'),
            ('conversations', 'conversations_user_message_count', 'conversations_spoken'),
            ('conversations', 'conversations_open_event_count', 'conversations_unanswered'),
            ('conversations', 'conversations_summarized_until', 'conversations_summarised_to'),
            ('conversations', 'conversations_model_failed_at', 'conversations_failed_at'),
            ('conversations', 'conversations_consecutive_followups', 'conversations_followups'),
            ('conversations', 'conversations_reflected_until', 'conversations_reflected_to'),
            ('conversations', 'conversations_last_platform_time', 'conversations_said_to'),
            ('conversations', 'conversations_last_platform_created_at', 'conversations_placed_at'),
            ('events', 'events_user_message_count', 'events_spoken'),
            ('timers', 'timers_user_message_count', 'timers_spoken'),
            ('timers', 'timers_topic', 'timers_matter')
        ) AS r (owner, old, new) ON n.conrelid = r.owner::regclass AND starts_with(n.conname, r.old || '_')
        WHERE NOT (r.old = 'embedding_progress' AND starts_with(n.conname, 'embedding_progress_embedded_until_'))
    LOOP
        EXECUTE format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', item.owner, item.old, item.new);
    END LOOP;
    FOR item IN
        SELECT indexrelid::regclass AS old, 'points' || substr(c.relname, length('sentence_vectors') + 1) AS new
        FROM pg_index JOIN pg_class c ON c.oid = indexrelid
        WHERE indrelid = 'points'::regclass AND starts_with(c.relname, 'sentence_vectors_')
    LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', item.old, item.new);
    END LOOP;
END $$;
