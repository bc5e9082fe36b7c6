-- +goose Up

-- The last failed attempts of a parked delivery, the newest first, as JSON.
ALTER TABLE {{.Table "parked"}} ADD COLUMN attempts TEXT NOT NULL DEFAULT '';
