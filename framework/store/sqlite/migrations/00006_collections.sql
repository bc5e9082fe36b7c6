-- +goose Up

-- Deliveries that wait for the hours of their sink, and members of collections. The group and the number of a
-- collection stay when it is dead. SQLite cannot change a CHECK.
CREATE TABLE {{.Table "parked_new"}} (
    sink            TEXT    NOT NULL,
    "offset"        INTEGER NOT NULL,
    slot            INTEGER NOT NULL,
    id              TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    key             TEXT    NOT NULL,
    occurred_on     TEXT    NOT NULL,
    deliver_at      TEXT,
    metadata        TEXT    NOT NULL,
    payload         BLOB    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('retrying', 'scheduled', 'blocked', 'dead', 'settling', 'quiet', 'collecting')),
    attempt         INTEGER NOT NULL,
    due_at          TEXT,
    last_error      TEXT    NOT NULL DEFAULT '',
    receipt         TEXT    NOT NULL DEFAULT '', -- if state is settling
    hook_error      TEXT    NOT NULL DEFAULT '',
    hook_failures   INTEGER NOT NULL DEFAULT 0,
    first_parked_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    collect_group   TEXT    NOT NULL DEFAULT '',
    collection      TEXT    NOT NULL DEFAULT '', -- its number, once it is closed
    PRIMARY KEY (sink, "offset", id)
);

INSERT INTO {{.Table "parked_new"}} (sink, "offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload, state, attempt, due_at, last_error, receipt, hook_error, hook_failures, first_parked_at, updated_at)
    SELECT sink, "offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload, state, attempt, due_at, last_error, receipt, hook_error, hook_failures, first_parked_at, updated_at FROM {{.Table "parked"}};
DROP TABLE {{.Table "parked"}};
ALTER TABLE {{.Table "parked_new"}} RENAME TO {{.Table "parked"}};

CREATE INDEX {{.Table "parked_due"}} ON {{.Table "parked"}} (sink, due_at, "offset") WHERE due_at IS NOT NULL;
CREATE INDEX {{.Table "parked_key"}} ON {{.Table "parked"}} (sink, key, "offset")
    WHERE key <> '' AND state IN ('retrying', 'blocked', 'dead', 'quiet');
CREATE INDEX {{.Table "parked_state"}} ON {{.Table "parked"}} (sink, state, first_parked_at);
CREATE INDEX {{.Table "parked_hook"}} ON {{.Table "parked"}} (sink, state) WHERE hook_failures > 0;
CREATE INDEX {{.Table "parked_id"}} ON {{.Table "parked"}} (id);
CREATE INDEX {{.Table "parked_scheduled_key"}} ON {{.Table "parked"}} (key) WHERE state = 'scheduled' AND key <> '';

CREATE INDEX {{.Table "parked_group"}} ON {{.Table "parked"}} (sink, collect_group, collection, "offset", id) WHERE collect_group <> '';

-- The groups with members: how many are in no closed collection, and when these are due.
CREATE TABLE {{.Table "collections"}} (
    sink          TEXT    NOT NULL,
    collect_group TEXT    NOT NULL,
    slot          INTEGER NOT NULL,
    members       INTEGER NOT NULL,
    due_at        TEXT    NOT NULL,
    due_by        TEXT    NOT NULL, -- the latest due_at
    closed        TEXT    NOT NULL DEFAULT '', -- the number of the collection that is being delivered
    PRIMARY KEY (sink, collect_group)
);

CREATE INDEX {{.Table "collections_due"}} ON {{.Table "collections"}} (sink, closed, due_at);
