-- The schema as it stands now: what all migrations together must lead to (a test compares the two).
-- Owners from the first table on: every row says whose it is, and every query asks for it.
-- Every table of theirs carries conversation_id or owner_id, so that it can be distributed by it.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE api_keys (
    id          text PRIMARY KEY,
    owner_id    text NOT NULL,
    name        text NOT NULL,
    hash        bytea NOT NULL UNIQUE,          -- SHA-256 of a 256-bit random secret: nothing to guess, nothing to salt
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at  timestamptz
);

-- Browsers that are signed in. A session is opened by a key and ends with it.
CREATE TABLE sessions (
    hash        bytea PRIMARY KEY,              -- SHA-256 of a 256-bit random token, which only the browser has
    key_id      text NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    owner_id    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL
);
CREATE INDEX sessions_by_key ON sessions (key_id, created_at);

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
    open_event_count  integer NOT NULL DEFAULT 0 CHECK (open_event_count >= 0),
    summary_id     text,                                           -- the newest summary
    summarized_until  timestamptz NOT NULL DEFAULT '-infinity',       -- time of the newest message it covers
    -- The breaker (RES-3): times of the latest model failures in a row, at most five, and until when no model is asked.
    model_failed_at      timestamptz[] NOT NULL DEFAULT '{}',
    breaker_open_until  timestamptz,
    -- How often people have spoken. Whatever was set up for a silence holds only while this stays the same: it is compared
    -- under the row's lock, because a statement that waited for that lock may not see every other row there is by then.
    user_message_count          bigint NOT NULL DEFAULT 0,
    consecutive_followups       integer NOT NULL DEFAULT 0,                    -- said in a row since somebody spoke
    last_followup_at  timestamptz,                                   -- when the last one was said
    autonomy_enabled        boolean,                                       -- unset: on in direct chats, off in groups
    muted_until     timestamptz,
    reflected_until    timestamptz NOT NULL DEFAULT '-infinity',      -- up to here the model has been asked what to remember
    -- When the agent last spoke. What people say is dated by their platform's clock, if it has one: but never, because
    -- clocks differ, to before what they have just been answered.
    replied_at      timestamptz NOT NULL DEFAULT '-infinity',
    last_platform_time         timestamptz NOT NULL DEFAULT '-infinity',      -- the latest date of what people said, by their platform
    last_platform_created_at       timestamptz NOT NULL DEFAULT '-infinity',      -- and where that stands: what is said later stands after it
    unreachable_since  timestamptz,                                   -- since when nothing can be sent there; unset: it can
    handle          text                                           -- what the agent is called there, beside its own handles
);
CREATE INDEX conversations_recent ON conversations (owner_id, last_at DESC, id DESC);
-- Which groups have something new to embed is asked of this index alone.
CREATE INDEX conversations_groups ON conversations (id, last_at) WHERE kind = 'group';

-- The words of a message: stemmed as English, which leaves other languages' words as they are, and without stop words.
-- Postgres' parser tries every run of punctuation as a path or an address, in quadratic time: so there is none left.
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
    content            text NOT NULL,           -- the words; of block content, its text blocks
    blocks             jsonb,                   -- set when the content was blocks
    reply_to_id        text,
    client_message_id  text,
    event_id           text,                    -- of a reply: the event it answers
    sources            jsonb NOT NULL DEFAULT '[]',
    metadata           jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL,
    summary_id         text,                    -- the summary that stands for it before the model; the words stay
    -- What `is_synthetic` says of the metadata, for statements that leave such messages out: it can't say anything else.
    synthetic          boolean NOT NULL GENERATED ALWAYS AS (coalesce(metadata -> 'synthetic' = 'true'::jsonb, false)) STORED,
    -- What a channel knows of it beside its words (CTX-1).
    mentions           text[] NOT NULL DEFAULT '{}',    -- whom it addresses beside the names in its words
    thread_id          text,                    -- the forum topic, as the platform names it
    is_bot             boolean NOT NULL DEFAULT false,  -- said by a program: by the agent or by another bot
    platform_id        text,                    -- what the platform calls it
    context_snapshot   jsonb,                   -- of a reply: what it replies to, if that isn't stored here
    payload            jsonb,                   -- the platform's own update, for whoever looks into it; never loaded or shown
    -- Rises whenever a message of the conversation is stored or changed, in the order of the commits, because it is given
    -- under the conversation's lock: whoever has seen everything up to a number misses nothing by asking for what is after it.
    seq                bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX messages_order ON messages (conversation_id, created_at, id);
CREATE UNIQUE INDEX messages_client_id ON messages (conversation_id, client_message_id)
    WHERE client_message_id IS NOT NULL;
-- A visible reply is unique per event: a turn that runs twice after a crash can't show two.
CREATE UNIQUE INDEX messages_one_reply ON messages (conversation_id, event_id) WHERE event_id IS NOT NULL;
CREATE UNIQUE INDEX messages_platform_id ON messages (conversation_id, platform_id) WHERE platform_id IS NOT NULL;
-- The latest replies to a message, and the latest messages of a topic: a short walk each, however many there are.
CREATE INDEX messages_replies ON messages (conversation_id, reply_to_id, created_at, id) WHERE reply_to_id IS NOT NULL;
CREATE INDEX messages_topic ON messages (conversation_id, thread_id, created_at, id) WHERE thread_id IS NOT NULL;
CREATE INDEX messages_by_seq ON messages (conversation_id, seq) WHERE NOT synthetic;
-- Which messages of a chat have a word. Without the pending list, which every search would have to walk.
CREATE INDEX messages_words ON messages USING gin ((ARRAY[conversation_id]), message_words(content))
    WITH (fastupdate = off) WHERE role <> 'system-summary' AND NOT synthetic;

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

-- Something to process, by one turn. An event has the id of the message that it is about, or of the timer it was.
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
    user_message_count            bigint NOT NULL DEFAULT 0,  -- the conversation's when it was made
    trigger_type      text,                       -- of a follow-up; unset when somebody said something
    trigger_reason    text,
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX events_one_running ON events (conversation_id) WHERE state = 'running';
-- People come first: follow-ups stand in a queue of their own.
CREATE INDEX events_queue ON events (seq) WHERE state = 'queued' AND trigger_type IS NULL;
CREATE INDEX events_conversation_queue ON events (conversation_id, seq) WHERE state = 'queued' AND trigger_type IS NULL;
CREATE INDEX events_followup_queue ON events (seq) WHERE state = 'queued' AND trigger_type IS NOT NULL;
CREATE INDEX events_followups ON events (conversation_id, seq) WHERE trigger_type IS NOT NULL AND state <> 'done';
CREATE INDEX events_by_worker ON events (worker_id) WHERE state = 'running';

CREATE TABLE outbox (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,
    seq              bigint NOT NULL GENERATED ALWAYS AS IDENTITY,   -- order within a conversation (given under its lock)
    owner_id         text NOT NULL,
    channel          text NOT NULL,
    message_id       text NOT NULL,
    -- What may have arrived is unconfirmed until it is looked for: then it goes on, or nobody can tell and it stays unknown.
    state            text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'sending', 'unconfirmed', 'sent', 'failed', 'unknown')),
    worker_id        text,
    attempts         integer NOT NULL DEFAULT 0,
    due_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    platform_ids     jsonb NOT NULL DEFAULT '[]',
    error            text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at          timestamptz,
    user_message_count           bigint,                    -- of a follow-up: sent only while nobody has spoken since
    notice           jsonb,                     -- what the channel itself says: then there is no message of that id
    PRIMARY KEY (conversation_id, id),
    UNIQUE (conversation_id, message_id)
);
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending', 'unconfirmed');
CREATE INDEX outbox_followups ON outbox (conversation_id) WHERE state = 'queued' AND user_message_count IS NOT NULL;
-- Which message a part belongs to. By its conversation too, as an array because that is what GIN takes: platforms number
-- the messages of every chat alike.
CREATE INDEX outbox_parts ON outbox USING gin ((ARRAY[conversation_id]), platform_ids jsonb_path_ops)
    WITH (fastupdate = off) WHERE jsonb_array_length(platform_ids) > 1;

-- Notes that answers may cite.
CREATE TABLE notes (
    owner_id    text NOT NULL,
    id          text NOT NULL CHECK (id ~ '^[A-Za-z0-9_-]{1,80}$'),
    title       text NOT NULL,
    text        text NOT NULL,
    hash        bytea NOT NULL,                 -- SHA-256 of the text: the same again is known without comparing it
    file_name   text,
    embedder    text NOT NULL,                  -- whose vectors its chunks have
    chunks      integer NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, id)
);
CREATE INDEX notes_recent ON notes (owner_id, updated_at DESC, id DESC);
CREATE INDEX notes_by_hash ON notes (owner_id, hash);
-- By a hash: a path may be longer than an index takes.
CREATE INDEX notes_by_file ON notes (owner_id, md5(file_name));
CREATE INDEX notes_by_embedder ON notes (embedder, owner_id, id);

-- A passage of a note: what an answer is given to read.
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
-- Without the pending list, which every search would have to walk.
CREATE INDEX chunks_words ON chunks USING gin (words) WITH (fastupdate = off);

-- What a passage says, sentence by sentence: what is found by meaning. Narrow rows, because an owner with few of them is
-- searched by looking at each. A vector has as many dimensions as its embedder gives.
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
-- The bundled embedder's dimensions. For others the same index is made when the first note is added.
CREATE INDEX sentence_vectors_near_384 ON sentence_vectors USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
    WHERE vector_dims(embedding) = 384;

-- How much an owner has in the index of an embedder, so that a turn without notes costs nothing; and its threshold.
CREATE TABLE note_counts (
    owner_id        text NOT NULL,
    embedder        text NOT NULL,
    chunks          integer NOT NULL CHECK (chunks >= 0),
    min_similarity  real,                       -- measured by `rapport calibrate`; otherwise the embedder's own
    PRIMARY KEY (owner_id, embedder)
);

-- What was said in groups, by meaning. Made behind the turns; whatever is missing here is found again by `embedding_progress`.
CREATE TABLE message_vectors (
    conversation_id  text NOT NULL,
    message_id       text NOT NULL,
    embedder         text NOT NULL,
    owner_id         text NOT NULL,
    created_at       timestamptz NOT NULL,      -- the message's: what is too new is left out without looking there
    embedding        halfvec NOT NULL,
    PRIMARY KEY (conversation_id, message_id, embedder),
    FOREIGN KEY (conversation_id, message_id) REFERENCES messages (conversation_id, id) ON DELETE CASCADE
);
-- As for sentence_vectors; a group with few vectors is searched by its key instead.
CREATE INDEX message_vectors_near_384 ON message_vectors USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
    WHERE vector_dims(embedding) = 384;

-- How far a group is embedded. An import into the past moves `embedded_until` back to where it begins.
CREATE TABLE embedding_progress (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    embedder         text NOT NULL,
    owner_id         text NOT NULL,
    embedded_until      timestamptz NOT NULL DEFAULT '-infinity',  -- what was said up to here has its vector
    vectors          integer NOT NULL DEFAULT 0,                -- about how many there are
    imports          integer NOT NULL DEFAULT 0,                -- how often something was imported: who embeds compares it
    PRIMARY KEY (conversation_id, embedder)
);

-- Follow-ups (AUTO). A timer waits, fires once, and keeps what became of it. Those that a person's message cancels are gone.
CREATE TABLE timers (
    conversation_id  text NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    id               text NOT NULL,             -- also that of the event it becomes
    timer_id         text NOT NULL,             -- its name: setting the same name again moves it
    owner_id         text NOT NULL,
    trigger_type     text NOT NULL CHECK (trigger_type IN ('check_in', 'question_unanswered', 'task_incomplete', 'waiting_for_decision')),
    reason           text,                      -- for people who look into it; no model ever reads it
    topic           text NOT NULL DEFAULT '',  -- what it is about: nobody is asked twice about the same
    origin           text NOT NULL CHECK (origin IN ('planner', 'user')),
    user_message_count           bigint NOT NULL,           -- the conversation's when it was set
    state            text NOT NULL DEFAULT 'pending' CHECK (state IN (
                         'pending', 'fired', 'delivered', 'suppressed', 'superseded', 'leaked', 'failed', 'expired')),
    gate             text,                      -- which gate held it back
    regenerated      boolean NOT NULL DEFAULT false,
    message_id       text,                      -- what was said
    due_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    fired_at         timestamptz,
    ended_at         timestamptz,
    -- The ids of the person's messages that it comes from and, once it was said, of those it spoke of: what stands in one of
    -- them is brought up once.
    sources          text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (conversation_id, id)
);
CREATE UNIQUE INDEX timers_pending ON timers (conversation_id, timer_id) WHERE state = 'pending';
CREATE INDEX timers_due ON timers (due_at) WHERE state = 'pending';
CREATE INDEX timers_past ON timers (owner_id, conversation_id, fired_at) WHERE fired_at IS NOT NULL;

-- When an owner does not want to hear from an agent.
CREATE TABLE preferences (
    owner_id    text PRIMARY KEY,
    time_zone   text NOT NULL DEFAULT 'UTC',
    quiet_from  time,
    quiet_to    time,                           -- before quiet_from: over midnight
    CHECK ((quiet_from IS NULL) = (quiet_to IS NULL))
);

-- What an agent remembers about an owner. At most a thousand each, so looking at every one is quicker than an index.
CREATE TABLE memories (
    owner_id         text NOT NULL,
    agent_id         text NOT NULL,
    id               text NOT NULL,
    key              text,
    content          text NOT NULL,
    origin           text NOT NULL CHECK (origin IN ('user', 'agent', 'extracted')),
    conversation_id  text,                      -- where it comes from, also when that is erased since
    message_id       text,
    embedder         text NOT NULL,
    embedding        halfvec NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, agent_id, id)
);
CREATE UNIQUE INDEX memories_key ON memories (owner_id, agent_id, key) WHERE key IS NOT NULL;
CREATE INDEX memories_by_embedder ON memories (embedder, owner_id, id);

-- Telegram. An update is stored under its own number before Telegram hears that it has arrived; when it has been worked
-- through its words go, and the number stays for some days: the same again is known. Of one that can't be, the words stay too.
CREATE TABLE telegram_updates (
    bot_id       bigint NOT NULL,
    update_id    bigint NOT NULL,
    chat_id      bigint NOT NULL,
    payload      text,                          -- JSON as it came: jsonb would refuse some of what people can write
    attempts     integer NOT NULL DEFAULT 0,    -- that failed
    error        text,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at      timestamptz,
    message_id   bigint,                        -- the number of what somebody has said: it is none of the bot's own
    PRIMARY KEY (bot_id, update_id)
);
CREATE INDEX telegram_updates_waiting ON telegram_updates (bot_id, update_id) WHERE done_at IS NULL;
CREATE INDEX telegram_updates_done ON telegram_updates (bot_id, done_at) WHERE done_at IS NOT NULL;

-- Which conversation a chat is.
CREATE TABLE telegram_chats (
    bot_id           bigint NOT NULL,
    chat_id          bigint NOT NULL,
    conversation_id  text NOT NULL UNIQUE REFERENCES conversations (id) ON DELETE CASCADE,
    owner_id         text NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
);

-- A group that becomes a supergroup is another chat to Telegram; the settings may still name the old one. Apart from the
-- conversation: when that is erased the chat begins another, let in as before.
CREATE TABLE telegram_chat_migrations (
    bot_id    bigint NOT NULL,
    chat_id   bigint NOT NULL,
    first_id  bigint NOT NULL,                  -- the id that it had as a group
    PRIMARY KEY (bot_id, chat_id)
);

-- Who is meant by an @name: the one who was last seen with it.
CREATE TABLE telegram_usernames (
    username  text PRIMARY KEY,                 -- in small letters
    user_id   bigint NOT NULL
);

-- Who wanted to talk and was not let in, lately: for whoever sets up who may.
CREATE TABLE telegram_rejected_chats (
    bot_id      bigint NOT NULL,
    chat_id     bigint NOT NULL,
    kind        text NOT NULL,
    name        text NOT NULL,
    times       integer NOT NULL DEFAULT 1,
    last_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id  bigint,                         -- the number of the latest that was said there
    PRIMARY KEY (bot_id, chat_id)
);
