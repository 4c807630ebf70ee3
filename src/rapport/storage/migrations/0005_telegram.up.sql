-- Telegram: what it was given, by its own numbers; whose chats are which conversations; who may be tagged, and who was refused.
-- For every channel: when the agent last spoke, what it is called there, and whether anybody can be reached at all.

ALTER TABLE conversations
    ADD COLUMN replied_at      timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN said_to         timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN placed_at       timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN unreachable_at  timestamptz,
    ADD COLUMN handle          text;

ALTER TABLE outbox
    ADD COLUMN notice jsonb,
    DROP CONSTRAINT outbox_state_check,
    ADD CONSTRAINT outbox_state_check CHECK (state IN ('queued', 'sending', 'doubtful', 'sent', 'failed', 'unknown'));
DROP INDEX outbox_waiting;
CREATE INDEX outbox_waiting ON outbox (conversation_id, seq) WHERE state IN ('queued', 'sending', 'doubtful');

CREATE TABLE telegram_updates (
    bot_id       bigint NOT NULL,
    update_id    bigint NOT NULL,
    chat_id      bigint NOT NULL,
    payload      text,
    attempts     integer NOT NULL DEFAULT 0,
    error        text,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at      timestamptz,
    PRIMARY KEY (bot_id, update_id)
);
CREATE INDEX telegram_updates_waiting ON telegram_updates (bot_id, update_id) WHERE done_at IS NULL;
CREATE INDEX telegram_updates_done ON telegram_updates (bot_id, done_at) WHERE done_at IS NOT NULL;

CREATE TABLE telegram_chats (
    bot_id           bigint NOT NULL,
    chat_id          bigint NOT NULL,
    conversation_id  text NOT NULL UNIQUE REFERENCES conversations (id) ON DELETE CASCADE,
    owner_id         text NOT NULL,
    admitted_as      bigint NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
);

CREATE TABLE telegram_people (
    username  text PRIMARY KEY,
    user_id   bigint NOT NULL
);

CREATE TABLE telegram_refused (
    bot_id   bigint NOT NULL,
    chat_id  bigint NOT NULL,
    kind     text NOT NULL,
    name     text NOT NULL,
    times    integer NOT NULL DEFAULT 1,
    last_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (bot_id, chat_id)
);
