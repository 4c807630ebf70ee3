ALTER TABLE timers DROP COLUMN sources;
