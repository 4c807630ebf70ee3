-- Browsers that are signed in. A session is opened by a key and ends with it.

CREATE TABLE sessions (
    hash        bytea PRIMARY KEY,
    key_id      text NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    owner_id    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL
);
CREATE INDEX sessions_by_key ON sessions (key_id, created_at);
