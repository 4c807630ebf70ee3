-- Notes that answers may cite, summaries that stand in for old messages before the model, and a breaker per conversation.
CREATE EXTENSION IF NOT EXISTS vector;

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
CREATE TABLE points (
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
CREATE INDEX points_near_384 ON points USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops)
    WHERE vector_dims(embedding) = 384;

-- How much an owner has in the index of an embedder, so that a turn without notes costs nothing; and its threshold.
CREATE TABLE shelves (
    owner_id        text NOT NULL,
    embedder        text NOT NULL,
    chunks          integer NOT NULL CHECK (chunks >= 0),
    min_similarity  real,                       -- measured by `rapport calibrate`; otherwise the embedder's own
    PRIMARY KEY (owner_id, embedder)
);

ALTER TABLE messages ADD COLUMN summary_id text;   -- the summary that stands for it before the model; the words stay

ALTER TABLE conversations
    ADD COLUMN summary_id     text,                                           -- the newest summary
    ADD COLUMN summarised_to  timestamptz NOT NULL DEFAULT '-infinity',       -- time of the newest message it covers
    -- The breaker (RES-3): times of the latest model failures in a row, at most five, and until when no model is asked.
    ADD COLUMN failed_at      timestamptz[] NOT NULL DEFAULT '{}',
    ADD COLUMN resting_until  timestamptz;
