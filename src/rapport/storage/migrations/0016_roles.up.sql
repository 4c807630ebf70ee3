-- Roles of keys. Until now the keys of the user `local` were those of the operator.

ALTER TABLE api_keys ADD COLUMN role text NOT NULL DEFAULT 'user' CHECK (role IN ('user', 'operator'));
UPDATE api_keys SET role = 'operator' WHERE owner_id = 'local';
ALTER TABLE api_keys ALTER COLUMN role DROP DEFAULT;

-- `*` now stands for everyone, so nobody can be that user.
UPDATE api_keys SET revoked_at = clock_timestamp() WHERE owner_id = '*' AND revoked_at IS NULL;
