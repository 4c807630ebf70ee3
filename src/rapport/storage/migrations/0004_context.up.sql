-- Groups: what a channel knows of a message beside its words, links and topics that are found by an index, and vectors of
-- what was said.

ALTER TABLE messages
    ADD COLUMN mentions         text[] NOT NULL DEFAULT '{}',
    ADD COLUMN thread_id        text,
    ADD COLUMN is_bot           boolean NOT NULL DEFAULT false,
    ADD COLUMN platform_id      text,
    ADD COLUMN context_snapshot jsonb,
    ADD COLUMN payload          jsonb;
UPDATE messages SET is_bot = true WHERE role = 'assistant';
CREATE UNIQUE INDEX messages_platform_id ON messages (conversation_id, platform_id) WHERE platform_id IS NOT NULL;
CREATE INDEX messages_replies ON messages (conversation_id, reply_to_id, created_at, id) WHERE reply_to_id IS NOT NULL;
CREATE INDEX messages_topic ON messages (conversation_id, thread_id, created_at, id) WHERE thread_id IS NOT NULL;

CREATE INDEX outbox_parts ON outbox USING gin ((ARRAY[conversation_id]), platform_ids jsonb_path_ops)
    WITH (fastupdate = off) WHERE jsonb_array_length(platform_ids) > 1;

CREATE INDEX conversations_groups ON conversations (id, last_at) WHERE kind = 'group';

CREATE TABLE message_vectors (
    conversation_id  text NOT NULL,
    message_id       text NOT NULL,
    embedder         text NOT NULL,
    owner_id         text NOT NULL,
    created_at       timestamptz NOT NULL,
    embedding        halfvec NOT NULL,
    PRIMARY KEY (conversation_id, message_id, embedder),
    FOREIGN KEY (conversation_id, message_id) REFERENCES messages (conversation_id, id) ON DELETE CASCADE
);
CREATE INDEX message_vectors_near_384 ON message_vectors USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
    WHERE vector_dims(embedding) = 384;

CREATE TABLE chat_index (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    embedder         text NOT NULL,
    owner_id         text NOT NULL,
    embedded_to      timestamptz NOT NULL DEFAULT '-infinity',
    vectors          integer NOT NULL DEFAULT 0,
    imports          integer NOT NULL DEFAULT 0,
    PRIMARY KEY (conversation_id, embedder)
);
