CREATE SEQUENCE agent_stamps;

CREATE TABLE agents (
    owner_id    text NOT NULL,
    id          text NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    version     integer NOT NULL CHECK (version >= 1),
    stamp       bigint NOT NULL DEFAULT nextval('agent_stamps'),
    document    jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, id)
);

CREATE TABLE agent_versions (
    owner_id    text NOT NULL,
    id          text NOT NULL,
    version     integer NOT NULL,
    document    jsonb NOT NULL,
    author_id   text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner_id, id, version),
    FOREIGN KEY (owner_id, id) REFERENCES agents (owner_id, id) ON DELETE CASCADE
);

ALTER TABLE timers ADD COLUMN prompt_variant text;
