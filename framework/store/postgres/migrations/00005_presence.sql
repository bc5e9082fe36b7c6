-- +goose Up
-- The session by which the server knows that the forwarder is alive: the server's life, and a key of an
-- advisory lock. Empty without one; it begins with - if it was withdrawn.
ALTER TABLE {{.Table "forwarders"}} ADD COLUMN presence text NOT NULL DEFAULT '';
