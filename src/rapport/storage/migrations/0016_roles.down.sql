-- Older versions know one operator, the user `local`: keys of others lose the role, keys of `local` all have it.

ALTER TABLE api_keys DROP COLUMN role;
