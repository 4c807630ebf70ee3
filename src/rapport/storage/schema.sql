-- The current schema: the result of all migrations (a test compares the two).
-- Every row has its owner, and every query filters by it.
-- Every table with data of owners has conversation_id or owner_id, so that it can be distributed by it.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE api_keys (
    id          text PRIMARY KEY,
    owner_id    text NOT NULL,
    name        text NOT NULL,
    hash        bytea NOT NULL UNIQUE,          -- SHA-256 of a 256-bit random secret: it cannot be guessed and needs no salt
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at  timestamptz,
    role        text NOT NULL CHECK (role IN ('user', 'operator'))  -- an operator's key shows more (docs/operators.md)
);

-- Signed-in browsers. A session is opened with a key and deleted with it.
CREATE TABLE sessions (
    hash        bytea PRIMARY KEY,              -- SHA-256 of a 256-bit random token, stored only in the browser
    key_id      text NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    owner_id    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL
);
CREATE INDEX sessions_by_key ON sessions (key_id, created_at);

-- Agents. The owner `*` stands for everyone. Every change of an agent is a new version and gets a new stamp, so that processes
-- recognise a profile that they know.
CREATE SEQUENCE agent_stamps;
CREATE TABLE agents (
    owner_id    text NOT NULL,
    id          text NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    version     integer NOT NULL CHECK (version >= 1),
    stamp       bigint NOT NULL DEFAULT nextval('agent_stamps'),
    document    jsonb NOT NULL,                 -- the agent as people edit it: agents/document.py
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, id)
);
CREATE TABLE agent_versions (
    owner_id    text NOT NULL,
    id          text NOT NULL,
    version     integer NOT NULL,
    document    jsonb NOT NULL,
    author_id   text NOT NULL,                  -- who made it; `rapport` for a version that ships
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, id, version),
    FOREIGN KEY (owner_id, id) REFERENCES agents (owner_id, id) ON DELETE CASCADE
);

CREATE TABLE conversations (
    id          text PRIMARY KEY,
    owner_id    text NOT NULL,
    agent_id    text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('direct', 'group')),
    channel     text NOT NULL,
    title       text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The time of the newest message. Every write to a conversation updates this row and advances it by at least a
    -- microsecond, so message times increase strictly even if the clock goes back.
    last_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The number of its events that are not done. Counted in this row, because a statement that waited for the row's lock
    -- sees the current row, but other tables as they were when it began.
    open_event_count  integer NOT NULL DEFAULT 0 CHECK (open_event_count >= 0),
    summary_id     text,                                           -- the newest summary
    summarized_until  timestamptz NOT NULL DEFAULT '-infinity',       -- the time of the newest message it covers
    -- The breaker (RES-3): times of consecutive model failures, at most five, and until when no model is called.
    model_failed_at      timestamptz[] NOT NULL DEFAULT '{}',
    breaker_open_until  timestamptz,
    -- The number of user messages. A timer or follow-up is valid only while this is unchanged. Compared under the row's lock,
    -- because a statement that waited for that lock may not see newer rows of other tables.
    user_message_count          bigint NOT NULL DEFAULT 0,
    consecutive_followups       integer NOT NULL DEFAULT 0,                    -- sent since the last user message
    last_followup_at  timestamptz,                                   -- the time of the last one
    autonomy_enabled        boolean,                                       -- unset: on in direct chats, off in groups
    muted_until     timestamptz,
    reflected_until    timestamptz NOT NULL DEFAULT '-infinity',      -- messages up to here were reflected on
    -- The time of the agent's last message. User messages have their platform's time, but never one before a reply that
    -- they follow: the clocks differ.
    replied_at      timestamptz NOT NULL DEFAULT '-infinity',
    last_platform_time         timestamptz NOT NULL DEFAULT '-infinity',      -- the latest platform time of a user message
    last_platform_created_at       timestamptz NOT NULL DEFAULT '-infinity',      -- and its created_at: later messages are placed after it
    unreachable_since  timestamptz,                                   -- since when sending fails; unset: it is reachable
    handle          text                                           -- the agent's name there, beside its own handles
);
CREATE INDEX conversations_recent ON conversations (owner_id, last_at DESC, id DESC);
-- Groups with messages to embed are found by this index alone.
CREATE INDEX conversations_groups ON conversations (id, last_at) WHERE kind = 'group';

-- The words of a message, stemmed as English and without stop words; words of other languages stay as they are. Punctuation is
-- removed, because Postgres' parser tries every run of it as a path or an address, in quadratic time.
CREATE FUNCTION message_words(content text) RETURNS tsvector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN to_tsvector('english'::regconfig,
                   translate(left(content, 4000), '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', repeat(' ', 32)));

CREATE TABLE messages (
    conversation_id    text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id                 text NOT NULL,
    owner_id           text NOT NULL,
    role               text NOT NULL CHECK (role IN ('user', 'assistant', 'system-summary')),
    author_id          text,
    author_name        text,
    content            text NOT NULL,           -- the text; of block content, its text blocks
    blocks             jsonb,                   -- set when the content was blocks
    reply_to_id        text,
    client_message_id  text,
    event_id           text,                    -- of a reply: the event that it answers
    sources            jsonb NOT NULL DEFAULT '[]',
    metadata           jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL,
    summary_id         text,                    -- the summary that replaces it in prompts; the text stays
    -- The result of `is_synthetic`, generated from the metadata, for statements that leave out such messages.
    synthetic          boolean NOT NULL GENERATED ALWAYS AS (coalesce(metadata -> 'synthetic' = 'true'::jsonb, false)) STORED,
    -- Facts from the channel beside the text (CTX-1).
    mentions           text[] NOT NULL DEFAULT '{}',    -- addressees beside the names in the text
    thread_id          text,                    -- the platform's id of the forum topic
    is_bot             boolean NOT NULL DEFAULT false,  -- written by a program: the agent or another bot
    platform_id        text,                    -- the platform's id of the message
    context_snapshot   jsonb,                   -- of a reply: the replied-to message, if it is not stored here
    payload            jsonb,                   -- the platform's update and edits, for diagnosis; never loaded or shown
    -- A new number whenever the message is stored or changed. Assigned under the conversation's lock, so numbers follow the
    -- order of commits, and a reader that asks for higher numbers misses nothing.
    seq                bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX messages_order ON messages (conversation_id, created_at, id);
CREATE UNIQUE INDEX messages_client_id ON messages (conversation_id, client_message_id)
    WHERE client_message_id IS NOT NULL;
-- One visible reply per event: a turn that runs twice after a crash cannot store two.
CREATE UNIQUE INDEX messages_one_reply ON messages (conversation_id, event_id) WHERE event_id IS NOT NULL;
CREATE UNIQUE INDEX messages_platform_id ON messages (conversation_id, platform_id) WHERE platform_id IS NOT NULL;
-- The latest replies to a message and the latest messages of a topic: a short scan each, however many there are.
CREATE INDEX messages_replies ON messages (conversation_id, reply_to_id, created_at, id) WHERE reply_to_id IS NOT NULL;
CREATE INDEX messages_topic ON messages (conversation_id, thread_id, created_at, id) WHERE thread_id IS NOT NULL;
CREATE INDEX messages_by_seq ON messages (conversation_id, seq) WHERE NOT synthetic;
-- Messages of a chat by word. No pending list (fastupdate), which every search would have to scan.
CREATE INDEX messages_words ON messages USING gin ((ARRAY[conversation_id]), message_words(content))
    WITH (fastupdate = off) WHERE role <> 'system-summary' AND NOT synthetic;

-- One row per process that runs turns. It is alive while it renews its lease and its session holds an advisory lock on
-- `number`.
CREATE TABLE workers (
    id           text PRIMARY KEY,
    number       integer NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    host         text NOT NULL,
    pid          integer NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until  timestamptz NOT NULL
);

-- Work for one turn. An event has the id of its message, or of its timer; one that goes on with a turn has its own.
CREATE TABLE events (
    conversation_id   text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id                text NOT NULL,
    seq               bigint NOT NULL GENERATED ALWAYS AS IDENTITY,   -- order within a conversation (assigned under its lock)
    owner_id          text NOT NULL,
    state             text NOT NULL CHECK (state IN ('queued', 'running', 'done')),
    worker_id         text,
    fence             bigint NOT NULL DEFAULT 0,  -- incremented by every claim; only the highest may commit
    attempts          integer NOT NULL DEFAULT 0,
    due_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    accepted_by       text NOT NULL,              -- the process whose client waits: notified when another one answers
    cancel_requested  boolean NOT NULL DEFAULT false,
    error             text,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz,
    user_message_count            bigint NOT NULL DEFAULT 0,  -- the conversation's at creation
    trigger_type      text,                       -- of a follow-up; unset for a message
    trigger_reason    text,
    resumes           text,                       -- the message whose turn goes on after a decision about its tool calls
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX events_one_running ON events (conversation_id) WHERE state = 'running';
-- Messages have precedence: follow-ups have a queue of their own.
CREATE INDEX events_queue ON events (seq) WHERE state = 'queued' AND trigger_type IS NULL;
CREATE INDEX events_conversation_queue ON events (conversation_id, seq) WHERE state = 'queued' AND trigger_type IS NULL;
CREATE INDEX events_followup_queue ON events (seq) WHERE state = 'queued' AND trigger_type IS NOT NULL;
CREATE INDEX events_followups ON events (conversation_id, seq) WHERE trigger_type IS NOT NULL AND state <> 'done';
CREATE INDEX events_by_worker ON events (worker_id) WHERE state = 'running';

-- Calls of tools outside Rapport that may change something there. The row is stored before the call is sent: what has one is
-- never sent again. `key` is the call's place in its turn, the same after a restart.
CREATE TABLE tool_calls (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    message_id       text NOT NULL,             -- the message whose answer needs it
    key              text NOT NULL,
    owner_id         text NOT NULL,
    tool             text NOT NULL,
    server           text NOT NULL,
    arguments        jsonb NOT NULL,
    state            text NOT NULL CHECK (state IN ('asked', 'allowed', 'denied', 'running', 'done', 'failed', 'unknown')),
    result           text,
    approval_id      text UNIQUE,               -- of the question to a person; unset: it needed none
    asker_id         text,                      -- the author of the message
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at       timestamptz,               -- when the question is too old to be answered
    decided_at       timestamptz,
    decided_by       text,
    ended_at         timestamptz,
    PRIMARY KEY (conversation_id, message_id, key)
);
CREATE INDEX tool_calls_asked ON tool_calls (conversation_id, created_at) WHERE approval_id IS NOT NULL;
CREATE INDEX tool_calls_allowed ON tool_calls (conversation_id, message_id) WHERE state = 'allowed';

CREATE TABLE outbox (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,
    seq              bigint NOT NULL GENERATED ALWAYS AS IDENTITY,   -- order within a conversation (assigned under its lock)
    owner_id         text NOT NULL,
    channel          text NOT NULL,
    message_id       text NOT NULL,
    -- A row that may have arrived is unconfirmed until it is looked up; if that is impossible it ends as unknown.
    state            text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'sending', 'unconfirmed', 'sent', 'failed', 'unknown')),
    worker_id        text,
    attempts         integer NOT NULL DEFAULT 0,
    due_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    platform_ids     jsonb NOT NULL DEFAULT '[]',
    error            text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at          timestamptz,
    user_message_count           bigint,                    -- of a follow-up: sent only while the conversation's is the same
    notice           jsonb,                     -- a notice of the channel: then message_id is not the id of a message
    PRIMARY KEY (conversation_id, id),
    UNIQUE (conversation_id, message_id)
);
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending', 'unconfirmed');
CREATE INDEX outbox_followups ON outbox (conversation_id) WHERE state = 'queued' AND user_message_count IS NOT NULL;
-- The message of a part that was sent. Platform ids repeat across chats, hence the conversation, as an array for GIN.
CREATE INDEX outbox_parts ON outbox USING gin ((ARRAY[conversation_id]), platform_ids jsonb_path_ops)
    WITH (fastupdate = off) WHERE jsonb_array_length(platform_ids) > 1;

-- Notes that answers may cite.
CREATE TABLE notes (
    owner_id    text NOT NULL,
    id          text NOT NULL CHECK (id ~ '^[A-Za-z0-9_-]{1,80}$'),
    title       text NOT NULL,
    text        text NOT NULL,
    hash        bytea NOT NULL,                 -- SHA-256 of the text, to recognise the same text again
    file_name   text,
    embedder    text NOT NULL,                  -- the embedder of its chunks' vectors
    chunks      integer NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    collections text[] NOT NULL DEFAULT '{}',   -- in lower case
    -- 'everyone' or the id of a group conversation; unset: its owner alone. The deletion of the conversation unsets it.
    shared_with text,
    PRIMARY KEY (owner_id, id)
);
CREATE INDEX notes_recent ON notes (owner_id, updated_at DESC, id DESC);
CREATE INDEX notes_by_hash ON notes (owner_id, hash);
-- By a hash: a path may be longer than an index entry can be.
CREATE INDEX notes_by_file ON notes (owner_id, md5(file_name));
CREATE INDEX notes_by_embedder ON notes (embedder, owner_id, id);
-- A note that is in no collection, or not shared, has no entry in these two. No pending list (fastupdate), as below.
CREATE INDEX notes_collections ON notes USING gin ((ARRAY[owner_id]), collections)
    WITH (fastupdate = off) WHERE collections <> '{}';
CREATE INDEX notes_shared ON notes (shared_with, id) INCLUDE (owner_id, embedder, chunks, created_at)
    WHERE shared_with IS NOT NULL;

-- A passage of a note, as it is given to the model.
CREATE TABLE chunks (
    owner_id  text NOT NULL,
    note_id   text NOT NULL,
    position  integer NOT NULL,
    embedder  text NOT NULL,
    heading   text NOT NULL,
    text      text NOT NULL,
    words     tsvector NOT NULL,                -- of the note's title, the headings and the text
    PRIMARY KEY (owner_id, note_id, position),
    FOREIGN KEY (owner_id, note_id) REFERENCES notes (owner_id, id) ON DELETE CASCADE
);
-- No pending list (fastupdate), which every search would have to scan.
CREATE INDEX chunks_words ON chunks USING gin (words) WITH (fastupdate = off);

-- The vectors of a passage's sentences, for search by meaning. Narrow rows, because the vectors of an owner with few are
-- compared one by one. The embedder determines the number of dimensions.
CREATE TABLE sentence_vectors (
    owner_id   text NOT NULL,
    note_id    text NOT NULL,
    position   integer NOT NULL,
    number     integer NOT NULL,
    embedder   text NOT NULL,
    embedding  halfvec NOT NULL,
    PRIMARY KEY (owner_id, note_id, position, number),
    FOREIGN KEY (owner_id, note_id, position) REFERENCES chunks (owner_id, note_id, position) ON DELETE CASCADE
);
-- For the bundled embedder's dimensions. For others the index is created when the first note is added.
CREATE INDEX sentence_vectors_near_384 ON sentence_vectors USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
    WHERE vector_dims(embedding) = 384;

-- The number of an owner's chunks per embedder, so that a turn without notes skips the search; and the threshold.
CREATE TABLE note_counts (
    owner_id        text NOT NULL,
    embedder        text NOT NULL,
    chunks          integer NOT NULL CHECK (chunks >= 0),
    min_similarity  real,                       -- measured by `rapport calibrate`; otherwise the embedder's own
    PRIMARY KEY (owner_id, embedder)
);

-- The vectors of group messages, made in the background. `embedding_progress` tells which are missing.
CREATE TABLE message_vectors (
    conversation_id  text NOT NULL,
    message_id       text NOT NULL,
    embedder         text NOT NULL,
    owner_id         text NOT NULL,
    created_at       timestamptz NOT NULL,      -- the message's, to filter by time without a join
    embedding        halfvec NOT NULL,
    PRIMARY KEY (conversation_id, message_id, embedder),
    FOREIGN KEY (conversation_id, message_id) REFERENCES messages (conversation_id, id) ON DELETE CASCADE
);
-- As for sentence_vectors; a group with few vectors is searched by its key instead.
CREATE INDEX message_vectors_near_384 ON message_vectors USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
    WHERE vector_dims(embedding) = 384;

-- The embedding progress of a group. An import of older messages moves `embedded_until` back.
CREATE TABLE embedding_progress (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    embedder         text NOT NULL,
    owner_id         text NOT NULL,
    embedded_until      timestamptz NOT NULL DEFAULT '-infinity',  -- messages up to here have vectors
    vectors          integer NOT NULL DEFAULT 0,                -- the approximate number of vectors
    imports          integer NOT NULL DEFAULT 0,                -- incremented by every import, to detect a concurrent one
    PRIMARY KEY (conversation_id, embedder)
);

-- Reminders (REM): what people ask for. Nothing that anybody writes cancels one; the conversation's deletion does.
CREATE TABLE reminders (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,
    owner_id         text NOT NULL,
    author_id        text,                      -- who asked for it, in a group
    author_name      text,
    is_personal      boolean NOT NULL DEFAULT false,  -- in a group: for its author alone
    text             text NOT NULL,             -- the person's own words
    local_at         timestamp NOT NULL,        -- the next occurrence, on the clock of the zone
    zone             text,                      -- unset: the owner's, which may change
    moment           timestamptz,               -- set if the person named a moment: then no zone matters
    rule             text,                      -- RFC 5545; unset: once
    ends_at          timestamp,                 -- the last occurrence of the rule
    state            text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'held', 'done', 'cancelled')),
    due_at           timestamptz NOT NULL,      -- when it is sent next: later than its occurrence after quiet hours or a snooze
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at          timestamptz,               -- when it was last sent
    message_id       text,                      -- the message that was last sent
    PRIMARY KEY (conversation_id, id)
);
CREATE INDEX reminders_due ON reminders (due_at) WHERE state = 'waiting';
CREATE INDEX reminders_held ON reminders (conversation_id) WHERE state = 'held';
CREATE INDEX reminders_by_owner ON reminders (owner_id, due_at, id);
CREATE INDEX reminders_by_id ON reminders (owner_id, id);

-- Follow-ups (AUTO). A timer fires once and keeps its outcome. A user's message deletes pending timers.
CREATE TABLE timers (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,             -- also the id of its event
    timer_id         text NOT NULL,             -- its name: setting the same name again replaces it
    owner_id         text NOT NULL,
    trigger_type     text NOT NULL CHECK (trigger_type IN ('check_in', 'question_unanswered', 'task_incomplete', 'waiting_for_decision')),
    reason           text,                      -- for diagnosis; never given to a model
    topic           text NOT NULL DEFAULT '',  -- its subject: the same topic is not raised twice
    origin           text NOT NULL CHECK (origin IN ('planner', 'user')),
    user_message_count           bigint NOT NULL,           -- the conversation's when the timer was set
    state            text NOT NULL DEFAULT 'pending' CHECK (state IN (
                         'pending', 'fired', 'delivered', 'suppressed', 'superseded', 'leaked', 'failed', 'expired')),
    gate             text,                      -- the gate that suppressed it
    regenerated      boolean NOT NULL DEFAULT false,
    message_id       text,                      -- the message that was sent
    due_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    fired_at         timestamptz,
    ended_at         timestamptz,
    -- The ids of the user messages that it comes from and, once sent, that it mentions: each is raised only once.
    sources          text[] NOT NULL DEFAULT '{}',
    prompt_variant   text,                      -- once fired: the variant of the trigger's prompt that was used
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX timers_pending ON timers (conversation_id, timer_id) WHERE state = 'pending';
CREATE INDEX timers_due ON timers (due_at) WHERE state = 'pending';
CREATE INDEX timers_past ON timers (owner_id, conversation_id, fired_at) WHERE fired_at IS NOT NULL;

-- An owner's time zone and quiet hours.
CREATE TABLE preferences (
    owner_id    text PRIMARY KEY,
    time_zone   text NOT NULL DEFAULT 'UTC',
    quiet_from  time,
    quiet_to    time,                           -- before quiet_from: the quiet time spans midnight
    CHECK ((quiet_from IS NULL) = (quiet_to IS NULL))
);

-- An agent's memories of an owner. At most a thousand each, so comparing all is faster than a vector index.
CREATE TABLE memories (
    owner_id         text NOT NULL,
    agent_id         text NOT NULL,
    id               text NOT NULL,
    key              text,
    content          text NOT NULL,
    origin           text NOT NULL CHECK (origin IN ('user', 'agent', 'extracted')),
    conversation_id  text,                      -- its origin, kept when the conversation is deleted
    message_id       text,
    embedder         text NOT NULL,
    embedding        halfvec NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, agent_id, id)
);
CREATE UNIQUE INDEX memories_key ON memories (owner_id, agent_id, key) WHERE key IS NOT NULL;
CREATE INDEX memories_by_embedder ON memories (embedder, owner_id, id);

-- Telegram. An update is stored under its number before it is acknowledged. When it is processed its payload is removed, and
-- the number stays for some days to recognise repetitions. A failed update keeps its payload.
CREATE TABLE telegram_updates (
    bot_id       bigint NOT NULL,
    update_id    bigint NOT NULL,
    chat_id      bigint NOT NULL,
    payload      text,                          -- JSON as received: jsonb refuses some valid input
    attempts     integer NOT NULL DEFAULT 0,    -- failed attempts
    error        text,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at      timestamptz,
    message_id   bigint,                        -- the number of a user's message, so not one of the bot's own
    PRIMARY KEY (bot_id, update_id)
);
CREATE INDEX telegram_updates_waiting ON telegram_updates (bot_id, update_id) WHERE done_at IS NULL;
CREATE INDEX telegram_updates_done ON telegram_updates (bot_id, done_at) WHERE done_at IS NOT NULL;

-- The conversation of each chat.
CREATE TABLE telegram_chats (
    bot_id           bigint NOT NULL,
    chat_id          bigint NOT NULL,
    conversation_id  text NOT NULL UNIQUE REFERENCES conversations (id) ON DELETE CASCADE,
    owner_id         text NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
);

-- A group that becomes a supergroup gets another chat id; the settings may still name the old one. Kept apart from the
-- conversation: if that is deleted, the chat may begin another one.
CREATE TABLE telegram_chat_migrations (
    bot_id    bigint NOT NULL,
    chat_id   bigint NOT NULL,
    first_id  bigint NOT NULL,                  -- its id as a group
    PRIMARY KEY (bot_id, chat_id)
);

-- The user that was last seen with an @name.
CREATE TABLE telegram_usernames (
    username  text PRIMARY KEY,                 -- in lower case
    user_id   bigint NOT NULL
);

-- Chats that were recently rejected, for the operator who configures access.
CREATE TABLE telegram_rejected_chats (
    bot_id      bigint NOT NULL,
    chat_id     bigint NOT NULL,
    kind        text NOT NULL,
    name        text NOT NULL,
    times       integer NOT NULL DEFAULT 1,
    last_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id  bigint,                         -- the number of the latest message there
    PRIMARY KEY (bot_id, chat_id)
);

-- What a model has been seen to do: it decides what is asked of the model (ADR 63).
CREATE TABLE model_records (
    model       text NOT NULL,                  -- as in RAPPORT_MODEL
    server      text NOT NULL,                  -- host and port; empty for the provider's own
    facts       jsonb NOT NULL,                 -- counts, see agents/model_record.py
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (model, server)
);

-- The model calls of an owner and their tokens, by day (UTC), agent, conversation, purpose and model. It outlives the
-- conversation, so it has no foreign key to it. Each conversation has rows of its own, so that turns of different conversations
-- do not wait for each other; ephemeral conversations share rows with an empty id, spread over slots for the same reason.
CREATE TABLE model_usage (
    owner_id         text NOT NULL,
    day              date NOT NULL,
    agent_id         text NOT NULL,
    conversation_id  text NOT NULL,             -- empty for ephemeral conversations
    slot             smallint NOT NULL,         -- 0 for stored conversations
    purpose          text NOT NULL,             -- see domain/usage.py
    model            text NOT NULL,             -- as in RAPPORT_MODEL
    calls            bigint NOT NULL,           -- calls that reached the model's server, failed ones included
    tokens_in        bigint NOT NULL,
    tokens_out       bigint NOT NULL,
    estimated_calls  bigint NOT NULL,           -- those whose tokens are estimated
    PRIMARY KEY (owner_id, day, agent_id, conversation_id, slot, purpose, model)
);
-- The sum of a month of an agent, whoever uses it.
CREATE INDEX model_usage_by_agent ON model_usage (agent_id, day);

-- Monthly budgets of tokens of owners. Those of agents are in their profiles.
CREATE TABLE usage_budgets (
    owner_id        text PRIMARY KEY,
    monthly_tokens  bigint NOT NULL CHECK (monthly_tokens >= 0)
);

-- The budgets of which 80 % are used in a month: the operator is warned once. One of the two ids is empty.
CREATE TABLE budget_warnings (
    owner_id  text NOT NULL,
    agent_id  text NOT NULL,
    month     date NOT NULL,
    PRIMARY KEY (owner_id, agent_id, month)
);
