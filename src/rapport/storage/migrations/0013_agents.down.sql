ALTER TABLE timers DROP COLUMN prompt_variant;
DROP TABLE agent_versions;
DROP TABLE agents;
DROP SEQUENCE agent_stamps;
