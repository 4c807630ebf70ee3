DROP TABLE outbox;
DROP TABLE events;
DROP TABLE workers;
DROP TABLE messages;
DROP TABLE conversations;
DROP TABLE api_keys;
