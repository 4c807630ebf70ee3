ALTER TABLE telegram_updates DROP COLUMN message_id;
ALTER TABLE telegram_refused DROP COLUMN message_id;
-- Made anew, so that the column stands where it stood.
CREATE TEMPORARY TABLE kept ON COMMIT DROP AS
    SELECT c.*, coalesce(m.first_id, c.chat_id) FROM telegram_chats c LEFT JOIN telegram_moves m USING (bot_id, chat_id);
DROP TABLE telegram_chats, telegram_moves;
CREATE TABLE telegram_chats (
    bot_id           bigint NOT NULL,
    chat_id          bigint NOT NULL,
    conversation_id  text NOT NULL UNIQUE REFERENCES conversations (id) ON DELETE CASCADE,
    owner_id         text NOT NULL,
    admitted_as      bigint NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
);
INSERT INTO telegram_chats SELECT * FROM kept;
