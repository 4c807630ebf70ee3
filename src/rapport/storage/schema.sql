-- The schema as it stands now: what all migrations together must lead to (a test compares the two).
-- Owners from the first table on: every row says whose it is, and every query asks for it.
-- Every table of theirs carries conversation_id or owner_id, so that it can be distributed by it.

CREATE TABLE api_keys (
    id          text PRIMARY KEY,
    owner_id    text NOT NULL,
    name        text NOT NULL,
    hash        bytea NOT NULL UNIQUE,          -- SHA-256 of a 256-bit random secret: nothing to guess, nothing to salt
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at  timestamptz
);

CREATE TABLE conversations (
    id          text PRIMARY KEY,
    owner_id    text NOT NULL,
    agent_id    text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('direct', 'group')),
    channel     text NOT NULL,
    title       text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The time of the newest message. Every write to a conversation goes through this row and moves it on by at least a
    -- microsecond: that is what makes message times strictly increasing, whatever the clock does.
    last_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- How many events of it are not done. Counted here, under the row's lock, because whoever waited for that lock sees
    -- the row as it is now, but other tables only as they were when its statement began.
    unanswered  integer NOT NULL DEFAULT 0 CHECK (unanswered >= 0)
);
CREATE INDEX conversations_recent ON conversations (owner_id, last_at DESC, id DESC);

CREATE TABLE messages (
    conversation_id    text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id                 text NOT NULL,
    owner_id           text NOT NULL,
    role               text NOT NULL CHECK (role IN ('user', 'assistant', 'system-summary')),
    author_id          text,
    author_name        text,
    content            text NOT NULL,           -- the words; of block content, its text blocks
    blocks             jsonb,                   -- set when the content was blocks
    reply_to_id        text,
    client_message_id  text,
    event_id           text,                    -- of a reply: the event it answers
    sources            jsonb NOT NULL DEFAULT '[]',
    metadata           jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL,
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX messages_order ON messages (conversation_id, created_at, id);
CREATE UNIQUE INDEX messages_client_id ON messages (conversation_id, client_message_id)
    WHERE client_message_id IS NOT NULL;
-- A visible reply is unique per event: a turn that runs twice after a crash can't show two.
CREATE UNIQUE INDEX messages_one_reply ON messages (conversation_id, event_id) WHERE event_id IS NOT NULL;

-- One row per process that runs turns. It lives while its lease is renewed, or ends at once when its session ends:
-- it holds an advisory lock on `number` for as long as it is there.
CREATE TABLE workers (
    id           text PRIMARY KEY,
    number       integer NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    host         text NOT NULL,
    pid          integer NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until  timestamptz NOT NULL
);

-- Something to process, by one turn. An event has the id of the message that it is about.
CREATE TABLE events (
    conversation_id   text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id                text NOT NULL,
    seq               bigint NOT NULL GENERATED ALWAYS AS IDENTITY,   -- order within a conversation (given under its lock)
    owner_id          text NOT NULL,
    state             text NOT NULL CHECK (state IN ('queued', 'running', 'done')),
    worker_id         text,
    fence             bigint NOT NULL DEFAULT 0,  -- rises with every claim; only the highest may commit
    attempts          integer NOT NULL DEFAULT 0,
    due_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    accepted_by       text NOT NULL,              -- the process whose client waits: told when somebody else answers
    cancel_requested  boolean NOT NULL DEFAULT false,
    error             text,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz,
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX events_one_running ON events (conversation_id) WHERE state = 'running';
CREATE INDEX events_queue ON events (seq) WHERE state = 'queued';
CREATE INDEX events_line ON events (conversation_id, seq) WHERE state = 'queued';
CREATE INDEX events_by_worker ON events (worker_id) WHERE state = 'running';

CREATE TABLE outbox (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,
    seq              bigint NOT NULL GENERATED ALWAYS AS IDENTITY,   -- order within a conversation (given under its lock)
    owner_id         text NOT NULL,
    channel          text NOT NULL,
    message_id       text NOT NULL,
    state            text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'sending', 'sent', 'failed', 'unknown')),
    worker_id        text,
    attempts         integer NOT NULL DEFAULT 0,
    due_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    platform_ids     jsonb NOT NULL DEFAULT '[]',
    error            text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at          timestamptz,
    PRIMARY KEY (conversation_id, id),
    UNIQUE (conversation_id, message_id)
);
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending');
