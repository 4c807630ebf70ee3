-- Reminders: what people ask for. Timers are what the agent infers.

CREATE TABLE reminders (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,
    owner_id         text NOT NULL,
    author_id        text,
    author_name      text,
    is_personal      boolean NOT NULL DEFAULT false,
    text             text NOT NULL,
    local_at         timestamp NOT NULL,
    zone             text,
    moment           timestamptz,
    rule             text,
    ends_at          timestamp,
    state            text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'held', 'done', 'cancelled')),
    due_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at          timestamptz,
    message_id       text,
    PRIMARY KEY (conversation_id, id)
);
CREATE INDEX reminders_due ON reminders (due_at) WHERE state = 'waiting';
CREATE INDEX reminders_held ON reminders (conversation_id) WHERE state = 'held';
CREATE INDEX reminders_by_owner ON reminders (owner_id, due_at, id);
CREATE INDEX reminders_by_id ON reminders (owner_id, id);
