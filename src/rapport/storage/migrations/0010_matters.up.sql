-- A matter is known by the messages it comes from, not by its words alone.
ALTER TABLE timers ADD COLUMN sources text[] NOT NULL DEFAULT '{}';
