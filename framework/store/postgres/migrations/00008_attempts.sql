-- +goose Up

-- A statement that waits for the table's lock, as while a dump reads it, holds up all that come after it: Migrate gives
-- up soon, and tries again.
SET LOCAL lock_timeout = '2s';

-- The last failed attempts of a parked delivery, the newest first, as JSON.
ALTER TABLE {{.Table "parked"}} ADD COLUMN attempts text NOT NULL DEFAULT '';
