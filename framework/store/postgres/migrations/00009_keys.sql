-- +goose Up

-- The keys of private values. The rows without a subject are roots, which wrap the keys of subjects.
CREATE TABLE {{.Table "keys"}} (
    id         text        PRIMARY KEY,
    subject    text        NOT NULL, -- a keyed hash of the person
    wrapped    text        NOT NULL, -- empty once it is erased
    under      text        NOT NULL, -- what wraps it
    created_at timestamptz NOT NULL DEFAULT now(),
    erased_at  timestamptz
);

CREATE INDEX {{.Name "keys_subject"}} ON {{.Table "keys"}} (subject, created_at, id);
