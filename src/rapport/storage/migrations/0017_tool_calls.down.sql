-- Questions that wait for a decision are forgotten: their calls are never made.

UPDATE conversations c SET open_event_count = open_event_count - waiting.number
FROM (SELECT conversation_id, count(*) AS number FROM events WHERE resumes IS NOT NULL AND state <> 'done' GROUP BY 1) waiting
WHERE c.id = waiting.conversation_id;
DELETE FROM events WHERE resumes IS NOT NULL;
ALTER TABLE events DROP COLUMN resumes;
DROP TABLE tool_calls;
