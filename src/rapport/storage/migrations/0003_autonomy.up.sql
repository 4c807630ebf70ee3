-- Follow-ups: timers that fire into events, what decides whether one may be said, and what is remembered about people.

ALTER TABLE conversations
    ADD COLUMN spoken         bigint NOT NULL DEFAULT 0,
    ADD COLUMN followups      integer NOT NULL DEFAULT 0,
    ADD COLUMN followed_up_at timestamptz,
    ADD COLUMN autonomy       boolean,
    ADD COLUMN muted_until    timestamptz,
    ADD COLUMN reflected_to   timestamptz NOT NULL DEFAULT '-infinity';

ALTER TABLE messages
    ADD COLUMN synthetic boolean NOT NULL GENERATED ALWAYS AS (coalesce(metadata -> 'synthetic' = 'true'::jsonb, false)) STORED;

ALTER TABLE events
    ADD COLUMN spoken         bigint NOT NULL DEFAULT 0,
    ADD COLUMN trigger_type   text,
    ADD COLUMN trigger_reason text;
DROP INDEX events_queue;
DROP INDEX events_line;
CREATE INDEX events_queue ON events (seq) WHERE state = 'queued' AND trigger_type IS NULL;
CREATE INDEX events_line ON events (conversation_id, seq) WHERE state = 'queued' AND trigger_type IS NULL;
CREATE INDEX events_followup_queue ON events (seq) WHERE state = 'queued' AND trigger_type IS NOT NULL;
CREATE INDEX events_followups ON events (conversation_id, seq) WHERE trigger_type IS NOT NULL AND state <> 'done';

ALTER TABLE outbox ADD COLUMN spoken bigint;
CREATE INDEX outbox_followups ON outbox (conversation_id) WHERE state = 'queued' AND spoken IS NOT NULL;

CREATE TABLE timers (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,
    timer_id         text NOT NULL,
    owner_id         text NOT NULL,
    trigger_type     text NOT NULL CHECK (trigger_type IN ('check_in', 'question_unanswered', 'task_incomplete', 'waiting_for_decision')),
    reason           text,
    matter           text NOT NULL DEFAULT '',
    origin           text NOT NULL CHECK (origin IN ('planner', 'user')),
    spoken           bigint NOT NULL,
    state            text NOT NULL DEFAULT 'pending' CHECK (state IN (
                         'pending', 'fired', 'delivered', 'suppressed', 'superseded', 'leaked', 'failed', 'expired')),
    gate             text,
    regenerated      boolean NOT NULL DEFAULT false,
    message_id       text,
    due_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    fired_at         timestamptz,
    ended_at         timestamptz,
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX timers_pending ON timers (conversation_id, timer_id) WHERE state = 'pending';
CREATE INDEX timers_due ON timers (due_at) WHERE state = 'pending';
CREATE INDEX timers_past ON timers (owner_id, conversation_id, fired_at) WHERE fired_at IS NOT NULL;

CREATE TABLE preferences (
    owner_id    text PRIMARY KEY,
    time_zone   text NOT NULL DEFAULT 'UTC',
    quiet_from  time,
    quiet_to    time,
    CHECK ((quiet_from IS NULL) = (quiet_to IS NULL))
);

CREATE TABLE memories (
    owner_id         text NOT NULL,
    agent_id         text NOT NULL,
    id               text NOT NULL,
    key              text,
    content          text NOT NULL,
    origin           text NOT NULL CHECK (origin IN ('user', 'agent', 'extracted')),
    conversation_id  text,
    message_id       text,
    embedder         text NOT NULL,
    embedding        halfvec NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, agent_id, id)
);
CREATE UNIQUE INDEX memories_key ON memories (owner_id, agent_id, key) WHERE key IS NOT NULL;
CREATE INDEX memories_by_embedder ON memories (embedder, owner_id, id);
