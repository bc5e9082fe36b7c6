-- +goose Up

-- The keys of private values. The rows without a subject are roots, which wrap the keys of subjects.
CREATE TABLE {{.Table "keys"}} (
    id         TEXT PRIMARY KEY,
    subject    TEXT NOT NULL, -- a keyed hash of the person
    wrapped    TEXT NOT NULL, -- empty once it is erased
    under      TEXT NOT NULL, -- what wraps it
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    erased_at  TEXT
);

CREATE INDEX {{.Table "keys_subject"}} ON {{.Table "keys"}} (subject, created_at, id);
