-- +goose Up

-- The last failed attempts of a parked delivery, the newest first, as JSON.
ALTER TABLE {{.Table "parked"}} ADD COLUMN attempts text NOT NULL DEFAULT '';
