DROP INDEX messages_words;
DROP FUNCTION message_words(text);
