-- Searching a chat by words: see the comments in schema.sql.
CREATE FUNCTION message_words(content text) RETURNS tsvector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN to_tsvector('english'::regconfig,
                   translate(left(content, 4000), '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', repeat(' ', 32)));

CREATE INDEX messages_words ON messages USING gin ((ARRAY[conversation_id]), message_words(content))
    WITH (fastupdate = off) WHERE role <> 'system-summary' AND NOT synthetic;
