-- By which id a chat was let in outlives its conversation. Which numbers others have in a chat is known as soon as Telegram
-- has told, so that none of them is taken for something that the bot may have sent.

CREATE TABLE telegram_moves (
    bot_id    bigint NOT NULL,
    chat_id   bigint NOT NULL,
    first_id  bigint NOT NULL,
    PRIMARY KEY (bot_id, chat_id)
);
INSERT INTO telegram_moves SELECT bot_id, chat_id, admitted_as FROM telegram_chats WHERE admitted_as <> chat_id;
ALTER TABLE telegram_updates ADD COLUMN message_id bigint;
ALTER TABLE telegram_refused ADD COLUMN message_id bigint;
ALTER TABLE telegram_chats DROP COLUMN admitted_as;
