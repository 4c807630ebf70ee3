-- Rename tables and columns to the words that the code and the docs use. No row changes, but for one state of the outbox.

ALTER TABLE shelves RENAME TO note_counts;
ALTER TABLE points RENAME TO sentence_vectors;
ALTER TABLE chat_index RENAME TO embedding_progress;
ALTER TABLE telegram_moves RENAME TO telegram_chat_migrations;
ALTER TABLE telegram_people RENAME TO telegram_usernames;
ALTER TABLE telegram_refused RENAME TO telegram_rejected_chats;

ALTER TABLE conversations RENAME spoken TO user_message_count;
ALTER TABLE conversations RENAME unanswered TO open_event_count;
ALTER TABLE conversations RENAME summarised_to TO summarized_until;
ALTER TABLE conversations RENAME failed_at TO model_failed_at;
ALTER TABLE conversations RENAME resting_until TO breaker_open_until;
ALTER TABLE conversations RENAME followups TO consecutive_followups;
ALTER TABLE conversations RENAME followed_up_at TO last_followup_at;
ALTER TABLE conversations RENAME autonomy TO autonomy_enabled;
ALTER TABLE conversations RENAME reflected_to TO reflected_until;
ALTER TABLE conversations RENAME said_to TO last_platform_time;
ALTER TABLE conversations RENAME placed_at TO last_platform_created_at;
ALTER TABLE conversations RENAME unreachable_at TO unreachable_since;
ALTER TABLE events RENAME spoken TO user_message_count;
ALTER TABLE outbox RENAME spoken TO user_message_count;
ALTER TABLE timers RENAME spoken TO user_message_count;
ALTER TABLE timers RENAME matter TO topic;
ALTER TABLE embedding_progress RENAME embedded_to TO embedded_until;

ALTER INDEX messages_news RENAME TO messages_by_seq;
ALTER INDEX events_line RENAME TO events_conversation_queue;

-- Postgres 18 gives NOT NULL constraints names too, and a vector index exists for every vector length in use: so the names
-- are taken from the catalogue.
DO $$ DECLARE item record; BEGIN
    FOR item IN
        SELECT n.conrelid::regclass AS owner, n.conname AS old, r.new || substr(n.conname, length(r.old) + 1) AS new
        FROM pg_constraint n JOIN (VALUES
            ('note_counts', 'shelves', 'note_counts'),
            ('sentence_vectors', 'points', 'sentence_vectors'),
            ('embedding_progress', 'chat_index_embedded_to', 'embedding_progress_embedded_until'),
            ('embedding_progress', 'chat_index', 'embedding_progress'),
            ('telegram_chat_migrations', 'telegram_moves', 'telegram_chat_migrations'),
            ('telegram_usernames', 'telegram_people', 'telegram_usernames'),
            ('telegram_rejected_chats', 'telegram_refused', 'telegram_rejected_chats'),
            ('conversations', 'conversations_spoken', 'conversations_user_message_count'),
            ('conversations', 'conversations_unanswered', 'conversations_open_event_count'),
            ('conversations', 'conversations_summarised_to', 'conversations_summarized_until'),
            ('conversations', 'conversations_failed_at', 'conversations_model_failed_at'),
            ('conversations', 'conversations_followups', 'conversations_consecutive_followups'),
            ('conversations', 'conversations_reflected_to', 'conversations_reflected_until'),
            ('conversations', 'conversations_said_to', 'conversations_last_platform_time'),
            ('conversations', 'conversations_placed_at', 'conversations_last_platform_created_at'),
            ('events', 'events_spoken', 'events_user_message_count'),
            ('timers', 'timers_spoken', 'timers_user_message_count'),
            ('timers', 'timers_matter', 'timers_topic')
        ) AS r (owner, old, new) ON n.conrelid = r.owner::regclass AND starts_with(n.conname, r.old || '_')
        WHERE NOT (r.old = 'chat_index' AND starts_with(n.conname, 'chat_index_embedded_to_'))
    LOOP
        EXECUTE format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', item.owner, item.old, item.new);
    END LOOP;
    FOR item IN
        SELECT indexrelid::regclass AS old, 'sentence_vectors' || substr(c.relname, length('points') + 1) AS new
        FROM pg_index JOIN pg_class c ON c.oid = indexrelid
        WHERE indrelid = 'sentence_vectors'::regclass AND starts_with(c.relname, 'points_')
    LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', item.old, item.new);
    END LOOP;
END $$;

DROP INDEX outbox_waiting;
ALTER TABLE outbox DROP CONSTRAINT outbox_state_check;
UPDATE outbox SET state = 'unconfirmed' WHERE state = 'doubtful';
ALTER TABLE outbox
    ADD CONSTRAINT outbox_state_check CHECK (state IN ('queued', 'sending', 'unconfirmed', 'sent', 'failed', 'unknown'));
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending', 'unconfirmed');
