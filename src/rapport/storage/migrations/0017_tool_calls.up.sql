-- Calls of tools with effects outside, and events that go on with a turn.

CREATE TABLE tool_calls (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    message_id       text NOT NULL,
    key              text NOT NULL,
    owner_id         text NOT NULL,
    tool             text NOT NULL,
    server           text NOT NULL,
    arguments        jsonb NOT NULL,
    state            text NOT NULL CHECK (state IN ('asked', 'allowed', 'denied', 'running', 'done', 'failed', 'unknown')),
    result           text,
    approval_id      text UNIQUE,
    asker_id         text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz,
    decided_at       timestamptz,
    decided_by       text,
    ended_at         timestamptz,
    PRIMARY KEY (conversation_id, message_id, key)
);
CREATE INDEX tool_calls_asked ON tool_calls (conversation_id, created_at) WHERE approval_id IS NOT NULL;
CREATE INDEX tool_calls_allowed ON tool_calls (conversation_id, message_id) WHERE state = 'allowed';
ALTER TABLE events ADD COLUMN resumes text;
