-- +goose Up
-- The types that a sink takes, as JSON: now, once no lane of it is leased, and, in lane 0, up to
-- earlier places. Null before its first forwarder.
ALTER TABLE {{.Table "cursors"}} ADD COLUMN types text, ADD COLUMN types_wanted text, ADD COLUMN types_before text;
