-- +goose Up
-- The types that a sink takes, as JSON: now, once no lane of it is leased, and, in lane 0, up to
-- earlier places. Null before its first forwarder.
ALTER TABLE {{.Table "cursors"}} ADD COLUMN types LONGTEXT NULL, ADD COLUMN types_wanted LONGTEXT NULL, ADD COLUMN types_before LONGTEXT NULL;
