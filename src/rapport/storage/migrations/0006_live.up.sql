-- What is new in a conversation, in the order in which it became so: whoever watches asks for what comes after a number.

ALTER TABLE messages ADD COLUMN seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY;
CREATE INDEX messages_news ON messages (conversation_id, seq) WHERE NOT synthetic;
